/*
 * Why mail waits, and what is known of a destination: questions of operators that need the
 * scheduler. docs/api.md describes the answers; the gates that need no more than the spool are in
 * gate.c.
 *
 * The work of an answer is bounded by what one message has in memory and by a page of its
 * recipients. Nothing here changes anything.
 */
#include "queue.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "gate.h"
#include "listing.h"
#include "mem.h"
#include "param.h"

static void set(json_t *object, const char *name, json_t *value)
{
    CHECK(json_object_set_new(object, name, value) == 0);
}

static void append(json_t *array, json_t *value)
{
    CHECK(json_array_append_new(array, value) == 0);
}

static json_t *seconds(struct wall t)
{
    return json_real((double)t.us / (double)US_PER_S);
}

/* On the wall clock; us 0 stays 0. */
static struct wall wall_of(struct mono t)
{
    return (struct wall){t.us == 0 ? 0 : us_add(clock_wall().us - clock_mono().us, t.us)};
}

/* ---- one destination, as the gates see it --------------------------------------------------- */

struct place {
    uint32_t transport;
    const char *transport_name;
    struct slice dest;   /* the scheduler's name of it */
    const char *nexthop; /* as written */
    struct buf name;     /* "smtp/example.com", what commands take */
    bool in_memory;      /* then `info` is set */
    struct sched_dest_info info;
    struct sched_transport_info transport_info;
};

/* `dest` and the info last until the next fact. */
static void place_init(struct place *p, struct queue *q, uint32_t transport, struct slice dest)
{
    const struct site *site = pass_site_find(q, transport, dest);

    *p = (struct place){.transport = transport,
                        .transport_name = q->transports[transport],
                        .dest = dest,
                        .nexthop = site != NULL ? site->nexthop : NULL};
    buf_init(&p->name, 4096);
    (void)buf_addf(&p->name, "%s/", p->transport_name); /* all of it fits */
    (void)buf_add(&p->name, site != NULL ? slice_string(site->nexthop) : dest);
    p->in_memory = sched_dest_get(q->sched, transport, dest, &p->info);
    sched_transport_get(q->sched, transport, &p->transport_info);
}

static void place_fini(struct place *p)
{
    buf_fini(&p->name);
}

/* The place where a value of the destination is to be changed: "NAME (FILE:LINE)", or "NAME in the
 * clause PATTERN (FILE:LINE)". */
static void add_origin(struct buf *out, const struct queue *q, struct place *p, const char *value)
{
    struct slice nexthop = p->nexthop != NULL ? slice_string(p->nexthop) : p->dest;
    struct policy_origin origins[PARAM_COUNT_MAX], *origin;
    struct policy policy;

    /* False: the configuration has lost the transport; the defaults are told. */
    (void)policy_explain(q->conf, slice_string(p->transport_name), nexthop, &policy, origins);
    origin = &origins[param_find_in_clause(slice_string(value)) - param_table];
    if (origin->file == NULL) {
        (void)buf_addf(out, "%s_%s", p->transport_name, value); /* fits, as do the others */
    } else if (slice_ends_nocase(slice_string(origin->name), slice_string(value))) {
        (void)buf_addf(out, "%s (%s:%u)", origin->name, origin->file, origin->line);
    } else {
        (void)buf_addf(out, "%s in the clause %s (%s:%u)", value, origin->name, origin->file,
                       origin->line);
    }
}

/* Is `narrow`, a word of ZMailer's, what makes the limit, and not `wide`, Postfix's parameter? */
static const char *limit_name(int64_t limit, int64_t narrow, const char *narrow_name, int64_t wide,
                              const char *wide_name)
{
    return narrow > 0 && narrow == limit && wide != limit ? narrow_name : wide_name;
}

static const char *process_limit_name(const struct queue *q, const struct place *p)
{
    const struct conf_transport *t = conf_transport_find(q->conf, slice_string(p->transport_name));

    return t == NULL ? "process_limit"
                     : limit_name(p->transport_info.process_limit, t->policy.maxchannel,
                                  "maxchannel", t->policy.process_limit, "process_limit");
}

static const char *window_limit_name(const struct queue *q, const struct place *p)
{
    struct policy policy;

    policy_for(q->conf, slice_string(p->transport_name),
               p->nexthop != NULL ? slice_string(p->nexthop) : p->dest, &policy);
    return limit_name(p->info.window_max, policy.maxthr, "maxthr",
                      policy.destination_concurrency_limit, "destination_concurrency_limit");
}

/* ---- gates of the scheduler ----------------------------------------------------------------- */

static json_t *gate_begin(const char *name, const struct sched_gate *g)
{
    json_t *gate = gate_new(name, g->closed);

    gate_times(gate, wall_of(g->since), wall_of(g->until));
    return gate;
}

static struct gate_clock until_text(const struct sched_gate *g)
{
    return gate_clock(wall_of(g->until), clock_wall());
}

/* "waits" and "ok" are said by whoever prints the gate; here is what it is about. */
static void say_origin(json_t *gate, const struct queue *q, struct place *p, const char *before,
                       const char *value, const char *behind)
{
    struct buf origin;

    buf_init(&origin, 16384);
    add_origin(&origin, q, p, value);
    gate_say(gate, "advice", "%s%s%s", before, buf_cstr(&origin), behind);
    buf_fini(&origin);
}

static json_t *transport_dead(struct place *p, const struct sched_gate *g)
{
    json_t *gate = gate_begin("transport_dead", g);

    if (g->closed) {
        gate_say(gate, "text", "no process delivers for %s: %.*s", p->transport_name,
                 SLICE_ARGS(p->transport_info.reason));
        gate_say(gate, "advice",
                 "It is tried again at %s by itself; the log says why it fails. To try at once: "
                 "sluice flush",
                 until_text(g).text);
    } else {
        gate_say(gate, "text", "%s is served", p->transport_name);
    }
    return gate;
}

static json_t *transport_limit(const struct queue *q, struct place *p, const struct sched_gate *g)
{
    json_t *gate = gate_begin("transport_limit", g);

    gate_count(gate, g->value, g->limit);
    if (g->limit > 0) {
        gate_say(gate, "text", "%s has %" PRIu64 " of %" PRIu64 " deliveries under way",
                 p->transport_name, g->value, g->limit);
    } else {
        gate_say(gate, "text", "%s has %" PRIu64 " deliveries under way, without a limit",
                 p->transport_name, g->value);
    }
    if (g->closed) {
        say_origin(gate, q, p,
                   "One of these must end first, whatever it is for. When the machine and the "
                   "line have room for more, raise ",
                   process_limit_name(q, p), "");
    }
    return gate;
}

static json_t *rate(const char *name, const struct queue *q, struct place *p,
                    const struct sched_gate *g, const char *whose, int64_t delay_us,
                    const char *value)
{
    json_t *gate = gate_begin(name, g);

    if (delay_us <= 0) {
        gate_say(gate, "text", "%s has no rate delay", whose);
        return gate;
    }
    gate_say(gate, "text", "%s gets one delivery every %s at most", whose,
             gate_interval(delay_us).text);
    if (g->closed) {
        say_origin(gate, q, p,
                   "Nothing has to be done: the pause ends by itself. How long it is: ", value, "");
    }
    return gate;
}

static json_t *dest_dead(struct place *p, const struct sched_gate *g)
{
    json_t *gate = gate_begin("destination_dead", g);

    if (g->closed) {
        gate_say(gate, "text", "%s can't be reached: %.*s", buf_cstr(&p->name),
                 SLICE_ARGS(p->info.reason));
        gate_say(gate, "advice",
                 "Nothing has to be done: it is tried again at %s by itself. When you know that "
                 "the site is well again: sluice flush %s",
                 until_text(g).text, buf_cstr(&p->name));
    } else {
        gate_say(gate, "text", "%s is not known to be dead", buf_cstr(&p->name));
    }
    return gate;
}

static json_t *window(const struct queue *q, struct place *p, const struct sched_gate *g)
{
    json_t *gate = gate_begin("window", g);

    gate_count(gate, g->value, g->limit);
    gate_say(gate, "text", "%s has %" PRIu64 " of %" PRIu64 " deliveries under way",
             buf_cstr(&p->name), g->value, g->limit);
    if (g->closed && p->info.state == SCHED_DEST_PROBING) {
        gate_say(gate, "text",
                 "%s was dead, and gets one delivery at a time until one ends well: %.*s",
                 buf_cstr(&p->name), SLICE_ARGS(p->info.reason));
        gate_say(gate, "advice",
                 "Nothing has to be done: when that one ends well the others follow, when it fails "
                 "they are tried later");
    } else if (g->closed && p->info.window_max > 0 && p->info.window >= p->info.window_max) {
        say_origin(gate, q, p,
                   "The site gets as many deliveries at once as it may. If you know that it can "
                   "take more, raise ",
                   window_limit_name(q, p), "");
    } else if (g->closed) {
        gate_say(gate, "advice",
                 "Nothing has to be done: the window follows what the site can take. How it came "
                 "to be %" PRIu64 ": sluice why %s",
                 g->limit, buf_cstr(&p->name));
    }
    return gate;
}

static json_t *failing(struct place *p, const struct sched_gate *g)
{
    json_t *gate = gate_begin("failing_share", g);

    gate_count(gate, g->value, g->limit);
    gate_say(gate, "text",
             "%s failed since a delivery to it ended well; such destinations together have %" PRIu64
             " of the %" PRIu64 " deliveries that they may have at once",
             buf_cstr(&p->name), g->value, g->limit);
    if (g->closed) {
        gate_say(gate, "advice",
                 "Nothing has to be done: it goes on when one of those ends. The others of the "
                 "transport's deliveries are kept for destinations that are well "
                 "(qmgr_failing_share)");
    }
    return gate;
}

static json_t *class_turn(struct place *p, const struct sched_gate *g)
{
    json_t *gate = gate_begin("class", g);

    gate_count(gate, g->value, g->limit);
    gate_say(gate, "text",
             "mail of other classes waits for %s, too; of each %" PRIu64
             " deliveries its class gets %" PRIu64,
             buf_cstr(&p->name), g->limit, g->value);
    gate_say(gate, "advice",
             "Nothing has to be done: the classes take turns. A larger weight= in the clause "
             "class/NAME gives it more of them");
    return gate;
}

static json_t *behind(struct place *p, const struct sched_gate *g)
{
    json_t *gate = gate_begin("behind", g);

    gate_count(gate, g->value, 0);
    if (g->closed) {
        gate_say(gate, "text", "%" PRIu64 " %s to %s first", g->value,
                 g->value == 1 ? "delivery of another message goes"
                               : "deliveries of other messages go",
                 buf_cstr(&p->name));
        gate_say(gate, "advice",
                 "Nothing has to be done: they go in their order. Small messages overtake large "
                 "ones by themselves");
    } else {
        gate_say(gate, "text", "no other mail for %s comes first", buf_cstr(&p->name));
    }
    return gate;
}

static json_t *unread(const struct sched_gate *g)
{
    json_t *gate = gate_begin("unread", g);

    gate_count(gate, g->value, g->limit);
    gate_say(gate, "text",
             "the message has %" PRIu64 " of the %" PRIu64
             " recipients in memory that it may have there; the others follow as these are dealt "
             "with",
             g->value, g->limit);
    gate_say(gate, "advice",
             "Nothing has to be done. What the first ones wait for is shown with them; "
             "default_recipient_limit and qmgr_message_recipient_limit bound the memory");
    return gate;
}

static json_t *delivering(const struct queue *q, struct place *p, const struct sched_gate *g,
                          struct sched_entry entry)
{
    json_t *gate = gate_begin("delivering", g);
    const struct flight *f = flight_find((struct active *)(uintptr_t)&q->active, entry.n);
    const struct agent *agent = f != NULL ? &q->agents[f->agent] : NULL;

    if (f == NULL || !f->sent) {
        gate_say(gate, "text", "it waits for the delivering process, which is being restarted");
        gate_say(gate, "advice",
                 "Nothing has to be done: after %s without it the mail is deferred. The log says "
                 "why it ended",
                 gate_interval(QUEUE_AGENT_WAIT_US).text);
        return gate;
    }
    gate_say(gate, "text", "%s is being tried now, by process %s %u", buf_cstr(&p->name),
             wire_role_name(agent->role), agent->index);
    gate_say(gate, "advice",
             "Nothing has to be done: the delivery ends by itself, at the latest when a timeout "
             "passes (sluice config show --for %s)",
             buf_cstr(&p->name));
    return gate;
}

static json_t *gate_json(const struct queue *q, struct place *p, const struct sched_wait *w,
                         const struct sched_gate *g)
{
    switch (g->type) {
    case SCHED_GATE_BUSY:
        return delivering(q, p, g, w->entry);
    case SCHED_GATE_UNREAD:
        return unread(g);
    case SCHED_GATE_TRANSPORT_DEAD:
        return transport_dead(p, g);
    case SCHED_GATE_TRANSPORT_LIMIT:
        return transport_limit(q, p, g);
    case SCHED_GATE_TRANSPORT_RATE:
        return rate("transport_rate", q, p, g, p->transport_name, p->transport_info.rate_delay_us,
                    "transport_rate_delay");
    case SCHED_GATE_DEST_DEAD:
        return dest_dead(p, g);
    case SCHED_GATE_DEST_RATE:
        return rate("destination_rate", q, p, g, buf_cstr(&p->name), p->info.rate_delay_us,
                    "destination_rate_delay");
    case SCHED_GATE_WINDOW:
        return window(q, p, g);
    case SCHED_GATE_FAILING:
        return failing(p, g);
    case SCHED_GATE_CLASS:
        return class_turn(p, g);
    case SCHED_GATE_BEHIND:
        return behind(p, g);
    }
    UNREACHABLE("no such gate");
}

/* ---- gates of the queue process ------------------------------------------------------------- */

/* Nothing starts while results can't be stored. */
static void add_storage_gate(const struct queue *q, json_t *gates)
{
    json_t *gate;

    if (STAILQ_EMPTY(&q->redo)) {
        return;
    }
    gate = gate_new("storage", true);
    gate_say(gate, "text",
             "what became of earlier deliveries can't be stored (%s): nothing new is started",
             spool_error(q->spool));
    gate_say(gate, "advice",
             "Make the storage work: space on the disk, the file system, the log has the error. "
             "Nothing has to be restarted then");
    append(gates, gate);
}

/* Room for messages in memory, for one that is due. */
static void add_room_gate(const struct queue *q, json_t *gates)
{
    bool room = sched_has_room(q->sched);
    json_t *gate = gate_new("active_queue", !room);

    gate_count(gate, sched_totals(q->sched).messages, (uint64_t)q->conf->qmgr_message_active_limit);
    gate_say(gate, "text", "%" PRIu32 " of %" PRId64 " messages are in memory",
             sched_totals(q->sched).messages, q->conf->qmgr_message_active_limit);
    if (!room) {
        gate_say(gate, "advice",
                 "Nothing has to be done: it is read when others have left. What holds those up: "
                 "sluice status. More memory for more messages: qmgr_message_active_limit");
    }
    append(gates, gate);
}

/* ---- estimates ------------------------------------------------------------------------------ */

static const struct sched_gate *find_gate(const struct sched_wait *w, enum sched_gate_type type)
{
    for (size_t i = 0; i < w->gate_count; i++) {
        if (w->gates[i].type == type) {
            return &w->gates[i];
        }
    }
    return NULL;
}

static bool closed(const struct sched_wait *w, enum sched_gate_type type)
{
    const struct sched_gate *g = find_gate(w, type);

    return g != NULL && g->closed;
}

static uint64_t ahead(const struct sched_wait *w)
{
    const struct sched_gate *g = find_gate(w, SCHED_GATE_BEHIND);

    return g != NULL ? g->value : 0;
}

/* How long until an entry with these gates starts, at the pace of the destination; the words say
 * which. Negative: nothing is known. */
static double line_seconds(struct place *p, const struct sched_wait *w, struct buf *words)
{
    const struct sched_gate *turns = find_gate(w, SCHED_GATE_CLASS);
    double per_second = p->in_memory ? p->info.per_second : 0;

    if (per_second <= 0 && p->in_memory && p->info.mean_us > 0) {
        per_second = (double)p->info.window * (double)US_PER_S / (double)p->info.mean_us;
    }
    if (per_second <= 0) {
        (void)buf_addf(words, "nothing is known of its pace: no delivery to %s has ended lately",
                       buf_cstr(&p->name)); /* fits, as do the others */
        return -1;
    }
    (void)buf_addf(words,
                   "%s goes on taking %.3g deliveries a second, as in the last minutes, and "
                   "nothing overtakes",
                   buf_cstr(&p->name), per_second);
    if (turns != NULL) {
        (void)buf_addf(words, ", of which its class gets %" PRIu64 " of %" PRIu64, turns->value,
                       turns->limit);
        per_second *= (double)turns->value / (double)turns->limit;
    }
    return (double)(ahead(w) + 1) / per_second;
}

/* When will it be tried, and on what does that rest? `earliest` is 0 when no gate names a time. */
static void estimate(struct place *p, const struct sched_wait *w, struct wall earliest,
                     json_t *group)
{
    double at = (double)(earliest.us > clock_wall().us ? earliest.us : clock_wall().us), wait = 0;
    json_t *object = json_object();
    struct buf words;

    buf_init(&words, 16384);
    if (earliest.us > clock_wall().us) {
        (void)buf_addf(&words, "it is free to go at %s%s", gate_clock(earliest, clock_wall()).text,
                       closed(w, SCHED_GATE_DEST_DEAD) ? " and the site answers then" : "");
    }
    if (closed(w, SCHED_GATE_WINDOW) || closed(w, SCHED_GATE_TRANSPORT_LIMIT) || ahead(w) > 0) {
        (void)buf_add_string(&words, buf_len(&words) > 0 ? ", and " : "");
        wait = line_seconds(p, w, &words);
    }
    if (buf_len(&words) == 0) {
        (void)buf_add_string(&words, "nothing holds it: it is about to start");
    }
    if (wait >= 0 && wait < 1e8) {
        set(object, "at", json_real(at / (double)US_PER_S + wait));
    }
    set(object, "assumption", listing_text(buf_slice(&words)));
    set(group, "estimate", object);
    buf_fini(&words);
}

/* Some gates open when somebody else does something; when that is nobody knows. */
static bool can_estimate(const json_t *group)
{
    static const char *const unknown[] = {"held",   "corrupt", "storage",         "active_queue",
                                          "parked", "unread",  "defer_transports"};
    const char *binds = json_string_value(json_object_get(group, "binds"));

    for (size_t i = 0; binds != NULL && i < sizeof unknown / sizeof unknown[0]; i++) {
        if (strcmp(binds, unknown[i]) == 0) {
            return false;
        }
    }
    return true;
}

/* One that is under way ends. */
static void estimate_end(struct place *p, const struct sched_wait *w, json_t *group)
{
    struct wall started = wall_of(w->gates[0].since);
    json_t *object;

    if (!p->in_memory || p->info.mean_us == 0) {
        return;
    }
    object = json_object();
    set(object, "at", seconds(wall_after(started, p->info.mean_us)));
    gate_say(object, "assumption", "it takes as long as the last ones to %s did, %s",
             buf_cstr(&p->name), gate_interval(p->info.mean_us).text);
    set(group, "estimate", object);
}

/* ---- a message ------------------------------------------------------------------------------ */

static struct wall earliest_of(const json_t *group)
{
    return (struct wall){
        (int64_t)(json_number_value(json_object_get(group, "earliest")) * (double)US_PER_S)};
}

static bool is_on_its_way(const struct spool_message *m)
{
    return m->state == SPOOL_INCOMING || m->state == SPOOL_DEFERRED;
}

static json_t *memory_group(struct queue *q, const struct spool_message *m,
                            const struct sched_wait *w)
{
    json_t *gates = json_array(), *group;
    struct place p;

    if (!is_on_its_way(m)) {
        gate_add_state(gates, m); /* only what was under way goes on */
    }
    add_storage_gate(q, gates);
    if (w->dest.len == 0) {
        append(gates, unread(&w->gates[0]));
        group = json_pack("{s:i, s:o}", "recipients", 0, "gates", gates);
        gate_sum_up(group);
        return group;
    }
    place_init(&p, q, w->transport, w->dest);
    for (size_t i = 0; i < w->gate_count; i++) {
        append(gates, gate_json(q, &p, w, &w->gates[i]));
    }
    group = json_pack("{s:s, s:i, s:i, s:o}", "transport", p.transport_name, "recipients", 0,
                      "deliveries", (int)w->entries, "gates", gates);
    set(group, "destination", listing_text(w->dest));
    set(group, "nexthop", listing_text(p.nexthop != NULL ? slice_string(p.nexthop) : w->dest));
    gate_sum_up(group);
    if (w->entry.n != 0) {
        estimate_end(&p, w, group);
    } else if (can_estimate(group)) {
        estimate(&p, w, earliest_of(group), group);
    }
    place_fini(&p);
    return group;
}

/* Recipients that were tried, and wait for the others of their message. */
static json_t *tried_group(const struct active_msg *m)
{
    json_t *gate = gate_new("tried", true), *group;

    gate_times(gate, m->activated_wall, (struct wall){0});
    gate_say(gate, "text",
             "it was tried, and is tried again some time after the other recipients of the message "
             "have been tried, too");
    gate_say(gate, "advice", "Nothing has to be done. What the others wait for is shown with them");
    group = json_pack("{s:i, s:[o]}", "recipients", 0, "gates", gate);
    gate_sum_up(group);
    return group;
}

/* Was it in memory, and has left it? */
static bool was_tried(struct active_msg *m, uint32_t n)
{
    return m != NULL && n <= m->last_read && active_find_rcpt(m, n) == NULL;
}

static uint32_t number_of(const json_t *rcpt)
{
    return (uint32_t)json_integer_value(json_object_get(rcpt, "n"));
}

/* The pending recipients of a message that is in memory, by what they wait for. */
static void group_in_memory(struct queue *q, json_t *show, const struct spool_message *m)
{
    json_t *rcpts = json_object_get(show, "recipients"), *groups = json_array(), *rcpt;
    struct active_msg *active = active_find(&q->active, m->id);
    size_t size = json_array_size(rcpts), count = 0, i, made, tried = SIZE_MAX;
    struct sched_wait *waits = mem_array(size, sizeof *waits);
    uint32_t *numbers = mem_array(size, sizeof *numbers), *group = mem_array(size, sizeof *group);

    json_array_foreach(rcpts, i, rcpt)
    {
        if (gate_rcpt_is_pending(rcpt) && !was_tried(active, number_of(rcpt))) {
            numbers[count++] = number_of(rcpt);
        }
    }
    made = sched_why(q->sched, (struct sched_msg){m->id.n}, numbers, count, group, waits);
    for (i = 0; i < made; i++) {
        append(groups, memory_group(q, m, &waits[i]));
    }
    count = 0;
    json_array_foreach(rcpts, i, rcpt)
    {
        if (!gate_rcpt_is_pending(rcpt)) {
            continue;
        }
        if (!was_tried(active, number_of(rcpt))) {
            gate_put_into(groups, rcpt, (json_int_t)group[count++]);
            continue;
        }
        if (tried == SIZE_MAX) {
            tried = json_array_size(groups);
            append(groups, tried_group(active));
        }
        gate_put_into(groups, rcpt, (json_int_t)tried);
    }
    set(show, "groups", groups);
    mem_free(waits);
    mem_free(numbers);
    mem_free(group);
}

/* Why exactly it is parked, which the spool does not know. */
static void say_parked(struct queue *q, struct place *p, const struct spool_message *m,
                       json_t *gate)
{
    struct sched_class_info of_class;

    if (!p->in_memory) {
        return;
    }
    if (p->info.state == SCHED_DEST_DEAD_UNTIL || p->info.state == SCHED_DEST_PROBING) {
        gate_say(gate, "text", "it waits on disk until %s answers again: %.*s", buf_cstr(&p->name),
                 SLICE_ARGS(p->info.reason));
        gate_say(gate, "advice",
                 "Nothing has to be done: the site is tried again by itself%s%s, and then this "
                 "mail goes on. When you know that the site is well again: sluice flush %s",
                 p->info.until.us != 0 ? " at " : "",
                 p->info.until.us != 0 ? gate_clock(wall_of(p->info.until), clock_wall()).text : "",
                 buf_cstr(&p->name));
    } else {
        of_class = sched_class_get(q->sched, p->transport, p->dest, m->class_name);
        gate_count(gate, of_class.messages, p->info.share == UINT64_MAX ? 0 : p->info.share);
        gate_say(gate, "text",
                 "it waits on disk: %s has %" PRIu32
                 " messages%s%.*s in memory, its share, and the oldest go first",
                 buf_cstr(&p->name), of_class.messages, m->class_name.len > 0 ? " of class " : "",
                 SLICE_ARGS(m->class_name));
    }
}

/* What the scheduler adds to a group of a message that is on disk. */
static void finish_disk_group(struct queue *q, const struct spool_message *m, json_t *group)
{
    uint32_t transport = queue_transport(q, json_string_value(json_object_get(group, "transport")));
    struct slice dest = slice_string(json_string_value(json_object_get(group, "destination")));
    json_t *gates = json_object_get(group, "gates");
    struct sched_wait w;
    struct place p;

    if (is_on_its_way(m)) {
        add_storage_gate(q, gates);
        add_room_gate(q, gates);
        place_init(&p, q, transport, dest);
        if (m->parked.len > 0) {
            say_parked(q, &p, m, json_array_get(gates, 0));
        }
        sched_why_dest(q->sched, transport, dest, &w);
        for (size_t i = 0; i < w.gate_count; i++) {
            append(gates, gate_json(q, &p, &w, &w.gates[i]));
        }
        gate_sum_up(group);
        if (can_estimate(group)) {
            estimate(&p, &w, earliest_of(group), group);
        }
        place_fini(&p);
    } else {
        gate_sum_up(group);
    }
}

/* A message none of whose rows can be read any more has no recipients to group. */
static void group_undecodable(json_t *show)
{
    json_t *gate = gate_new("corrupt", true), *group;
    const char *id = json_string_value(json_object_get(show, "queue_id"));

    gate_say(gate, "text", "it can't be decoded: %s",
             json_string_value(json_object_get(show, "reason")));
    gate_say(gate, "advice",
             "It is kept for you to look at: sluice cat %s prints what can be read. When it is "
             "dealt with: sluice delete %s",
             id, id);
    group = json_pack("{s:i, s:[o]}", "recipients", 0, "gates", gate);
    gate_sum_up(group);
    set(show, "groups", json_pack("[o]", group));
}

unsigned why_message(struct queue *q, const json_t *question, json_t **ret_answer)
{
    json_t *show = json_copy((json_t *)(uintptr_t)question), *group;
    struct gate_message m;
    unsigned status;
    size_t i;

    set(show, "op", json_string("show"));
    status = listing_ask(q->spool, show, clock_wall(), ret_answer);
    json_decref(show);
    if (status != 200) {
        return status;
    }
    if (!gate_read(q->spool, *ret_answer, &m)) {
        group_undecodable(*ret_answer);
    } else if (sched_has_message(q->sched, (struct sched_msg){m.message.id.n})) {
        group_in_memory(q, *ret_answer, &m.message);
    } else {
        gate_group_on_disk(*ret_answer, q->conf, &m.message, clock_wall());
        json_array_foreach(json_object_get(*ret_answer, "groups"), i, group)
        {
            finish_disk_group(q, &m.message, group);
        }
    }
    return 200;
}

/* ---- a destination -------------------------------------------------------------------------- */

static const char *state_name(enum sched_dest_state state)
{
    static const char *const names[] = {
        [SCHED_DEST_READY] = "ready",         [SCHED_DEST_DEAD_UNTIL] = "dead",
        [SCHED_DEST_SUSPENDED] = "suspended", [SCHED_DEST_PROBING] = "probing",
        [SCHED_DEST_IDLE] = "idle",
    };

    return names[state];
}

static json_t *site_json(struct queue *q, const struct sched_dest_info *info)
{
    json_t *object = json_pack(
        "{s:s, s:o, s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:i, s:b}", "transport",
        q->transports[info->transport], "destination", listing_text(info->dest), "state",
        state_name(info->state), "window", (int)info->window, "window_max", (int)info->window_max,
        "busy", (int)info->busy, "waiting", (int)info->waiting, "success", info->success, "failure",
        info->failure, "failed_cohorts", info->failed_cohorts, "messages", (int)info->messages,
        "parked", (int)info->parked);

    CHECK(object != NULL);
    if (info->since.us != 0) {
        set(object, "since", seconds(wall_of(info->since)));
    }
    if (info->until.us != 0) {
        set(object, "until", seconds(wall_of(info->until)));
        set(object, "seconds_left",
            json_real((double)(info->until.us - clock_mono().us) / (double)US_PER_S));
    }
    if (info->reason.len > 0) {
        set(object, "reason", listing_text(info->reason));
    }
    if (info->share != UINT64_MAX) {
        set(object, "share", json_integer((json_int_t)info->share));
    }
    if (info->mean_us > 0) {
        set(object, "mean_seconds", json_real((double)info->mean_us / (double)US_PER_S));
        set(object, "per_second", json_real(info->per_second));
    }
    return object;
}

json_t *why_busiest(struct queue *q)
{
    const struct busiest_list *list = &q->busiest.told;
    json_t *array = json_array();
    struct sched_dest_info info;

    for (size_t i = 0; i < list->count; i++) {
        if (sched_dest_get(q->sched, list->sites[i].transport, slice_string(list->sites[i].dest),
                           &info)) {
            append(array, site_json(q, &info));
        }
    }
    return array;
}

unsigned why_sites(struct queue *q, const json_t *question, json_t **ret_answer)
{
    json_t *array = json_array();
    struct sched_dest_info info;
    json_int_t given = json_integer_value(json_object_get(question, "cursor"));
    uint64_t cursor = given > 0 ? (uint64_t)given : 0;
    bool more = false;

    while (sched_dest_each(q->sched, &cursor, &info)) {
        if (info.state == SCHED_DEST_IDLE) {
            continue; /* may be very many, of which nobody needs to know all */
        }
        append(array, site_json(q, &info));
        if (json_array_size(array) == LISTING_PAGE_MAX) {
            more = true;
            break;
        }
    }
    *ret_answer = json_pack("{s:o}", "sites", array);
    if (more) {
        set(*ret_answer, "cursor", json_integer((json_int_t)cursor));
    }
    return 200;
}

/* What would have to change for more deliveries at once. */
static json_t *ceiling(const struct queue *q, struct place *p)
{
    const struct sched_dest_info *info = &p->info;
    const struct window_limits *limits = info->limits;
    const char *parameter = NULL;
    json_t *object = json_object();
    struct buf text;

    buf_init(&text, 16384);
    if (info->state == SCHED_DEST_DEAD_UNTIL || info->state == SCHED_DEST_PROBING) {
        (void)buf_add_string(&text, "it must answer again"); /* all of these fit */
    } else if (info->rate_delay_us > 0) {
        (void)buf_addf(&text, "one delivery at a time, with a pause of %s between them, is what ",
                       gate_interval(info->rate_delay_us).text);
        parameter = "destination_rate_delay";
    } else if (info->window_max > 0 && info->window >= info->window_max) {
        (void)buf_addf(&text, "the window is as wide as it may be, %" PRIu32 ", which is what ",
                       info->window_max);
        parameter = window_limit_name(q, p);
    } else if (p->transport_info.process_limit > 0 &&
               p->transport_info.busy >= p->transport_info.process_limit) {
        (void)buf_addf(
            &text, "all of %s together has its %" PRIu32 " deliveries under way, which is what ",
            p->transport_name, p->transport_info.process_limit);
        parameter = process_limit_name(q, p);
    } else if (info->window >= (uint64_t)info->busy + limits->initial) {
        (void)buf_addf(&text,
                       "more mail for it: a window that is %" PRIu32
                       " wider than what is under way does not grow",
                       info->window - info->busy);
    } else {
        double gain = feedback_value(&limits->positive, info->window);

        if (gain > 0) {
            double needed = ceil((1 - info->success) / gain);

            (void)buf_addf(
                &text, "%.0f more good deliver%s without a failure; then the window is %" PRIu32,
                needed, needed == 1 ? "y" : "ies", info->window + 1);
        } else {
            (void)buf_add_string(&text, "nothing: it has no positive feedback; see ");
            parameter = "destination_concurrency_positive_feedback";
        }
    }
    if (parameter != NULL) {
        add_origin(&text, q, p, parameter);
        (void)buf_add_string(&text, " says");
        set(object, "parameter", json_string(parameter));
    }
    set(object, "text", listing_text(buf_slice(&text)));
    buf_fini(&text);
    return object;
}

static void add_history(struct queue *q, const struct place *p, json_t *object)
{
    static const char *const why[] = {[HISTORY_SUCCESS] = "success",
                                      [HISTORY_FAILURE] = "failure",
                                      [HISTORY_DEAD] = "dead",
                                      [HISTORY_PROBED] = "probed",
                                      [HISTORY_REVIVED] = "revived"};
    const struct history_site *site = history_find(&q->history, p->transport, p->dest);
    json_t *steps = json_array(), *replies = json_array();

    for (size_t i = 0; site != NULL && i < site->step_count; i++) {
        const struct history_step *step =
            &site->steps[(site->newest + HISTORY_STEPS_MAX - i) % HISTORY_STEPS_MAX];

        append(steps,
               json_pack("{s:o, s:i, s:i, s:s}", "at", seconds(step->at), "before",
                         (int)step->before, "after", (int)step->after, "why", why[step->why]));
    }
    for (size_t i = 0; site != NULL && i < site->reply_count; i++) {
        const struct history_reply *r = &site->replies[i];

        append(replies, json_pack("{s:o, s:o, s:I, s:o, s:o, s:o}", "first", seconds(r->first),
                                  "last", seconds(r->last), "count", (json_int_t)r->count, "status",
                                  listing_text(slice_string(r->status)), "host",
                                  listing_text(slice_string(r->host)), "text",
                                  listing_text(slice_string(r->text))));
    }
    set(object, "history", steps);
    set(object, "replies", replies);
}

/* Which transport and destination are meant: "transport/nexthop", or a next hop alone, which is
 * looked for at all transports. False: no such transport. */
static bool find_place(struct queue *q, struct slice wanted, uint32_t *ret_transport,
                       struct slice *ret_dest)
{
    struct slice rest = wanted, first = slice_cut(&rest, '/');
    struct sched_dest_info info;

    if (rest.ptr != NULL) {
        for (uint32_t i = 0; i < q->transport_count; i++) {
            if (slice_equal(first, slice_string(q->transports[i]))) {
                *ret_transport = i;
                *ret_dest = rest;
                return true;
            }
        }
        return false;
    }
    *ret_dest = wanted;
    *ret_transport = queue_transport(q, "smtp");
    for (uint32_t i = 0; i < q->transport_count; i++) {
        if (sched_dest_get(q->sched, i, wanted, &info)) {
            *ret_transport = i;
            return true;
        }
    }
    return true;
}

static json_t *site_details(struct queue *q, struct place *p)
{
    json_t *object, *gates = json_array();
    struct sched_wait w;

    if (p->in_memory) {
        object = site_json(q, &p->info);
        set(object, "window_initial", json_integer(p->info.limits->initial));
        set(object, "failed_cohort_limit", json_integer(p->info.limits->failed_cohort_limit));
        set(object, "ceiling", ceiling(q, p));
    } else {
        object = json_pack("{s:s, s:o, s:s}", "transport", p->transport_name, "destination",
                           listing_text(p->dest), "state", "unknown");
    }
    set(object, "nexthop", listing_text(p->nexthop != NULL ? slice_string(p->nexthop) : p->dest));
    set(object, "transport_busy", json_integer(p->transport_info.busy));
    set(object, "transport_limit", json_integer(p->transport_info.process_limit));
    add_storage_gate(q, gates);
    sched_why_dest(q->sched, p->transport, p->dest, &w);
    for (size_t i = 0; i < w.gate_count; i++) {
        append(gates, gate_json(q, p, &w, &w.gates[i]));
    }
    set(object, "gates", gates);
    gate_sum_up(object);
    if (p->in_memory && can_estimate(object)) {
        estimate(p, &w, earliest_of(object), object);
    }
    add_history(q, p, object);
    return object;
}

unsigned why_site(struct queue *q, const json_t *question, json_t **ret_answer)
{
    const char *wanted =
        json_string_value(json_object_get(json_object_get(question, "filter"), "destination"));
    char lower[SCHED_DEST_NAME_MAX];
    struct slice text = slice_string(wanted), dest;
    uint32_t transport;
    struct place p;

    if (text.len == 0 || text.len > sizeof lower) {
        return listing_error(400, ret_answer, "destination: transport/nexthop is expected");
    }
    for (size_t i = 0; i < text.len; i++) {
        lower[i] = ascii_lower(text.ptr[i]);
    }
    if (!find_place(q, slice_of(lower, text.len), &transport, &dest) || dest.len == 0) {
        return listing_error(404, ret_answer, "%s: no such transport", wanted);
    }
    place_init(&p, q, transport, dest);
    *ret_answer = site_details(q, &p);
    place_fini(&p);
    return 200;
}
