#include "gate.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "clock.h"
#include "hash.h"
#include "json.h"
#include "listing.h"
#include "mem.h"
#include "park_key.h"
#include "route.h"

/* ---- a gate ---------------------------------------------------------------------------------- */

json_t *gate_new(const char *name, bool closed)
{
    json_t *gate = json_pack("{s:s, s:b}", "gate", name, "closed", (int)closed);

    CHECK(gate != NULL);
    return gate;
}

void gate_count(json_t *gate, uint64_t value, uint64_t limit)
{
    json_put(gate, "value", json_integer((json_int_t)value));
    if (limit > 0) {
        json_put(gate, "limit", json_integer((json_int_t)limit));
    }
}

void gate_times(json_t *gate, struct wall since, struct wall until)
{
    json_put_time(gate, "since", since);
    json_put_time(gate, "until", until);
}

void gate_say(json_t *gate, const char *member, const char *format, ...)
{
    va_list args;
    struct buf text;

    buf_init(&text, 16384);
    va_start(args, format);
    (void)buf_addv(&text, format, args); /* fits: reasons and names are far shorter */
    va_end(args);
    json_put(gate, member, listing_text(buf_slice(&text)));
    buf_fini(&text);
}

struct gate_clock gate_clock(struct wall t, struct wall now)
{
    time_t seconds = (time_t)(us_seconds(t.us) + clock_zone(t));
    int64_t away = t.us > now.us ? t.us - now.us : now.us - t.us;
    struct gate_clock c = {.text = ""};
    struct tm tm;

    if (gmtime_r(&seconds, &tm) != NULL) {
        (void)strftime(c.text, sizeof c.text,
                       away < 12 * 3600 * US_PER_S ? "%H:%M:%S" : "%Y-%m-%d %H:%M:%S",
                       &tm); /* fits */
    }
    return c;
}

struct gate_clock gate_interval(int64_t us)
{
    struct gate_clock c;
    double s = (double)us / (double)US_PER_S;

    if (s < 10) {
        (void)snprintf(c.text, sizeof c.text, "%.2gs", s); /* all of these fit */
    } else if (s < 120) {
        (void)snprintf(c.text, sizeof c.text, "%.0fs", s);
    } else if (s < 7200) {
        (void)snprintf(c.text, sizeof c.text, "%.0fm", s / 60);
    } else {
        (void)snprintf(c.text, sizeof c.text, "%.1fh", s / 3600);
    }
    return c;
}

/* ---- gates from the spool -------------------------------------------------------------------- */

static json_t *held(const struct spool_message *m, const char *id)
{
    json_t *gate = gate_new("held", true);

    gate_times(gate, m->due, (struct wall){0}); /* held mail is due when it was put on hold */
    gate_say(gate, "text", "it is on hold: %.*s", SLICE_ARGS(m->reason));
    gate_say(gate, "advice",
             "It stays until somebody releases it: sluice release %s. To get rid of it: sluice "
             "delete %s",
             id, id);
    return gate;
}

void gate_advise_corrupt(json_t *gate, const char *id)
{
    gate_say(gate, "advice",
             "It is kept for you to look at: sluice cat %s prints what can be read. To go on with "
             "the recipients that are left: sluice hold %s, then sluice release %s. When it is "
             "dealt with: sluice delete %s",
             id, id, id, id);
}

static json_t *corrupt(const struct spool_message *m, const char *id)
{
    json_t *gate = gate_new("corrupt", true);

    gate_times(gate, m->due, (struct wall){0});
    gate_say(gate, "text", "it can't be decoded, and was quarantined: %.*s", SLICE_ARGS(m->reason));
    gate_advise_corrupt(gate, id);
    return gate;
}

static json_t *not_due(const struct conf *conf, const struct spool_message *m,
                       const char *destination, struct wall now)
{
    struct wall next = spool_next_attempt(m);
    bool waits = next.us > now.us;
    json_t *gate = gate_new("not_due", waits);
    struct gate_clock due = gate_clock(next, now);

    gate_times(gate, (struct wall){0}, waits ? next : (struct wall){0});
    if (m->due.us > now.us) {
        gate_say(gate, "text",
                 "it is not tried again before %s: the wait grows with the age of the message, "
                 "from minimal_backoff_time (%s) to maximal_backoff_time (%s)%s%s",
                 gate_clock(m->due, now).text, gate_interval(conf->minimal_backoff_time_us).text,
                 gate_interval(conf->maximal_backoff_time_us).text,
                 m->due.us < next.us ? ", and then at the next run of the queue, at " : "",
                 m->due.us < next.us ? due.text : "");
    } else if (waits) {
        gate_say(gate, "text",
                 "it is due since %s, and is tried at %s, by the next run of the queue: one begins "
                 "every queue_run_delay (%s)",
                 gate_clock(m->due, now).text, due.text,
                 gate_interval(conf->queue_run_delay_us).text);
    }
    if (waits) {
        gate_say(gate, "advice",
                 "Nothing needs to be done: the next attempt is at %s by itself. When the cause of "
                 "the failure is gone, you may try at once: sluice flush %s",
                 due.text, destination);
    } else {
        gate_say(gate, "text", "it is due since %s", due.text);
    }
    return gate;
}

bool gate_is_parked_for(const struct spool_message *m, const char *transport, const char *dest)
{
    struct slice at = park_key_place(m->parked), name = slice_cut(&at, '/');

    return m->parked.len > 0 && park_key_kind(m->parked) == PARK_SHARE &&
           slice_equal(name, slice_string(transport)) && slice_equal(at, slice_string(dest));
}

static json_t *parked(const struct spool_message *m, const struct route *route,
                      const char *destination, struct wall now, bool knows_interventions)
{
    json_t *gate = gate_new("parked", true);

    if (knows_interventions && !gate_is_parked_for(m, route->transport, route->destination)) {
        gate_say(gate, "text",
                 "it was parked for %.*s, and its route has changed: it goes to %s as soon as the "
                 "change has come to it",
                 SLICE_ARGS(park_key_place(m->parked)), destination);
        gate_say(
            gate, "advice",
            "Nothing needs to be done: a change of routes is applied to all waiting mail within "
            "seconds. What holds up mail for %s: sluice why %s",
            destination, destination);
        return gate;
    }
    gate_say(
        gate, "text",
        "it waits on disk until %s can take more; the oldest go first, and at %s at the latest "
        "it is looked at again",
        destination, gate_clock(m->due, now).text);
    gate_say(gate, "advice",
             "Nothing needs to be done: it goes on as others for %s leave. What holds those up: "
             "sluice why %s",
             destination, destination);
    return gate;
}

/* Makes the gate of mail that waits under a retry key. */
static json_t *put_off(const struct conf *conf, const struct spool_message *m,
                       const char *transport, const char *nexthop, const char *destination,
                       struct wall now)
{
    struct gate_clock due = gate_clock(m->due, now);
    struct policy policy;
    json_t *gate;

    policy_for(conf, slice_string(transport), slice_string(nexthop), &policy);
    if (policy.queueonly) {
        gate = gate_new("queueonly", true);
        gate_say(gate, "text", "mail for %s goes only when it is asked for (queueonly)",
                 destination);
        gate_say(gate, "advice", "To ask for it: sluice flush %s, or ETRN", destination);
        return gate;
    }
    if (conf->deliver_only[0] != '\0') {
        gate = gate_new("deliver_only", true);
        gate_say(gate, "text", "only %s is served (deliver_only)", conf->deliver_only);
        gate_say(gate, "advice", "Take deliver_only, or -p, away, then restart");
        return gate;
    }
    gate = gate_new("thread", m->due.us > now.us);
    gate_times(gate, (struct wall){0}, m->due.us > now.us ? m->due : (struct wall){0});
    gate_say(gate, "text",
             "%s is tried again at %s, with all that waits for it: its clause's interval (%s) and "
             "retries decide when",
             destination, due.text, gate_interval(policy.interval_us).text);
    gate_say(
        gate, "advice",
        "Nothing needs to be done: the next attempt is at %s by itself, or when new mail for it "
        "comes. When the cause of the failure is gone, you may try at once: sluice flush %s",
        due.text, destination);
    return gate;
}

json_t *gate_no_command(const struct conf *conf, struct slice transport, struct slice nexthop)
{
    struct policy policy;
    json_t *gate;

    policy_for(conf, transport, nexthop, &policy);
    if (!conf_spool_routes(conf) || conf_spool_uses_services(conf) ||
        (policy.ring != 0 && policy_starts_agents(&policy))) {
        return NULL;
    }
    gate = gate_new("no_command", true);
    if (policy.ring == 0) {
        gate_say(gate, "text", "no clause matches %.*s/%.*s: nobody knows how to deliver there",
                 SLICE_ARGS(transport), SLICE_ARGS(nexthop));
    } else {
        gate_say(gate, "text", "the clause %s, which matches %.*s/%.*s, has no command",
                 policy_clause(conf, policy.ring), SLICE_ARGS(transport), SLICE_ARGS(nexthop));
    }
    gate_say(gate, "advice",
             "Give it one: a clause %.*s/* with command= in the configuration, then sluice reload",
             SLICE_ARGS(transport));
    return gate;
}

/* Makes the gate of mail in a file that another program has locked. */
static json_t *locked(const struct spool_message *m, struct wall now)
{
    struct slice holder = park_key_place(m->parked);
    json_t *gate = gate_new("locked", true);

    gate_say(gate, "text",
             "%.*s, an agent of another scheduler, has locked it: its control file is read again "
             "at %s",
             SLICE_ARGS(holder), gate_clock(m->due, now).text);
    gate_say(gate, "advice",
             "Nothing needs to be done: it goes on when %.*s has released it or has ended. If that "
             "process is no transport agent, end it",
             SLICE_ARGS(holder));
    return gate;
}

static json_t *one_channel_too_many(const char *transport)
{
    json_t *gate = gate_new("no_command", true);

    gate_say(gate, "text", "mail waits for so many channels that %s has found no place", transport);
    gate_say(gate, "advice", "Restart: channels that nobody asks for are forgotten then");
    return gate;
}

static json_t *frozen(void)
{
    json_t *gate = gate_new("frozen", true);

    gate_say(gate, "text", "no transport agents are started (agent_freeze)");
    gate_say(gate, "advice", "Take agent_freeze, or -F, away, then restart");
    return gate;
}

static bool is_deferred_transport(const struct conf *conf, const char *transport)
{
    for (size_t i = 0; i < conf->defer_transports.count; i++) {
        if (strcmp(conf->defer_transports.items[i], transport) == 0) {
            return true;
        }
    }
    return false;
}

static json_t *deferred_transport(const char *transport, const char *destination)
{
    json_t *gate = gate_new("defer_transports", true);

    gate_say(gate, "text", "mail by %s is not tried before it is asked for (defer_transports)",
             transport);
    gate_say(gate, "advice", "To ask for it: sluice flush %s", destination);
    return gate;
}

void gate_add_state(json_t *gates, const struct spool_message *m)
{
    char room[QUEUE_NAME_MAX];
    const char *id = listing_shown_id(m, room);

    json_add(gates, m->state == SPOOL_HOLD ? held(m, id) : corrupt(m, id));
}

/* Makes the gate of paused mail for a reader without the overrides, which only the queue process
 * has. */
static json_t *put_back(const struct spool_message *m, struct wall now)
{
    struct slice pause = park_key_place(m->parked);
    json_t *gate = gate_new("paused", true);

    if (slice_equal(pause, SLICE("*"))) {
        gate_say(gate, "text", "its recipients are paused by several interventions");
    } else {
        gate_say(gate, "text", "%.*s keeps it on disk", SLICE_ARGS(pause));
    }
    gate_say(gate, "advice",
             "sluice interventions lists what operators have decided, and why; to end one: sluice "
             "cancel NAME. It is looked at again at %s in any case",
             gate_clock(m->due, now).text);
    return gate;
}

json_t *gate_paused(const json_t *pause)
{
    const char *name = json_string_value(json_object_get(pause, "name"));
    double since = json_number_value(json_object_get(pause, "since"));
    double until = json_number_value(json_object_get(pause, "until"));
    json_t *gate = gate_new("paused", true);

    gate_times(gate, (struct wall){(int64_t)(since * (double)US_PER_S)},
               (struct wall){(int64_t)(until * (double)US_PER_S)});
    gate_say(gate, "text", "%s", json_string_value(json_object_get(pause, "text")));
    gate_say(gate, "advice", "An operator has decided so%s. To let it go on: sluice cancel %s",
             until > 0 ? ", and it ends by itself" : "", name);
    return gate;
}

static const json_t *pause_of(const json_t *interventions)
{
    const json_t *first = json_array_get(interventions, 0);
    const char *verb = json_string_value(json_object_get(first, "verb"));

    return verb != NULL && strcmp(verb, "pause") == 0 ? first : NULL;
}

static json_t *waiting(const struct conf *conf, const struct spool_message *m,
                       const struct route *route, const char *destination, struct wall now,
                       bool knows_interventions)
{
    json_t *gate;

    if (m->parked.len > 0 && park_key_kind(m->parked) == PARK_PAUSE && knows_interventions) {
        gate = gate_new("not_due", false);
        gate_say(gate, "text", "it was paused, and goes on as soon as nothing else holds it");
        return gate;
    }
    if (m->parked.len == 0) {
        return not_due(conf, m, destination, now);
    }
    switch (park_key_kind(m->parked)) {
    case PARK_RETRY:
    case PARK_REQUEST:
        return put_off(conf, m, route->transport, route->nexthop, destination, now);
    case PARK_STUCK:
        gate = gate_no_command(conf, slice_string(route->transport), slice_string(route->nexthop));
        return gate != NULL ? gate : one_channel_too_many(route->transport);
    case PARK_PAUSE:
        return put_back(m, now);
    case PARK_LOCKED:
        return locked(m, now);
    case PARK_SHARE:
        break;
    }
    return parked(m, route, destination, now, knows_interventions);
}

static void add_spool_gates(json_t *gates, const struct conf *conf, const struct spool_message *m,
                            const struct route *route, const char *destination, struct wall now,
                            const json_t *interventions, bool knows_interventions)
{
    const json_t *pause = pause_of(interventions);

    if (m->state == SPOOL_HOLD || m->state == SPOOL_CORRUPT) {
        gate_add_state(gates, m);
        return;
    }
    if (pause != NULL) {
        json_add(gates, gate_paused(pause));
    }
    json_add(gates, waiting(conf, m, route, destination, now, knows_interventions));
    if (is_deferred_transport(conf, route->transport)) {
        json_add(gates, deferred_transport(route->transport, destination));
    }
    if (conf->agent_freeze && conf_spool_routes(conf)) {
        json_add(gates, frozen());
    }
}

static void keep(struct slice *text, char *room, size_t size)
{
    CHECK(text->len <= size);
    if (text->len > 0) {
        memcpy(room, text->ptr, text->len);
    }
    text->ptr = room;
}

bool gate_read(struct spool *sp, const json_t *show, struct gate_message *ret_message)
{
    struct spool_message *m = &ret_message->message;
    const char *text = json_string_value(json_object_get(show, "queue_id"));
    struct msg_id id;

    if (text == NULL || listing_ids(sp, text, 1, &id) != 1 || spool_read(sp, id, m) != 0) {
        return false;
    }
    keep(&m->reason, ret_message->reason, sizeof ret_message->reason);
    keep(&m->parked, ret_message->parked, sizeof ret_message->parked);
    keep(&m->spoolid, ret_message->spoolid, sizeof ret_message->spoolid);
    return true;
}

/* ---- groups of recipients ------------------------------------------------------------------- */

struct group {
    char *key; /* owned: transport, NUL, destination */
    json_int_t index;
    UT_hash_handle hh;
};

static struct group *group_find(struct group *groups, const char *key, size_t len)
{
    struct group *g;

    HASH_FIND(hh, groups, key, len, g);
    return g;
}

/* Returns the index of a group in "groups", where it is added if it is missing. */
static json_int_t group_need(struct group **groups, json_t *array, const struct conf *conf,
                             const struct spool_message *m, const struct route *route,
                             struct wall now, json_t *interventions, bool knows_interventions)
{
    const json_t *one;
    size_t i;
    struct group *g;
    json_t *group, *gates = json_array();
    struct buf key, name;

    buf_init(&key, 4096);
    buf_init(&name, 4096);
    (void)buf_addf(&key, "%s%c%s", route->transport, '\0', route->destination); /* fits */
    (void)buf_addf(&name, "%s%s%s", route->transport, route->transport[0] != '\0' ? "/" : "",
                   route->nexthop); /* fits */
    json_array_foreach(interventions, i, one)
    {
        (void)buf_addf(&key, "%c%s", '\0', json_string_value(json_object_get(one, "name")));
    }
    g = group_find(*groups, buf_cstr(&key), buf_len(&key));
    if (g == NULL) {
        g = mem_new(sizeof *g);
        g->index = (json_int_t)json_array_size(array);
        g->key = mem_copy(buf_cstr(&key), buf_len(&key));
        HASH_ADD_KEYPTR(hh, *groups, g->key, buf_len(&key), g);
        add_spool_gates(gates, conf, m, route, buf_cstr(&name), now, interventions,
                        knows_interventions);
        group = json_pack("{s:s, s:i, s:O}", "transport", route->transport, "recipients", 0,
                          "gates", gates);
        json_put(group, "destination", listing_text(slice_string(route->destination)));
        json_put(group, "nexthop", listing_text(slice_string(route->nexthop)));
        if (interventions != NULL) {
            json_put(group, "interventions", json_incref(interventions));
        }
        json_add(array, group);
    }
    json_decref(gates);
    buf_fini(&key);
    buf_fini(&name);
    return g->index;
}

/* Finds the route of a recipient; some stores have their own. */
static void find_route(const struct conf *conf, struct slice sender, const json_t *rcpt,
                       struct route *ret_route)
{
    const char *address = json_string_value(json_object_get(rcpt, "address"));
    const char *transport = json_string_value(json_object_get(rcpt, "transport"));
    const char *nexthop = json_string_value(json_object_get(rcpt, "nexthop"));
    size_t len = nexthop != NULL ? strlen(nexthop) : 0;

    if (!conf_spool_routes(conf) && json_is_true(json_object_get(rcpt, "route_fixed")) &&
        transport != NULL && len <= ROUTE_NEXTHOP_MAX) { /* set by a rule at its arrival */
        ret_route->transport = transport;
        (void)strcpy(ret_route->nexthop, nexthop != NULL ? nexthop : ""); /* fits */
        route_destination(conf, slice_string(address), ret_route);
        return;
    }
    if (!conf_spool_routes(conf) || transport == NULL || len > ROUTE_NEXTHOP_MAX) {
        route_address(conf, sender, slice_string(address), ret_route);
        return;
    }
    ret_route->transport = transport;
    if (transport[0] == '\0') { /* the store decides at the attempt */
        nexthop = address + slice_find_last(slice_string(address), '@');
        nexthop += nexthop[0] == '@';
        len = strlen(nexthop) <= ROUTE_NEXTHOP_MAX ? strlen(nexthop) : 0;
    }
    for (size_t i = 0; i <= len; i++) {
        ret_route->nexthop[i] = i < len ? nexthop[i] : '\0';
        ret_route->destination[i] = ascii_lower(ret_route->nexthop[i]);
    }
}

/* Makes the group of a quarantined or held message whose recipients can't be read. */
static json_t *group_unread(const struct spool_message *m)
{
    json_t *gates = json_array(), *group;

    gate_add_state(gates, m);
    group = json_pack("{s:s, s:s, s:s, s:i, s:o}", "transport", "", "destination", "", "nexthop",
                      "", "recipients", 0, "gates", gates);
    CHECK(group != NULL);
    return group;
}

void gate_group_on_disk(json_t *show, const struct conf *conf, const struct spool_message *m,
                        struct wall now, gate_intervene *intervene, void *arg)
{
    json_t *groups = json_array(), *rcpt, *interventions;
    struct group *index = NULL, *g, *next;
    struct route route;
    size_t i;

    json_array_foreach(json_object_get(show, "recipients"), i, rcpt)
    {
        if (gate_rcpt_is_pending(rcpt)) {
            find_route(conf, m->sender.len > 0 ? m->sender : SLICE(""), rcpt, &route);
            interventions =
                intervene != NULL
                    ? intervene(arg, m,
                                slice_string(json_string_value(json_object_get(rcpt, "address"))),
                                &route)
                    : NULL;
            gate_put_into(
                groups, rcpt,
                group_need(&index, groups, conf, m, &route, now, interventions, intervene != NULL));
            json_decref(interventions);
        }
    }
    HASH_ITER(hh, index, g, next)
    {
        HASH_DEL(index, g);
        mem_free(g->key);
        mem_free(g);
    }
    if (m->rcpt_total == 0 && (m->state == SPOOL_HOLD || m->state == SPOOL_CORRUPT)) {
        json_add(groups, group_unread(m));
    }
    json_put(show, "groups", groups);
}

bool gate_rcpt_is_pending(const json_t *rcpt)
{
    const char *state = json_string_value(json_object_get(rcpt, "state"));

    return state != NULL && strcmp(state, "pending") == 0;
}

void gate_put_into(json_t *groups, json_t *rcpt, json_int_t index)
{
    json_t *group = json_array_get(groups, (size_t)index);

    CHECK(group != NULL);
    json_put(rcpt, "group", json_integer(index));
    json_put(group, "recipients",
             json_integer(json_integer_value(json_object_get(group, "recipients")) + 1));
}

/* Returns the time at which a closed gate opens; 0: it is open, or the time is unknown. */
static double opens_at(const json_t *gate)
{
    return json_is_true(json_object_get(gate, "closed"))
               ? json_number_value(json_object_get(gate, "until"))
               : 0;
}

/* Moves the binding gate before the other closed ones. Gates that open within the same second were
 * closed by one event and keep their order. */
static void put_binding_first(json_t *gates)
{
    size_t count = json_array_size(gates), first = 0, last;
    json_t *gate;

    while (first < count &&
           !json_is_true(json_object_get(json_array_get(gates, first), "closed"))) {
        first++;
    }
    last = first;
    for (size_t i = first; i < count && opens_at(json_array_get(gates, first)) > 0; i++) {
        last = opens_at(json_array_get(gates, i)) >= opens_at(json_array_get(gates, last)) + 1
                   ? i
                   : last;
    }
    if (last != first) {
        gate = json_incref(json_array_get(gates, last));
        CHECK(json_array_remove(gates, last) == 0);
        CHECK(json_array_insert_new(gates, first, gate) == 0);
    }
}

void gate_sum_up(json_t *group)
{
    json_t *gate, *binds = NULL;
    double earliest = 0;
    size_t i;

    put_binding_first(json_object_get(group, "gates"));
    json_array_foreach(json_object_get(group, "gates"), i, gate)
    {
        if (json_is_true(json_object_get(gate, "closed"))) {
            binds = binds != NULL ? binds : gate;
            earliest = opens_at(gate) > earliest ? opens_at(gate) : earliest;
        }
    }
    if (binds != NULL) {
        CHECK(json_object_set(group, "binds", json_object_get(binds, "gate")) == 0);
        if (json_object_get(binds, "advice") != NULL) {
            CHECK(json_object_set(group, "advice", json_object_get(binds, "advice")) == 0);
        }
    }
    if (earliest > 0) {
        json_put(group, "earliest", json_real(earliest));
    }
}

/* ---- without a daemon ----------------------------------------------------------------------- */

unsigned gate_ask_offline(struct spool *sp, const struct conf *conf, const json_t *question,
                          struct wall now, json_t **ret_answer)
{
    json_t *show = json_copy((json_t *)(uintptr_t)question), *group;
    struct gate_message m;
    unsigned status;
    size_t i;

    CHECK(show != NULL);
    json_put(show, "op", json_string("show"));
    status = listing_ask(sp, show, now, ret_answer);
    json_decref(show);
    if (status != 200) {
        return status;
    }
    if (gate_read(sp, *ret_answer, &m)) {
        gate_group_on_disk(*ret_answer, conf, &m.message, now, NULL, NULL);
    }
    json_array_foreach(json_object_get(*ret_answer, "groups"), i, group)
    {
        json_t *gate = gate_new("daemon", true);

        gate_say(gate, "text", "the daemon is not running: nothing is delivered");
        gate_say(gate, "advice",
                 "Start it: systemctl start sluice. If it does not stay up, the "
                 "log has the reason");
        CHECK(json_array_insert_new(json_object_get(group, "gates"), 0, gate) == 0);
        gate_sum_up(group);
    }
    return 200;
}
