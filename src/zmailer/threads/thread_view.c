#include "thread_view.h"

#include <string.h>

#include "check.h"
#include "clock.h"
#include "hash.h"
#include "json.h"
#include "listing.h"
#include "mem.h"
#include "ta_command.h"
#include "ta_kind.h"

/* Agents of one thread that are shown. */
#define AGENTS_SHOWN_MAX 1000

/* The active deliveries to one destination. */
struct flying {
    UT_hash_handle hh;
    const struct delivery **deliveries; /* owned array of the queue's deliveries */
    size_t count;
    size_t key_len;
    char key[]; /* transport, NUL, host in lower case */
};

/* The active deliveries of one message. */
struct flying_message {
    UT_hash_handle hh;
    uint64_t id;
    const struct delivery **deliveries; /* owned array of the queue's deliveries */
    size_t count;
};

struct ring_view {
    struct slice transport, host; /* owned copies; host: empty unless host_bound */
    uint32_t clause;
    bool host_bound;
    uint32_t agents, idle;
};

struct thread_view {
    struct queue *q;
    struct flying *flying;
    struct flying_message *messages;
    struct ring_view *rings; /* owned */
    size_t ring_count;
};

/* ---- active deliveries ----------------------------------------------------------------------- */

#define KEY_MAX ((size_t)2 * SCHED_DEST_NAME_MAX + 1)

/* Makes the key of a thread. Returns its length, 0 if the names are too long for a thread. */
static size_t make_key(struct slice transport, struct slice host, char key[KEY_MAX])
{
    if (transport.len > SCHED_DEST_NAME_MAX || host.len > SCHED_DEST_NAME_MAX) {
        return 0;
    }
    for (size_t i = 0; i < transport.len; i++) {
        key[i] = transport.ptr[i];
    }
    key[transport.len] = '\0';
    for (size_t i = 0; i < host.len; i++) {
        key[transport.len + 1 + i] = ascii_lower(host.ptr[i]);
    }
    return transport.len + 1 + host.len;
}

static struct flying *find_flying(const struct thread_view *v, const char *key, size_t len)
{
    struct flying *f;

    HASH_FIND(hh, v->flying, key, len, f);
    return f;
}

static void add_delivery(const struct delivery ***list, size_t *count, const struct delivery *d)
{
    *list = mem_resize(*list, *count + 1, sizeof(const struct delivery *));
    (*list)[(*count)++] = d;
}

static void look_at_delivery(struct thread_view *v, const struct delivery *d)
{
    char key[KEY_MAX];
    size_t len = make_key(slice_string(transport_name(&v->q->transports, d->transport)),
                          slice_string(d->dest), key);
    struct flying *to = find_flying(v, key, len);
    struct flying_message *of;

    if (to == NULL) {
        to = mem_new(sizeof *to + len);
        to->key_len = len;
        memcpy(to->key, key, len);
        HASH_ADD_KEYPTR(hh, v->flying, to->key, len, to);
    }
    add_delivery(&to->deliveries, &to->count, d);
    HASH_FIND(hh, v->messages, &d->msg->id.n, sizeof d->msg->id.n, of);
    if (of == NULL) {
        of = mem_new(sizeof *of);
        of->id = d->msg->id.n;
        HASH_ADD(hh, v->messages, id, sizeof of->id, of);
    }
    add_delivery(&of->deliveries, &of->count, d);
}

struct thread_view *thread_view_new(struct queue *q)
{
    struct thread_view *v = mem_new(sizeof *v);
    struct delivery *d, *next;

    v->q = q;
    HASH_ITER(hh, q->active.deliveries, d, next)
    {
        look_at_delivery(v, d);
    }
    return v;
}

void thread_view_free(struct thread_view *v)
{
    struct flying *f, *next_f;
    struct flying_message *m, *next_m;

    HASH_ITER(hh, v->flying, f, next_f)
    {
        HASH_DEL(v->flying, f);
        mem_free(f->deliveries);
        mem_free(f);
    }
    HASH_ITER(hh, v->messages, m, next_m)
    {
        HASH_DEL(v->messages, m);
        mem_free(m->deliveries);
        mem_free(m);
    }
    for (size_t i = 0; i < v->ring_count; i++) {
        mem_free((void *)(uintptr_t)v->rings[i].transport.ptr); /* copies of need_ring */
        mem_free((void *)(uintptr_t)v->rings[i].host.ptr);
    }
    mem_free(v->rings);
    mem_free(v);
}

struct wall thread_view_handed(const struct thread_view *v, struct msg_id id, uint32_t n)
{
    struct flying_message *m;

    HASH_FIND(hh, v->messages, &id.n, sizeof id.n, m);
    for (size_t i = 0; m != NULL && i < m->count; i++) {
        for (size_t j = 0; j < m->deliveries[i]->rcpt_count; j++) {
            if (m->deliveries[i]->rcpts[j] == n) {
                int64_t age = clock_mono().us - m->deliveries[i]->handed.us;

                return (struct wall){clock_wall().us - age};
            }
        }
    }
    return (struct wall){0};
}

/* ---- agents --------------------------------------------------------------------------------- */

static double age_of(struct wall t, struct wall now)
{
    return t.us == 0 ? -1 : t.us > now.us ? 0 : (double)(now.us - t.us) / (double)US_PER_S;
}

static void add_agent(json_t *array, uint32_t pid, double hungry, double fed, uint32_t owed,
                      enum ta_state state)
{
    json_t *agent;

    if (json_array_size(array) < AGENTS_SHOWN_MAX) {
        agent = json_pack("{s:I, s:f, s:f, s:I, s:i}", "pid", (json_int_t)pid, "hungry", hungry,
                          "fed", fed, "owed", (json_int_t)owed, "state", (int)state);
        CHECK(agent != NULL && json_array_append_new(array, agent) == 0);
    }
}

/* Returns the transport agents of a thread if `has_agents`; otherwise each delivery counts as an
 * agent. */
static json_t *agents_json(const struct thread_view *v, struct slice transport, struct slice host,
                           bool has_agents)
{
    const struct agent_thread *thread = agent_table_of(ta_kind_table(v->q), transport, host);
    struct wall now = clock_wall();
    json_t *array = json_array();
    const struct agent_row *row;
    const struct flying *f;
    char key[KEY_MAX];

    if (thread != NULL) {
        TAILQ_FOREACH(row, &thread->agents, of_thread)
        {
            add_agent(array, row->pid, age_of(row->hungry, now), age_of(row->fed, now), row->owed,
                      row->state);
        }
        return array;
    }
    f = has_agents ? NULL : find_flying(v, key, make_key(transport, host, key));
    for (size_t i = 0; f != NULL && i < f->count; i++) {
        double age = (double)(clock_mono().us - f->deliveries[i]->handed.us) / (double)US_PER_S;

        add_agent(array, f->deliveries[i]->agent, age, age, 1, TA_STUFF);
    }
    return array;
}

/* Returns the number of jobs of a thread that the agents process has and no agent has yet. The line
 * that a new agent owes is its first #hungry, not a job. */
static size_t kept_back(const struct thread_view *v, struct slice transport, struct slice host)
{
    const struct agent_thread *thread = agent_table_of(ta_kind_table(v->q), transport, host);
    const struct agent_row *row;
    const struct flying *f;
    char key[KEY_MAX];
    size_t fed = 0;

    if (thread != NULL) {
        TAILQ_FOREACH(row, &thread->agents, of_thread)
        {
            fed += row->state == TA_LARVA ? 0 : row->owed;
        }
    }
    f = find_flying(v, key, make_key(transport, host, key));
    return f == NULL || f->count <= fed ? 0 : f->count - fed;
}

/* ---- rings ---------------------------------------------------------------------------------- */

static struct slice copy(struct slice s)
{
    return slice_of(mem_copy(s.ptr, s.len), s.len);
}

static struct ring_view *find_ring(const struct thread_view *v, const struct ring_view *like)
{
    for (size_t i = 0; i < v->ring_count; i++) {
        struct ring_view *r = &v->rings[i];

        if (r->clause == like->clause && slice_equal(r->transport, like->transport) &&
            slice_equal(r->host, like->host)) {
            return r;
        }
    }
    return NULL;
}

/* Returns the ring, added if it is missing. */
static struct ring_view *need_ring(struct thread_view *v, const struct ring_view *like)
{
    struct ring_view *r = find_ring(v, like);

    if (r == NULL) {
        v->rings = mem_resize(v->rings, v->ring_count + 1, sizeof *v->rings);
        r = &v->rings[v->ring_count++];
        *r = *like;
        r->transport = copy(like->transport);
        r->host = copy(like->host);
    }
    return r;
}

/* Returns the ring of a thread under this policy, with borrowed slices. */
static struct ring_view ring_of(const struct policy *policy, struct slice transport,
                                struct slice host)
{
    bool host_bound =
        policy->agent == CONF_AGENT_TA && ta_command_is_host_bound(slice_string(policy->command));

    return (struct ring_view){
        .transport = transport,
        .host = host_bound ? host : SLICE(""),
        .clause = policy->ring,
        .host_bound = host_bound,
    };
}

static uint32_t limit_of(int64_t limit)
{
    return limit < 0 ? 0 : limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit;
}

/* Splits the pattern of the ring's clause; without a clause, returns the transport and a star. */
static void clause_of(const struct queue *q, const struct ring_view *r, struct slice *ret_channel,
                      struct slice *ret_host)
{
    const char *pattern = policy_clause(q->conf, r->clause);
    struct slice rest;

    *ret_channel = r->transport;
    *ret_host = SLICE("*");
    if (pattern != NULL) {
        rest = slice_string(pattern);
        *ret_channel = slice_cut(&rest, '/');
        *ret_host = rest.ptr != NULL ? rest : SLICE("*");
    }
}

static json_t *ring_json(const struct thread_view *v, const struct ring_view *r)
{
    struct slice channel, host;
    struct policy policy;
    json_t *object = json_object();

    clause_of(v->q, r, &channel, &host);
    policy_for(v->q->conf, r->transport, r->host_bound ? r->host : host, &policy);
    json_put(object, "transport", listing_text(r->transport));
    json_put(object, "host", listing_text(r->host));
    json_put(object, "clause", json_integer(r->clause));
    json_put(object, "host_bound", json_boolean(r->host_bound));
    json_put(object, "clause_channel", listing_text(channel));
    json_put(object, "clause_host", listing_text(host));
    if (policy.agent == CONF_AGENT_TA) {
        json_put(object, "agents", json_integer(r->agents));
        json_put(object, "idle", json_integer(r->idle));
        json_put(object, "ring_limit", json_integer(limit_of(policy.maxring)));
        json_put(object, "feed_limit", json_integer(limit_of(policy.overfeed)));
        json_put(object, "thread_limit", json_integer(limit_of(policy.maxthr)));
    } else {
        json_put(object, "ring_limit", json_integer(limit_of(policy.process_limit)));
        json_put(object, "feed_limit", json_integer(limit_of(policy.destination_recipient_limit)));
        json_put(object, "thread_limit",
                 json_integer(limit_of(policy.destination_concurrency_limit)));
    }
    return object;
}

/* Counts the agents of the rings, of rings that are not in the view only if `make`. */
static void count_agents(struct thread_view *v, bool make)
{
    const struct agent_row *row;

    for (row = ta_kind_table(v->q)->rows; row != NULL; row = row->hh.next) {
        struct slice transport = slice_string(row->transport), host = slice_string(row->host);
        struct ring_view like, *r;
        struct policy policy;

        policy_for(v->q->conf, transport, host, &policy);
        like = ring_of(&policy, transport, host);
        like.clause = row->ring; /* clause of its start, whatever the configuration is now */
        r = make ? need_ring(v, &like) : find_ring(v, &like);
        if (r != NULL) {
            r->agents++;
            r->idle += row->state == TA_IDLE;
        }
    }
}

bool thread_view_in_ring(struct thread_view *v, struct slice transport, struct slice nexthop,
                         const json_t *ring)
{
    struct slice wanted = slice_string(json_string_value(json_object_get(ring, "transport")));
    struct slice host = slice_string(json_string_value(json_object_get(ring, "host")));
    struct ring_view its;
    struct policy policy;

    if (!slice_equal(wanted, transport)) {
        return false;
    }
    policy_for(v->q->conf, transport, nexthop, &policy);
    its = ring_of(&policy, transport, nexthop);
    return its.clause == json_integer_value(json_object_get(ring, "clause")) &&
           slice_equal(its.host, host);
}

json_t *thread_view_rings(struct thread_view *v, bool with_others)
{
    json_t *array = json_array();

    count_agents(v, with_others);
    for (size_t i = 0; i < v->ring_count; i++) {
        CHECK(json_array_append_new(array, ring_json(v, &v->rings[i])) == 0);
    }
    return array;
}

/* ---- threads -------------------------------------------------------------------------------- */

/* Adds the reason for which a thread waits, in ZMailer's words: the first limit in its order. */
static void add_reason(const struct queue *q, uint32_t transport,
                       const struct sched_dest_info *info, json_t *object)
{
    static const struct {
        enum sched_gate_type gate;
        const char *reason, *pending;
    } limits[] = {
        {SCHED_GATE_AGENTS, ">MaxTA", "global"},
        {SCHED_GATE_TRANSPORT_LIMIT, ">MaxChannel", "channel"},
        {SCHED_GATE_RING, ">MaxRing", "thread"},
        {SCHED_GATE_WINDOW, ">MaxThr", "thread"},
    };
    struct sched_wait wait;

    if (info->reason.len > 0) {
        json_put(object, "reason", listing_text(info->reason));
        return;
    }
    sched_why_dest(q->sched, transport, info->dest, &wait);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        for (size_t j = 0; j < wait.gate_count; j++) {
            if (wait.gates[j].closed && wait.gates[j].type == limits[i].gate) {
                json_put(object, "reason", json_string(limits[i].reason));
                json_put(object, "pending", json_string(limits[i].pending));
                return;
            }
        }
    }
}

static void add_scheduled(const struct queue *q, uint32_t transport, struct slice host,
                          size_t kept_back, bool is_worked_on, json_t *object)
{
    struct sched_dest_info info;

    if (!sched_dest_get(q->sched, transport, host, &info)) {
        return;
    }
    json_put(object, "unfed", json_integer((json_int_t)(info.waiting + kept_back)));
    if (info.until.us > clock_mono().us && json_object_get(object, "wait") == NULL) {
        json_put(object, "wait",
                 json_real((double)(info.until.us - clock_mono().us) / (double)US_PER_S));
    }
    if (!is_worked_on && info.waiting > 0) {
        add_reason(q, transport, &info, object);
    }
    if (!is_worked_on && kept_back > 0 && q->conf->agent_freeze) {
        json_put(object, "reason", json_string("Frozen"));
    }
}

/* Adds the number of attempts, if the clause has an interval, and the time of the next try, if the
 * thread is tried by itself. */
static void add_retry(const struct queue *q, uint32_t transport, struct slice host,
                      bool is_request_only, json_t *object)
{
    const struct destination *destination = destination_find(&q->destinations, transport, host);
    const struct dest_retry *retry = destination != NULL ? destination->retry : NULL;
    struct wall now = clock_wall();

    if (retry == NULL) {
        return;
    }
    json_put(object, "attempts", json_integer((json_int_t)retry->attempts));
    if (dest_retry_waits(retry, now) && !is_request_only) {
        json_put(object, "wait", json_seconds(retry->retry.due.us - now.us));
    }
}

/* Adds the values of a thread that runs on request only. ZMailer reads its first factor as
 * seconds. */
static void add_asked_for(const struct policy *policy, bool is_worked_on, json_t *object)
{
    unsigned long long first = 0;

    if (policy->retries.count > 0 &&
        slice_number(slice_string(policy->retries.items[0]), UINT32_MAX, &first)) {
        json_put(object, "asked_for_wait", json_integer((json_int_t)first));
    }
    if (!is_worked_on && json_object_get(object, "reason") == NULL) {
        json_put(object, "reason", json_string("queueonly")); /* shown if there is no "wait" */
    }
}

json_t *thread_view_json(struct thread_view *v, struct slice transport, struct slice nexthop)
{
    json_t *object = json_object(), *agents;
    struct ring_view like;
    struct policy policy;
    uint32_t index;
    bool has_agents;

    policy_for(v->q->conf, transport, nexthop, &policy);
    has_agents = policy.agent == CONF_AGENT_TA;
    agents = agents_json(v, transport, nexthop, has_agents);
    like = ring_of(&policy, transport, nexthop);
    json_put(object, "transport", listing_text(transport));
    json_put(object, "nexthop", listing_text(nexthop));
    json_put(object, "ring", json_integer((json_int_t)(need_ring(v, &like) - v->rings)));
    json_put(object, "host_bound", json_boolean(like.host_bound));
    json_put(
        object, "lifetime",
        json_real((double)(policy.agent == CONF_AGENT_TA ? policy.expiry_us
                                                         : v->q->conf->maximal_queue_lifetime_us) /
                  (double)US_PER_S));
    json_put(object, "retried_together", json_boolean(policy.interval_us > 0));
    if (transport_find(&v->q->transports, transport, &index)) {
        add_retry(v->q, index, nexthop, policy.queueonly, object);
        add_scheduled(v->q, index, nexthop, has_agents ? kept_back(v, transport, nexthop) : 0,
                      json_array_size(agents) > 0, object);
    }
    if (policy.queueonly) {
        add_asked_for(&policy, json_array_size(agents) > 0, object);
    }
    json_put(object, "agents", agents);
    return object;
}
