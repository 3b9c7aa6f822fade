/*
 * Invariants of the scheduler, and the search for violations.
 *
 * Each invariant has one entry in the table below, with its text, and is checked at one place.
 * sched_search_faults checks a part at a time in a running scheduler; sched_audit checks all of
 * them (and then the structures themselves, see sched_audit.c). The functions change nothing, nor
 * do they follow a pointer that a wrong count could have left dangling: lists are walked from their
 * owners.
 *
 * Each round covers the transports and rings, then the destinations by their slots, then the
 * messages by the slots of their table. A table that grows or shrinks in between makes the round
 * skip or repeat some.
 */
#include <string.h>

#include "check.h"
#include "sched_private.h"

/* ---- the list ------------------------------------------------------------------------------- */

/* The text describes the violation; with COUNT it names the counted things. */
#define INVARIANTS(X)                                                                              \
    /* of the whole scheduler */                                                                   \
    X(ALL_WAITING, COUNT, "entries that wait, in all")                                             \
    X(ALL_BUSY, COUNT, "entries that are being delivered, in all")                                 \
    X(ALL_EXTRA, COUNT, "entries that share an agent with another, in all")                        \
    X(ALL_DESTS, COUNT, "destinations, in all")                                                    \
    X(TIMER_RUN, TIMER, "a timer has ended long ago and nothing was decided since")                \
    X(ASK_LATER_TIMER, TIMER, "parked mail should be asked for later and no timer is armed")       \
    /* of a transport */                                                                           \
    X(TRANSPORT_DEAD_TIMER, TIMER, "the transport is dead and no timer is armed")                  \
    X(TRANSPORT_RATE_TIMER, TIMER, "the transport waits for its rate delay and no timer is armed") \
    /* of a ring */                                                                                \
    X(RING_AGENTS, COUNT, "agents of a ring in use")                                               \
    X(RING_MOVES, STUCK, "mail waits for an agent that is free")                                   \
    /* of a destination */                                                                         \
    X(DEST_BUSY, COUNT, "entries that are being delivered")                                        \
    X(DEST_WAITING, COUNT, "entries that wait")                                                    \
    X(DEST_SELECTED, STUCK, "mail waits, the destination has room and is not up for selection")    \
    X(DEST_DELIVERS, STUCK, "mail waits, the window is full and nothing is being delivered")       \
    X(DEST_HELD_BACK, STUCK, "mail waits, and nothing fails that it waits for")                    \
    X(DEST_IN_LINE, STUCK, "mail waits in a line that does not move")                              \
    X(DEST_DEAD_TIMER, TIMER, "the destination is dead and no timer is armed")                     \
    X(DEST_DRAINED, STUCK, "mail waits for a dead destination")                                    \
    X(DEST_RATE_TIMER, TIMER, "the destination is suspended and no timer is armed")                \
    X(DEST_IDLE, STUCK, "a destination with mail may be forgotten")                                \
    X(DELIVERY_NAMED, STUCK, "a delivery that no result can name")                                 \
    X(DELIVERY_ENDS, UNANSWERED, "a delivery has not ended")                                       \
    X(PARKED_MESSAGES, COUNT, "messages of a class of which mail is parked")                       \
    X(PARKED_COMES, UNANSWERED, "parked mail was asked for and did not come")                      \
    X(PARKED_ASKED, STUCK, "mail is parked and will not be asked for")                             \
    /* of a message */                                                                             \
    X(MESSAGE_ENTRIES, COUNT, "entries")                                                           \
    X(MESSAGE_RCPTS, COUNT, "recipients in entries")                                               \
    X(MESSAGE_PEERS, COUNT, "destinations waited for")                                             \
    X(MESSAGE_READ, UNANSWERED, "recipients were asked for and did not come")                      \
    X(MESSAGE_DEFERRED, STUCK, "recipients should be deferred and are lost")                       \
    X(MESSAGE_DROPPED, STUCK, "the message was dropped and recipients wait")                       \
    X(MESSAGE_ENDS, STUCK, "nothing of the message is left to do and it does not end")             \
    X(PEER_QUEUED, STUCK, "recipients wait and are not in their destination's queue")              \
    X(PEER_LISTED, STUCK, "recipients wait and their job is in no list")

#define AS_NAME(name, type, words)  name,
#define AS_ENTRY(name, type, words) [name] = {SCHED_FAULT_##type, words},

enum invariant { INVARIANTS(AS_NAME) INVARIANT_COUNT };

static const struct {
    enum sched_fault_type type;
    const char *words;
} invariants[INVARIANT_COUNT] = {INVARIANTS(AS_ENTRY)};

enum part { PART_WHOLE, PART_TRANSPORTS, PART_RINGS, PART_DESTS, PART_MESSAGES, PARTS };

struct look {
    const struct sched *s;
    struct mono now;
    const struct sched_timeouts *timeouts;
    struct sched_fault *faults;
    size_t count, max;
    int64_t budget, whole; /* rest of the budget; the whole budget */
};

/* Object of an invariant. */
struct subject {
    struct sched_msg msg;
    uint32_t transport;
    struct slice dest;
};

/* ---- reports of faults ---------------------------------------------------------------------- */

static struct subject the_whole(void)
{
    return (struct subject){.transport = 0};
}

static struct subject the_transport(const struct transport *t)
{
    return (struct subject){.transport = t->index};
}

static struct subject the_dest(const struct dest *d)
{
    return (struct subject){.transport = d->transport->index,
                            .dest = slice_of(d->name, d->name_len)};
}

static struct subject the_message(const struct message *m)
{
    return (struct subject){.msg = m->id};
}

static struct subject the_peer(const struct message *m, const struct dest *d)
{
    struct subject of = the_dest(d);

    of.msg = m->id;
    return of;
}

static void broken(struct look *l, enum invariant which, struct subject of, uint64_t value,
                   uint64_t expected)
{
    if (l->count < l->max) {
        l->faults[l->count++] = (struct sched_fault){.type = invariants[which].type,
                                                     .msg = of.msg,
                                                     .transport = of.transport,
                                                     .dest = of.dest,
                                                     .words = invariants[which].words,
                                                     .value = value,
                                                     .expected = expected};
    }
}

static void holds(struct look *l, enum invariant which, struct subject of, bool sound)
{
    if (!sound) {
        broken(l, which, of, 0, 0);
    }
}

static void equal(struct look *l, enum invariant which, struct subject of, uint64_t value,
                  uint64_t expected)
{
    if (value != expected) {
        broken(l, which, of, value, expected);
    }
}

static bool overdue(const struct look *l, int64_t since_us, int64_t timeout_us)
{
    return timeout_us > 0 && l->now.us - since_us > timeout_us;
}

static void answered(struct look *l, enum invariant which, struct subject of, int64_t since_us,
                     int64_t timeout_us)
{
    if (overdue(l, since_us, timeout_us)) {
        broken(l, which, of, (uint64_t)us_seconds(l->now.us - since_us), 0);
    }
}

static bool in_heap(const struct heap *h, const struct heap_node *node)
{
    return heap_has(node) && node->index < h->count && h->nodes[node->index] == node;
}

/* Checks that the timer is armed, and not long past. */
static void armed(struct look *l, enum invariant which, struct subject of,
                  const struct timer *timer)
{
    if (!in_heap(&l->s->timers, &timer->node)) {
        broken(l, which, of, 0, 0);
    } else {
        answered(l, TIMER_RUN, of, timer->at_us, l->timeouts->answer_us);
    }
}

static bool transport_selects(const struct transport *t)
{
    return t->reason == NULL && !t->rate_locked &&
           (t->policy.process_limit == 0 || t->busy < t->policy.process_limit);
}

/* ---- the whole scheduler and its transports ------------------------------------------------- */

static void look_at_whole(struct look *l)
{
    const struct sched *s = l->s;
    uint64_t waiting = 0, busy = 0, extra = 0, dests = 0;

    for (uint32_t i = 0; i < s->transport_count; i++) {
        waiting += s->transports[i]->waiting;
        busy += s->transports[i]->busy;
        extra += s->transports[i]->extra;
        dests += HASH_COUNT(s->transports[i]->dests);
    }
    l->budget -= s->transport_count;
    equal(l, ALL_WAITING, the_whole(), s->waiting_count, waiting);
    equal(l, ALL_BUSY, the_whole(), s->busy_count, busy);
    equal(l, ALL_EXTRA, the_whole(), s->extra, extra);
    equal(l, ALL_DESTS, the_whole(), s->dest_count, dests);
    if (!TAILQ_EMPTY(&s->ask_later)) {
        armed(l, ASK_LATER_TIMER, the_whole(), &s->ask_again);
    }
}

/* Checks that the agents counted for a ring are in use, as others would be lost to its line, and
 * that the line moves. */
static void look_at_ring(struct look *l, const struct ring *r)
{
    const struct dest *first = TAILQ_FIRST(&r->line);
    uint64_t agents = 0;

    for (uint32_t i = 0; i < l->s->busy_size; i++) {
        const struct entry *e = l->s->busy[i].entry;
        const struct dest *d = e != NULL ? peer_dest(e->peer) : NULL;

        if (d != NULL && dest_ring(d) == r && TAILQ_FIRST(&d->busy) == e) {
            agents += dest_agents(d);
        }
    }
    l->budget -= l->s->busy_size;
    equal(l, RING_AGENTS, the_transport(r->transport), r->agents, agents);
    if (first != NULL && transport_selects(r->transport) && ring_has_agent(r, 0) &&
        overdue(l, l->s->agents_moved_us, l->timeouts->answer_us)) {
        broken(l, RING_MOVES, the_dest(first), 0, 0);
    }
}

static void look_at_transport(struct look *l, const struct transport *t)
{
    l->budget--;
    if (t->reason != NULL) {
        armed(l, TRANSPORT_DEAD_TIMER, the_transport(t), &t->dead);
    }
    if (t->rate_locked) {
        armed(l, TRANSPORT_RATE_TIMER, the_transport(t), &t->rate);
    }
}

/* ---- destinations --------------------------------------------------------------------------- */

/* Checks that a destination is held back only while others of its standing have the deliveries, or
 * while nothing is delivered at all. */
static void look_at_held_back(struct look *l, const struct dest *d)
{
    const struct transport *t = d->transport;

    if (d->standing == STANDING_PROVEN || (transport_selects(t) && t->busy_by[d->standing] == 0 &&
                                           overdue(l, d->since_us, l->timeouts->answer_us))) {
        broken(l, DEST_HELD_BACK, the_dest(d), 0, 0);
    }
}

/* Checks that the destination's ring can still give it an agent. */
static void look_at_line(struct look *l, const struct dest *d)
{
    const struct ring *r = dest_ring(d);

    holds(l, DEST_IN_LINE, the_dest(d), r != NULL && !TAILQ_EMPTY(&r->line) && r->listed);
}

/* May one of the destination's waiting entries be selected? */
static bool is_up(const struct dest *d)
{
    const struct dest_queue *dq = dest_shown_queue(d);

    return dq->class_queue != NULL && in_heap(&dq->class_queue->ready, &dq->ready);
}

static void look_at_state(struct look *l, const struct dest *d)
{
    bool waits = d->waiting_count > 0;

    switch ((enum dest_state)d->state) {
    case DEST_READY:
        if (!waits) {
            break;
        }
        if (d->busy_count < dest_capacity(d)) {
            if (d->held_back) {
                look_at_held_back(l, d);
            } else if (d->in_line && !dest_admitted(d)) {
                look_at_line(l, d);
            } else {
                holds(l, DEST_SELECTED, the_dest(d), is_up(d));
            }
        } else {
            holds(l, DEST_DELIVERS, the_dest(d), !TAILQ_EMPTY(&d->busy));
        }
        break;
    case DEST_DEAD:
        armed(l, DEST_DEAD_TIMER, the_dest(d), &d->timer);
        holds(l, DEST_DRAINED, the_dest(d), !waits || d->draining);
        break;
    case DEST_SUSPENDED:
        armed(l, DEST_RATE_TIMER, the_dest(d), &d->timer);
        break;
    }
}

static uint64_t waiting_entries(struct look *l, const struct tree_node *node)
{
    const struct entry *e;
    uint64_t count = 0;

    if (node == NULL) {
        return 0;
    }
    TAILQ_FOREACH(e, &PEER_OF(node)->waiting, link)
    {
        count++;
    }
    l->budget -= (int64_t)count;
    return count + waiting_entries(l, node->left) + waiting_entries(l, node->right);
}

static void look_at_counts(struct look *l, const struct dest *d)
{
    const struct dest_queue *dq;
    const struct entry *e;
    uint64_t busy = 0, waiting = 0;
    bool any = false;

    TAILQ_FOREACH(e, &d->busy, link)
    {
        const struct busy_slot *slot = e->slot < l->s->busy_size ? &l->s->busy[e->slot] : NULL;

        busy++;
        if (slot == NULL || slot->entry != e) {
            broken(l, DELIVERY_NAMED, the_dest(d), 0, 0);
        } else {
            answered(l, DELIVERY_ENDS, the_peer(e->peer->job->message, d), slot->started.us,
                     l->timeouts->delivery_us);
        }
    }
    l->budget -= (int64_t)busy;
    equal(l, DEST_BUSY, the_dest(d), d->busy_count, busy);
    /* The entries of a very long queue are not counted; only its being empty is checked. */
    for (dq = dest_next_queue(d, NULL); dq != NULL; dq = dest_next_queue(d, dq)) {
        any = any || dq->waiting != NULL;
        if ((int64_t)d->waiting_count <= l->whole) {
            waiting += waiting_entries(l, dq->waiting);
        }
    }
    if ((int64_t)d->waiting_count <= l->whole || !any) {
        equal(l, DEST_WAITING, the_dest(d), d->waiting_count, waiting);
    }
}

/* Checks one parking. The first parking of a destination is in the heap on behalf of all of
 * them. */
static void look_at_parking(struct look *l, const struct parking *parking)
{
    const struct dest *d = parking->dest;
    const struct dest_queue *dq = dest_queue_find(d, class_name_of(parking->mail_class));

    l->budget--;
    equal(l, PARKED_MESSAGES, the_dest(d), parking->messages, dq != NULL ? dq->peers : 0);
    if (parking->asked > 0) {
        answered(l, PARKED_COMES, the_dest(d), parking->asked_us, l->timeouts->answer_us);
    } else if (parking_wants(parking) && !in_heap(&d->transport->wanting, &d->parking->wanting)) {
        broken(l, PARKED_ASKED, the_dest(d), 0, 0);
    }
}

static void look_at_dest(struct look *l, const struct dest *d)
{
    l->budget--;
    holds(l, DEST_IDLE, the_dest(d),
          !d->idle || (d->waiting_count == 0 && d->busy_count == 0 && d->parking == NULL));
    look_at_state(l, d);
    look_at_counts(l, d);
    for (const struct parking *p = NULL; (p = parking_next(d, p)) != NULL;) {
        look_at_parking(l, p);
    }
}

/* ---- messages ------------------------------------------------------------------------------- */

/* Is the peer among those waiting for its destination? */
static bool queued(const struct peer *p)
{
    const struct tree_node *node = p->queue->waiting;

    while (node != NULL && node != &p->node) {
        node = order_before(&p->job->place, &PEER_OF(node)->job->place) ? node->left : node->right;
    }
    return node != NULL;
}

struct tally {
    uint64_t waiting, entries, rcpts, peers;
};

static void look_at_peer(struct look *l, const struct message *m, const struct peer *p,
                         struct tally *tally)
{
    const struct entry *e;
    uint64_t waiting = 0;
    struct subject of = the_peer(m, peer_dest(p));

    TAILQ_FOREACH(e, &p->waiting, link)
    {
        waiting++;
        tally->rcpts += e->count;
    }
    l->budget -= 1 + (int64_t)waiting;
    holds(l, PEER_QUEUED, of, waiting == 0 || queued(p));
    holds(l, PEER_LISTED, of, waiting == 0 || p->job->level >= 0);
    tally->waiting += waiting;
    tally->entries += waiting;
    if (waiting < p->entries) {
        TAILQ_FOREACH(e, &peer_dest(p)->busy, link)
        {
            if (e->peer == p) {
                tally->entries++;
                tally->rcpts += e->count;
            }
            l->budget--;
        }
    }
    tally->peers++;
}

static void look_at_message(struct look *l, const struct message *m)
{
    const struct job *j;
    struct tally tally = {0};

    l->budget--;
    SLIST_FOREACH(j, &m->jobs, of_message)
    {
        for (const struct order_node *n = j->peers.first; n != NULL; n = n->next) {
            look_at_peer(l, m, CONTAINER_OF(n, const struct peer, ring), &tally);
        }
    }
    equal(l, MESSAGE_ENTRIES, the_message(m), m->entries, tally.entries);
    equal(l, MESSAGE_RCPTS, the_message(m), m->rcpt_count, tally.rcpts);
    equal(l, MESSAGE_PEERS, the_message(m), m->peers, tally.peers);
    if (m->reading) {
        answered(l, MESSAGE_READ, the_message(m), m->refill_s * US_PER_S, l->timeouts->answer_us);
    } else if (m->deferrals > 0 && TAILQ_EMPTY(&l->s->deferrals)) {
        broken(l, MESSAGE_DEFERRED, the_message(m), 0, 0);
    } else if (m->dropped && tally.waiting > 0 && m->list != LIST_DROPPING) {
        broken(l, MESSAGE_DROPPED, the_message(m), 0, 0);
    } else if (tally.entries == 0 && m->deferrals == 0 && m->list == LIST_NONE) {
        broken(l, MESSAGE_ENDS, the_message(m), 0, 0);
    }
}

/* ---- going on ------------------------------------------------------------------------------- */

/* Checks one object of the present part; returns false at the end of the part. */
static bool step(struct look *l, enum part part, uint64_t at)
{
    const struct sched *s = l->s;
    const struct message *m;

    switch (part) {
    case PART_WHOLE:
        if (at > 0) {
            return false;
        }
        look_at_whole(l);
        return true;
    case PART_TRANSPORTS:
        if (at >= s->transport_count) {
            return false;
        }
        look_at_transport(l, s->transports[at]);
        return true;
    case PART_RINGS:
        if (at >= s->ring_count) {
            return false;
        }
        look_at_ring(l, s->rings[at]);
        return true;
    case PART_DESTS:
        if (at >= s->dest_count) {
            return false;
        }
        look_at_dest(l, s->dests[at]);
        return true;
    case PART_MESSAGES:
        if (at >= s->messages.size) {
            return false;
        }
        m = ids_at(&s->messages, at);
        l->budget--;
        if (m != NULL) {
            look_at_message(l, m);
        }
        return true;
    case PARTS:
        break;
    }
    return false;
}

size_t sched_search_faults(const struct sched *s, struct mono now,
                           const struct sched_timeouts *timeouts, struct sched_search *search,
                           uint32_t budget, struct sched_fault *ret_faults, size_t max)
{
    struct look l = {.s = s,
                     .now = now,
                     .timeouts = timeouts,
                     .faults = ret_faults,
                     .max = max,
                     .budget = budget,
                     .whole = budget};

    while (l.budget > 0 && l.count < max) {
        if (step(&l, (enum part)search->part, search->at)) {
            search->at++;
            continue;
        }
        search->at = 0;
        if (++search->part == PARTS) {
            search->part = 0;
            search->rounds++;
            break;
        }
    }
    return l.count;
}

void invariants_audit(const struct sched *s)
{
    static const struct sched_timeouts none = {.answer_us = 0}; /* late answers are allowed */
    struct sched_search search = {.part = 0};
    struct sched_fault fault;

    while (search.rounds == 0) {
        if (sched_search_faults(s, s->now, &none, &search, UINT32_MAX, &fault, 1) > 0) {
            check_failed(__FILE__, __LINE__, __func__, fault.words);
        }
    }
}
