/*
 * Destinations, peers and entries: windows, timers, readiness. See sched.c.
 */
#include <string.h>

#include "check.h"
#include "mem.h"
#include "sched_private.h"

#define CACHE_LINE 64

/* ---- timers --------------------------------------------------------------------------------- */

void timer_init(struct timer *timer, enum timer_type type)
{
    heap_node_init(&timer->node);
    timer->type = type;
}

void timer_cancel(struct sched *s, struct timer *timer)
{
    if (heap_has(&timer->node)) {
        heap_remove(&s->timers, &timer->node);
    }
}

void timer_set(struct sched *s, struct timer *timer, struct mono at)
{
    timer_cancel(s, timer);
    timer->at_us = at.us;
    timer->serial = ++s->serial;
    heap_add(&s->timers, &timer->node);
}

/* Maximum number of idle destinations; the oldest are forgotten first. */
#define SCHED_IDLE_MAX 100000

/* Number of destinations freed before a new one is created, and whenever nothing is left to
 * decide. */
#define FORGET_AT_ONCE 4

/* Minimum time for which a proven destination without mail is remembered as proven, where that
 * matters. */
#define STANDING_US (3600 * US_PER_S)

/* Time for which no other unknown destination comes after a newcomer. */
#define NEWCOMER_QUIET_US (US_PER_S / 2)

/* ---- destinations --------------------------------------------------------------------------- */

static bool waiting_less(const struct tree_node *a, const struct tree_node *b)
{
    return order_before(&PEER_OF(a)->job->place, &PEER_OF(b)->job->place);
}

static uint32_t waiting_weight(const struct tree_node *n)
{
    return PEER_OF(n)->waiting_count;
}

const struct tree_type waiting_type = {.less = waiting_less, .weight = waiting_weight};

/* Returns 0 for a peer after `last` in its job's ring, which the rotation reaches first, else 1. */
static int lap(const struct peer *p)
{
    const struct peer *last = p->job->last;

    return last != NULL && !order_before(&last->ring, &p->ring) ? 1 : 0;
}

bool dest_queue_less(const struct heap_node *a, const struct heap_node *b)
{
    const struct dest_queue *sa = CONTAINER_OF(a, struct dest_queue, ready);
    const struct dest_queue *sb = CONTAINER_OF(b, struct dest_queue, ready);
    const struct peer *pa, *pb;

    if (sa->place != sb->place) {
        return order_before(sa->place, sb->place);
    }
    pa = sa->first;
    pb = sb->first;
    return lap(pa) != lap(pb) ? lap(pa) < lap(pb) : order_before(&pa->ring, &pb->ring);
}

struct dest *dest_find(const struct transport *t, struct slice name)
{
    struct dest *d;

    HASH_FIND(hh, t->dests, name.ptr, name.len, d);
    return d;
}

const struct window_limits *dest_limits(const struct dest *d)
{
    return d->policy != NULL ? &d->policy->limits : &d->transport->limits;
}

int64_t dest_rate_delay(const struct dest *d)
{
    return d->policy != NULL ? d->policy->rate_delay_us : d->transport->policy.dest_rate_delay_us;
}

bool dest_has_room(const struct dest *d)
{
    return d->state == DEST_READY && d->busy_count < dest_capacity(d);
}

static bool opens(const struct dest *d, bool room)
{
    return room && !d->held_back && dest_admitted(d);
}

bool dest_is_open(const struct dest *d)
{
    return opens(d, dest_has_room(d));
}

/* ---- memory of destinations ----------------------------------------------------------------- */

double dest_memory_left(const struct sched *s, int64_t since_us)
{
    int64_t whole = s->limits.destination_memory_us, gone = s->now.us - since_us;

    return whole <= 0 || gone >= whole ? 0 : gone <= 0 ? 1 : 1 - (double)gone / (double)whole;
}

/* Do unproven destinations have a share of the deliveries? */
static bool proof_matters(const struct sched *s)
{
    return s->limits.unproven_share > 0 && s->limits.unproven_share < 100;
}

/* Returns the time for which the destination is kept without mail. */
static int64_t memory_us(const struct dest *d)
{
    const struct sched *s = d->transport->sched;
    int64_t whole = s->limits.destination_memory_us;

    return proof_matters(s) && d->standing != STANDING_UNPROVEN && whole < STANDING_US ? STANDING_US
                                                                                       : whole;
}

static void idle_leave(struct dest *d)
{
    struct sched *s = d->transport->sched;

    if (d->idle) {
        TAILQ_REMOVE(&s->idle, d, link);
        s->idle_count--;
        d->idle = false;
    }
}

/* Resets the destination to its initial state, except its name, its policy, and its standing if
 * that matters. */
static void dest_reset(struct dest *d)
{
    reason_unref(d->reason);
    d->reason = NULL;
    if (d->standing == STANDING_FAILING && !proof_matters(d->transport->sched)) {
        d->standing = STANDING_UNPROVEN; /* it has no deliveries */
    }
    d->probing = d->used = d->cache_load = d->cache_store = false;
    d->deaths = 0;
    d->well = 0;
    d->last_done_s = INT64_MIN / 2;
    window_init(&d->window, dest_limits(d));
}

/* Lets the feedback of an idle destination fade when it gets mail again. */
static void dest_wake(struct dest *d)
{
    double left = dest_memory_left(d->transport->sched, d->since_us);

    idle_leave(d);
    d->came_us = d->transport->sched->now.us;
    if (left <= 0) {
        dest_reset(d);
    } else if (!d->probing) {
        window_fade(&d->window, dest_limits(d), left);
    }
}

void dest_forget_old(struct sched *s)
{
    for (int i = 0; i < FORGET_AT_ONCE; i++) {
        struct dest *d = TAILQ_FIRST(&s->idle);

        if (d == NULL ||
            (s->idle_count <= SCHED_IDLE_MAX && s->now.us - d->since_us < memory_us(d))) {
            return;
        }
        dest_free(d);
    }
}

/* ---- class queues of destinations ----------------------------------------------------------- */

/* With many jobs most of a decision's time is spent waiting for memory that was not used since the
 * job arrived. The first peer is used next, so its memory is loaded early. */
static void prefetch(const struct peer *p)
{
    const char *job = (const char *)p->job;

    for (size_t at = 0; at < sizeof *p->job; at += CACHE_LINE) {
        __builtin_prefetch(job + at);
    }
    __builtin_prefetch(TAILQ_FIRST(&p->waiting));
}

static void dest_queue_set_first(struct dest_queue *dq, struct tree_node *node)
{
    dq->first = node != NULL ? PEER_OF(node) : NULL;
    dq->place = node != NULL ? &dq->first->job->place : NULL;
    if (node != NULL) {
        prefetch(dq->first);
    }
}

/* Adds a peer to the queue. The caller then calls dest_refresh. */
static void dest_queue_add(struct dest_queue *dq, struct peer *p, uint32_t priority)
{
    tree_add(&waiting_type, &dq->waiting, &p->node, priority);
    if (dq->first == NULL || waiting_less(&p->node, &dq->first->node)) {
        dest_queue_set_first(dq, &p->node);
    }
}

static void dest_queue_remove(struct dest_queue *dq, struct peer *p)
{
    if (dq->first == p) {
        dest_queue_set_first(dq, tree_next(&p->node));
    }
    tree_remove(&waiting_type, &dq->waiting, &p->node);
}

void dest_queue_init(struct dest_queue *dq, struct dest *d)
{
    dq->dest = d;
    heap_node_init(&dq->ready);
}

/* ---- the destinations ----------------------------------------------------------------------- */

struct dest *dest_need(struct transport *t, struct slice name)
{
    struct sched *s = t->sched;
    struct dest *d = dest_find(t, name);

    if (d != NULL) {
        dest_catch_up(d);
        if (d->idle) {
            dest_wake(d);
        }
        return d;
    }
    dest_forget_old(s);
    CHECK(name.len >= 1);
    CHECK(name.len <= SCHED_DEST_NAME_MAX);
    d = sched_alloc(s, sizeof *d + name.len + 1);
    d->transport = t;
    d->name_len = (uint16_t)name.len;
    memcpy(d->name, name.ptr, name.len);
    TAILQ_INIT(&d->busy);
    dest_queue_init(&d->queue, d);
    timer_init(&d->timer, TIMER_DEST);
    window_init(&d->window, &t->limits);
    d->last_done_s = INT64_MIN / 2;
    d->standing = STANDING_UNPROVEN;
    d->since_us = d->came_us = s->now.us;
    s->dests = mem_grow(s->dests, s->dest_count, &s->dest_size, sizeof(struct dest *));
    d->told = s->told;
    d->slot = s->dest_count++;
    s->dests[d->slot] = d;
    HASH_ADD_KEYPTR(hh, t->dests, d->name, d->name_len, d);
    return d;
}

/* Ends the privilege of a newcomer. */
static void newcomer_leave(struct dest *d)
{
    if (d->newcomer) {
        d->transport->newcomers--;
        d->newcomer = false;
    }
}

void dest_free(struct dest *d)
{
    struct sched *s = d->transport->sched;
    struct dest *moved = s->dests[--s->dest_count];

    CHECK(d->waiting_count == 0);
    CHECK(TAILQ_EMPTY(&d->busy));
    dest_turns_forget(d);
    CHECK(d->queue.peers == 0);
    CHECK(!d->draining);
    CHECK(!d->held_back);
    CHECK(!d->in_line);
    newcomer_leave(d);
    idle_leave(d);
    timer_cancel(s, &d->timer);
    s->dests[d->slot] = moved;
    moved->slot = d->slot;
    HASH_DELETE(hh, d->transport->dests, d);
    share_forget(d);
    reason_unref(d->reason);
    mem_free(d->policy);
    sched_release(s, d, sizeof *d + d->name_len + 1);
}

void dest_queue_refresh(struct dest_queue *dq, bool open)
{
    bool wanted = open && dq->first != NULL;

    if (wanted && heap_has(&dq->ready)) {
        heap_moved(&dq->class_queue->ready, &dq->ready);
    } else if (wanted) {
        heap_add(&dq->class_queue->ready, &dq->ready);
        class_queue_ready_changed(dq->class_queue);
    } else if (heap_has(&dq->ready)) {
        heap_remove(&dq->class_queue->ready, &dq->ready);
        class_queue_ready_changed(dq->class_queue);
    }
    if (open && dq->closed) {
        dq->closed = false;
        dest_queue_unblocks(dq);
    } else if (!open) {
        dq->closed = true;
    }
}

static void held_back_leave(struct dest *d)
{
    TAILQ_REMOVE(&d->transport->held_back[d->standing], d, link);
    d->held_back = false;
}

void dest_refresh(struct dest *d, struct dest_queue *touched)
{
    struct sched *s = d->transport->sched;
    bool drain = d->state == DEST_DEAD && d->waiting_count > 0, room = dest_has_room(d);

    if (d->held_back && (!room || d->waiting_count == 0)) {
        held_back_leave(d);
    }
    if (d->waiting_count == 0 && d->busy_count == 0) {
        newcomer_leave(d);
    }
    if (d->draining && !drain) {
        TAILQ_REMOVE(&s->draining, d, link);
    }
    if (d->policy != NULL) {
        ring_place(d, room && d->waiting_count > 0 && !d->held_back);
    }
    if (drain && !d->draining) {
        TAILQ_INSERT_TAIL(&s->draining, d, link);
    }
    d->draining = drain;
    if (!room && !d->closed) {
        d->since_us = s->now.us;
    }
    d->closed = !room;
    if (d->turns == NULL) {
        dest_queue_refresh(&d->queue, opens(d, room));
    } else {
        dest_turns_refresh(d, touched);
    }
    share_refresh(d);
}

/* ---- failing and unproven destinations ------------------------------------------------------ */

/* Returns the number of unproven destinations that were reached in this second and the previous
 * one. */
static uint32_t proved_lately(const struct transport *t)
{
    int64_t age_s = us_seconds(t->sched->now.us) - t->proved_s;

    return age_s == 0 ? t->proved[0] + t->proved[1] : age_s == 1 ? t->proved[0] : 0;
}

static void count_proved(struct transport *t)
{
    int64_t now_s = us_seconds(t->sched->now.us);

    if (now_s != t->proved_s) {
        t->proved[1] = now_s == t->proved_s + 1 ? t->proved[0] : 0;
        t->proved[0] = 0;
        t->proved_s = now_s;
    }
    t->proved[0]++;
}

static uint32_t part(uint32_t whole, uint32_t per_cent)
{
    uint64_t limit = (uint64_t)whole * per_cent / 100;

    return limit > 0 ? (uint32_t)limit : 1;
}

uint32_t transport_standing_limit(const struct transport *t, enum standing standing)
{
    const struct sched_limits *limits = &t->sched->limits;
    uint32_t whole = t->policy.process_limit, failing = t->busy_by[STANDING_FAILING];
    uint32_t share = standing == STANDING_PROVEN    ? 100
                     : standing == STANDING_FAILING ? limits->failing_share
                                                    : limits->unproven_share;

    if (share == 0 || share >= 100 || whole < SCHED_FAILING_FROM) {
        return UINT32_MAX;
    }
    return standing == STANDING_FAILING ? part(whole, share)
                                        : part(failing < whole ? whole - failing : 0, share) +
                                              proved_lately(t) + t->newcomers;
}

void dest_set_standing(struct dest *d, enum standing standing)
{
    struct transport *t = d->transport;

    if (standing == d->standing) {
        return;
    }
    if (d->held_back) {
        held_back_leave(d); /* its new standing is checked when its turn comes */
    }
    if (d->standing == STANDING_UNPROVEN && standing == STANDING_PROVEN) {
        count_proved(t);
    }
    newcomer_leave(d);
    t->busy_by[d->standing] -= d->busy_count;
    t->busy_by[standing] += d->busy_count;
    d->standing = (uint8_t)standing;
}

bool dest_hold_back(struct dest *d)
{
    struct transport *t = d->transport;

    if (d->standing == STANDING_PROVEN || (d->newcomer && d->busy_count == 0) ||
        t->busy_by[d->standing] < transport_standing_limit(t, d->standing)) {
        return false;
    }
    CHECK(!d->held_back);
    ring_leave(d);
    d->held_back = true;
    d->since_us = t->sched->now.us;
    TAILQ_INSERT_TAIL(&t->held_back[d->standing], d, link);
    dest_refresh(d, NULL);
    return true;
}

/* Releases no more destinations than can be served at once, because each released destination that
 * is not served is held back again. */
static void release_held_back(struct transport *t, enum standing standing)
{
    struct dest_list *list = &t->held_back[standing];
    uint32_t limit;

    if (TAILQ_EMPTY(list)) {
        return;
    }
    limit = transport_standing_limit(t, standing);
    for (uint32_t n = t->busy_by[standing]; n < limit && !TAILQ_EMPTY(list); n++) {
        struct dest *d = TAILQ_FIRST(list);

        if (standing == STANDING_UNPROVEN) {
            d = t->newest_next ? TAILQ_LAST(list, dest_list) : d;
            t->newest_next = !t->newest_next;
        }
        held_back_leave(d);
        dest_refresh(d, NULL);
    }
}

void transport_release_held_back(struct transport *t)
{
    release_held_back(t, STANDING_FAILING);
    release_held_back(t, STANDING_UNPROVEN);
}

bool transport_release_newcomer(struct transport *t)
{
    struct dest *d = TAILQ_LAST(&t->held_back[STANDING_UNPROVEN], dest_list);
    bool comes = d != NULL && d->came_us > t->newcomer_us && t->busy + 1 < t->policy.process_limit;
    int64_t from_us = t->newcomer_us + (int64_t)t->newcomers * US_PER_S;

    if (comes && from_us < d->came_us + NEWCOMER_QUIET_US) {
        from_us = d->came_us + NEWCOMER_QUIET_US;
    }

    if (comes && t->sched->now.us >= from_us) {
        timer_cancel(t->sched, &t->newcomer);
        d->newcomer = true;
        t->newcomers++;
        t->newcomer_us = t->sched->now.us;
        held_back_leave(d);
        dest_refresh(d, NULL);
        return true;
    }
    if (!comes) {
        timer_cancel(t->sched, &t->newcomer);
    } else if (!heap_has(&t->newcomer.node) || t->newcomer.at_us != from_us) {
        timer_set(t->sched, &t->newcomer, (struct mono){from_us});
    }
    return false;
}

/* ---- life and death ------------------------------------------------------------------------- */

static void set_state(struct dest *d, enum dest_state state)
{
    d->state = (uint8_t)state;
    d->handed_over = false;
    d->since_us = d->transport->sched->now.us;
}

static void set_reason(struct dest *d, struct reason *reason)
{
    reason_unref(d->reason);
    d->reason = reason;
}

/* Returns the time that a destination stays dead. It doubles from the third death on: the first
 * failed probe may have come while the destination was starting. */
static int64_t backoff(const struct sched *s, uint8_t deaths)
{
    int64_t time = s->limits.minimal_backoff_us;

    for (; deaths > 2 && time < s->limits.maximal_backoff_us; deaths--) {
        time = time < s->limits.maximal_backoff_us / 2 ? time * 2 : s->limits.maximal_backoff_us;
    }
    return time;
}

static bool as_postfix(const struct dest *d)
{
    return dest_limits(d)->rule == WINDOW_POSTFIX;
}

static void set_dead(struct dest *d, struct mono until, struct slice reason)
{
    CHECK(d->state == DEST_READY);
    set_state(d, DEST_DEAD);
    set_reason(d, reason_new(reason)); /* there is an old one if this was a probe */
    d->probing = false;
    d->cache_load = d->cache_store = false;
    d->transport->sched->dead_count++;
    timer_set(d->transport->sched, &d->timer, until);
}

void dest_die(struct dest *d, struct mono now, struct slice reason)
{
    struct sched *s = d->transport->sched;

    if (d->deaths < UINT8_MAX) {
        d->deaths++;
    }
    set_dead(d, mono_after(now, backoff(s, as_postfix(d) ? 1 : d->deaths)), reason);
    sched_event(s, SCHED_DEST_DEAD, d);
    dest_refresh(d, NULL);
}

static void dest_unthrottle(struct dest *d)
{
    struct sched *s = d->transport->sched;

    if (d->state == DEST_DEAD) {
        set_state(d, DEST_READY);
        s->dead_count--;
        d->postponed = false;
        timer_cancel(s, &d->timer);
    }
}

/* Allows one delivery at a time from now on. */
static void probe(struct dest *d)
{
    d->probing = true;
    window_restart(&d->window, dest_limits(d), 1);
}

static void dest_retry(struct dest *d)
{
    CHECK(d->state == DEST_DEAD);
    if (as_postfix(d)) {
        dest_revive(d);
        return;
    }
    dest_unthrottle(d);
    probe(d);
    sched_event(d->transport->sched, SCHED_DEST_PROBED, d);
    dest_refresh(d, NULL);
}

/* Returns the window of a destination that was dead. Such a destination is often still weak, and
 * all its senders return at once. So it starts with the initial window, or with its last good
 * window if that was narrower. The positive feedback determines how fast it grows again. */
static uint32_t window_to_start_with(const struct dest *d)
{
    struct window initial, well;

    window_init(&initial, dest_limits(d));
    if (d->well == 0) {
        return initial.size;
    }
    window_restart(&well, dest_limits(d), d->well);
    window_fade(&well, dest_limits(d), dest_memory_left(d->transport->sched, d->well_us));
    return well.size < initial.size ? well.size : initial.size;
}

void dest_recover(struct dest *d)
{
    if (as_postfix(d)) {
        window_revive(&d->window, dest_limits(d), dest_agents(d));
    } else {
        window_restart(&d->window, dest_limits(d), window_to_start_with(d));
    }
    d->probing = false;
    d->deaths = 0;
}

void dest_revive(struct dest *d)
{
    bool failed = !d->postponed || d->probing;

    CHECK(d->state == DEST_DEAD || d->probing);
    dest_unthrottle(d);
    set_reason(d, NULL);
    if (failed) {
        dest_recover(d);
        sched_event(d->transport->sched, SCHED_DEST_REVIVED, d);
    }
    dest_refresh(d, NULL);
}

void dest_postpone(struct dest *d, struct mono until, struct slice reason)
{
    struct sched *s = d->transport->sched;

    if (d->state == DEST_DEAD && !d->postponed && as_postfix(d)) {
        dest_recover(d);
    } else if (d->state == DEST_DEAD && !d->postponed) {
        probe(d);
    } else if (d->state == DEST_SUSPENDED && until.us < d->timer.at_us) {
        until.us = d->timer.at_us;
    }
    s->dead_count += d->state != DEST_DEAD;
    set_state(d, DEST_DEAD);
    set_reason(d, reason_new(reason));
    d->postponed = true;
    timer_set(s, &d->timer, until);
    dest_refresh(d, NULL);
}

static void dest_postponement_over(struct dest *d)
{
    CHECK(d->postponed);
    dest_unthrottle(d);
    if (d->probing) {
        sched_event(d->transport->sched, SCHED_DEST_PROBED, d);
    } else {
        set_reason(d, NULL);
    }
    dest_refresh(d, NULL);
}

void dest_suspend(struct dest *d, struct mono until)
{
    CHECK(d->state == DEST_READY);
    set_state(d, DEST_SUSPENDED);
    timer_set(d->transport->sched, &d->timer, until);
    dest_refresh(d, NULL);
}

static void dest_resume(struct dest *d)
{
    CHECK(d->state == DEST_SUSPENDED);
    set_state(d, DEST_READY);
    timer_cancel(d->transport->sched, &d->timer);
    dest_refresh(d, NULL);
}

void dest_take_over(struct dest *d, const struct sched_suspension *x)
{
    if (d->state == DEST_DEAD ||
        (d->state == DEST_SUSPENDED && !x->is_dead && d->timer.at_us >= x->until.us)) {
        return;
    }
    if (d->state == DEST_SUSPENDED) {
        dest_resume(d);
    }
    if (x->is_dead) {
        d->deaths = (uint8_t)(x->deaths < UINT8_MAX ? x->deaths : UINT8_MAX);
        dest_set_standing(d, STANDING_FAILING);
        set_dead(d, x->until, x->reason);
        dest_refresh(d, NULL);
    } else {
        dest_suspend(d, x->until);
    }
    d->handed_over = true;
}

void dest_time_over(struct dest *d)
{
    if (d->postponed) {
        dest_postponement_over(d);
    } else if (d->state == DEST_DEAD) {
        dest_retry(d);
    } else if (d->state == DEST_SUSPENDED) {
        dest_resume(d);
    }
}

void dest_check(struct dest *d)
{
    struct sched *s = d->transport->sched;

    if (d->waiting_count > 0 || d->busy_count > 0 || d->parking != NULL) {
        return;
    }
    /* The memory of dead destinations is bounded, as in Postfix; idle ones have their own bound. */
    if (d->state == DEST_DEAD &&
        (s->dest_count - s->idle_count) / 2 > s->limits.message_recipient_limit) {
        dest_time_over(d);
    }
    dest_turns_forget(d);
    if (d->state != DEST_READY || d->idle) {
        return;
    }
    if (memory_us(d) <= 0) {
        dest_free(d);
        return;
    }
    d->idle = true;
    d->since_us = s->now.us;
    TAILQ_INSERT_TAIL(&s->idle, d, link);
    s->idle_count++;
}

void dest_queue_tree_audit(const struct dest_queue *dq)
{
    (void)tree_audit(&waiting_type, dq->waiting); /* the caller counts entries */
}

/* ---- peers ---------------------------------------------------------------------------------- */

/* Only peers with waiting entries are in the tree. A peer without has a delivery in flight, and a
 * window allows few of these. */
static struct peer *peer_find(const struct job *j, const struct dest_queue *dq)
{
    const struct tree_node *node = dq->waiting;
    const struct entry *e;

    if (j->peers.last == NULL) {
        return NULL;
    }
    if (CONTAINER_OF(j->peers.last, struct peer, ring)->queue == dq) {
        return CONTAINER_OF(j->peers.last, struct peer, ring);
    }
    while (node != NULL) {
        struct peer *p = PEER_OF(node);
        if (p->job == j) {
            return p;
        }
        node = order_before(&j->place, &p->job->place) ? node->left : node->right;
    }
    TAILQ_FOREACH(e, &dq->dest->busy, link)
    {
        if (e->peer->job == j) {
            return e->peer;
        }
    }
    return NULL;
}

struct peer *peer_need(struct job *j, struct dest *d)
{
    struct dest_queue *dq = dest_queue_need(d, j->queue);
    struct peer *p = peer_find(j, dq);

    if (p == NULL) {
        p = slab_new(&d->transport->sched->peer_slab);
        p->job = j;
        p->queue = dq;
        dq->peers++;
        TAILQ_INIT(&p->waiting);
        /* The end of the cycle is after `last`, or at the back if nothing was selected yet. */
        order_add_after(&j->peers, j->last != NULL ? &j->last->ring : j->peers.last, &p->ring);
        if (j->last != NULL) {
            j->last = p;
        }
        d->messages++;
        j->message->peers++;
        share_count(dq);
    }
    return p;
}

static void peer_free(struct peer *p)
{
    struct job *j = p->job;
    struct dest_queue *dq = p->queue;
    struct dest *d = dq->dest;

    CHECK(TAILQ_EMPTY(&p->waiting));
    if (j->last == p) {
        j->last = p->ring.prev != NULL ? CONTAINER_OF(p->ring.prev, struct peer, ring) : NULL;
    }
    order_remove(&j->peers, &p->ring);
    d->messages--;
    j->message->peers--;
    dq->peers--;
    share_count(dq);
    slab_free(&d->transport->sched->peer_slab, p);
    dest_queue_check(dq);
}

void job_peers_out(struct job *j)
{
    for (struct order_node *n = j->peers.first; n != NULL; n = n->next) {
        struct peer *p = CONTAINER_OF(n, struct peer, ring);

        if (!TAILQ_EMPTY(&p->waiting)) {
            if (heap_has(&p->queue->ready)) {
                heap_remove(&j->queue->ready, &p->queue->ready);
            }
            dest_queue_remove(p->queue, p);
        }
    }
}

void job_peers_back(struct job *j)
{
    for (struct order_node *n = j->peers.first; n != NULL; n = n->next) {
        struct peer *p = CONTAINER_OF(n, struct peer, ring);

        if (!TAILQ_EMPTY(&p->waiting)) {
            dest_queue_add(p->queue, p, p->node.priority);
            dest_refresh(peer_dest(p), p->queue);
        }
    }
}

/* Counts one more (1) or less (-1) waiting entry of the peer, which is in the peer's list already
 * or was removed from it. */
static void peer_waiting_add(struct peer *p, int change)
{
    struct dest_queue *dq = p->queue;
    struct dest *d = dq->dest;
    struct transport *t = d->transport;
    bool before = dq->waiting != NULL;

    p->waiting_count += (uint32_t)change;
    d->waiting_count += (uint32_t)change;
    t->waiting += (uint32_t)change;
    t->sched->waiting_count += (uint32_t)change;
    if (p->waiting_count == 0) {
        dest_queue_remove(dq, p);
    } else if (p->waiting_count == 1 && change > 0) {
        p->since = t->sched->serial;
        dest_queue_add(dq, p, (uint32_t)rng_next(&t->sched->rng));
    } else {
        tree_changed(&waiting_type, &p->node);
    }
    if (before != (dq->waiting != NULL)) {
        dest_queue_waits(dq, !before);
    }
}

/* ---- entries -------------------------------------------------------------------------------- */

const uint32_t *entry_rcpts(const struct entry *e)
{
    return e->size == 1 ? &e->rcpts.one : e->rcpts.many;
}

static void entry_append(struct sched *s, struct entry *e, uint32_t n, uint32_t limit)
{
    if (e->count == e->size) {
        uint32_t size = e->size * 2 < 4 ? 4 : e->size * 2;
        uint32_t *many;

        CHECK(e->size <= UINT32_MAX / 4);
        if (limit > 0 && size > limit) {
            size = limit;
        }
        many = mem_resize(e->size == 1 ? NULL : e->rcpts.many, size, sizeof *many);
        s->bytes += (size - (e->size == 1 ? 0 : e->size)) * sizeof *many;
        if (e->size == 1) {
            many[0] = e->rcpts.one;
        }
        e->rcpts.many = many;
        e->size = size;
    }
    if (e->size == 1) {
        e->rcpts.one = n;
    } else {
        e->rcpts.many[e->count] = n;
    }
    e->count++;
}

void peer_add_rcpt(struct peer *p, uint32_t n)
{
    struct job *j = p->job;
    struct message *m = j->message;
    struct transport *t = j->queue->transport;
    struct sched *s = t->sched;
    uint32_t limit = m->one_per_entry ? 1 : t->policy.dest_recipient_limit;
    struct entry *e = TAILQ_LAST(&p->waiting, entry_list);

    if (e == NULL || (limit != 0 && e->count >= limit)) {
        bool first = e == NULL;

        e = slab_new(&s->entry_slab);
        e->peer = p;
        e->size = 1;
        e->slot = SLOT_NONE;
        TAILQ_INSERT_TAIL(&p->waiting, e, link);
        p->entries++;
        m->entries++;
        j->read++;
        peer_waiting_add(p, 1);
        if (first) {
            dest_refresh(peer_dest(p), p->queue);
        }
    }
    entry_append(s, e, n, limit);
    j->rcpt_count++;
    m->rcpt_count++;
    s->rcpt_count++;
}

/* The id of a slot contains a number that grows with each use, so that an id is never reused. */
#define SLOT_BITS 24

static void slot_take(struct sched *s, struct entry *e)
{
    struct busy_slot *slot;

    if (s->busy_free == SLOT_NONE) {
        uint32_t size = s->busy_size == 0 ? 64 : s->busy_size * 2;

        CHECK(size <= 1U << SLOT_BITS);
        s->busy = mem_resize(s->busy, size, sizeof *s->busy);
        for (uint32_t i = size; i-- > s->busy_size;) {
            s->busy[i] = (struct busy_slot){.id = i, .next_free = s->busy_free};
            s->busy_free = i;
        }
        s->busy_size = size;
    }
    e->slot = s->busy_free;
    slot = &s->busy[e->slot];
    slot->started = s->now;
    s->busy_free = slot->next_free;
    slot->id += UINT64_C(1) << SLOT_BITS;
    slot->entry = e;
}

static void slot_give(struct sched *s, struct entry *e)
{
    struct busy_slot *slot = &s->busy[e->slot];

    slot->entry = NULL;
    slot->next_free = s->busy_free;
    s->busy_free = e->slot;
    e->slot = SLOT_NONE;
}

struct entry *entry_find(const struct sched *s, struct sched_entry id)
{
    uint64_t slot = id.n & ((1U << SLOT_BITS) - 1);

    if (slot >= s->busy_size || s->busy[slot].id != id.n) {
        return NULL;
    }
    return s->busy[slot].entry;
}

/* Updates the connection cache hints: look up and save while deliveries follow each other
 * closely. */
static void cache_hints(struct dest *d, int64_t now_s)
{
    bool back_to_back = d->last_done_s + 1 >= now_s;

    if (!d->cache_store) {
        if (back_to_back) {
            d->cache_load = d->cache_store = true;
        }
    } else if (d->busy_count <= 1 && !back_to_back) {
        d->cache_store = false;
    }
}

/* Removes the entry from the waiting or busy lists and counts; dest_refresh is left to the
 * caller. */
static void entry_unlist(struct entry *e)
{
    struct peer *p = e->peer;
    struct dest *d = peer_dest(p);
    struct transport *t = d->transport;
    struct sched *s = t->sched;

    if (e->slot == SLOT_NONE) {
        TAILQ_REMOVE(&p->waiting, e, link);
        p->job->selected++;
        peer_waiting_add(p, -1);
    } else {
        TAILQ_REMOVE(&d->busy, e, link);
        slot_give(s, e);
        d->busy_count--;
        t->busy--;
        t->busy_by[d->standing]--;
        s->busy_count--;
    }
}

void entry_start(struct entry *e, int64_t now_s)
{
    struct dest *d = peer_dest(e->peer);
    struct transport *t = d->transport;
    struct sched *s = t->sched;

    dest_queue_took(e->peer->queue);
    entry_unlist(e);
    slot_take(s, e);
    TAILQ_INSERT_TAIL(&d->busy, e, link);
    d->busy_count++;
    if (d->policy != NULL) {
        ring_entry_started(d);
    }
    t->busy++;
    t->busy_by[d->standing]++;
    s->busy_count++;
    if (t->busy == t->policy.process_limit) {
        t->full = s->now;
    }
    d->used = true;
    e->peer->job->last = e->peer;
    cache_hints(d, now_s);
    dest_refresh(d, e->peer->queue);
}

void entry_unstart(struct entry *e)
{
    struct peer *p = e->peer;
    struct dest *d = peer_dest(p);

    entry_unlist(e);
    if (d->policy != NULL) {
        ring_entry_ended(d);
    }
    TAILQ_INSERT_HEAD(&p->waiting, e, link);
    p->job->selected--;
    peer_waiting_add(p, 1);
    dest_refresh(d, p->queue);
}

void entry_done(struct entry *e, struct mono now)
{
    struct peer *p = e->peer;
    struct dest *d = peer_dest(p);
    struct job *j = p->job;
    struct message *m = j->message;
    struct sched *s = d->transport->sched;
    bool busy = e->slot != SLOT_NONE;

    if (busy) {
        pace_ended(&d->pace, now, now.us - s->busy[e->slot].started.us);
    }
    entry_unlist(e);
    if (busy && d->policy != NULL) {
        ring_entry_ended(d);
    }
    p->entries--;
    m->entries--;
    j->rcpt_count -= e->count;
    m->rcpt_count -= e->count;
    s->rcpt_count -= e->count;
    if (e->size > 1) {
        s->bytes -= e->size * sizeof(uint32_t);
        mem_free(e->rcpts.many);
    }
    slab_free(&s->entry_slab, e);
    job_slots_returned(j);
    if (busy) {
        d->last_done_s = us_seconds(now.us);
        if (dest_rate_delay(d) > 0 && d->state == DEST_READY) {
            dest_suspend(d, mono_after(now, dest_rate_delay(d)));
        }
    }
    dest_refresh(d, p->queue);
    if (p->entries == 0) {
        peer_free(p);
    }
    dest_check(d);
    if (!m->all_read) {
        message_changed(m);
    } else {
        job_changed(j);
    }
    message_check(s, m);
    message_park_check(s, m);
}
