/*
 * Reasons for which mail waits, estimates of its next attempt, and details of a destination:
 * operations that need the scheduler. docs/api.md describes the answers; queue_gate.c has the
 * gates.
 *
 * An answer costs work for the part of one message in memory and for one page of its recipients.
 * Nothing here changes anything.
 */
#include "queue_why.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "gate.h"
#include "inquiry.h"
#include "intervention_ask.h"
#include "json.h"
#include "listing.h"
#include "mem.h"
#include "nexthop.h"
#include "park_key.h"
#include "queue.h"
#include "queue_gate.h"
#include "spool_others.h"
#include "spool_parts.h"
#include "spool_search.h"
#include "tuning.h"

/* Largest number of overrides shown of one recipient. */
#define INTERVENTIONS_SHOWN 8

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

/* Estimates the time until an entry with these gates starts, from the pace of the destination,
 * which `words` describes. Negative: unknown. */
static double line_seconds(struct gate_place *p, const struct sched_wait *w, struct buf *words)
{
    const struct sched_gate *turns = find_gate(w, SCHED_GATE_CLASS);
    const struct sched_gate *senders = find_gate(w, SCHED_GATE_GROUP);
    double per_second = p->is.in_memory ? p->is.info.per_second : 0;

    if (per_second <= 0 && p->is.in_memory && p->is.info.mean_us > 0) {
        per_second = (double)p->is.info.window * (double)US_PER_S / (double)p->is.info.mean_us;
    }
    if (per_second <= 0) {
        (void)buf_addf(words, "nothing is known of its pace: no delivery to %s has ended lately",
                       buf_cstr(&p->name)); /* fits, as all appends here */
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
    if (senders != NULL) {
        (void)buf_addf(words, ", and of those its sender %" PRIu64 " of %" PRIu64, senders->value,
                       senders->limit);
        per_second *= (double)senders->value / (double)senders->limit;
    }
    return (double)(ahead(w) + 1) / per_second;
}

/* Adds the estimated time of the next attempt, with its assumptions. `earliest` is 0 if no gate has
 * a time. */
static void estimate(struct gate_place *p, const struct sched_wait *w, struct wall earliest,
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
        json_put(object, "at", json_real(at / (double)US_PER_S + wait));
    }
    json_put(object, "assumption", listing_text(buf_slice(&words)));
    json_put(group, "estimate", object);
    buf_fini(&words);
}

/* Can the next attempt be estimated? Some gates open when an operator or another program acts, at
 * an unknown time. */
static bool can_estimate(const json_t *group)
{
    static const char *const unknown[] = {
        "held",   "corrupt",          "storage",   "lease",      "active_queue", "parked",
        "unread", "defer_transports", "queueonly", "no_command", "frozen",       "deliver_only",
        "ring",   "agents",           "paused",    "locked"};
    const char *binds = json_string_value(json_object_get(group, "binds"));

    for (size_t i = 0; binds != NULL && i < sizeof unknown / sizeof unknown[0]; i++) {
        if (strcmp(binds, unknown[i]) == 0) {
            return false;
        }
    }
    return true;
}

/* Adds the estimated end of an active delivery. */
static void estimate_end(struct gate_place *p, const struct sched_wait *w, json_t *group)
{
    struct wall started = gate_wall(w->gates[0].since);
    json_t *object;

    if (!p->is.in_memory || p->is.info.mean_us == 0) {
        return;
    }
    object = json_object();
    json_put(object, "at", json_seconds(wall_after(started, p->is.info.mean_us).us));
    gate_say(object, "assumption", "it takes as long as the last ones to %s did, %s",
             buf_cstr(&p->name), gate_interval(p->is.info.mean_us).text);
    json_put(group, "estimate", object);
}

/* ---- a message ------------------------------------------------------------------------------ */

static struct wall earliest_of(const json_t *group)
{
    return (struct wall){
        (int64_t)(json_number_value(json_object_get(group, "earliest")) * (double)US_PER_S)};
}

/* Adds the overrides of all mail for a destination. Returns true if the first is a pause. */
static bool put_interventions(const struct queue *q, const struct gate_place *p, json_t *object)
{
    const struct intervention *found[INTERVENTIONS_SHOWN];
    struct slice nexthop = p->is.nexthop != NULL ? slice_string(p->is.nexthop) : p->is.dest;
    size_t count =
        interventions_of_destination(q, p->is.transport_name, nexthop, found, INTERVENTIONS_SHOWN);

    if (count > 0) {
        json_put(object, "interventions", intervention_notes(found, count));
    }
    return count > 0 && found[0]->verb == INTERVENTION_PAUSE;
}

static bool is_on_its_way(const struct spool_message *m)
{
    return m->state == SPOOL_INCOMING || m->state == SPOOL_DEFERRED;
}

static json_t *memory_group(struct queue *q, const struct spool_message *m,
                            const struct sched_wait *w)
{
    json_t *gates = json_array(), *group;
    struct gate_place p;

    if (!is_on_its_way(m)) {
        gate_add_state(gates, m); /* only active deliveries go on */
    }
    queue_gate_all_mail(q, gates);
    if (w->dest.len == 0) {
        json_add(gates, queue_gate(q, NULL, w, &w->gates[0]));
        group = json_pack("{s:i, s:o}", "recipients", 0, "gates", gates);
        gate_sum_up(group);
        return group;
    }
    gate_place_init(&p, q, w->transport, w->dest);
    for (size_t i = 0; i < w->gate_count; i++) {
        json_add(gates, queue_gate(q, &p, w, &w->gates[i]));
    }
    group = json_pack("{s:s, s:i, s:i, s:o}", "transport", p.is.transport_name, "recipients", 0,
                      "deliveries", (int)w->entries, "gates", gates);
    json_put(group, "destination", listing_text(w->dest));
    json_put(group, "nexthop",
             listing_text(p.is.nexthop != NULL ? slice_string(p.is.nexthop) : w->dest));
    put_interventions(q, &p, group);
    gate_sum_up(group);
    if (w->entry.n != 0) {
        estimate_end(&p, w, group);
    } else if (can_estimate(group)) {
        estimate(&p, w, earliest_of(group), group);
    }
    gate_place_fini(&p);
    return group;
}

/* Makes the group of recipients that were tried and wait for the others of their message. */
static json_t *tried_group(const struct active_msg *m)
{
    json_t *gate = gate_new("tried", true), *group;

    gate_times(gate, m->activated_wall, (struct wall){0});
    gate_say(gate, "text",
             "it was tried, and is tried again some time after the other recipients of the message "
             "have been tried, too");
    gate_say(gate, "advice",
             "Nothing needs to be done. What the others wait for is shown with them");
    group = json_pack("{s:i, s:[o]}", "recipients", 0, "gates", gate);
    gate_sum_up(group);
    return group;
}

/* Was the recipient in memory, and has it left? */
static bool was_tried(struct active_msg *m, uint32_t n)
{
    return m != NULL && n <= m->last_read && active_find_rcpt(m, n) == NULL;
}

static uint32_t number_of(const json_t *rcpt)
{
    return (uint32_t)json_integer_value(json_object_get(rcpt, "n"));
}

/* Groups the pending recipients of a message in memory by the reason for which they wait. */
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
        json_add(groups, memory_group(q, m, &waits[i]));
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
            json_add(groups, tried_group(active));
        }
        gate_put_into(groups, rcpt, (json_int_t)tried);
    }
    json_put(show, "groups", groups);
    mem_free(waits);
    mem_free(numbers);
    mem_free(group);
}

/* Sets the exact reason for which mail is parked, which the spool does not have. */
static void say_parked(struct queue *q, struct gate_place *p, const struct spool_message *m,
                       json_t *gate)
{
    struct sched_class_info of_class;
    struct slice sched_class;

    if (!p->is.in_memory) {
        return;
    }
    if (p->is.info.state == SCHED_DEST_DEAD_UNTIL || p->is.info.state == SCHED_DEST_PROBING) {
        gate_say(gate, "text", "it waits on disk until %s answers again: %.*s", buf_cstr(&p->name),
                 SLICE_ARGS(p->is.info.reason));
        gate_say(gate, "advice",
                 "Nothing needs to be done: the site is tried again by itself%s%s, and then this "
                 "mail goes on. When you know that the site is well again: sluice flush %s",
                 p->is.info.until.us != 0 ? " at " : "",
                 p->is.info.until.us != 0
                     ? gate_clock(gate_wall(p->is.info.until), clock_wall()).text
                     : "",
                 buf_cstr(&p->name));
    } else {
        sched_class = park_key_class(m->parked);
        of_class = sched_class_get(q->sched, p->is.transport, p->is.dest, sched_class);
        gate_count(gate, of_class.messages, p->is.info.share == UINT64_MAX ? 0 : p->is.info.share);
        gate_say(gate, "text",
                 "it waits on disk: %s has %" PRIu32
                 " messages%s%.*s%s in memory, its share, and the oldest go first",
                 buf_cstr(&p->name), of_class.messages, sched_class.len > 0 ? " of class " : "",
                 SLICE_ARGS(tuning_class_of(sched_class)),
                 tuning_class_of(sched_class).len < sched_class.len ? " from its senders" : "");
    }
}

static void put_damage(const struct queue *q, struct msg_id id, json_t *gates)
{
    struct mono again;
    const char *why = damage_why(&q->damage, id, &again);

    if (why != NULL) {
        queue_gate_damage(
            why, again, spool_has_others(q->spool) ? "sluice cluster check" : "sluice spool check",
            gates);
    }
}

/* Adds the scheduler's gates to a group of a message on disk. */
static void finish_disk_group(struct queue *q, const struct spool_message *m, json_t *group)
{
    uint32_t transport =
        transport_index(&q->transports, json_string_value(json_object_get(group, "transport")));
    struct slice dest = slice_string(json_string_value(json_object_get(group, "destination")));
    json_t *gates = json_object_get(group, "gates");
    struct sched_wait w;
    struct gate_place p;

    if (is_on_its_way(m) && park_key_kind(m->parked) != PARK_STUCK) {
        gate_place_init(&p, q, transport, dest);
        if (gate_is_parked_for(m, p.is.transport_name,
                               json_string_value(json_object_get(group, "destination")))) {
            say_parked(q, &p, m, json_array_get(gates, 0));
        }
        put_damage(q, m->id, gates);
        queue_gate_all_mail(q, gates);
        queue_gate_room(q, gates);
        sched_why_dest(q->sched, transport, dest, &w);
        for (size_t i = 0; i < w.gate_count; i++) {
            json_add(gates, queue_gate(q, &p, &w, &w.gates[i]));
        }
        gate_sum_up(group);
        if (can_estimate(group)) {
            estimate(&p, &w, earliest_of(group), group);
        }
        gate_place_fini(&p);
    } else {
        put_damage(q, m->id, gates);
        gate_sum_up(group);
    }
}

/* Adds the group of a message without readable rows, which has no recipients. */
static void group_undecodable(json_t *show)
{
    json_t *gate = gate_new("corrupt", true), *group;
    const char *id = json_string_value(json_object_get(show, "queue_id"));

    gate_say(gate, "text", "it can't be decoded: %s",
             json_string_value(json_object_get(show, "reason")));
    gate_advise_corrupt(gate, id);
    group = json_pack("{s:i, s:[o]}", "recipients", 0, "gates", gate);
    gate_sum_up(group);
    json_put(show, "groups", json_pack("[o]", group));
}

/* Applies the overrides; for a store that routes the store's route is final. */
static json_t *intervene(void *arg, const struct spool_message *m, struct slice address,
                         struct route *route)
{
    const struct intervention *found[INTERVENTIONS_SHOWN];
    struct queue *q = arg;
    size_t count = interventions_about(q, m->sender, m->class_name, address, route, found,
                                       INTERVENTIONS_SHOWN);

    (void)interventions_route(q, m->sender, m->class_name, address, route, 0);
    return intervention_notes(found, count);
}

/* Answers for one message, or for its part `part` if not NULL. *ret_whole is its id if it is a
 * report part, otherwise 0. */
static unsigned why_one(struct queue *q, const json_t *question, const char *part,
                        json_t **ret_answer, struct msg_id *ret_whole)
{
    json_t *show = json_copy((json_t *)(uintptr_t)question), *group;
    struct gate_message m;
    unsigned status;
    size_t i;

    json_put(show, "op", json_string("show"));
    json_put(show, "alone", json_true()); /* the parts are queried one by one */
    if (part != NULL) {
        json_put(show, "id", json_string(part));
    }
    ret_whole->n = 0;
    status = listing_ask(q->spool, show, clock_wall(), ret_answer);
    json_decref(show);
    if (status != 200) {
        return status;
    }
    if (part != NULL) {
        json_put(*ret_answer, "queue_id", json_string(part)); /* the id of the part */
    }
    if (!gate_read(q->spool, *ret_answer, &m)) {
        group_undecodable(*ret_answer);
        return 200;
    }
    if (m.message.gathers) { /* the parts wait instead */
        *ret_whole = m.message.id;
        json_put(*ret_answer, "groups", json_array());
        json_put(*ret_answer, "recipients_pending", json_integer(0));
    } else if (sched_has_message(q->sched, (struct sched_msg){m.message.id.n})) {
        group_in_memory(q, *ret_answer, &m.message);
    } else {
        gate_group_on_disk(*ret_answer, q->conf, &m.message, clock_wall(), intervene, q);
        json_array_foreach(json_object_get(*ret_answer, "groups"), i, group)
        {
            finish_disk_group(q, &m.message, group);
        }
    }
    return 200;
}

/* Returns the rank of a state, as in whole_read: a message has the worst state of its parts. */
static int rank_of(const json_t *answer)
{
    static const char *const names[] = {"incoming", "active", "deferred", "hold", "corrupt"};
    const char *name = json_string_value(json_object_get(answer, "queue_name"));

    for (size_t i = 0; name != NULL && i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* Adds the recipients and groups of a part to those of the message. */
static void add_part(json_t *answer, const json_t *part)
{
    static const char *const lists[] = {"recipients", "groups"};
    json_int_t groups = (json_int_t)json_array_size(json_object_get(answer, "groups"));
    json_int_t pending = json_integer_value(json_object_get(answer, "recipients_pending"));
    json_t *next = json_object_get(part, "next_attempt"),
           *first = json_object_get(answer, "next_attempt"), *rcpt;
    size_t at;

    json_array_foreach(json_object_get(part, "recipients"), at, rcpt)
    {
        json_t *group = json_object_get(rcpt, "group");

        if (group != NULL) { /* index in the message's groups */
            json_put(rcpt, "group", json_integer(json_integer_value(group) + groups));
        }
    }
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        json_t *to = json_object_get(answer, lists[i]);
        const json_t *from = json_object_get(part, lists[i]);

        if (json_is_array(to) && json_is_array(from)) {
            CHECK(json_array_extend(to, (json_t *)(uintptr_t)from) == 0);
        }
    }
    pending += json_integer_value(json_object_get(part, "recipients_pending"));
    json_put(answer, "recipients_pending", json_integer(pending));
    if (next != NULL && (first == NULL || json_number_value(next) < json_number_value(first))) {
        json_put(answer, "next_attempt", json_incref(next));
    }
    if (rank_of(part) > rank_of(answer)) {
        json_put(answer, "queue_name", json_incref(json_object_get(part, "queue_name")));
    }
}

/* Members that a node adds to its answer: all rows of the message that it has found, and its own
 * rows. */
#define ROWS     "rows"
#define OWN_ROWS "own_rows"
/* Member of a query that requests both. */
#define WANTS_ROWS "wants_rows"

/* Finds the parts of a message, or the message itself if it has no parts (`whole` is 0). Returns
 * their number. */
static size_t rows_of(struct queue *q, const json_t *question, struct msg_id whole,
                      struct msg_id rows[SPOOL_PARTITIONS_MAX])
{
    const char *text = json_string_value(json_object_get(question, "id"));
    size_t count = 0;

    if (whole.n == 0) {
        return listing_ids(q->spool, text, 1, rows);
    }
    if (spool_parts_want(q->spool, whole) == 0) {
        (void)spool_parts_of(q->spool, whole, (struct msg_id){0}, SPOOL_PARTITIONS_MAX, rows,
                             &count); /* on error there are none */
    }
    return count;
}

static json_t *rows_json(struct queue *q, const struct msg_id *rows, size_t count, bool only_own)
{
    json_t *list = json_array();
    char text[SPOOL_ID_TEXT_MAX];

    for (size_t i = 0; i < count; i++) {
        if (!only_own || spool_is_own(q->spool, rows[i])) {
            spool_id_print(rows[i], text);
            json_add(list, json_string(text));
        }
    }
    return list;
}

/* Calls `on_part` with each part that this node owns, as a message. */
static void each_part(struct queue *q, const json_t *question, const struct msg_id *parts,
                      size_t count, void (*on_part)(json_t *to, const json_t *part), json_t *to)
{
    char text[SPOOL_ID_TEXT_MAX];
    struct msg_id none;

    for (size_t i = 0; i < count; i++) {
        json_t *part = NULL;

        spool_id_print(parts[i], text);
        if (spool_is_own(q->spool, parts[i]) && why_one(q, question, text, &part, &none) == 200) {
            on_part(to, part);
        }
        json_decref(part);
    }
}

static void add_part_in_bounds(json_t *answer, const json_t *part)
{
    if (json_array_size(json_object_get(answer, "recipients")) < LISTING_RCPTS_MAX) {
        add_part(answer, part);
    }
}

static void keep_part(json_t *list, const json_t *part)
{
    json_add(list, json_incref((json_t *)(uintptr_t)part));
}

unsigned why_message(struct queue *q, const json_t *question, json_t **ret_answer)
{
    bool only_parts = json_is_true(json_object_get(question, "parts"));
    bool wants_rows = json_is_true(json_object_get(question, WANTS_ROWS));
    struct msg_id rows[SPOOL_PARTITIONS_MAX], whole;
    unsigned status = why_one(q, question, NULL, ret_answer, &whole);
    size_t count;

    if (status != 200 || (whole.n == 0 && !only_parts && !wants_rows)) {
        return status;
    }
    count = rows_of(q, question, whole, rows);
    if (only_parts) {
        json_t *parts = json_array();

        each_part(q, question, rows, whole.n != 0 ? count : 0, keep_part, parts);
        json_decref(*ret_answer);
        *ret_answer = json_pack("{s:o}", "parts", parts);
    } else if (whole.n != 0) {
        each_part(q, question, rows, count, add_part_in_bounds, *ret_answer);
    }
    if (wants_rows) {
        json_put(*ret_answer, ROWS, rows_json(q, rows, count, false));
        json_put(*ret_answer, OWN_ROWS, rows_json(q, rows, count, true));
    }
    return 200;
}

/* ---- answers of other nodes ------------------------------------------------------------------ */

static void put_node(json_t *object, const char *name)
{
    if (json_is_object(object)) {
        json_put(object, "node", json_string(name));
    }
}

/* Is it an answer to "why"? It must have groups and recipients. */
static bool is_why(const json_t *answer)
{
    return json_is_array(json_object_get(answer, "groups")) &&
           json_is_array(json_object_get(answer, "recipients"));
}

static void name_groups(json_t *answer, const char *name)
{
    json_t *group;
    size_t i;

    json_array_foreach(json_object_get(answer, "groups"), i, group)
    {
        put_node(group, name);
    }
}

/*
 * Notes the rows for which a node has answered.
 *
 * Parts move between nodes, and are divided, while the nodes are queried: each node answers for the
 * parts that it owns at that moment. The answers are complete if each node has found the same rows
 * as the asking node, and each row was answered for. in->notes has these members:
 *
 *   "rows"       all rows of the asking node
 *   "own_rows"   rows that were answered for (an object)
 *   "moved"      the answers are incomplete
 *   "untold"     a node's program is too old to report rows
 */
static void note_rows(struct inquiry *in, unsigned status, json_t *answer)
{
    json_t *rows = json_object_get(answer, ROWS), *own = json_object_get(in->notes, OWN_ROWS), *row;
    size_t i;

    if (status == 404 ||
        (json_is_array(rows) && !json_equal(rows, json_object_get(in->notes, ROWS)))) {
        json_put(in->notes, "moved", json_true());
    } else if (status == 200 && !json_is_array(rows)) {
        json_put(in->notes, "untold", json_true());
    }
    json_array_foreach(json_object_get(answer, OWN_ROWS), i, row)
    {
        if (json_object_get(own, json_string_value(row)) != NULL) {
            json_put(in->notes, "moved", json_true()); /* two nodes answered for it */
        } else if (json_is_string(row)) {
            json_put(own, json_string_value(row), json_true());
        }
    }
    (void)json_object_del(answer, ROWS); /* may be missing */
    (void)json_object_del(answer, OWN_ROWS);
}

static bool is_whole(const struct inquiry *in)
{
    const json_t *own = json_object_get(in->notes, OWN_ROWS), *row;
    size_t i;

    if (json_object_get(in->notes, "untold") != NULL || (in->status != 200 && in->status != 404) ||
        json_object_get(in->answer, "failed") != NULL) {
        return true; /* this answer is final */
    }
    json_array_foreach(json_object_get(in->notes, ROWS), i, row)
    {
        if (json_object_get(own, json_string_value(row)) == NULL) {
            return false;
        }
    }
    return json_object_get(in->notes, "moved") == NULL;
}

/* Takes the whole answer of the message's owner. */
static void merge_why(struct inquiry *in, int node, const char *name, unsigned status,
                      json_t *answer)
{
    (void)node;
    note_rows(in, status, answer);
    if (status == 200 && !is_why(answer)) {
        json_decref(in->answer);
        in->status = listing_error(503, &in->answer, "node %s: its answer makes no sense", name);
        return;
    }
    json_decref(in->answer);
    in->answer = json_incref(answer);
    in->status = status;
    name_groups(in->answer, name);
}

static void merge_parts(struct inquiry *in, int node, const char *name, unsigned status,
                        json_t *answer)
{
    json_t *part;
    size_t i;

    (void)node;
    note_rows(in, status, answer);
    if (status != 200 && status != 404) {
        inquiry_add_refusal(in, name, answer);
        return;
    }
    json_array_foreach(json_object_get(answer, "parts"), i, part)
    {
        if (is_why(part)) {
            name_groups(part, name);
            add_part_in_bounds(in->answer, part);
        }
    }
}

static void why_failed(struct inquiry *in, const struct inquiry_item *item, const char *words)
{
    json_decref(in->answer);
    in->status = listing_error(503, &in->answer, "%s: %s", item->id, words);
}

static json_t *why_question(const json_t *question, bool parts)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)question);

    CHECK(copy != NULL);
    json_put(copy, WANTS_ROWS, json_true());
    if (parts) {
        json_put(copy, "parts", json_true());
    }
    return copy;
}

unsigned why_message_spread(struct queue *q, const json_t *question, struct inquiry *in,
                            json_t **ret_answer)
{
    struct msg_id rows[SPOOL_PARTITIONS_MAX], id, whole;
    struct spool_places places;
    unsigned status =
        listing_id(q->spool, json_string_value(json_object_get(question, "id")), &id, ret_answer);

    if (status != 200) {
        return status;
    }
    status = why_one(q, question, NULL, &in->answer, &whole);
    if (status != 200) {
        *ret_answer = json_incref(in->answer);
        return status;
    }
    if (spool_places_of(q->spool, id, &places) != 0) {
        return listing_error(503, ret_answer, "%s", spool_error(q->spool));
    }
    in->question = why_question(question, whole.n != 0);
    in->notes = json_pack("{s:o, s:{}}", ROWS,
                          rows_json(q, rows, rows_of(q, question, whole, rows), false), OWN_ROWS);
    CHECK(in->notes != NULL);
    in->is_whole = is_whole;
    in->merge = whole.n != 0 ? merge_parts : merge_why;
    in->failed = whole.n != 0 ? inquiry_some_failed : why_failed;
    inquiry_add(in, id)->open = places;
    return 0;
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

json_t *why_site_json(struct queue *q, const struct sched_dest_info *info)
{
    json_t *object = json_pack(
        "{s:s, s:o, s:s, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:i, s:b}", "transport",
        transport_name(&q->transports, info->transport), "destination", listing_text(info->dest),
        "state", state_name(info->state), "window", (int)info->window, "window_max",
        (int)info->window_max, "busy", (int)info->busy, "waiting", (int)info->waiting, "success",
        info->success, "failure", info->failure, "failed_cohorts", info->failed_cohorts, "messages",
        (int)info->messages, "parked", (int)info->parked);

    CHECK(object != NULL);
    if (info->since.us != 0) {
        json_put(object, "since", json_seconds(gate_wall(info->since).us));
    }
    if (info->until.us != 0) {
        json_put(object, "until", json_seconds(gate_wall(info->until).us));
        json_put(object, "seconds_left",
                 json_real((double)(info->until.us - clock_mono().us) / (double)US_PER_S));
    }
    if (info->reason.len > 0) {
        json_put(object, "reason", listing_text(info->reason));
    }
    if (info->handed_over) {
        json_put(object, "handed_over", json_true());
    }
    if (info->share != UINT64_MAX) {
        json_put(object, "share", json_integer((json_int_t)info->share));
    }
    if (info->mean_us > 0) {
        json_put(object, "mean_seconds", json_seconds(info->mean_us));
        json_put(object, "per_second", json_real(info->per_second));
    }
    return object;
}

static json_t *sites_of(struct queue *q, const struct busiest_list *list)
{
    json_t *array = json_array();
    struct sched_dest_info info;

    for (size_t i = 0; i < list->count; i++) {
        if (sched_dest_get(q->sched, list->destinations[i].transport,
                           slice_string(list->destinations[i].dest), &info)) {
            json_add(array, why_site_json(q, &info));
        }
    }
    return array;
}

json_t *why_busiest(struct queue *q)
{
    return sites_of(q, &q->busiest.told);
}

json_t *why_troubled(struct queue *q)
{
    return sites_of(q, &q->busiest.troubled_told);
}

/* Does another node deliver there now? This node's values are then out of date. */
static bool has_left(const struct queue *q, const struct sched_dest_info *info)
{
    struct destination_facts facts;

    facts_of_destination(q, info->transport, info->dest, &facts);
    return info->busy == 0 && !facts_is_own(q, &facts);
}

unsigned why_sites(struct queue *q, const json_t *question, json_t **ret_answer)
{
    json_t *array = json_array();
    struct sched_dest_info info;
    json_int_t given = json_integer_value(json_object_get(question, "cursor"));
    uint64_t cursor = given > 0 ? (uint64_t)given : 0;
    bool more = false;

    while (sched_dest_each(q->sched, &cursor, &info)) {
        if (info.state == SCHED_DEST_IDLE /* may be very many */ || has_left(q, &info)) {
            continue;
        }
        json_add(array, why_site_json(q, &info));
        if (json_array_size(array) == LISTING_PAGE_MAX) {
            more = true;
            break;
        }
    }
    *ret_answer = json_pack("{s:o}", "sites", array);
    if (more) {
        json_put(*ret_answer, "cursor", json_integer((json_int_t)cursor));
    }
    return 200;
}

/* Adds a page of one node after the other. A cursor is 64 times the node's own cursor, plus the
 * node's number. */
static void merge_sites(struct inquiry *in, int node, const char *name, unsigned status,
                        json_t *answer)
{
    json_int_t cursor = json_integer_value(json_object_get(answer, "cursor"));
    json_t *site;
    size_t i;

    if (status != 200) {
        inquiry_add_refusal(in, name, answer);
        return;
    }
    json_array_foreach(json_object_get(answer, "sites"), i, site)
    {
        put_node(site, name);
        if (json_is_object(site) && i < LISTING_PAGE_MAX) {
            json_add(json_object_get(in->answer, "sites"), json_incref(site));
        }
    }
    if (cursor > 0 && cursor < INT64_MAX / SPOOL_NODES_MAX) {
        json_put(in->answer, "cursor", json_integer(cursor * SPOOL_NODES_MAX + node));
    }
}

unsigned why_sites_spread(struct queue *q, const json_t *question, struct inquiry *in,
                          json_t **ret_answer)
{
    json_int_t given = json_integer_value(json_object_get(question, "cursor"));
    int node = given > 0 ? (int)(given % SPOOL_NODES_MAX) : 0, next;

    (void)ret_answer; /* not used: the inquiry always goes on */
    in->merge = merge_sites;
    in->failed = inquiry_some_failed;
    in->answer = json_pack("{s:[]}", "sites");
    in->question = json_pack("{s:s}", "op", "sites");
    CHECK(in->answer != NULL && in->question != NULL);
    if (given > 0 && given / SPOOL_NODES_MAX > 0) {
        json_put(in->question, "cursor", json_integer(given / SPOOL_NODES_MAX));
    } else {
        while (node < SPOOL_NODES_MAX && !spool_node_is_up(q->spool, node)) {
            node++;
        }
    }
    if (node == SPOOL_NODES_MAX) {
        return 0;
    }
    inquiry_add(in, (struct msg_id){0})->nodes = UINT64_C(1) << node;
    for (next = node + 1; next < SPOOL_NODES_MAX; next++) {
        if (spool_node_is_up(q->spool, next)) {
            json_put(in->answer, "cursor", json_integer(next)); /* unless this node has more */
            break;
        }
    }
    return 0;
}

/* Returns the change that would allow more deliveries at once. */
static json_t *ceiling(const struct gate_place *p)
{
    const struct sched_dest_info *info = &p->is.info;
    const struct window_limits *limits = info->limits;
    const char *parameter = NULL;
    json_t *object = json_object();
    struct buf text;

    buf_init(&text, 16384);
    if (info->state == SCHED_DEST_DEAD_UNTIL || info->state == SCHED_DEST_PROBING) {
        (void)buf_add_string(&text, "it must answer again"); /* fits */
    } else if (info->rate_delay_us > 0) {
        (void)buf_addf(&text, "one delivery at a time, with a pause of %s between them, is what ",
                       gate_interval(info->rate_delay_us).text);
        parameter = "destination_rate_delay";
    } else if (info->window_max > 0 && info->window >= info->window_max) {
        (void)buf_addf(&text, "the window is as wide as it may be, %" PRIu32 ", which is what ",
                       info->window_max);
        parameter = gate_place_window_limit(p);
    } else if (p->is.transport_info.process_limit > 0 &&
               p->is.transport_info.busy >= p->is.transport_info.process_limit) {
        (void)buf_addf(
            &text, "all of %s together has its %" PRIu32 " deliveries in flight, which is what ",
            p->is.transport_name, p->is.transport_info.process_limit);
        parameter = "process_limit";
    } else if (info->window >= (uint64_t)info->agents + limits->initial) {
        (void)buf_addf(&text,
                       "more mail for it: a window that is %" PRIu32
                       " wider than what is in flight does not grow",
                       info->window - info->agents);
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
        gate_place_origin(&text, p, parameter);
        (void)buf_add_string(&text, " says");
        json_put(object, "parameter", json_string(parameter));
    }
    json_put(object, "text", listing_text(buf_slice(&text)));
    buf_fini(&text);
    return object;
}

static void add_history(const struct gate_place *p, json_t *object)
{
    static const char *const why[] = {[HISTORY_SUCCESS] = "success",
                                      [HISTORY_FAILURE] = "failure",
                                      [HISTORY_DEAD] = "dead",
                                      [HISTORY_PROBED] = "probed",
                                      [HISTORY_REVIVED] = "revived"};
    const struct dest_history *h = p->is.history;
    json_t *steps = json_array(), *replies = json_array();

    for (size_t i = 0; h != NULL && i < h->step_count; i++) {
        const struct history_step *step =
            &h->steps[(h->newest + HISTORY_STEPS_MAX - i) % HISTORY_STEPS_MAX];

        json_add(steps,
                 json_pack("{s:o, s:i, s:i, s:s}", "at", json_seconds(step->at.us), "before",
                           (int)step->before, "after", (int)step->after, "why", why[step->why]));
    }
    for (size_t i = 0; h != NULL && i < h->reply_count; i++) {
        const struct history_reply *r = &h->replies[i];

        json_add(replies,
                 json_pack("{s:o, s:o, s:I, s:o, s:o, s:o}", "first", json_seconds(r->first.us),
                           "last", json_seconds(r->last.us), "count", (json_int_t)r->count,
                           "status", listing_text(slice_string(r->status)), "host",
                           listing_text(slice_string(r->host)), "text",
                           listing_text(slice_string(r->text))));
    }
    json_put(object, "history", steps);
    json_put(object, "replies", replies);
}

/* Finds the route of mail from the null sender to postmaster of a domain, after redirects. Returns
 * false if the store makes routes itself, or if there is no route. */
static bool route_of_domain(struct queue *q, struct slice domain, struct route *ret)
{
    char address[ADDRESS_MAX + 1];
    int len = snprintf(address, sizeof address, "postmaster@%.*s", SLICE_ARGS(domain));

    if (conf_spool_routes(q->conf) || len < 0 || (size_t)len >= sizeof address ||
        domain.ptr[0] == '[') {
        return false;
    }
    route_address(q->conf, SLICE(""), slice_string(address), ret);
    (void)interventions_route(q, SLICE(""), SLICE(""), slice_string(address), ret, 0);
    return strcmp(ret->transport, "error") != 0;
}

/* Finds transport and destination: "transport/nexthop", or a next hop alone, which is searched in
 * all transports, or a domain, whose mail may go elsewhere. *ret_dest lasts as long as `wanted` and
 * *room. Returns false if there is no such transport. */
static bool find_place(struct queue *q, struct slice wanted, struct route *room,
                       uint32_t *ret_transport, struct slice *ret_dest)
{
    struct slice rest = wanted, first = slice_cut(&rest, '/');
    struct sched_dest_info info;

    if (rest.ptr != NULL) {
        *ret_dest = rest;
        return transport_find(&q->transports, first, ret_transport);
    }
    *ret_dest = wanted;
    *ret_transport = transport_index(&q->transports, "smtp");
    for (uint32_t i = 0; i < q->transports.count; i++) {
        if (sched_dest_get(q->sched, i, wanted, &info)) {
            *ret_transport = i;
            return true;
        }
    }
    if (wanted.len > 0 && route_of_domain(q, wanted, room)) {
        *ret_transport = transport_index(&q->transports, room->transport);
        *ret_dest = slice_string(room->destination);
    }
    return true;
}

/* Adds the arrival of the oldest message for the destination. */
static void put_oldest(struct queue *q, const struct gate_place *p, struct slice nexthop,
                       json_t *object)
{
    const struct spool_destination of = {.transport = slice_string(p->is.transport_name),
                                         .nexthop = nexthop};
    struct wall arrived;

    if (spool_oldest(q->spool, &of, &arrived) == 0) {
        json_put_time(object, "oldest", arrived);
    }
}

static json_t *site_details(struct queue *q, struct gate_place *p)
{
    struct slice nexthop = p->is.nexthop != NULL ? slice_string(p->is.nexthop) : p->is.dest;
    json_t *object, *no_command, *gates = json_array();
    struct sched_wait w;

    if (p->is.in_memory) {
        object = why_site_json(q, &p->is.info);
        json_put(object, "window_initial", json_integer(p->is.info.limits->initial));
        json_put(object, "failed_cohort_limit",
                 json_integer(p->is.info.limits->failed_cohort_limit));
        json_put(object, "agents", json_integer(p->is.info.agents));
        json_put(object, "depth", json_integer(p->is.info.depth));
        json_put(object, "ceiling", ceiling(p));
    } else {
        object = json_pack("{s:s, s:o, s:s}", "transport", p->is.transport_name, "destination",
                           listing_text(p->is.dest), "state", "unknown");
    }
    json_put(object, "nexthop", listing_text(nexthop));
    put_oldest(q, p, nexthop, object);
    json_put(object, "transport_busy", json_integer(p->is.transport_info.busy));
    json_put(object, "transport_limit", json_integer(p->is.transport_info.process_limit));
    if (put_interventions(q, p, object)) {
        json_add(gates, gate_paused(json_array_get(json_object_get(object, "interventions"), 0)));
    }
    queue_gate_all_mail(q, gates);
    no_command = gate_no_command(q->conf, slice_string(p->is.transport_name), nexthop);
    if (no_command != NULL) {
        json_add(gates, no_command);
    }
    sched_why_dest(q->sched, p->is.transport, p->is.dest, &w);
    for (size_t i = 0; i < w.gate_count; i++) {
        json_add(gates, queue_gate(q, p, &w, &w.gates[i]));
    }
    json_put(object, "gates", gates);
    gate_sum_up(object);
    if (p->is.in_memory && can_estimate(object)) {
        estimate(p, &w, earliest_of(object), object);
    }
    add_history(p, object);
    return object;
}

/* Answers for a transport that only a store with its own routes names, and the scheduler does not
 * have. */
static unsigned why_channel(struct queue *q, struct slice wanted, json_t **ret_answer)
{
    struct slice nexthop = wanted, transport = slice_cut(&nexthop, '/');
    json_t *gate = gate_no_command(q->conf, transport, nexthop);
    uint64_t count;

    if (gate == NULL ||
        spool_count(q->spool, &(struct spool_filter){.destination = wanted}, &count) != 0 ||
        count == 0) {
        json_decref(gate);
        return listing_error(404, ret_answer, "%.*s: no such transport", SLICE_ARGS(wanted));
    }
    *ret_answer = json_pack("{s:o, s:o, s:o, s:s, s:[o]}", "transport", listing_text(transport),
                            "destination", listing_text(nexthop), "nexthop", listing_text(nexthop),
                            "state", "unknown", "gates", gate);
    CHECK(*ret_answer != NULL);
    gate_sum_up(*ret_answer);
    return 200;
}

json_t *why_named(struct queue *q, const struct conf_list *names)
{
    json_t *array = json_array();

    for (size_t i = 0; i < names->count; i++) {
        struct sched_dest_info info;
        struct slice dest;
        struct route room;
        uint32_t transport;

        if (find_place(q, slice_string(names->items[i]), &room, &transport, &dest) &&
            sched_dest_get(q->sched, transport, dest, &info)) {
            json_add(array, why_site_json(q, &info));
        }
    }
    return array;
}

/* Member of an answer between nodes: another node owns the destination. */
#define ELSEWHERE "elsewhere"

unsigned why_site(struct queue *q, const json_t *question, json_t **ret_answer)
{
    char lower[SCHED_DEST_NAME_MAX], canonical[SCHED_DEST_NAME_MAX];
    struct listing_filter filter;
    struct slice text, dest;
    const char *error;
    uint32_t transport;
    struct gate_place p;
    struct route room;

    if (!listing_filter(json_object_get(question, "filter"), clock_wall(), &filter, &error)) {
        return listing_error(400, ret_answer, "%s", error);
    }
    text = nexthop_canonical(filter.spool.destination, canonical, sizeof canonical);
    if (text.len == 0 || text.len > sizeof lower) {
        return listing_error(400, ret_answer, "destination: transport/nexthop is expected");
    }
    for (size_t i = 0; i < text.len; i++) {
        lower[i] = ascii_lower(text.ptr[i]);
    }
    text.ptr = lower;
    if (!find_place(q, text, &room, &transport, &dest) || dest.len == 0) {
        return why_channel(q, text, ret_answer);
    }
    gate_place_init(&p, q, transport, dest);
    *ret_answer = site_details(q, &p);
    if (!facts_is_own(q, &p.is)) {
        json_put(*ret_answer, ELSEWHERE, json_true());
    }
    gate_place_fini(&p);
    return 200;
}

/* Ranks an answer; a higher number is a better one. 4: from the owner, with the destination in
 * memory. 3: from a node that still delivers there by older routes. 2: from the owner, without data
 * in memory. 1: from another node, which may have a history. 0: not valid. */
static unsigned site_rank(unsigned status, const json_t *answer)
{
    const char *state = json_string_value(json_object_get(answer, "state"));
    bool is_known = state != NULL && strcmp(state, "unknown") != 0;

    if (status != 200 || state == NULL) {
        return 0;
    }
    if (json_object_get(answer, ELSEWHERE) == NULL) {
        return is_known ? 4 : 2;
    }
    return is_known && (json_integer_value(json_object_get(answer, "busy")) > 0 ||
                        json_integer_value(json_object_get(answer, "waiting")) > 0)
               ? 3
               : 1;
}

static void merge_site(struct inquiry *in, int node, const char *name, unsigned status,
                       json_t *answer)
{
    unsigned rank = site_rank(status, answer);

    (void)node;
    if (status == 200 && rank == 0) {
        return; /* not valid */
    }
    if (json_object_size(in->answer) == 0 || rank > site_rank(in->status, in->answer)) {
        json_decref(in->answer);
        in->answer = json_incref(answer);
        in->status = status;
        if (rank > 2) {
            put_node(in->answer, name);
        }
    }
    in->is_enough = rank == 4;
}

static void finish_site(struct inquiry *in)
{
    (void)json_object_del(in->answer, ELSEWHERE);
    if (json_object_size(in->answer) == 0 ||
        (in->status == 200 && json_object_get(in->answer, "state") == NULL)) {
        json_decref(in->answer);
        in->status = listing_error(503, &in->answer, "no node has answered");
    }
}

unsigned why_site_spread(struct queue *q, const json_t *question, struct inquiry *in,
                         json_t **ret_answer)
{
    (void)q;
    (void)ret_answer; /* not used: each node reports errors of the query */
    in->merge = merge_site;
    in->failed = inquiry_some_failed;
    in->finish = finish_site;
    in->answer = json_object();
    in->question = json_copy((json_t *)(uintptr_t)question);
    CHECK(in->question != NULL);
    inquiry_open_all(inquiry_add(in, (struct msg_id){0}));
    return 0;
}
