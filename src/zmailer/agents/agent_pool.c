/*
 * Keeps a thread in its ring's list `wanting`, and a ring in the pool's, exactly while another
 * agent would be useful. update() ensures that after every change. agent_pool_next walks only the
 * wanting rings. A ring that was served goes to the end of both lists.
 */
#include "agent_pool.h"

#include <string.h>

#include "buf.h"
#include "check.h"
#include "mem.h"

#define KEY_MAX (32u << 20) /* bytes; a command can be as long as a whole configuration */

struct pool_thread {
    struct pool_ring *ring;
    char *host; /* owned; hash key */
    TAILQ_HEAD(, job_place) waiting;
    size_t waiting_count;
    uint32_t agents;
    uint32_t may_start; /* wakeup_restart_only: number of agents that the run may still start */
    uint32_t stops;     /* number of its agents that have stopped it */
    bool wants;         /* is in ring->wanting */
    TAILQ_ENTRY(pool_thread) in_wanting;
    UT_hash_handle hh;
};

struct channel_count {
    char *name; /* owned; hash key */
    uint32_t agents, ending, rings;
    UT_hash_handle hh;
};

/* The limit that prevents a further agent of a ring. */
enum block { BLOCK_NONE, BLOCK_RING, BLOCK_CHANNEL, BLOCK_ALL };

struct pool_ring {
    char *key; /* owned */
    size_t key_len;
    struct channel_count *channel;
    char *start, *sample; /* owned; `sample` is one of its hosts */
    char *trouble;        /* owned: reason for which its starts fail, or NULL */
    struct agent_spec spec;
    struct pool_thread *threads; /* hashed by host */
    TAILQ_HEAD(thread_list, pool_thread) wanting;
    uint32_t wanting_count;
    TAILQ_HEAD(idle_list, agent_place) idle; /* most recently used first */
    uint32_t agents, ending;
    enum block block; /* set by the last agent_pool_next */
    bool retired;     /* no longer configured; not in pool->rings */
    unsigned failures;
    struct mono held_until;
    TAILQ_ENTRY(pool_ring) in_wanting, in_retired;
    UT_hash_handle hh;
};

struct agent_pool {
    struct pool_ring *rings; /* hashed by key */
    struct channel_count *channels;
    TAILQ_HEAD(, pool_ring) wanting, retired;
    TAILQ_HEAD(, agent_place) idle; /* agents of all rings, least recently used first */
    uint32_t agents, ending;
    uint32_t starts_per_second, starts;
    struct mono second; /* begin of the second that `starts` counts */
    struct mono held_until;
    bool frozen;
};

/* ---- rings and threads ---------------------------------------------------------------------- */

struct agent_pool *agent_pool_new(void)
{
    struct agent_pool *p = mem_new(sizeof *p);

    TAILQ_INIT(&p->wanting);
    TAILQ_INIT(&p->retired);
    TAILQ_INIT(&p->idle);
    p->starts_per_second = 1;
    return p;
}

void agent_pool_configure(struct agent_pool *p, uint32_t starts_per_second, bool frozen)
{
    CHECK(starts_per_second > 0);
    p->starts_per_second = starts_per_second;
    p->frozen = frozen;
}

static void make_key(const struct agent_spec *r, struct buf *key)
{
    const struct slice end = SLICE("\0");

    buf_init(key, KEY_MAX);
    (void)buf_addf(key, "%u %d ", r->clause, r->host_bound);
    (void)buf_add(key, r->channel);
    (void)buf_add(key, end);
    if (r->host_bound) {
        (void)buf_add(key, r->host);
        (void)buf_add(key, end);
    }
    (void)buf_add(key, r->start);
    CHECK(!key->failed);
}

static struct channel_count *channel_need(struct agent_pool *p, struct slice name)
{
    struct channel_count *channel;

    HASH_FIND(hh, p->channels, name.ptr, name.len, channel);
    if (channel == NULL) {
        channel = mem_new(sizeof *channel);
        channel->name = mem_copy(name.ptr, name.len);
        HASH_ADD_KEYPTR(hh, p->channels, channel->name, name.len, channel);
    }
    return channel;
}

/* Takes the spec and copies its slices. */
static void ring_adopt(struct pool_ring *r, const struct agent_spec *spec)
{
    char *start = mem_copy(spec->start.ptr, spec->start.len);
    char *sample = mem_copy(spec->host.ptr, spec->host.len);

    mem_free(r->start);
    mem_free(r->sample);
    r->start = start;
    r->sample = sample;
    r->spec = *spec;
    r->spec.channel = slice_string(r->channel->name);
    r->spec.start = slice_of(start, spec->start.len);
    r->spec.host = slice_of(sample, spec->host.len);
    if (r->spec.maxthr <= 0) {
        r->spec.maxthr = 1;
    }
}

static struct pool_ring *ring_need(struct agent_pool *p, const struct agent_spec *spec)
{
    struct pool_ring *r;
    struct buf key;

    make_key(spec, &key);
    HASH_FIND(hh, p->rings, buf_slice(&key).ptr, buf_len(&key), r);
    if (r == NULL) {
        r = mem_new(sizeof *r);
        r->key_len = buf_len(&key);
        r->key = buf_take(&key);
        r->channel = channel_need(p, spec->channel);
        r->channel->rings++;
        TAILQ_INIT(&r->wanting);
        TAILQ_INIT(&r->idle);
        HASH_ADD_KEYPTR(hh, p->rings, r->key, r->key_len, r);
    }
    buf_fini(&key);
    ring_adopt(r, spec);
    return r;
}

static void ring_free(struct agent_pool *p, struct pool_ring *r)
{
    if (r->retired) {
        TAILQ_REMOVE(&p->retired, r, in_retired);
    } else {
        HASH_DEL(p->rings, r);
    }
    if (--r->channel->rings == 0) {
        HASH_DEL(p->channels, r->channel);
        mem_free(r->channel->name);
        mem_free(r->channel);
    }
    mem_free(r->key);
    mem_free(r->start);
    mem_free(r->sample);
    mem_free(r->trouble);
    mem_free(r);
}

/* Frees an unused ring. A ring with failed starts is kept for a while, to keep its delay. */
static void ring_reap(struct agent_pool *p, struct pool_ring *r, struct mono now)
{
    if (r->threads == NULL && r->agents == 0 &&
        (r->failures == 0 || mono_reached(mono_after(r->held_until, POOL_HOLD_MAX_US), now))) {
        ring_free(p, r);
    }
}

void agent_pool_free(struct agent_pool *p)
{
    struct pool_ring *r, *next;

    if (p == NULL) {
        return;
    }
    CHECK(p->agents == 0);
    HASH_ITER(hh, p->rings, r, next)
    {
        CHECK(r->threads == NULL);
        ring_free(p, r);
    }
    while ((r = TAILQ_FIRST(&p->retired)) != NULL) {
        CHECK(r->threads == NULL);
        ring_free(p, r);
    }
    mem_free(p);
}

static struct pool_thread *thread_need(struct pool_ring *r, struct slice host)
{
    struct pool_thread *t;

    HASH_FIND(hh, r->threads, host.ptr, host.len, t);
    if (t == NULL) {
        t = mem_new(sizeof *t);
        t->ring = r;
        t->host = mem_copy(host.ptr, host.len);
        TAILQ_INIT(&t->waiting);
        HASH_ADD_KEYPTR(hh, r->threads, t->host, host.len, t);
    }
    return t;
}

/* Would another agent be useful for this thread? */
static bool thread_wants(const struct pool_thread *t)
{
    if (t->waiting_count == 0 || t->stops > 0) {
        return false;
    }
    if (t->agents == 0) {
        return true;
    }
    return t->agents < t->waiting_count && (int64_t)t->agents < t->ring->spec.maxthr &&
           (!t->ring->spec.wakeup_restart_only || t->may_start > 0);
}

/* Updates the lists after a change of a thread. Frees a thread without jobs and agents. */
static void update(struct agent_pool *p, struct pool_thread *t)
{
    struct pool_ring *r = t->ring;
    bool wants = thread_wants(t);

    if (t->agents == 0) {
        int64_t most = r->spec.maxthr;

        t->may_start =
            (uint32_t)((int64_t)t->waiting_count < most ? (int64_t)t->waiting_count : most);
    }
    if (wants && !t->wants) {
        TAILQ_INSERT_TAIL(&r->wanting, t, in_wanting);
        if (r->wanting_count++ == 0) {
            TAILQ_INSERT_TAIL(&p->wanting, r, in_wanting);
            r->block = BLOCK_NONE;
        }
    } else if (!wants && t->wants) {
        TAILQ_REMOVE(&r->wanting, t, in_wanting);
        if (--r->wanting_count == 0) {
            TAILQ_REMOVE(&p->wanting, r, in_wanting);
        }
    }
    t->wants = wants;
    if (t->agents == 0 && t->waiting_count == 0) {
        HASH_DEL(r->threads, t);
        mem_free(t->host);
        mem_free(t);
    }
}

/* Moves a thread that was served to the end of the lists. */
static void rotate(struct agent_pool *p, struct pool_thread *t)
{
    struct pool_ring *r = t->ring;

    if (t->wants) {
        TAILQ_REMOVE(&r->wanting, t, in_wanting);
        TAILQ_INSERT_TAIL(&r->wanting, t, in_wanting);
    }
    if (r->wanting_count > 0) {
        TAILQ_REMOVE(&p->wanting, r, in_wanting);
        TAILQ_INSERT_TAIL(&p->wanting, r, in_wanting);
    }
}

void agent_pool_add(struct agent_pool *p, const struct agent_spec *spec, struct job_place *job)
{
    struct pool_thread *t = thread_need(ring_need(p, spec), spec->host);

    TAILQ_INSERT_TAIL(&t->waiting, job, next);
    t->waiting_count++;
    job->thread = t;
    update(p, t);
}

void agent_pool_remove(struct agent_pool *p, struct job_place *job)
{
    struct pool_thread *t = job->thread;

    TAILQ_REMOVE(&t->waiting, job, next);
    t->waiting_count--;
    job->thread = NULL;
    update(p, t);
}

struct job_place *agent_pool_take(struct agent_pool *p, struct pool_thread *t)
{
    struct job_place *job = TAILQ_FIRST(&t->waiting);

    if (job != NULL) {
        agent_pool_remove(p, job);
    }
    return job;
}

/* ---- agents and their places ---------------------------------------------------------------- */

static void attach(struct agent_pool *p, struct agent_place *a, struct pool_thread *t)
{
    CHECK(a->thread == NULL);
    a->thread = t;
    a->run = 0;
    mem_free(a->host);
    a->host = mem_string(t->host);
    t->agents++;
    t->may_start -= t->may_start > 0;
    update(p, t);
    rotate(p, t);
}

static void detach(struct agent_pool *p, struct agent_place *a)
{
    struct pool_thread *t = a->thread;

    if (t != NULL) {
        t->stops -= a->stops;
        a->stops = false;
        a->thread = NULL;
        t->agents--;
        update(p, t);
    }
}

/* Returns the agent's first job of this thread. */
static struct job_place *first_job(struct agent_pool *p, struct agent_place *a)
{
    a->run = 1;
    return agent_pool_take(p, a->thread);
}

static void leave_rest(struct agent_pool *p, struct agent_place *a)
{
    CHECK(a->state == AGENT_IDLE);
    TAILQ_REMOVE(&a->ring->idle, a, in_ring);
    TAILQ_REMOVE(&p->idle, a, in_idle);
    a->state = AGENT_BUSY;
}

/* Returns the idle agent that served this host last, otherwise the most recently used one. */
static struct agent_place *idle_for(const struct pool_ring *r, const char *host)
{
    struct agent_place *a;

    TAILQ_FOREACH(a, &r->idle, in_ring)
    {
        if (strcmp(a->host, host) == 0) {
            return a;
        }
    }
    return TAILQ_FIRST(&r->idle);
}

static bool full(int64_t limit, uint32_t count)
{
    return limit > 0 && (int64_t)count >= limit;
}

static enum block find_block(const struct agent_pool *p, const struct pool_ring *r)
{
    return full(r->spec.maxta, p->agents)                 ? BLOCK_ALL
           : full(r->spec.maxchannel, r->channel->agents) ? BLOCK_CHANNEL
           : full(r->spec.maxring, r->agents)             ? BLOCK_RING
                                                          : BLOCK_NONE;
}

/* Does an agent of ring `of` have a place that the blocked ring could use? */
static bool in_the_way(const struct pool_ring *blocked, const struct pool_ring *of)
{
    switch (blocked->block) {
    case BLOCK_NONE:
        return false;
    case BLOCK_RING:
        return of == blocked;
    case BLOCK_CHANNEL:
        return of->channel == blocked->channel;
    case BLOCK_ALL:
        return true;
    }
    return false;
}

/* Are enough agents ending to make room for the ring's threads? */
static bool help_is_near(const struct agent_pool *p, const struct pool_ring *r)
{
    uint32_t ending = r->block == BLOCK_ALL       ? p->ending
                      : r->block == BLOCK_CHANNEL ? r->channel->ending
                                                  : r->ending;

    return ending >= r->wanting_count;
}

/* Returns the least recently used idle agent whose place the blocked ring could use, or NULL. */
static struct agent_place *idle_in_the_way(const struct agent_pool *p, const struct pool_ring *r)
{
    struct agent_place *a;

    TAILQ_FOREACH(a, &p->idle, in_idle)
    {
        if (in_the_way(r, a->ring)) {
            return a;
        }
    }
    return NULL;
}

static bool may_start_now(struct agent_pool *p, struct mono now)
{
    if (p->frozen || !mono_reached(p->held_until, now)) {
        return false;
    }
    if (now.us - p->second.us >= US_PER_S || p->starts == 0) {
        p->second = now;
        p->starts = 0;
    }
    return p->starts < p->starts_per_second;
}

/* Returns a thread without agents in a ring whose starts fail, or NULL. */
static struct pool_thread *hopeless_thread(const struct pool_ring *r, struct mono now)
{
    struct pool_thread *t;

    if (mono_reached(r->held_until, now)) {
        return NULL;
    }
    TAILQ_FOREACH(t, &r->wanting, in_wanting)
    {
        if (t->agents == 0) {
            return t;
        }
    }
    return NULL;
}

/* Finds an action for a ring that needs another agent. */
static void help_ring(struct agent_pool *p, struct pool_ring *r, struct mono now,
                      struct pool_action *action)
{
    struct pool_thread *t = TAILQ_FIRST(&r->wanting);
    struct agent_place *a = idle_for(r, t->host);

    if (a != NULL) {
        leave_rest(p, a);
        attach(p, a, t);
        *action = (struct pool_action){.type = POOL_GIVE, .agent = a, .job = first_job(p, a)};
        return;
    }
    if (!mono_reached(r->held_until, now)) {
        t = hopeless_thread(r, now);
        action->type = t != NULL ? POOL_REFUSE : POOL_NOTHING;
        action->thread = t;
        return;
    }
    r->block = find_block(p, r);
    if (r->block != BLOCK_NONE) {
        a = help_is_near(p, r) ? NULL : idle_in_the_way(p, r);
        action->type = a != NULL ? POOL_END : POOL_NOTHING;
        action->agent = a;
    } else if (may_start_now(p, now)) {
        *action = (struct pool_action){.type = POOL_START, .thread = t};
    }
}

void agent_pool_next(struct agent_pool *p, struct mono now, struct pool_action *ret_action)
{
    struct pool_ring *r;

    *ret_action = (struct pool_action){.type = POOL_NOTHING};
    TAILQ_FOREACH(r, &p->wanting, in_wanting)
    {
        help_ring(p, r, now, ret_action);
        if (ret_action->type != POOL_NOTHING) {
            return;
        }
    }
}

struct mono agent_pool_wake_at(const struct agent_pool *p, struct mono now)
{
    struct mono at = p->held_until;

    if (p->starts >= p->starts_per_second && p->second.us + US_PER_S > at.us) {
        at = mono_after(p->second, US_PER_S);
    }
    return TAILQ_EMPTY(&p->wanting) || p->frozen || mono_reached(at, now) ? MONO_NEVER : at;
}

void agent_pool_started(struct agent_pool *p, struct pool_thread *t, struct agent_place *agent)
{
    struct pool_ring *r = t->ring;

    agent->ring = r;
    agent->state = AGENT_BUSY;
    p->agents++;
    p->starts++;
    r->agents++;
    r->channel->agents++;
    attach(p, agent, t);
}

void agent_pool_not_started(struct agent_pool *p, struct mono now)
{
    p->held_until = mono_after(now, POOL_HOLD_US);
}

static bool ring_failed(struct pool_ring *r, struct mono now)
{
    int64_t hold_us = r->failures > 20 ? POOL_HOLD_MAX_US : POOL_HOLD_US << r->failures;

    r->held_until = mono_after(now, hold_us < POOL_HOLD_MAX_US ? hold_us : POOL_HOLD_MAX_US);
    return r->failures++ == 0;
}

bool agent_pool_start_failed(struct pool_thread *t, struct mono now)
{
    return ring_failed(t->ring, now);
}

void agent_pool_explain(struct pool_ring *r, struct slice why)
{
    mem_free(r->trouble);
    r->trouble = mem_copy(why.ptr, why.len);
}

bool agent_pool_proven(struct agent_place *a)
{
    bool failing = a->ring->failures > 0;

    a->proven = true;
    a->ring->failures = 0;
    a->ring->held_until = (struct mono){0};
    return failing;
}

/* Does a thread wait for the place of this agent? */
static bool is_waited_for(const struct agent_pool *p, const struct agent_place *a)
{
    const struct pool_ring *r;

    TAILQ_FOREACH(r, &p->wanting, in_wanting)
    {
        if (in_the_way(r, a->ring) && (r->wanting_count > 1 || !a->thread->wants || r != a->ring)) {
            return true;
        }
    }
    return false;
}

struct job_place *agent_pool_feed(struct agent_pool *p, struct agent_place *a, uint32_t asked)
{
    struct pool_thread *t = a->thread;

    if (a->state != AGENT_BUSY || t == NULL || t->stops > 0 || (asked > 0 && t->agents > 1) ||
        (asked == 0 && a->run >= POOL_RUN_MAX && is_waited_for(p, a))) {
        return NULL;
    }
    a->run += a->run < POOL_RUN_MAX;
    return agent_pool_take(p, t);
}

void agent_pool_stop(struct agent_pool *p, struct agent_place *a)
{
    if (a->thread != NULL && !a->stops) {
        a->stops = true;
        a->thread->stops++;
        update(p, a->thread);
    }
}

void agent_pool_go_on(struct agent_pool *p, struct agent_place *a)
{
    if (a->stops) {
        a->stops = false;
        a->thread->stops--;
        update(p, a->thread);
    }
}

void agent_pool_leave(struct agent_pool *p, struct agent_place *a, struct pool_action *ret_action)
{
    struct pool_ring *r;

    *ret_action = (struct pool_action){.type = POOL_NOTHING, .agent = a};
    detach(p, a);
    if (a->ring->retired) {
        ret_action->type = POOL_END;
        return;
    }
    TAILQ_FOREACH(r, &p->wanting, in_wanting)
    {
        if (r == a->ring) {
            if (!r->spec.queue_only) {
                attach(p, a, TAILQ_FIRST(&r->wanting));
                ret_action->type = POOL_GIVE;
                ret_action->job = first_job(p, a);
            }
            return; /* agent_pool_next finds idle agents */
        }
        if (in_the_way(r, a->ring) && !help_is_near(p, r)) {
            ret_action->type = POOL_END;
            return;
        }
    }
}

void agent_pool_rest(struct agent_pool *p, struct agent_place *a, struct mono now)
{
    CHECK(a->thread == NULL && a->state == AGENT_BUSY);
    a->state = AGENT_IDLE;
    a->since = now;
    TAILQ_INSERT_HEAD(&a->ring->idle, a, in_ring);
    TAILQ_INSERT_TAIL(&p->idle, a, in_idle);
}

void agent_pool_ending(struct agent_pool *p, struct agent_place *a)
{
    if (a->state == AGENT_ENDING) {
        return;
    }
    if (a->state == AGENT_IDLE) {
        leave_rest(p, a);
    }
    a->state = AGENT_ENDING;
    p->ending++;
    a->ring->ending++;
    a->ring->channel->ending++;
}

bool agent_pool_ended(struct agent_pool *p, struct agent_place *a, struct mono now,
                      struct pool_thread **ret_thread)
{
    struct pool_ring *r = a->ring;
    struct pool_thread *t = a->thread;
    bool fails = false;

    *ret_thread = t != NULL && t->waiting_count > 0 ? t : NULL;
    agent_pool_ending(p, a);
    if (!a->proven) {
        fails = ring_failed(r, now);
    }
    p->ending--;
    r->ending--;
    r->channel->ending--;
    p->agents--;
    r->agents--;
    r->channel->agents--;
    detach(p, a);
    mem_free(a->host);
    a->host = NULL;
    a->ring = NULL;
    ring_reap(p, r, now);
    return fails;
}

/* ---- sweeping -------------------------------------------------------------------------------- */

struct agent_place *agent_pool_sweep(struct agent_pool *p, struct mono now)
{
    struct pool_ring *r, *next;

    for (r = TAILQ_FIRST(&p->retired); r != NULL; r = next) {
        next = TAILQ_NEXT(r, in_retired);
        if (!TAILQ_EMPTY(&r->idle)) {
            return TAILQ_FIRST(&r->idle);
        }
        ring_reap(p, r, now);
    }
    HASH_ITER(hh, p->rings, r, next)
    {
        struct agent_place *a = TAILQ_LAST(&r->idle, idle_list);

        if (a != NULL && mono_reached(mono_after(a->since, r->spec.idle_max_us), now)) {
            return a;
        }
        ring_reap(p, r, now);
    }
    return NULL;
}

/* ---- a new configuration -------------------------------------------------------------------- */

static void retire(struct agent_pool *p, struct pool_ring *r)
{
    r->retired = true;
    TAILQ_INSERT_TAIL(&p->retired, r, in_retired);
}

/* Inserts a ring again, under the current number of its clause, or retires it. */
static void ring_again(struct agent_pool *p, struct pool_ring *r, agent_pool_look *look, void *arg)
{
    struct agent_spec spec;
    struct pool_ring *other;
    struct buf key;

    look(arg, slice_string(r->channel->name), slice_string(r->sample), &spec);
    if (!slice_equal(spec.start, r->spec.start) || spec.host_bound != r->spec.host_bound) {
        retire(p, r);
        return;
    }
    make_key(&spec, &key);
    HASH_FIND(hh, p->rings, buf_slice(&key).ptr, buf_len(&key), other);
    if (other != NULL) {
        retire(p, r);
    } else {
        mem_free(r->key);
        r->key_len = buf_len(&key);
        r->key = buf_take(&key);
        HASH_ADD_KEYPTR(hh, p->rings, r->key, r->key_len, r);
        ring_adopt(r, &spec);
    }
    buf_fini(&key);
}

/* Moves waiting jobs to their new ring. May free the thread. */
static void move_jobs(struct agent_pool *p, struct pool_thread *t, agent_pool_look *look, void *arg)
{
    struct agent_spec spec;
    size_t left = t->waiting_count;

    look(arg, slice_string(t->ring->channel->name), slice_string(t->host), &spec);
    if (left == 0 || ring_need(p, &spec) == t->ring) {
        update(p, t);
        return;
    }
    for (; left > 0; left--) {
        struct job_place *job = agent_pool_take(p, t);

        agent_pool_add(p, &spec, job);
    }
}

static void move_threads(struct agent_pool *p, struct pool_ring *r, agent_pool_look *look,
                         void *arg)
{
    struct pool_thread *t, *next;

    HASH_ITER(hh, r->threads, t, next)
    {
        move_jobs(p, t, look, arg);
    }
}

void agent_pool_reload(struct agent_pool *p, agent_pool_look *look, void *arg)
{
    struct pool_ring *r, *next, *rings = p->rings;

    /* Clauses may have exchanged numbers, so all keys are removed before the first is inserted. */
    p->rings = NULL;
    while ((r = rings) != NULL) {
        HASH_DEL(rings, r);
        ring_again(p, r, look, arg);
    }
    TAILQ_FOREACH(r, &p->retired, in_retired)
    {
        move_threads(p, r, look, arg);
    }
    HASH_ITER(hh, p->rings, r, next)
    {
        move_threads(p, r, look, arg);
    }
}

/* ---- queries --------------------------------------------------------------------------------- */

struct pool_ring *agent_pool_thread_ring(struct pool_thread *t)
{
    return t->ring;
}

struct slice agent_pool_trouble(const struct pool_ring *r)
{
    return slice_string(r->trouble);
}

struct slice agent_pool_thread_channel(const struct pool_thread *t)
{
    return slice_string(t->ring->channel->name);
}

struct slice agent_pool_thread_host(const struct pool_thread *t)
{
    return slice_string(t->host);
}

struct slice agent_pool_ring_channel(const struct pool_ring *r)
{
    return slice_string(r->channel->name);
}

uint32_t agent_pool_ring_clause(const struct pool_ring *r)
{
    return r->spec.clause;
}

size_t agent_pool_thread_waiting(const struct pool_thread *t)
{
    return t->waiting_count;
}

size_t agent_pool_count(const struct agent_pool *p)
{
    return p->agents;
}

/* Checks a ring and adds its numbers to the totals. */
static void audit_ring(const struct pool_ring *r, uint32_t *agents, uint32_t *ending, size_t *idle)
{
    const struct agent_place *a;
    const struct job_place *job;
    struct pool_thread *t, *next;
    uint32_t wanting = 0, working = 0, resting = 0;

    HASH_ITER(hh, r->threads, t, next)
    {
        size_t waiting = 0;

        TAILQ_FOREACH(job, &t->waiting, next)
        {
            CHECK(job->thread == t);
            waiting++;
        }
        CHECK(t->ring == r);
        CHECK(waiting == t->waiting_count);
        CHECK(t->wants == thread_wants(t));
        CHECK(waiting > 0 || t->agents > 0);
        wanting += t->wants;
        working += t->agents;
    }
    TAILQ_FOREACH(a, &r->idle, in_ring)
    {
        CHECK(a->ring == r && a->state == AGENT_IDLE && a->thread == NULL);
        resting++;
    }
    CHECK(wanting == r->wanting_count);
    CHECK(working + resting <= r->agents); /* the others have left a thread and are not idle yet */
    CHECK(r->ending <= r->agents);
    *agents += r->agents;
    *ending += r->ending;
    *idle += resting;
}

void agent_pool_audit(const struct agent_pool *p)
{
    struct pool_ring *r, *next;
    const struct agent_place *a;
    uint32_t agents = 0, ending = 0;
    size_t idle = 0, listed = 0;

    HASH_ITER(hh, p->rings, r, next)
    {
        CHECK(!r->retired);
        audit_ring(r, &agents, &ending, &idle);
    }
    TAILQ_FOREACH(r, &p->retired, in_retired)
    {
        CHECK(r->retired);
        audit_ring(r, &agents, &ending, &idle);
    }
    TAILQ_FOREACH(a, &p->idle, in_idle)
    {
        listed++;
    }
    CHECK(agents == p->agents);
    CHECK(ending == p->ending);
    CHECK(idle == listed);
}
