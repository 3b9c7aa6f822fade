#include "queue_overview.h"

#include <inttypes.h>
#include <stdio.h>

#include "clock.h"
#include "gate.h"
#include "json.h"
#include "listing.h"
#include "mem.h"
#include "policy.h"
#include "queue.h"
#include "queue_gate.h"
#include "queue_measures.h"
#include "queue_why.h"
#include "spool_lease.h"
#include "spool_others.h"
#include "spool_search.h"

/* Rows of a table: the largest and the default number. */
#define ROWS_MAX  500
#define ROWS_DEAL 100
/* Dead destinations that are problems of their own. */
#define DEAD_TOLD_MAX 5
/* Difference of clocks that is reported. */
#define CLOCK_US (2 * US_PER_S)
/* Age of mail that is reported. */
#define OLD_US (4 * 3600 * US_PER_S)

/* ---- problems -------------------------------------------------------------------------------- */

/* Adds a problem with its severity ("critical": no mail moves; "warning": some mail does not;
 * "info") and its begin (us 0: unknown). */
static json_t *problem(json_t *list, const char *name, const char *severity, struct wall since)
{
    json_t *one = json_pack("{s:s, s:s}", "problem", name, "severity", severity);

    json_put_time(one, "since", since);
    json_add(list, one);
    return one;
}

static void look_at_storage(const struct queue *q, json_t *list)
{
    const struct wire_flow *flow = &q->clients.flow;
    json_t *one;

    if (!flow->storage_ok) {
        one = problem(list, "storage", "critical", (struct wall){0});
        gate_say(one, "text",
                 "Results can't be stored: no mail is accepted, nothing new is delivered.");
        gate_say(
            one, "advice",
            "Look at the log for \"commit failed\", a full or failed disk, or \"nothing is "
            "accepted\", a database with other settings than needed. It goes on by itself when "
            "that is repaired.");
    }
    if (!flow->space_ok) {
        one = problem(list, "space", "critical", (struct wall){0});
        gate_say(one, "text", "Less than queue_minfree is free: clients are asked to come back.");
        gate_say(one, "advice",
                 "Give the spool's disk room; see below which destinations hold mail.");
    }
    if (flow->behind) {
        one = problem(list, "behind", "warning", (struct wall){0});
        gate_say(one, "text",
                 "Mail comes faster than it can be stored and handed on: clients are slowed down.");
        gate_say(
            one, "advice",
            "Nothing needs to be done for a peak. If it lasts: a faster disk, or fewer clients "
            "at once (smtpd_connection_limit).");
    }
}

static void look_at_lease(const struct queue *q, json_t *list)
{
    const char *why = spool_lease_why(q->spool);
    json_t *one;

    if (!node_lease_holds(&q->lease)) {
        one = problem(list, "lease", "critical", (struct wall){0});
        gate_say(one, "text",
                 "This node's lease is over: it delivers nothing. Other nodes may have its "
                 "mail.%s%s",
                 why[0] != '\0' ? " Why: " : "", why);
        gate_say(one, "advice",
                 "Look whether the database and its standby answer, and whether this machine "
                 "reaches them. It goes on by itself when they do.");
    }
}

static void look_at_clock(const struct queue *q, json_t *list)
{
    struct spool_node_measures m;
    json_t *one;

    if (!spool_has_others(q->spool)) {
        return;
    }
    spool_measure_node(q->spool, &m);
    if (m.clock_us < -CLOCK_US || m.clock_us > CLOCK_US) {
        one = problem(list, "clock", "warning", (struct wall){0});
        gate_say(one, "text", "This machine's clock is %.1f s %s the database's.",
                 (double)(m.clock_us < 0 ? -m.clock_us : m.clock_us) / (double)US_PER_S,
                 m.clock_us < 0 ? "behind" : "ahead of");
        gate_say(one, "advice", "Let both keep the time by NTP. sluice node list has all nodes'.");
    }
}

static void look_at_audit(const struct queue *q, json_t *list)
{
    json_t *one;

    if (q->auditor.findings > 0 && q->auditor.last_is_damage) {
        one = problem(list, "damage", "critical", q->auditor.last_finding);
        gate_say(one, "text", "The store has damage: %s", q->auditor.last_words);
        gate_say(
            one, "advice",
            "Look at the disk first: its log, SMART, the file system. Then stop the daemon and "
            "run the command; the mail waits there until then, and other mail goes on.");
    } else if (q->auditor.findings > 0) {
        one = problem(list, "audit", "critical", q->auditor.last_finding);
        gate_say(one, "text", "A fault of this program was found and repaired where it can be: %s",
                 q->auditor.last_words);
        gate_say(one, "advice", "Please report it with the log of that minute.");
    }
}

static void look_at_interventions(const struct queue *q, json_t *list)
{
    size_t count = q->interventions.unreadable;
    json_t *one;

    if (count > 0) {
        one = problem(list, "unreadable", "critical", (struct wall){0});
        gate_say(one, "text",
                 "%zu intervention%s can't be read in the spool: the mail that %s about, or all "
                 "mail, is held.",
                 count, count == 1 ? "" : "s", count == 1 ? "it is" : "they are");
        gate_say(one, "advice",
                 "\"sluice interventions\" shows what is held and why. Set again what was ordered, "
                 "then cancel the unreadable ones: \"sluice cancel NAME\".");
    }
}

static void look_at_transports(const struct queue *q, json_t *list, struct wall now)
{
    for (uint32_t i = 0; i < q->transports.count; i++) {
        struct sched_transport_info info;
        json_t *one;

        sched_transport_get(q->sched, i, &info);
        if (!info.dead) {
            continue;
        }
        one = problem(list, "transport_dead", "critical", gate_wall(info.since));
        gate_say(one, "text", "No process delivers for %s: %.*s", transport_name(&q->transports, i),
                 SLICE_ARGS(info.reason));
        gate_say(one, "advice",
                 "It is tried again at %s; the log has the reason why its processes end.",
                 gate_clock(gate_wall(info.until), now).text);
    }
}

static void look_at_states(const json_t *status, json_t *list, struct wall now)
{
    const json_t *oldest = json_object_get(status, "oldest");
    json_int_t corrupt = json_integer_value(json_object_get(status, "corrupt"));
    json_int_t held = json_integer_value(json_object_get(status, "hold"));
    static const char *const waiting[] = {"incoming", "deferred"};
    json_t *one;

    if (corrupt > 0) {
        one = problem(list, "corrupt", "warning", (struct wall){0});
        gate_say(one, "text", "%" JSON_INTEGER_FORMAT " message%s made no sense and %s set aside.",
                 corrupt, corrupt == 1 ? "" : "s", corrupt == 1 ? "was" : "were");
        gate_say(one, "advice", "Look at each: it has its reason; then hold it, or delete it.");
        json_put(one, "state", json_string("corrupt"));
    }
    if (held > 0) {
        one = problem(list, "held", "info", (struct wall){0});
        gate_say(one, "text", "%" JSON_INTEGER_FORMAT " message%s on hold.", held,
                 held == 1 ? " is" : "s are");
        gate_say(one, "advice", "Nothing happens to them before someone releases or deletes them.");
        json_put(one, "state", json_string("hold"));
    }
    for (size_t i = 0; i < 2; i++) {
        struct wall arrived = {
            (int64_t)(json_number_value(json_object_get(oldest, waiting[i])) * (double)US_PER_S)};

        if (arrived.us != 0 && now.us - arrived.us > OLD_US) {
            one = problem(list, "old", "warning", arrived);
            gate_say(one, "text", "The oldest %s message has waited for %s.", waiting[i],
                     gate_interval(now.us - arrived.us).text);
            gate_say(one, "advice", "Open it: its page shows what each recipient waits for.");
            json_put(one, "state", json_string(waiting[i]));
        }
    }
}

/* Adds the dead destinations, those longest dead first. */
static void look_at_destinations(const json_t *sites, json_int_t dead, json_t *list,
                                 struct wall now)
{
    const json_t *site;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)sites, i, site)
    {
        const char *transport = json_string_value(json_object_get(site, "transport"));
        const char *name = json_string_value(json_object_get(site, "destination"));
        const char *reason = json_string_value(json_object_get(site, "reason"));
        double since = json_number_value(json_object_get(site, "since"));
        double until = json_number_value(json_object_get(site, "until"));
        json_t *one;

        if (i == DEAD_TOLD_MAX) {
            one = problem(list, "more_dead", "warning", (struct wall){0});
            gate_say(one, "text", "%" JSON_INTEGER_FORMAT " destinations are dead in all.", dead);
            gate_say(one, "advice",
                     "The same words from many sites are about our network or our reputation.");
            return;
        }
        one = problem(list, "dead", "warning", (struct wall){(int64_t)(since * (double)US_PER_S)});
        gate_say(one, "text", "%s/%s does not accept mail: %s", transport, name,
                 reason != NULL ? reason : "it failed too often");
        gate_say(one, "advice",
                 "Nothing needs to be done if the fault is theirs: it is tried again at %s. Other "
                 "mail does not wait for it.",
                 gate_clock((struct wall){(int64_t)(until * (double)US_PER_S)}, now).text);
        json_put(one, "destination", json_sprintf("%s/%s", transport, name));
    }
}

static json_t *own_problems(struct queue *q, const json_t *troubled)
{
    struct wall now = clock_wall();
    json_t *list = json_array();

    look_at_storage(q, list);
    look_at_lease(q, list);
    look_at_interventions(q, list);
    look_at_clock(q, list);
    look_at_transports(q, list, now);
    look_at_audit(q, list);
    look_at_destinations(troubled, sched_totals(q->sched).dead_destinations, list, now);
    return list;
}

json_t *overview_own_problems(struct queue *q)
{
    json_t *troubled = why_troubled(q), *list = own_problems(q, troubled);

    json_decref(troubled);
    return list;
}

void overview_put(struct queue *q, json_t *status)
{
    struct wall now = clock_wall();
    json_t *list;

    json_put(status, "time", json_seconds(now.us));
    json_put(status, "oldest", measures_oldest(q));
    json_put(status, "troubled", why_troubled(q));
    list = own_problems(q, json_object_get(status, "troubled"));
    look_at_states(status, list, now);
    json_put(status, "problems", list);
}

/* ---- destinations ---------------------------------------------------------------------------- */

/* Adds the scheduler's values and the history of a destination to its row. */
static void add_known(struct queue *q, json_t *row, uint32_t transport, struct slice dest)
{
    struct destination_facts facts;
    const struct history_reply *reply;

    facts_of_destination(q, transport, dest, &facts);
    if (facts.in_memory) {
        json_t *site = why_site_json(q, &facts.info);

        CHECK(json_object_update_new(row, site) == 0);
    }
    if (facts.history != NULL && facts.history->reply_count > 0) {
        reply = &facts.history->replies[0];
        json_put(row, "last_reply",
                 json_pack("{s:o, s:o, s:o}", "at", json_seconds(reply->last.us), "status",
                           listing_text(slice_string(reply->status)), "text",
                           listing_text(slice_string(reply->text))));
    }
}

static json_t *row_of(struct queue *q, const struct spool_destination *d)
{
    json_t *row = json_pack("{s:o, s:o, s:I, s:I}", "transport", listing_text(d->transport),
                            "nexthop", listing_text(d->nexthop), "recipients", (json_int_t)d->rcpts,
                            "messages", (json_int_t)d->messages);
    char lower[SCHED_DEST_NAME_MAX];
    uint32_t transport;

    CHECK(row != NULL);
    json_put(row, "on_disk", json_integer((json_int_t)d->messages));
    if (d->nexthop.len <= sizeof lower &&
        transport_find(&q->transports, d->transport, &transport)) {
        for (size_t i = 0; i < d->nexthop.len; i++) {
            lower[i] = ascii_lower(d->nexthop.ptr[i]);
        }
        add_known(q, row, transport, slice_of(lower, d->nexthop.len));
    }
    return row;
}

/* Adds the arrival of the oldest message on disk. With the destination as the only condition that
 * is one step in an index; an engine without one would have to read each file. */
static void add_oldest(struct queue *q, json_t *row)
{
    char name[2 * SPOOL_ROUTE_MAX + 2];
    struct spool_filter f = {.states = 0};
    struct spool_message m;
    struct msg_id id;
    size_t count = 0;

    if (spool_due_by_scans(q->spool) ||
        snprintf(name, sizeof name, "%s/%s", json_string_value(json_object_get(row, "transport")),
                 json_string_value(json_object_get(row, "nexthop"))) >= (int)sizeof name) {
        return;
    }
    f.destination = slice_string(name);
    if (spool_scan(q->spool, &f, 1, &id, &count) == 0 && count == 1 &&
        spool_read(q->spool, id, &m) == 0) {
        json_put_time(row, "oldest", m.arrived);
    }
}

unsigned overview_table(struct queue *q, const json_t *question, json_t **ret_answer)
{
    const json_t *given = json_object_get(question, "max");
    json_int_t wanted = given == NULL ? ROWS_DEAL : json_integer_value(given);
    size_t max = wanted < 1 ? 1 : wanted > ROWS_MAX ? ROWS_MAX : (size_t)wanted, count = 0;
    struct spool_destination *list = mem_array(max, sizeof *list);
    json_t *rows = json_array();
    int rc = spool_destinations(q->spool, max, list, &count);
    struct sched_totals t = sched_totals(q->sched);

    for (size_t i = 0; rc == 0 && i < count; i++) {
        json_add(rows, row_of(q, &list[i]));
    }
    for (size_t i = 0; rc == 0 && i < count; i++) { /* each call invalidates the slices of the
                                                     * list */
        add_oldest(q, json_array_get(rows, i));
    }
    mem_free(list);
    if (rc != 0) {
        json_decref(rows);
        return listing_error(503, ret_answer, "%s", spool_error(q->spool));
    }
    *ret_answer =
        json_pack("{s:f, s:o, s:o, s:o, s:I}", "time", (double)clock_wall().us / (double)US_PER_S,
                  "destinations", rows, "busiest", why_busiest(q), "troubled", why_troubled(q),
                  "in_memory", (json_int_t)t.destinations);
    CHECK(*ret_answer != NULL);
    return 200;
}

/* ---- classes --------------------------------------------------------------------------------- */

unsigned overview_classes(struct queue *q, const json_t *question, json_t **ret_answer)
{
    json_t *list = json_array();

    (void)question; /* has no members */
    for (size_t i = 0; i < q->class_counts.count; i++) {
        const struct class_count *c = &q->class_counts.at[i];
        json_t *delays = json_object();
        json_t *one =
            json_pack("{s:s, s:i, s:I, s:I, s:I, s:I}", "class", c->name, "weight",
                      (int)class_weight(q->conf, slice_string(c->name)), "active_messages",
                      (json_int_t)active_class_count(&q->active, slice_string(c->name)),
                      "submitted", (json_int_t)c->submitted, "delivered", (json_int_t)c->delivered,
                      "deferrals", (json_int_t)c->deferred);

        for (int j = 0; j < MEASURE_PHASES; j++) {
            json_put(delays, measure_phase_name((enum measure_phase)j),
                     measure_json(&c->delays[j], &measure_delays));
        }
        json_put(one, "delays", delays);
        json_add(list, one);
    }
    *ret_answer = json_pack("{s:f, s:o}", "time", (double)clock_wall().us / (double)US_PER_S,
                            "classes", list);
    return 200;
}
