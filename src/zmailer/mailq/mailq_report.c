#include "mailq_report.h"

#include <stdlib.h>

#include "check.h"
#include "mailq_json.h"
#include "mem.h"

#define AGENTS_MAX 1000 /* agents of one thread that are shown */

struct ring_lines {
    json_t *ring; /* owned; from the last page with this ring */
    struct mailq_ring totals;
    struct buf lines; /* lines of its threads */
    bool forgotten;   /* dropped, because they were too many */
    bool begun;       /* the head is written */
};

struct mailq_report {
    enum mailq_report_form form;
    struct ring_lines *rings; /* owned */
    size_t ring_count;
    size_t gathered; /* bytes of all `lines` */
    size_t at;       /* index of the ring that is written next */
    bool asked;      /* the threads of that ring were requested */
    struct mailq_totals sums;
    struct mailq_agent agents[AGENTS_MAX];
};

struct mailq_report *mailq_report_new(enum mailq_report_form form)
{
    struct mailq_report *r = mem_new(sizeof *r);

    r->form = form;
    return r;
}

void mailq_report_free(struct mailq_report *r)
{
    if (r == NULL) {
        return;
    }
    for (size_t i = 0; i < r->ring_count; i++) {
        json_decref(r->rings[i].ring);
        buf_fini(&r->rings[i].lines);
    }
    mem_free(r->rings);
    mem_free(r);
}

/* ---- reading -------------------------------------------------------------------------------- */

static bool same_ring(const json_t *a, const json_t *b)
{
    return slice_equal(mailq_json_text(a, "transport"), mailq_json_text(b, "transport")) &&
           slice_equal(mailq_json_text(a, "host"), mailq_json_text(b, "host")) &&
           json_integer_value(json_object_get(a, "clause")) ==
               json_integer_value(json_object_get(b, "clause"));
}

/* Does the queue process count the agents of this ring? */
static bool has_agents(const json_t *ring)
{
    return json_object_get(ring, "agents") != NULL;
}

static void read_ring(struct ring_lines *l, json_t *ring)
{
    struct mailq_ring *t = &l->totals;

    json_incref(ring);
    json_decref(l->ring);
    l->ring = ring;
    t->channel = mailq_json_text(ring, "clause_channel");
    t->host = mailq_json_text(ring, "clause_host");
    t->host_bound = json_is_true(json_object_get(ring, "host_bound"));
    t->ring_limit = mailq_json_count32(ring, "ring_limit");
    t->feed_limit = mailq_json_count32(ring, "feed_limit");
    t->thread_limit = mailq_json_count32(ring, "thread_limit");
    if (has_agents(ring)) {
        t->agents = mailq_json_count32(ring, "agents");
        t->idle = mailq_json_count32(ring, "idle");
    }
}

/* Returns the index of a ring, which is added if it is missing. */
static size_t need_ring(struct mailq_report *r, json_t *ring)
{
    for (size_t i = 0; i < r->ring_count; i++) {
        if (same_ring(r->rings[i].ring, ring)) {
            read_ring(&r->rings[i], ring);
            return i;
        }
    }
    r->rings = mem_resize(r->rings, r->ring_count + 1, sizeof *r->rings);
    r->rings[r->ring_count] = (struct ring_lines){0};
    buf_init(&r->rings[r->ring_count].lines, (size_t)2 * MAILQ_REPORT_MAX);
    read_ring(&r->rings[r->ring_count], ring);
    return r->ring_count++;
}

/* Reads a thread. `agents` has room for AGENTS_MAX. */
static void read_thread(const json_t *object, struct mailq_agent *agents, struct mailq_thread *t)
{
    const json_t *agent;
    size_t i;

    *t = (struct mailq_thread){
        .channel = mailq_json_text(object, "transport"),
        .host = mailq_json_text(object, "nexthop"),
        .host_bound = json_is_true(json_object_get(object, "host_bound")),
        .vertices = mailq_json_count32(object, "messages"),
        .recipients = mailq_json_count32(object, "recipients"),
        .attempts = mailq_json_count32(object, "attempts"),
        .agents = agents,
        .unfed = mailq_json_count32(object, "unfed"),
        .wait_s = mailq_json_seconds(object, "wait"),
        .reason = mailq_json_text(object, "reason"),
        .oldest_age_s = mailq_json_seconds(object, "oldest_age"),
        .pending = mailq_json_pending(object),
    };
    json_array_foreach(json_object_get(object, "agents"), i, agent)
    {
        if (t->agent_count < AGENTS_MAX) {
            agents[t->agent_count++] = (struct mailq_agent){
                .pid = json_integer_value(json_object_get(agent, "pid")),
                .hungry_age_s = mailq_json_seconds(agent, "hungry"),
                .fed_age_s = mailq_json_seconds(agent, "fed"),
                .overfeed = mailq_json_count32(agent, "owed"),
                .state = (enum mailq_agent_state)(mailq_json_count32(agent, "state") % 5),
            };
        }
    }
}

void mailq_report_head(const json_t *thread, struct buf *out)
{
    struct mailq_agent *agents = mem_array(AGENTS_MAX, sizeof *agents);
    struct mailq_thread t;

    read_thread(thread, agents, &t);
    mailq_put_thread_head(out, &t);
    mem_free(agents);
}

/* ---- collecting ------------------------------------------------------------------------------ */

static void put_thread(const struct mailq_report *r, const struct mailq_thread *t, struct buf *out)
{
    if (r->form == MAILQ_REPORT_THREADS) {
        mailq_put_thread(out, t);
    } else if (r->form == MAILQ_REPORT_FIELDS) {
        mailq_put_thread_fields(out, t);
    }
}

static void count_thread(struct mailq_report *r, struct ring_lines *l, const struct mailq_thread *t)
{
    l->totals.threads++;
    l->totals.vertices += t->vertices;
    r->sums.threads++;
    r->sums.vertices += t->vertices;
    r->sums.rcpts_stored += (int64_t)t->recipients;
    if (!has_agents(l->ring)) {
        l->totals.agents += (uint32_t)t->agent_count;
    }
}

/* Drops the lines of the longest ring, because too much is kept. They are requested again when that
 * ring is written. */
static void forget_longest(struct mailq_report *r)
{
    struct ring_lines *longest = NULL;

    for (size_t i = 0; i < r->ring_count; i++) {
        if (longest == NULL || buf_len(&r->rings[i].lines) > buf_len(&longest->lines)) {
            longest = &r->rings[i];
        }
    }
    CHECK(longest != NULL);
    r->gathered -= buf_len(&longest->lines);
    buf_fini(&longest->lines);
    buf_init(&longest->lines, (size_t)2 * MAILQ_REPORT_MAX);
    longest->forgotten = true;
}

static void gather(struct mailq_report *r, struct ring_lines *l, const struct mailq_thread *t)
{
    size_t before = buf_len(&l->lines);

    count_thread(r, l, t);
    if (!l->forgotten) {
        put_thread(r, t, &l->lines);
        r->gathered += buf_len(&l->lines) - before;
    }
    while (r->gathered > MAILQ_REPORT_MAX) {
        forget_longest(r);
    }
}

void mailq_report_page(struct mailq_report *r, const json_t *answer, bool last, struct buf *out)
{
    json_t *rings = json_object_get(answer, "rings"), *ring;
    size_t *places = mem_array(json_array_size(rings) + 1, sizeof *places), i;
    const json_t *thread;
    struct mailq_thread t;

    json_array_foreach(rings, i, ring)
    {
        places[i] = need_ring(r, ring);
    }
    json_array_foreach(json_object_get(answer, "threads"), i, thread)
    {
        size_t its = (size_t)json_integer_value(json_object_get(thread, "ring"));

        CHECK(its < json_array_size(rings));
        read_thread(thread, r->agents, &t);
        if (!r->asked) {
            gather(r, &r->rings[places[its]], &t);
        } else {
            put_thread(r, &t, out);
        }
    }
    if (r->asked && last) {
        r->asked = false;
        r->rings[r->at].forgotten = false; /* is written now */
    }
    mem_free(places);
}

/* ---- writing -------------------------------------------------------------------------------- */

/* Orders rings as in the configuration; they were added in the order of their first thread. */
static int by_clause(const void *a, const void *b)
{
    const struct ring_lines *x = a, *y = b;
    json_int_t of_x = json_integer_value(json_object_get(x->ring, "clause"));
    json_int_t of_y = json_integer_value(json_object_get(y->ring, "clause"));
    int order = (of_x > of_y) - (of_x < of_y);

    order = order != 0 ? order
                       : slice_compare(mailq_json_text(x->ring, "transport"),
                                       mailq_json_text(y->ring, "transport"));
    return order != 0
               ? order
               : slice_compare(mailq_json_text(x->ring, "host"), mailq_json_text(y->ring, "host"));
}

bool mailq_report_next(struct mailq_report *r, struct buf *out, const json_t **ret_ask)
{
    bool has_frame = r->form == MAILQ_REPORT_RINGS || r->form == MAILQ_REPORT_THREADS;
    struct ring_lines *l;

    *ret_ask = NULL;
    if (r->form == MAILQ_REPORT_TOTALS || r->at == r->ring_count) {
        return false;
    }
    if (r->at == 0 && !r->rings[0].begun) {
        qsort(r->rings, r->ring_count, sizeof *r->rings, by_clause);
    }
    l = &r->rings[r->at];
    if (has_frame && !l->begun) {
        mailq_put_ring_head(out, &l->totals);
    }
    l->begun = true;
    if (l->forgotten) {
        r->asked = true;
        *ret_ask = l->ring;
        return true;
    }
    (void)buf_add(out, buf_slice(&l->lines)); /* fits: see the callers */
    if (has_frame) {
        mailq_put_ring_totals(out, &l->totals);
    }
    r->at++;
    return true;
}

void mailq_report_sums(const struct mailq_report *r, struct mailq_totals *t)
{
    t->threads = r->sums.threads;
    t->vertices = r->sums.vertices;
    t->rcpts_stored = r->sums.rcpts_stored;
    for (size_t i = 0; i < r->ring_count; i++) {
        t->agents += r->rings[i].totals.agents;
        t->idle += r->rings[i].totals.idle;
    }
}
