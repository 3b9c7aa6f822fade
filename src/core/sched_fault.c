/*
 * The search for faults. Nothing here changes anything, nor follows a pointer that a wrong count
 * could have left dangling: lists are walked from their owners.
 *
 * Each round goes over the transports and rings, then the destinations by their slots, then the
 * messages by the slots of their table. Tables that grow or shrink meanwhile make it skip or
 * repeat.
 */
#include <string.h>

#include "sched_private.h"

enum part { PART_WHOLE, PART_TRANSPORTS, PART_RINGS, PART_DESTS, PART_MESSAGES, PARTS };

struct look {
    const struct sched *s;
    struct mono now;
    const struct sched_patience *patience;
    struct sched_fault *faults;
    size_t count, max;
    int64_t budget, whole; /* what is left of it */
};

/* ---- telling -------------------------------------------------------------------------------- */

static void tell(struct look *l, struct sched_fault fault)
{
    if (l->count < l->max) {
        l->faults[l->count++] = fault;
    }
}

static struct sched_fault of_dest(const struct dest *d, enum sched_fault_type type,
                                  const char *words)
{
    return (struct sched_fault){.type = type,
                                .transport = d->transport->index,
                                .dest = slice_of(d->name, d->name_len),
                                .words = words};
}

static struct sched_fault of_message(const struct message *m, enum sched_fault_type type,
                                     const char *words)
{
    return (struct sched_fault){.type = type, .msg = m->id, .words = words};
}

static void same(struct look *l, struct sched_fault fault, uint64_t value, uint64_t expected)
{
    if (value != expected) {
        fault.value = value;
        fault.expected = expected;
        tell(l, fault);
    }
}

static bool overdue(const struct look *l, int64_t since_us, int64_t patience_us)
{
    return patience_us > 0 && l->now.us - since_us > patience_us;
}

static void answered(struct look *l, struct sched_fault fault, int64_t since_us,
                     int64_t patience_us)
{
    if (overdue(l, since_us, patience_us)) {
        fault.value = (uint64_t)us_seconds(l->now.us - since_us);
        tell(l, fault);
    }
}

static bool in_heap(const struct heap *h, const struct heap_node *node)
{
    return heap_has(node) && node->index < h->count && h->nodes[node->index] == node;
}

/* The timer is armed, and not long past. */
static void armed(struct look *l, const struct timer *timer, struct sched_fault fault)
{
    if (!in_heap(&l->s->timers, &timer->node)) {
        tell(l, fault);
    } else if (overdue(l, timer->at_us, l->patience->answer_us)) {
        fault.words = "a timer has ended long ago and nothing was decided since";
        fault.value = (uint64_t)us_seconds(l->now.us - timer->at_us);
        tell(l, fault);
    }
}

static bool transport_selects(const struct transport *t)
{
    return t->reason == NULL && !t->rate_locked &&
           (t->policy.process_limit == 0 || t->busy < t->policy.process_limit);
}

/* ---- the whole and its transports ----------------------------------------------------------- */

static void look_at_whole(struct look *l)
{
    const struct sched *s = l->s;
    struct sched_fault fault = {.type = SCHED_FAULT_COUNT};
    uint64_t waiting = 0, busy = 0, extra = 0, dests = 0;

    for (uint32_t i = 0; i < s->transport_count; i++) {
        waiting += s->transports[i]->waiting;
        busy += s->transports[i]->busy;
        extra += s->transports[i]->extra;
        dests += HASH_COUNT(s->transports[i]->dests);
    }
    l->budget -= s->transport_count;
    fault.words = "entries that wait, in all";
    same(l, fault, s->waiting_count, waiting);
    fault.words = "entries that are being delivered, in all";
    same(l, fault, s->busy_count, busy);
    fault.words = "entries that share an agent with another, in all";
    same(l, fault, s->extra, extra);
    fault.words = "destinations, in all";
    same(l, fault, s->dest_count, dests);
    if (!TAILQ_EMPTY(&s->put_off)) {
        armed(l, &s->ask_again,
              (struct sched_fault){.type = SCHED_FAULT_TIMER,
                                   .words = "parked mail was put off and no timer is armed"});
    }
}

/* Agents of a ring that are counted and that nobody has would be lost to its line. */
static void look_at_ring(struct look *l, const struct ring *r)
{
    const struct dest *first = TAILQ_FIRST(&r->line);
    struct sched_fault fault = {.type = SCHED_FAULT_COUNT,
                                .transport = r->transport->index,
                                .words = "agents of a ring in use"};
    uint64_t agents = 0;

    for (uint32_t i = 0; i < l->s->busy_size; i++) {
        const struct entry *e = l->s->busy[i].entry;
        const struct dest *d = e != NULL ? peer_dest(e->peer) : NULL;

        if (d != NULL && dest_ring(d) == r && TAILQ_FIRST(&d->busy) == e) {
            agents += dest_agents(d);
        }
    }
    l->budget -= l->s->busy_size;
    same(l, fault, r->agents, agents);
    if (first != NULL && transport_selects(r->transport) && ring_has_agent(r, 0) &&
        overdue(l, l->s->agents_moved_us, l->patience->answer_us)) {
        tell(l, of_dest(first, SCHED_FAULT_STUCK, "mail waits for an agent that nobody uses"));
    }
}

static void look_at_transport(struct look *l, const struct transport *t)
{
    struct sched_fault fault = {.type = SCHED_FAULT_TIMER, .transport = t->index};

    l->budget--;
    if (t->reason != NULL) {
        fault.words = "the transport is dead and no timer is armed";
        armed(l, &t->dead, fault);
    }
    if (t->rate_locked) {
        fault.words = "the transport waits for its rate delay and no timer is armed";
        armed(l, &t->rate, fault);
    }
}

/* ---- destinations --------------------------------------------------------------------------- */

/* It may be held only while others that fail have the deliveries, or nothing is delivered at all.
 */
static void look_at_held(struct look *l, const struct dest *d)
{
    const struct transport *t = d->transport;

    if (!d->failing || (transport_selects(t) && t->busy_failing == 0 &&
                        overdue(l, d->since_us, l->patience->answer_us))) {
        tell(l, of_dest(d, SCHED_FAULT_STUCK, "mail waits, and nothing fails that it waits for"));
    }
}

/* Can its ring give it an agent, some day? */
static void look_at_line(struct look *l, const struct dest *d)
{
    const struct ring *r = dest_ring(d);

    if (r == NULL || TAILQ_EMPTY(&r->line) || !r->listed) {
        tell(l, of_dest(d, SCHED_FAULT_STUCK, "mail waits in a line that does not move"));
    }
}

/* Is something that waits for it up for selection? */
static bool is_up(const struct dest *d)
{
    const struct stripe *st = dest_shown_stripe(d);

    return st->lane != NULL && in_heap(&st->lane->ready, &st->ready);
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
            if (d->held) {
                look_at_held(l, d);
            } else if (d->in_line && !dest_admitted(d)) {
                look_at_line(l, d);
            } else if (!is_up(d)) {
                tell(l, of_dest(d, SCHED_FAULT_STUCK,
                                "mail waits, the destination has room and is not up for "
                                "selection"));
            }
        } else if (TAILQ_EMPTY(&d->busy)) {
            tell(l, of_dest(d, SCHED_FAULT_STUCK,
                            "mail waits, the window is full and nothing is being delivered"));
        }
        break;
    case DEST_DEAD:
        armed(l, &d->timer,
              of_dest(d, SCHED_FAULT_TIMER, "the destination is dead and no timer is armed"));
        if (waits && !d->draining) {
            tell(l, of_dest(d, SCHED_FAULT_STUCK, "mail waits for a dead destination"));
        }
        break;
    case DEST_SUSPENDED:
        armed(l, &d->timer,
              of_dest(d, SCHED_FAULT_TIMER, "the destination is suspended and no timer is armed"));
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
    const struct stripe *st;
    const struct entry *e;
    uint64_t busy = 0, waiting = 0;
    bool any = false;

    TAILQ_FOREACH(e, &d->busy, link)
    {
        const struct busy_slot *slot = e->slot < l->s->busy_size ? &l->s->busy[e->slot] : NULL;

        busy++;
        if (slot == NULL || slot->entry != e) {
            tell(l, of_dest(d, SCHED_FAULT_STUCK, "a delivery that no result can name"));
        } else {
            answered(l,
                     (struct sched_fault){.type = SCHED_FAULT_UNANSWERED,
                                          .msg = e->peer->job->message->id,
                                          .transport = d->transport->index,
                                          .dest = slice_of(d->name, d->name_len),
                                          .words = "a delivery has not ended"},
                     slot->started.us, l->patience->delivery_us);
        }
    }
    l->budget -= (int64_t)busy;
    same(l, of_dest(d, SCHED_FAULT_COUNT, "entries that are being delivered"), d->busy_count, busy);
    /* Of a very long queue only whether it is one. */
    for (st = dest_next_stripe(d, NULL); st != NULL; st = dest_next_stripe(d, st)) {
        any = any || st->waiting != NULL;
        if ((int64_t)d->waiting_count <= l->whole) {
            waiting += waiting_entries(l, st->waiting);
        }
    }
    if ((int64_t)d->waiting_count <= l->whole || !any) {
        same(l, of_dest(d, SCHED_FAULT_COUNT, "entries that wait"), d->waiting_count, waiting);
    }
}

/* The first of its destination stands in the heap for all of them. */
static void look_at_parking(struct look *l, const struct parking *parking)
{
    const struct dest *d = parking->dest;
    const struct stripe *st = stripe_find(d, class_name_of(parking->mail_class));

    l->budget--;
    same(l, of_dest(d, SCHED_FAULT_COUNT, "messages of a class of which mail is parked"),
         parking->messages, st != NULL ? st->peers : 0);
    if (parking->asked > 0) {
        answered(l,
                 of_dest(d, SCHED_FAULT_UNANSWERED, "parked mail was asked for and did not come"),
                 parking->asked_us, l->patience->answer_us);
    } else if (parking_wants(parking) && !in_heap(&d->transport->wanting, &d->parking->wanting)) {
        tell(l, of_dest(d, SCHED_FAULT_STUCK, "mail is parked and will not be asked for"));
    }
}

static void look_at_dest(struct look *l, const struct dest *d)
{
    l->budget--;
    if (d->idle && (d->waiting_count > 0 || d->busy_count > 0 || d->parking != NULL)) {
        tell(l, of_dest(d, SCHED_FAULT_STUCK, "a destination with mail may be forgotten"));
    }
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
    const struct tree_node *node = p->stripe->waiting;

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
    struct sched_fault fault = of_dest(peer_dest(p), SCHED_FAULT_STUCK,
                                       "recipients wait and are not in their destination's queue");

    fault.msg = m->id;
    TAILQ_FOREACH(e, &p->waiting, link)
    {
        waiting++;
        tally->rcpts += e->count;
    }
    l->budget -= 1 + (int64_t)waiting;
    if (waiting > 0 && !queued(p)) {
        tell(l, fault);
    }
    if (waiting > 0 && p->job->level < 0) {
        fault.words = "recipients wait and their job is in no list";
        tell(l, fault);
    }
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
    same(l, of_message(m, SCHED_FAULT_COUNT, "entries"), m->entries, tally.entries);
    same(l, of_message(m, SCHED_FAULT_COUNT, "recipients in entries"), m->rcpt_count, tally.rcpts);
    same(l, of_message(m, SCHED_FAULT_COUNT, "destinations waited for"), m->peers, tally.peers);
    if (m->reading) {
        answered(
            l, of_message(m, SCHED_FAULT_UNANSWERED, "recipients were asked for and did not come"),
            m->refill_s * US_PER_S, l->patience->answer_us);
    } else if (m->deferrals > 0 && TAILQ_EMPTY(&l->s->deferrals)) {
        tell(l, of_message(m, SCHED_FAULT_STUCK, "recipients were to be deferred and are lost"));
    } else if (m->dropped && tally.waiting > 0 && m->list != LIST_DROPPING) {
        tell(l, of_message(m, SCHED_FAULT_STUCK, "the message was dropped and recipients wait"));
    } else if (tally.entries == 0 && m->deferrals == 0 && m->list == LIST_NONE) {
        tell(l, of_message(m, SCHED_FAULT_STUCK,
                           "nothing of the message is left to do and it does not end"));
    }
}

/* ---- going on ------------------------------------------------------------------------------- */

/* One step of the present part; false when it has come to its end. */
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
                           const struct sched_patience *patience, struct sched_search *search,
                           uint32_t budget, struct sched_fault *ret_faults, size_t max)
{
    struct look l = {.s = s,
                     .now = now,
                     .patience = patience,
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
