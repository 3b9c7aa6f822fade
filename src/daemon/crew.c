/*
 * A thread stands in its ring's list `wanting`, and a ring in the crew's, exactly as long as
 * another agent would be of use: update() sees to that after every change. crew_next walks the
 * rings that want, so it costs nothing while nobody does; who was served goes to the end of both
 * lists.
 */
#include "crew.h"

#include <string.h>

#include "buf.h"
#include "check.h"
#include "mem.h"

#define KEY_MAX (32u << 20) /* a command can be all of a configuration */

struct crew_thread {
    struct crew_ring *ring;
    char *host; /* owned; key */
    TAILQ_HEAD(, crew_job) waiting;
    size_t waiting_count;
    uint32_t agents;
    uint32_t may_start; /* wakeup_restart_only: agents that the run may yet begin with */
    uint32_t stops;     /* agents of it that have stopped it */
    bool wants;         /* in ring->wanting */
    TAILQ_ENTRY(crew_thread) in_wanting;
    UT_hash_handle hh;
};

struct channel_count {
    char *name; /* owned; key */
    uint32_t agents, ending, rings;
    UT_hash_handle hh;
};

/* Which limit keeps a ring that wants an agent from having one. */
enum block { BLOCK_NONE, BLOCK_RING, BLOCK_CHANNEL, BLOCK_ALL };

struct crew_ring {
    char *key; /* owned */
    size_t key_len;
    struct channel_count *channel;
    char *start, *sample; /* owned; `sample` is one of its hosts */
    char *trouble;        /* owned: why its starts fail, or NULL */
    struct crew_recipe recipe;
    struct crew_thread *threads; /* by host */
    TAILQ_HEAD(thread_list, crew_thread) wanting;
    uint32_t wanting_count;
    TAILQ_HEAD(idle_list, crew_agent) idle; /* the last used one first */
    uint32_t agents, ending;
    enum block block; /* as found by the last crew_next */
    bool retired;     /* the configuration knows it no more; not in crew->rings */
    unsigned failures;
    struct mono held_until;
    TAILQ_ENTRY(crew_ring) in_wanting, in_retired;
    UT_hash_handle hh;
};

struct crew {
    struct crew_ring *rings; /* by key */
    struct channel_count *channels;
    TAILQ_HEAD(, crew_ring) wanting, retired;
    TAILQ_HEAD(, crew_agent) idle; /* of all rings, the longest unused first */
    uint32_t agents, ending;
    uint32_t starts_per_second, starts;
    struct mono second; /* in which `starts` were made */
    struct mono held_until;
    bool frozen;
};

/* ---- rings and threads ---------------------------------------------------------------------- */

struct crew *crew_new(void)
{
    struct crew *c = mem_new(sizeof *c);

    TAILQ_INIT(&c->wanting);
    TAILQ_INIT(&c->retired);
    TAILQ_INIT(&c->idle);
    c->starts_per_second = 1;
    return c;
}

void crew_configure(struct crew *c, uint32_t starts_per_second, bool frozen)
{
    CHECK(starts_per_second > 0);
    c->starts_per_second = starts_per_second;
    c->frozen = frozen;
}

static void make_key(const struct crew_recipe *r, struct buf *key)
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

static struct channel_count *channel_need(struct crew *c, struct slice name)
{
    struct channel_count *channel;

    HASH_FIND(hh, c->channels, name.ptr, name.len, channel);
    if (channel == NULL) {
        channel = mem_new(sizeof *channel);
        channel->name = mem_copy(name.ptr, name.len);
        HASH_ADD_KEYPTR(hh, c->channels, channel->name, name.len, channel);
    }
    return channel;
}

/* The numbers of the recipe; its slices become the ring's own. */
static void ring_adopt(struct crew_ring *r, const struct crew_recipe *recipe)
{
    char *start = mem_copy(recipe->start.ptr, recipe->start.len);
    char *sample = mem_copy(recipe->host.ptr, recipe->host.len);

    mem_free(r->start);
    mem_free(r->sample);
    r->start = start;
    r->sample = sample;
    r->recipe = *recipe;
    r->recipe.channel = slice_string(r->channel->name);
    r->recipe.start = slice_of(start, recipe->start.len);
    r->recipe.host = slice_of(sample, recipe->host.len);
    if (r->recipe.maxthr <= 0) {
        r->recipe.maxthr = 1;
    }
}

static struct crew_ring *ring_need(struct crew *c, const struct crew_recipe *recipe)
{
    struct crew_ring *r;
    struct buf key;

    make_key(recipe, &key);
    HASH_FIND(hh, c->rings, buf_slice(&key).ptr, buf_len(&key), r);
    if (r == NULL) {
        r = mem_new(sizeof *r);
        r->key_len = buf_len(&key);
        r->key = buf_take(&key);
        r->channel = channel_need(c, recipe->channel);
        r->channel->rings++;
        TAILQ_INIT(&r->wanting);
        TAILQ_INIT(&r->idle);
        HASH_ADD_KEYPTR(hh, c->rings, r->key, r->key_len, r);
    }
    buf_fini(&key);
    ring_adopt(r, recipe);
    return r;
}

static void ring_free(struct crew *c, struct crew_ring *r)
{
    if (r->retired) {
        TAILQ_REMOVE(&c->retired, r, in_retired);
    } else {
        HASH_DEL(c->rings, r);
    }
    if (--r->channel->rings == 0) {
        HASH_DEL(c->channels, r->channel);
        mem_free(r->channel->name);
        mem_free(r->channel);
    }
    mem_free(r->key);
    mem_free(r->start);
    mem_free(r->sample);
    mem_free(r->trouble);
    mem_free(r);
}

/* One whose starts failed remembers that for a while. */
static void ring_reap(struct crew *c, struct crew_ring *r, struct mono now)
{
    if (r->threads == NULL && r->agents == 0 &&
        (r->failures == 0 || mono_reached(mono_after(r->held_until, CREW_HOLD_MAX_US), now))) {
        ring_free(c, r);
    }
}

void crew_free(struct crew *c)
{
    struct crew_ring *r, *next;

    if (c == NULL) {
        return;
    }
    CHECK(c->agents == 0);
    HASH_ITER(hh, c->rings, r, next)
    {
        CHECK(r->threads == NULL);
        ring_free(c, r);
    }
    while ((r = TAILQ_FIRST(&c->retired)) != NULL) {
        CHECK(r->threads == NULL);
        ring_free(c, r);
    }
    mem_free(c);
}

static struct crew_thread *thread_need(struct crew_ring *r, struct slice host)
{
    struct crew_thread *t;

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

/* Would another agent be of use to this thread? */
static bool thread_wants(const struct crew_thread *t)
{
    if (t->waiting_count == 0 || t->stops > 0) {
        return false;
    }
    if (t->agents == 0) {
        return true;
    }
    return t->agents < t->waiting_count && (int64_t)t->agents < t->ring->recipe.maxthr &&
           (!t->ring->recipe.wakeup_restart_only || t->may_start > 0);
}

/* After every change of a thread. One that has neither jobs nor agents is freed. */
static void update(struct crew *c, struct crew_thread *t)
{
    struct crew_ring *r = t->ring;
    bool wants = thread_wants(t);

    if (t->agents == 0) {
        int64_t most = r->recipe.maxthr;

        t->may_start =
            (uint32_t)((int64_t)t->waiting_count < most ? (int64_t)t->waiting_count : most);
    }
    if (wants && !t->wants) {
        TAILQ_INSERT_TAIL(&r->wanting, t, in_wanting);
        if (r->wanting_count++ == 0) {
            TAILQ_INSERT_TAIL(&c->wanting, r, in_wanting);
            r->block = BLOCK_NONE;
        }
    } else if (!wants && t->wants) {
        TAILQ_REMOVE(&r->wanting, t, in_wanting);
        if (--r->wanting_count == 0) {
            TAILQ_REMOVE(&c->wanting, r, in_wanting);
        }
    }
    t->wants = wants;
    if (t->agents == 0 && t->waiting_count == 0) {
        HASH_DEL(r->threads, t);
        mem_free(t->host);
        mem_free(t);
    }
}

/* It had its turn. */
static void rotate(struct crew *c, struct crew_thread *t)
{
    struct crew_ring *r = t->ring;

    if (t->wants) {
        TAILQ_REMOVE(&r->wanting, t, in_wanting);
        TAILQ_INSERT_TAIL(&r->wanting, t, in_wanting);
    }
    if (r->wanting_count > 0) {
        TAILQ_REMOVE(&c->wanting, r, in_wanting);
        TAILQ_INSERT_TAIL(&c->wanting, r, in_wanting);
    }
}

void crew_add(struct crew *c, const struct crew_recipe *recipe, struct crew_job *job)
{
    struct crew_thread *t = thread_need(ring_need(c, recipe), recipe->host);

    TAILQ_INSERT_TAIL(&t->waiting, job, next);
    t->waiting_count++;
    job->thread = t;
    update(c, t);
}

void crew_remove(struct crew *c, struct crew_job *job)
{
    struct crew_thread *t = job->thread;

    TAILQ_REMOVE(&t->waiting, job, next);
    t->waiting_count--;
    job->thread = NULL;
    update(c, t);
}

struct crew_job *crew_take(struct crew *c, struct crew_thread *t)
{
    struct crew_job *job = TAILQ_FIRST(&t->waiting);

    if (job != NULL) {
        crew_remove(c, job);
    }
    return job;
}

/* ---- agents and their places ---------------------------------------------------------------- */

static void attach(struct crew *c, struct crew_agent *a, struct crew_thread *t)
{
    CHECK(a->thread == NULL);
    a->thread = t;
    a->run = 0;
    mem_free(a->host);
    a->host = mem_string(t->host);
    t->agents++;
    t->may_start -= t->may_start > 0;
    update(c, t);
    rotate(c, t);
}

static void detach(struct crew *c, struct crew_agent *a)
{
    struct crew_thread *t = a->thread;

    if (t != NULL) {
        t->stops -= a->stops;
        a->stops = false;
        a->thread = NULL;
        t->agents--;
        update(c, t);
    }
}

/* Its first job of this thread. */
static struct crew_job *first_job(struct crew *c, struct crew_agent *a)
{
    a->run = 1;
    return crew_take(c, a->thread);
}

static void leave_rest(struct crew *c, struct crew_agent *a)
{
    CHECK(a->state == CREW_IDLE);
    TAILQ_REMOVE(&a->ring->idle, a, in_ring);
    TAILQ_REMOVE(&c->idle, a, in_idle);
    a->state = CREW_BUSY;
}

/* The idle agent that knows the host, else the one used last. */
static struct crew_agent *idle_for(const struct crew_ring *r, const char *host)
{
    struct crew_agent *a;

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

static enum block find_block(const struct crew *c, const struct crew_ring *r)
{
    return full(r->recipe.maxta, c->agents)                 ? BLOCK_ALL
           : full(r->recipe.maxchannel, r->channel->agents) ? BLOCK_CHANNEL
           : full(r->recipe.maxring, r->agents)             ? BLOCK_RING
                                                            : BLOCK_NONE;
}

/* Does an agent of ring `of` hold a place that the blocked ring could use? */
static bool in_the_way(const struct crew_ring *blocked, const struct crew_ring *of)
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

/* Are so many agents about to end already that the ring's threads will have their places? */
static bool help_is_near(const struct crew *c, const struct crew_ring *r)
{
    uint32_t ending = r->block == BLOCK_ALL       ? c->ending
                      : r->block == BLOCK_CHANNEL ? r->channel->ending
                                                  : r->ending;

    return ending >= r->wanting_count;
}

/* An idle agent whose place the blocked ring could use, the longest unused one. */
static struct crew_agent *idle_in_the_way(const struct crew *c, const struct crew_ring *r)
{
    struct crew_agent *a;

    TAILQ_FOREACH(a, &c->idle, in_idle)
    {
        if (in_the_way(r, a->ring)) {
            return a;
        }
    }
    return NULL;
}

static bool may_start_now(struct crew *c, struct mono now)
{
    if (c->frozen || !mono_reached(c->held_until, now)) {
        return false;
    }
    if (now.us - c->second.us >= US_PER_S || c->starts == 0) {
        c->second = now;
        c->starts = 0;
    }
    return c->starts < c->starts_per_second;
}

/* A thread of a ring whose starts fail, with nobody to do its jobs. */
static struct crew_thread *hopeless_thread(const struct crew_ring *r, struct mono now)
{
    struct crew_thread *t;

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

/* What can be done for one ring that wants an agent. */
static void help_ring(struct crew *c, struct crew_ring *r, struct mono now,
                      struct crew_action *action)
{
    struct crew_thread *t = TAILQ_FIRST(&r->wanting);
    struct crew_agent *a = idle_for(r, t->host);

    if (a != NULL) {
        leave_rest(c, a);
        attach(c, a, t);
        *action = (struct crew_action){.type = CREW_GIVE, .agent = a, .job = first_job(c, a)};
        return;
    }
    if (!mono_reached(r->held_until, now)) {
        t = hopeless_thread(r, now);
        action->type = t != NULL ? CREW_REFUSE : CREW_NOTHING;
        action->thread = t;
        return;
    }
    r->block = find_block(c, r);
    if (r->block != BLOCK_NONE) {
        a = help_is_near(c, r) ? NULL : idle_in_the_way(c, r);
        action->type = a != NULL ? CREW_END : CREW_NOTHING;
        action->agent = a;
    } else if (may_start_now(c, now)) {
        *action = (struct crew_action){.type = CREW_START, .thread = t};
    }
}

void crew_next(struct crew *c, struct mono now, struct crew_action *ret_action)
{
    struct crew_ring *r;

    *ret_action = (struct crew_action){.type = CREW_NOTHING};
    TAILQ_FOREACH(r, &c->wanting, in_wanting)
    {
        help_ring(c, r, now, ret_action);
        if (ret_action->type != CREW_NOTHING) {
            return;
        }
    }
}

struct mono crew_wake_at(const struct crew *c, struct mono now)
{
    struct mono at = c->held_until;

    if (c->starts >= c->starts_per_second && c->second.us + US_PER_S > at.us) {
        at = mono_after(c->second, US_PER_S);
    }
    return TAILQ_EMPTY(&c->wanting) || c->frozen || mono_reached(at, now) ? MONO_NEVER : at;
}

void crew_started(struct crew *c, struct crew_thread *t, struct crew_agent *agent)
{
    struct crew_ring *r = t->ring;

    agent->ring = r;
    agent->state = CREW_BUSY;
    c->agents++;
    c->starts++;
    r->agents++;
    r->channel->agents++;
    attach(c, agent, t);
}

void crew_not_started(struct crew *c, struct mono now)
{
    c->held_until = mono_after(now, CREW_HOLD_US);
}

static bool ring_failed(struct crew_ring *r, struct mono now)
{
    int64_t hold_us = r->failures > 20 ? CREW_HOLD_MAX_US : CREW_HOLD_US << r->failures;

    r->held_until = mono_after(now, hold_us < CREW_HOLD_MAX_US ? hold_us : CREW_HOLD_MAX_US);
    return r->failures++ == 0;
}

bool crew_start_failed(struct crew_thread *t, struct mono now)
{
    return ring_failed(t->ring, now);
}

void crew_explain(struct crew_ring *r, struct slice why)
{
    mem_free(r->trouble);
    r->trouble = mem_copy(why.ptr, why.len);
}

bool crew_proven(struct crew_agent *a)
{
    bool failing = a->ring->failures > 0;

    a->proven = true;
    a->ring->failures = 0;
    a->ring->held_until = (struct mono){0};
    return failing;
}

/* Is there somebody who waits for what this agent holds? */
static bool is_waited_for(const struct crew *c, const struct crew_agent *a)
{
    const struct crew_ring *r;

    TAILQ_FOREACH(r, &c->wanting, in_wanting)
    {
        if (in_the_way(r, a->ring) && (r->wanting_count > 1 || !a->thread->wants || r != a->ring)) {
            return true;
        }
    }
    return false;
}

struct crew_job *crew_feed(struct crew *c, struct crew_agent *a, uint32_t asked)
{
    struct crew_thread *t = a->thread;

    if (a->state != CREW_BUSY || t == NULL || t->stops > 0 || (asked > 0 && t->agents > 1) ||
        (asked == 0 && a->run >= CREW_RUN_MAX && is_waited_for(c, a))) {
        return NULL;
    }
    a->run += a->run < CREW_RUN_MAX;
    return crew_take(c, t);
}

void crew_stop(struct crew *c, struct crew_agent *a)
{
    if (a->thread != NULL && !a->stops) {
        a->stops = true;
        a->thread->stops++;
        update(c, a->thread);
    }
}

void crew_go_on(struct crew *c, struct crew_agent *a)
{
    if (a->stops) {
        a->stops = false;
        a->thread->stops--;
        update(c, a->thread);
    }
}

void crew_leave(struct crew *c, struct crew_agent *a, struct crew_action *ret_action)
{
    struct crew_ring *r;

    *ret_action = (struct crew_action){.type = CREW_NOTHING, .agent = a};
    detach(c, a);
    if (a->ring->retired) {
        ret_action->type = CREW_END;
        return;
    }
    TAILQ_FOREACH(r, &c->wanting, in_wanting)
    {
        if (r == a->ring) {
            if (!r->recipe.queue_only) {
                attach(c, a, TAILQ_FIRST(&r->wanting));
                ret_action->type = CREW_GIVE;
                ret_action->job = first_job(c, a);
            }
            return; /* who rests is found by crew_next */
        }
        if (in_the_way(r, a->ring) && !help_is_near(c, r)) {
            ret_action->type = CREW_END;
            return;
        }
    }
}

void crew_rest(struct crew *c, struct crew_agent *a, struct mono now)
{
    CHECK(a->thread == NULL && a->state == CREW_BUSY);
    a->state = CREW_IDLE;
    a->since = now;
    TAILQ_INSERT_HEAD(&a->ring->idle, a, in_ring);
    TAILQ_INSERT_TAIL(&c->idle, a, in_idle);
}

void crew_ending(struct crew *c, struct crew_agent *a)
{
    if (a->state == CREW_ENDING) {
        return;
    }
    if (a->state == CREW_IDLE) {
        leave_rest(c, a);
    }
    a->state = CREW_ENDING;
    c->ending++;
    a->ring->ending++;
    a->ring->channel->ending++;
}

bool crew_ended(struct crew *c, struct crew_agent *a, struct mono now,
                struct crew_thread **ret_thread)
{
    struct crew_ring *r = a->ring;
    struct crew_thread *t = a->thread;
    bool fails = false;

    *ret_thread = t != NULL && t->waiting_count > 0 ? t : NULL;
    crew_ending(c, a);
    if (!a->proven) {
        fails = ring_failed(r, now);
    }
    c->ending--;
    r->ending--;
    r->channel->ending--;
    c->agents--;
    r->agents--;
    r->channel->agents--;
    detach(c, a);
    mem_free(a->host);
    a->host = NULL;
    a->ring = NULL;
    ring_reap(c, r, now);
    return fails;
}

/* ---- now and then --------------------------------------------------------------------------- */

struct crew_agent *crew_sweep(struct crew *c, struct mono now)
{
    struct crew_ring *r, *next;

    for (r = TAILQ_FIRST(&c->retired); r != NULL; r = next) {
        next = TAILQ_NEXT(r, in_retired);
        if (!TAILQ_EMPTY(&r->idle)) {
            return TAILQ_FIRST(&r->idle);
        }
        ring_reap(c, r, now);
    }
    HASH_ITER(hh, c->rings, r, next)
    {
        struct crew_agent *a = TAILQ_LAST(&r->idle, idle_list);

        if (a != NULL && mono_reached(mono_after(a->since, r->recipe.idle_max_us), now)) {
            return a;
        }
        ring_reap(c, r, now);
    }
    return NULL;
}

/* ---- a new configuration -------------------------------------------------------------------- */

static void retire(struct crew *c, struct crew_ring *r)
{
    r->retired = true;
    TAILQ_INSERT_TAIL(&c->retired, r, in_retired);
}

/* Put a ring that is in no table back under the number that its clause now has, or retire it. */
static void ring_again(struct crew *c, struct crew_ring *r, crew_look *look, void *arg)
{
    struct crew_recipe recipe;
    struct crew_ring *other;
    struct buf key;

    look(arg, slice_string(r->channel->name), slice_string(r->sample), &recipe);
    if (!slice_equal(recipe.start, r->recipe.start) || recipe.host_bound != r->recipe.host_bound) {
        retire(c, r);
        return;
    }
    make_key(&recipe, &key);
    HASH_FIND(hh, c->rings, buf_slice(&key).ptr, buf_len(&key), other);
    if (other != NULL) {
        retire(c, r);
    } else {
        mem_free(r->key);
        r->key_len = buf_len(&key);
        r->key = buf_take(&key);
        HASH_ADD_KEYPTR(hh, c->rings, r->key, r->key_len, r);
        ring_adopt(r, &recipe);
    }
    buf_fini(&key);
}

/* Waiting jobs go where they belong now. The thread may be gone afterwards. */
static void move_jobs(struct crew *c, struct crew_thread *t, crew_look *look, void *arg)
{
    struct crew_recipe recipe;
    size_t left = t->waiting_count;

    look(arg, slice_string(t->ring->channel->name), slice_string(t->host), &recipe);
    if (left == 0 || ring_need(c, &recipe) == t->ring) {
        update(c, t);
        return;
    }
    for (; left > 0; left--) {
        struct crew_job *job = crew_take(c, t);

        crew_add(c, &recipe, job);
    }
}

static void move_threads(struct crew *c, struct crew_ring *r, crew_look *look, void *arg)
{
    struct crew_thread *t, *next;

    HASH_ITER(hh, r->threads, t, next)
    {
        move_jobs(c, t, look, arg);
    }
}

void crew_reload(struct crew *c, crew_look *look, void *arg)
{
    struct crew_ring *r, *next, *rings = c->rings;

    /* Numbers of clauses may have been exchanged: all keys go before the first comes back. */
    c->rings = NULL;
    while ((r = rings) != NULL) {
        HASH_DEL(rings, r);
        ring_again(c, r, look, arg);
    }
    TAILQ_FOREACH(r, &c->retired, in_retired)
    {
        move_threads(c, r, look, arg);
    }
    HASH_ITER(hh, c->rings, r, next)
    {
        move_threads(c, r, look, arg);
    }
}

/* ---- looking -------------------------------------------------------------------------------- */

struct crew_ring *crew_thread_ring(struct crew_thread *t)
{
    return t->ring;
}

struct slice crew_trouble(const struct crew_ring *r)
{
    return slice_string(r->trouble);
}

struct slice crew_thread_channel(const struct crew_thread *t)
{
    return slice_string(t->ring->channel->name);
}

struct slice crew_thread_host(const struct crew_thread *t)
{
    return slice_string(t->host);
}

struct slice crew_ring_channel(const struct crew_ring *r)
{
    return slice_string(r->channel->name);
}

uint32_t crew_ring_clause(const struct crew_ring *r)
{
    return r->recipe.clause;
}

size_t crew_thread_waiting(const struct crew_thread *t)
{
    return t->waiting_count;
}

size_t crew_count(const struct crew *c)
{
    return c->agents;
}

/* One ring; adds what it has to the totals. */
static void audit_ring(const struct crew_ring *r, uint32_t *agents, uint32_t *ending, size_t *idle)
{
    const struct crew_agent *a;
    const struct crew_job *job;
    struct crew_thread *t, *next;
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
        CHECK(a->ring == r && a->state == CREW_IDLE && a->thread == NULL);
        resting++;
    }
    CHECK(wanting == r->wanting_count);
    CHECK(working + resting <= r->agents); /* the others have left a thread and do not rest yet */
    CHECK(r->ending <= r->agents);
    *agents += r->agents;
    *ending += r->ending;
    *idle += resting;
}

void crew_audit(const struct crew *c)
{
    struct crew_ring *r, *next;
    const struct crew_agent *a;
    uint32_t agents = 0, ending = 0;
    size_t idle = 0, listed = 0;

    HASH_ITER(hh, c->rings, r, next)
    {
        CHECK(!r->retired);
        audit_ring(r, &agents, &ending, &idle);
    }
    TAILQ_FOREACH(r, &c->retired, in_retired)
    {
        CHECK(r->retired);
        audit_ring(r, &agents, &ending, &idle);
    }
    TAILQ_FOREACH(a, &c->idle, in_idle)
    {
        listed++;
    }
    CHECK(agents == c->agents);
    CHECK(ending == c->ending);
    CHECK(idle == listed);
}
