/*
 * Gates that only the queue process has, with their texts: those of the scheduler, and its own.
 * docs/api.md describes them; gates that need only the spool are in gate.c.
 */
#include "queue_gate.h"

#include <inttypes.h>
#include <string.h>

#include "check.h"
#include "clock.h"
#include "gate.h"
#include "json.h"
#include "mem.h"
#include "param.h"
#include "queue_agent.h"

struct wall gate_wall(struct mono t)
{
    return (struct wall){t.us == 0 ? 0 : us_add(clock_wall().us - clock_mono().us, t.us)};
}

/* ---- a destination --------------------------------------------------------------------------- */

void gate_place_init(struct gate_place *p, const struct queue *q, uint32_t transport,
                     struct slice dest)
{
    facts_of_destination(q, transport, dest, &p->is);
    buf_init(&p->name, 4096);
    (void)buf_addf(&p->name, "%s/", p->is.transport_name); /* fits */
    (void)buf_add(&p->name, p->is.nexthop != NULL ? slice_string(p->is.nexthop) : dest);
}

void gate_place_fini(struct gate_place *p)
{
    buf_fini(&p->name);
}

void gate_place_origin(struct buf *out, const struct gate_place *p, const char *value)
{
    struct slice nexthop = p->is.nexthop != NULL ? slice_string(p->is.nexthop) : p->is.dest;
    struct policy_origin origins[PARAM_COUNT_MAX], *origin;
    struct policy policy;

    /* false: the transport is no longer configured; the defaults are reported */
    (void)policy_explain(p->is.conf, slice_string(p->is.transport_name), nexthop, &policy, origins);
    origin = &origins[param_find_in_clause(slice_string(value)) - param_table];
    if (origin->file == NULL) {
        (void)buf_addf(out, "%s_%s", p->is.transport_name, value); /* fits, as all appends here */
    } else if (slice_ends_nocase(slice_string(origin->name), slice_string(value))) {
        (void)buf_addf(out, "%s (%s:%u)", origin->name, origin->file, origin->line);
    } else {
        (void)buf_addf(out, "%s in the clause %s (%s:%u)", value, origin->name, origin->file,
                       origin->line);
    }
}

/* Returns the name of the limit: `narrow_name`, a clause's word, if that value is the limit and
 * `wide`, a parameter, is not. */
static const char *limit_name(int64_t limit, int64_t narrow, const char *narrow_name, int64_t wide,
                              const char *wide_name)
{
    return narrow > 0 && narrow == limit && wide != limit ? narrow_name : wide_name;
}

/* Returns the words after the name of a limit of a transport, or of all transports. */
static const char *whose_part(const struct gate_place *p)
{
    return p->is.nodes > 1 ? ", of which each node has a part (cluster_limits)" : "";
}

const char *gate_place_window_limit(const struct gate_place *p)
{
    struct policy policy;

    facts_policy(&p->is, &policy);
    return limit_name(p->is.info.window_max, policy.maxthr, "maxthr",
                      policy.destination_concurrency_limit, "destination_concurrency_limit");
}

/* ---- gates of the scheduler ----------------------------------------------------------------- */

static json_t *gate_begin(const char *name, const struct sched_gate *g)
{
    json_t *gate = gate_new(name, g->closed);

    gate_times(gate, gate_wall(g->since), gate_wall(g->until));
    return gate;
}

static struct gate_clock until_text(const struct sched_gate *g)
{
    return gate_clock(gate_wall(g->until), clock_wall());
}

/* Sets the advice to change a value, with its place. The caller prints the state of the gate. */
static void say_origin(json_t *gate, struct gate_place *p, const char *before, const char *value,
                       const char *behind)
{
    struct buf origin;

    buf_init(&origin, 16384);
    gate_place_origin(&origin, p, value);
    gate_say(gate, "advice", "%s%s%s", before, buf_cstr(&origin), behind);
    buf_fini(&origin);
}

static json_t *transport_dead(struct gate_place *p, const struct sched_gate *g)
{
    json_t *gate = gate_begin("transport_dead", g);

    if (g->closed) {
        gate_say(gate, "text", "no process delivers for %s: %.*s", p->is.transport_name,
                 SLICE_ARGS(p->is.transport_info.reason));
        gate_say(gate, "advice",
                 "It is tried again at %s by itself; the log has the reason. To try at once: "
                 "sluice flush",
                 until_text(g).text);
    } else {
        gate_say(gate, "text", "%s is served", p->is.transport_name);
    }
    return gate;
}

static json_t *transport_limit(struct gate_place *p, const struct sched_gate *g)
{
    json_t *gate = gate_begin("transport_limit", g);
    const char *parameter;
    struct policy policy;

    gate_count(gate, g->value, g->limit);
    facts_policy(&p->is, &policy);
    parameter = limit_name((int64_t)g->limit, policy.maxchannel, "maxchannel", policy.process_limit,
                           "process_limit");
    if (g->limit > 0) {
        gate_say(gate, "text", "%s has %" PRIu64 " of %" PRIu64 " %s", p->is.transport_name,
                 g->value, g->limit,
                 strcmp(parameter, "maxchannel") == 0 ? "agents at work" : "deliveries in flight");
    } else {
        gate_say(gate, "text", "%s has %" PRIu64 " deliveries in flight, without a limit",
                 p->is.transport_name, g->value);
    }
    if (g->closed) {
        say_origin(gate, p,
                   "One of these must end first, whatever it is for. When the machine and the "
                   "line have room for more, raise ",
                   parameter, whose_part(p));
    }
    return gate;
}

static json_t *rate(const char *name, struct gate_place *p, const struct sched_gate *g,
                    const char *whose, int64_t delay_us, const char *value)
{
    json_t *gate = gate_begin(name, g);

    if (delay_us <= 0) {
        gate_say(gate, "text", "%s has no rate delay", whose);
        return gate;
    }
    gate_say(gate, "text", "%s gets one delivery every %s at most", whose,
             gate_interval(delay_us).text);
    if (g->closed) {
        say_origin(gate, p,
                   "Nothing needs to be done: the pause ends by itself. How long it is: ", value,
                   "");
    }
    return gate;
}

/* words for a state that is in another node's log */
#define HANDED_OVER "; so another node has found, which has handed it over"

static json_t *dest_rate(struct gate_place *p, const struct sched_gate *g)
{
    json_t *gate = rate("destination_rate", p, g, buf_cstr(&p->name), p->is.info.rate_delay_us,
                        "destination_rate_delay");

    if (g->closed && p->is.info.handed_over) {
        gate_say(gate, "text",
                 "%s gets one delivery every %s at most, and another node, which has handed it "
                 "over, made one",
                 buf_cstr(&p->name), gate_interval(p->is.info.rate_delay_us).text);
    }
    return gate;
}

static json_t *dest_dead(struct gate_place *p, const struct sched_gate *g)
{
    json_t *gate = gate_begin("destination_dead", g);

    if (g->closed && p->is.info.postponed) {
        gate_say(gate, "text", "%s is put off: %.*s", buf_cstr(&p->name),
                 SLICE_ARGS(p->is.info.reason));
        gate_say(gate, "advice",
                 "Nothing needs to be done: it goes on at %s by itself, as its agent has asked. To "
                 "try now: sluice flush %s",
                 until_text(g).text, buf_cstr(&p->name));
    } else if (g->closed) {
        gate_say(gate, "text", "%s can't be reached: %.*s%s", buf_cstr(&p->name),
                 SLICE_ARGS(p->is.info.reason), p->is.info.handed_over ? HANDED_OVER : "");
        gate_say(gate, "advice",
                 "Nothing needs to be done: it is tried again at %s by itself. When you know that "
                 "the site is well again: sluice flush %s",
                 until_text(g).text, buf_cstr(&p->name));
    } else {
        gate_say(gate, "text", "%s is not known to be dead", buf_cstr(&p->name));
    }
    return gate;
}

static json_t *window(struct gate_place *p, const struct sched_gate *g)
{
    json_t *gate = gate_begin("window", g);

    gate_count(gate, g->value, g->limit);
    gate_say(gate, "text", "%s has %" PRIu64 " of %" PRIu64 " %s", buf_cstr(&p->name), g->value,
             g->limit, p->is.info.depth > 1 ? "agents at work" : "deliveries in flight");
    if (g->closed && p->is.info.state == SCHED_DEST_PROBING) {
        gate_say(gate, "text",
                 "%s was dead, and gets one delivery at a time until one ends well: %.*s",
                 buf_cstr(&p->name), SLICE_ARGS(p->is.info.reason));
        gate_say(
            gate, "advice",
            "Nothing needs to be done: when that one ends well the others follow, when it fails "
            "they are tried later");
    } else if (g->closed && p->is.info.window_max > 0 &&
               p->is.info.window >= p->is.info.window_max) {
        say_origin(gate, p,
                   "The site gets as many deliveries at once as it may. If you know that it can "
                   "take more, raise ",
                   gate_place_window_limit(p), "");
    } else if (g->closed) {
        gate_say(gate, "advice",
                 "Nothing needs to be done: the window follows what the site can take. How it came "
                 "to be %" PRIu64 ": sluice why %s",
                 g->limit, buf_cstr(&p->name));
    }
    return gate;
}

static json_t *ring(struct gate_place *p, const struct sched_gate *g)
{
    json_t *gate = gate_begin("ring", g);

    gate_count(gate, g->value, g->limit);
    gate_say(gate, "text",
             "the destinations of its clause use %" PRIu64 " of the %" PRIu64
             " agents that they share",
             g->value, g->limit);
    if (g->closed) {
        say_origin(gate, p,
                   "It gets one in its turn, when one of those becomes free. When the machine and "
                   "the line have room for more, raise ",
                   "maxring", "");
    }
    return gate;
}

static json_t *agents(struct gate_place *p, const struct sched_gate *g)
{
    json_t *gate = gate_begin("agents", g);

    gate_count(gate, g->value, g->limit);
    gate_say(gate, "text", "all transports together use %" PRIu64 " of %" PRIu64 " agents",
             g->value, g->limit);
    if (g->closed) {
        say_origin(gate, p,
                   "One of these must become free first, whatever it is for. When the machine has "
                   "room for more, raise ",
                   "maxta", whose_part(p));
    }
    return gate;
}

static json_t *failing(struct gate_place *p, const struct sched_gate *g)
{
    json_t *gate = gate_begin("failing_share", g);

    gate_count(gate, g->value, g->limit);
    gate_say(gate, "text",
             "%s: %s; such destinations together have %" PRIu64 " of the %" PRIu64
             " deliveries that they may have at once",
             buf_cstr(&p->name),
             p->is.info.failing ? "a delivery failed since one ended well"
                                : "no delivery has ended well yet",
             g->value, g->limit);
    if (g->closed) {
        gate_say(gate, "advice",
                 "Nothing needs to be done: it goes on when one of those ends. The others of the "
                 "transport's deliveries are kept for destinations that are well "
                 "(qmgr_failing_share)");
    }
    return gate;
}

static json_t *class_turn(struct gate_place *p, const struct sched_gate *g)
{
    json_t *gate = gate_begin("class", g);

    gate_count(gate, g->value, g->limit);
    gate_say(gate, "text",
             "mail of other classes waits for %s, too; of each %" PRIu64
             " deliveries its class gets %" PRIu64,
             buf_cstr(&p->name), g->limit, g->value);
    gate_say(gate, "advice",
             "Nothing needs to be done: the classes take turns. A larger weight= in the clause "
             "class/NAME gives it more of them");
    return gate;
}

static json_t *sender_turn(struct gate_place *p, const struct sched_gate *g)
{
    json_t *gate = gate_begin("sender", g);

    gate_count(gate, g->value, g->limit);
    gate_say(gate, "text",
             "mail of other senders of its class waits for %s, too; of each %" PRIu64
             " deliveries of the class its sender gets %" PRIu64,
             buf_cstr(&p->name), g->limit, g->value);
    gate_say(gate, "advice",
             "Nothing needs to be done: the senders take turns. Who counts as one is decided by "
             "class_fairness and class_fairness_merge");
    return gate;
}

static json_t *behind(struct gate_place *p, const struct sched_gate *g)
{
    json_t *gate = gate_begin("behind", g);

    gate_count(gate, g->value, 0);
    if (g->closed) {
        gate_say(gate, "text", "%" PRIu64 " %s to %s first", g->value,
                 g->value == 1 ? "delivery of another message goes"
                               : "deliveries of other messages go",
                 buf_cstr(&p->name));
        gate_say(gate, "advice",
                 "Nothing needs to be done: they go in their order. Small messages overtake large "
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
             "Nothing needs to be done. What the first ones wait for is shown with them; "
             "default_recipient_limit and qmgr_message_recipient_limit bound the memory");
    return gate;
}

static json_t *delivering(const struct queue *q, struct gate_place *p, const struct sched_gate *g,
                          struct sched_entry entry)
{
    json_t *gate = gate_begin("delivering", g);
    struct delivery_facts d;

    facts_of_delivery(q, entry, &d);
    if (!d.is_sent) {
        gate_say(gate, "text", "it waits for the delivering process, which is being restarted");
        gate_say(gate, "advice",
                 "Nothing needs to be done: after %s without it the mail is deferred. The log has "
                 "the reason",
                 gate_interval(QUEUE_AGENT_WAIT_US).text);
        return gate;
    }
    if (d.role == ROLE_AGENTS && p->is.conf->agent_freeze) {
        gate_say(gate, "text", "it waits for an agent, and none is started (agent_freeze)");
        gate_say(gate, "advice", "Take agent_freeze, or -F, away, then restart");
        return gate;
    }
    gate_say(gate, "text", "%s is being tried now, by process %s %u%s", buf_cstr(&p->name),
             wire_role_name(d.role), d.index,
             d.is_awaited ? "; another node waits until that has ended" : "");
    gate_say(gate, "advice",
             "Nothing needs to be done: the delivery ends by itself, at the latest when a timeout "
             "passes (sluice config show --for %s)",
             buf_cstr(&p->name));
    return gate;
}

json_t *queue_gate(const struct queue *q, struct gate_place *p, const struct sched_wait *w,
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
        return transport_limit(p, g);
    case SCHED_GATE_TRANSPORT_RATE:
        return rate("transport_rate", p, g, p->is.transport_name,
                    p->is.transport_info.rate_delay_us, "transport_rate_delay");
    case SCHED_GATE_DEST_DEAD:
        return dest_dead(p, g);
    case SCHED_GATE_DEST_RATE:
        return dest_rate(p, g);
    case SCHED_GATE_WINDOW:
        return window(p, g);
    case SCHED_GATE_RING:
        return ring(p, g);
    case SCHED_GATE_AGENTS:
        return agents(p, g);
    case SCHED_GATE_FAILING:
        return failing(p, g);
    case SCHED_GATE_CLASS:
        return class_turn(p, g);
    case SCHED_GATE_GROUP:
        return sender_turn(p, g);
    case SCHED_GATE_BEHIND:
        return behind(p, g);
    }
    UNREACHABLE("no such gate");
}

/* ---- gates of the queue process ------------------------------------------------------------- */

static json_t *storage_gate(const char *error)
{
    json_t *gate = gate_new("storage", true);

    gate_say(gate, "text",
             "what became of earlier deliveries can't be stored (%s): nothing new is started",
             error);
    gate_say(gate, "advice",
             "Make the storage work: space on the disk, the file system, the log has the error. "
             "Nothing needs a restart then");
    return gate;
}

static json_t *lease_gate(void)
{
    json_t *gate = gate_new("lease", true);

    gate_say(gate, "text",
             "this node's lease is over, as the database has not renewed it in time: another node "
             "may deliver this mail by now, so this one starts nothing");
    gate_say(gate, "advice",
             "Nothing needs to be done when the database answers again. Until then: is it there, "
             "and its standby? Can this machine reach it?");
    return gate;
}

void queue_gate_damage(const char *why, struct mono again, const char *command, json_t *gates)
{
    json_t *gate = gate_new("storage", true);

    if (again.us == MONO_NEVER.us) {
        gate_say(gate, "text", "it can't be read: %s", why);
    } else {
        gate_times(gate, (struct wall){0}, gate_wall(again));
        gate_say(gate, "text",
                 "it can't be read, or what became of its deliveries can't be stored, and that is "
                 "tried again at %s: %s",
                 gate_clock(gate_wall(again), clock_wall()).text, why);
    }
    gate_say(gate, "advice", "Other mail goes on. What is in its way there is found by `%s'",
             command);
    CHECK(json_array_insert_new(gates, 0, gate) == 0);
}

void queue_gate_all_mail(const struct queue *q, json_t *gates)
{
    struct queue_facts is;

    facts_of_queue(q, &is);
    if (is.storage_error != NULL) {
        CHECK(json_array_insert_new(gates, 0, storage_gate(is.storage_error)) == 0);
    }
    if (is.lease_is_over) {
        CHECK(json_array_insert_new(gates, 0, lease_gate()) == 0);
    }
}

void queue_gate_room(const struct queue *q, json_t *gates)
{
    struct queue_facts is;
    json_t *gate;

    facts_of_queue(q, &is);
    gate = gate_new("active_queue", !is.has_room);
    gate_count(gate, is.messages, (uint64_t)is.messages_max);
    gate_say(gate, "text", "%" PRIu32 " of %" PRId64 " messages are in memory", is.messages,
             is.messages_max);
    if (!is.has_room) {
        gate_say(gate, "advice",
                 "Nothing needs to be done: it is read when others have left. What holds those up: "
                 "sluice status. More memory for more messages: qmgr_message_active_limit");
    }
    json_add(gates, gate);
}
