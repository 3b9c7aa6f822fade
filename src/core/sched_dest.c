/*
 * Destinations, peers and entries: windows, timers, what is ready. See sched.c.
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

/* Of destinations without mail so many are remembered, the oldest are forgotten first. */
#define SCHED_IDLE_MAX 100000

/* How many are freed before a new one is made, and whenever there is nothing to decide. */
#define FORGET_AT_ONCE 4

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

/* 0 for peers that the cycle of their job reaches before its start comes again, else 1. */
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

static void idle_leave(struct dest *d)
{
    struct sched *s = d->transport->sched;

    if (d->idle) {
        TAILQ_REMOVE(&s->idle, d, link);
        s->idle_count--;
        d->idle = false;
    }
}

/* How it begins, but for its name and policy. */
static void dest_reset(struct dest *d)
{
    reason_unref(d->reason);
    d->reason = NULL;
    d->failing = false; /* nothing of it is being delivered */
    d->probing = d->used = d->cache_load = d->cache_store = false;
    d->deaths = 0;
    d->well = 0;
    d->last_done_s = INT64_MIN / 2;
    window_init(&d->window, dest_limits(d));
}

/* There is mail again for one that was remembered. */
static void dest_wake(struct dest *d)
{
    double left = dest_memory_left(d->transport->sched, d->since_us);

    idle_leave(d);
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
            (s->idle_count <= SCHED_IDLE_MAX && dest_memory_left(s, d->since_us) > 0)) {
            return;
        }
        dest_free(d);
    }
}

/* ---- class queues of destinations ----------------------------------------------------------- */

/* With many jobs most of a decision's time goes to waiting for memory that was not touched since
 * the job came. The first is looked at next: its memory can be on its way meanwhile. */
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

/* Refresh the destination after this. */
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
    d->since_us = s->now.us;
    s->dests = mem_grow(s->dests, s->dest_count, &s->dest_size, sizeof(struct dest *));
    d->told = s->told;
    d->slot = s->dest_count++;
    s->dests[d->slot] = d;
    HASH_ADD_KEYPTR(hh, t->dests, d->name, d->name_len, d);
    return d;
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
    TAILQ_REMOVE(&d->transport->held_back, d, link);
    d->held_back = false;
}

void dest_refresh(struct dest *d, struct dest_queue *touched)
{
    struct sched *s = d->transport->sched;
    bool drain = d->state == DEST_DEAD && d->waiting_count > 0, room = dest_has_room(d);

    if (d->held_back && (!d->failing || !room || d->waiting_count == 0)) {
        held_back_leave(d);
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

/* ---- failing ones --------------------------------------------------------------------------- */

uint32_t transport_failing_limit(const struct transport *t)
{
    uint64_t share = t->sched->limits.failing_share, limit = t->policy.process_limit;

    if (share == 0 || share >= 100 || limit < SCHED_FAILING_FROM) {
        return UINT32_MAX;
    }
    limit = limit * share / 100;
    return limit > 0 ? (uint32_t)limit : 1;
}

void dest_set_failing(struct dest *d, bool failing)
{
    struct transport *t = d->transport;

    if (failing != d->failing) {
        d->failing = failing;
        t->busy_failing += failing ? d->busy_count : -d->busy_count;
    }
}

bool dest_hold_back(struct dest *d)
{
    struct transport *t = d->transport;

    if (!d->failing || t->busy_failing < transport_failing_limit(t)) {
        return false;
    }
    CHECK(!d->held_back);
    ring_leave(d);
    d->held_back = true;
    d->since_us = t->sched->now.us;
    TAILQ_INSERT_TAIL(&t->held_back, d, link);
    dest_refresh(d, NULL);
    return true;
}

/* No more than can be served at once: each that is released and not served is held back again. */
void transport_release_held_back(struct transport *t)
{
    uint32_t limit;
    struct dest *d;

    if (TAILQ_EMPTY(&t->held_back)) {
        return;
    }
    limit = transport_failing_limit(t);
    for (uint32_t n = t->busy_failing; n < limit && (d = TAILQ_FIRST(&t->held_back)) != NULL; n++) {
        held_back_leave(d);
        dest_refresh(d, NULL);
    }
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

/* The first probe that fails may have come while the destination was starting: twice as long after
 * each that follows. */
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
    set_reason(d, reason_new(reason)); /* there is one when this was a probe */
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

/* From now on one delivery at a time. */
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

/* A destination that was dead minutes ago is often weak still, and all its senders come back at
 * once. So it starts as an unknown one does, or narrower when it was narrower when it was well; how
 * fast it gets back what it had is for the positive feedback to say. */
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
        dest_set_failing(d, true);
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
    if (s->limits.destination_memory_us <= 0) {
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
    (void)tree_audit(&waiting_type, dq->waiting); /* entries are counted by the caller */
}

/* ---- peers ---------------------------------------------------------------------------------- */

/* Only peers with waiting entries are in the tree. One without has a delivery under way, of which a
 * window allows few. */
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
        /* The end of the cycle is behind `last`, or at the back when nothing was selected yet. */
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

/* One more (1) or less (-1) of its entries waits, in its list already. */
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

/* Slots are named by a number that grows with each use, so that an id never comes again. */
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

/* Connection cache hints: look up and save while deliveries follow each other closely. */
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

/* Out of the waiting and busy lists and counts, but for the destination's place. */
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
        t->busy_failing -= d->failing;
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
    t->busy_failing += d->failing;
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
