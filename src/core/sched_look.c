/*
 * Looking in: totals, destinations and the audit. Nothing here changes anything.
 */
#include "check.h"
#include "sched_private.h"

struct sched_totals sched_totals(const struct sched *s)
{
    struct sched_totals totals = {
        .messages = s->messages.count,
        .recipients = s->rcpt_count + s->deferred_rcpts,
        .entries_waiting = s->waiting_count,
        .entries_busy = s->busy_count,
        .destinations = s->dest_count - s->idle_count,
        .idle_destinations = s->idle_count,
        .dead_destinations = s->dead_count,
        .parked_destinations = s->parked_count,
        .decisions = s->decisions,
        .bytes = s->bytes + s->message_slab.bytes + s->job_slab.bytes + s->peer_slab.bytes +
                 s->entry_slab.bytes + s->messages.size * sizeof(struct ids_slot) +
                 s->busy_size * sizeof *s->busy + s->dest_size * sizeof *s->dests +
                 s->timers.size * sizeof(struct heap_node *),
    };

    for (uint32_t i = 0; i < s->transport_count; i++) {
        const struct transport *t = s->transports[i];
        const struct lane *l = &t->lane;
        totals.bytes += (t->wanting.size + t->unread.size) * sizeof(void *);
        for (; l != NULL; l = l == &t->lane ? t->lanes : l->hh.next) {
            totals.bytes += (l->ready.size + l->fresh.size + l->attention.size + l->parked.size) *
                            sizeof(void *);
        }
        if (t->dests != NULL) {
            totals.bytes += HASH_OVERHEAD(hh, t->dests);
        }
    }
    /* HASH_OVERHEAD counts the handles, which are within the structures counted already. */
    totals.bytes -= s->dest_count * sizeof(UT_hash_handle);
    return totals;
}

bool sched_is_delivering(const struct sched *s, struct sched_entry entry)
{
    return entry_find(s, entry) != NULL;
}

static enum sched_dest_state state_of(const struct dest *d)
{
    switch ((enum dest_state)d->state) {
    case DEST_READY:
        return d->probing ? SCHED_DEST_PROBING : d->idle ? SCHED_DEST_IDLE : SCHED_DEST_READY;
    case DEST_DEAD:
        return SCHED_DEST_DEAD_UNTIL;
    case DEST_SUSPENDED:
        return SCHED_DEST_SUSPENDED;
    }
    UNREACHABLE("no such state of a destination");
}

/* False when it is remembered no more, though it is not freed yet. */
static bool describe(const struct dest *d, struct sched_dest_info *ret_info)
{
    struct window window = d->window;

    if (d->idle) {
        double left = dest_memory_left(d->transport->sched, d->since_us);

        if (left <= 0) {
            return false;
        }
        if (!d->probing) {
            window_fade(&window, dest_limits(d), left);
        }
    }

    *ret_info = (struct sched_dest_info){
        .transport = d->transport->index,
        .dest = slice_of(d->name, d->name_len),
        .state = state_of(d),
        .until = d->state == DEST_READY ? (struct mono){0} : (struct mono){d->timer.at_us},
        .since = d->closed ? (struct mono){d->since_us} : (struct mono){0},
        .put_off = d->asleep,
        .reason = reason_slice(d->reason),
        .window = window.size,
        .window_max = dest_limits(d)->max,
        .busy = d->busy_count,
        .waiting = d->waiting_count,
        .agents = dest_agents(d),
        .depth = dest_depth(d),
        .ring = dest_ring(d) != NULL ? dest_ring(d)->number : 0,
        .success = window.success,
        .failure = window.failure,
        .failed_cohorts = window.failed_cohorts,
        .failing = d->failing,
        .deaths = d->deaths,
        .messages = d->messages,
        .share = share_threshold(d->transport->sched),
        .parked = d->parking != NULL,
        .limits = dest_limits(d),
        .rate_delay_us = dest_rate_delay(d),
        .per_second = pace_per_second(&d->pace, d->transport->sched->now),
        .mean_us = pace_mean(&d->pace),
    };
    return true;
}

bool sched_dest_get(const struct sched *s, uint32_t transport, struct slice dest,
                    struct sched_dest_info *ret_info)
{
    const struct dest *d;

    CHECK(transport < s->transport_count);
    d = dest_find(s->transports[transport], dest);
    return d != NULL && describe(d, ret_info);
}

bool sched_dest_each(const struct sched *s, uint64_t *cursor, struct sched_dest_info *ret_info)
{
    while (*cursor < s->dest_count) {
        if (describe(s->dests[(*cursor)++], ret_info)) {
            return true;
        }
    }
    return false;
}

/* ---- audit ---------------------------------------------------------------------------------- */

struct sums {
    uint64_t waiting, busy, rcpts;
};

static void entry_audit(const struct sched *s, const struct entry *e, bool busy)
{
    CHECK(e->count >= 1);
    CHECK(e->count <= e->size);
    CHECK(busy == (e->slot != SLOT_NONE));
    CHECK(!busy || s->busy[e->slot].entry == e);
}

static uint32_t peer_audit(const struct sched *s, const struct peer *p, struct sums *sums)
{
    const struct entry *e;
    uint32_t waiting = 0, busy = 0, rcpts = 0;

    TAILQ_FOREACH(e, &p->waiting, link)
    {
        CHECK(e->peer == p);
        entry_audit(s, e, false);
        waiting++;
        rcpts += e->count;
    }
    TAILQ_FOREACH(e, &peer_dest(p)->busy, link)
    {
        if (e->peer == p) {
            busy++;
            rcpts += e->count;
        }
    }
    CHECK(p->waiting_count == waiting);
    CHECK(p->entries == waiting + busy);
    CHECK(p->entries > 0);
    CHECK(waiting == 0 || p->job->level >= 0);
    sums->waiting += waiting;
    sums->busy += busy;
    sums->rcpts += rcpts;
    return waiting;
}

static void message_audit(const struct sched *s, const struct message *m, struct sums *all)
{
    const struct job *j;
    int64_t limits = 0;
    uint32_t peers = 0;
    struct sums of_message = {0};
    enum message_list list;

    SLIST_FOREACH(j, &m->jobs, of_message)
    {
        struct sums of_job = {0};

        CHECK(j->message == m);
        order_audit(&j->peers);
        for (const struct order_node *n = j->peers.first; n != NULL; n = n->next) {
            const struct peer *p = CONTAINER_OF(n, const struct peer, ring);
            CHECK(p->job == j);
            CHECK(peer_dest(p)->transport == j->lane->transport);
            (void)peer_audit(s, p, &of_job); /* counted in of_job */
            peers++;
        }
        CHECK(j->last == NULL || j->last->job == j);
        CHECK(of_job.waiting == j->read - j->selected);
        CHECK(of_job.rcpts == j->rcpt_count);
        CHECK(j->rcpt_limit >= 0);
        limits += j->rcpt_limit;
        of_message.waiting += of_job.waiting;
        of_message.busy += of_job.busy;
        of_message.rcpts += of_job.rcpts;
    }
    CHECK(m->rcpt_limit - limits >= 1); /* the minimum of when it was opened */
    CHECK(m->entries == of_message.waiting + of_message.busy);
    CHECK(m->peers == peers);
    CHECK(m->rcpt_count == of_message.rcpts);
    CHECK(!m->all_read || m->rcpt_unread == 0);
    list = m->entries > 0 || m->deferrals > 0 || m->reading ? LIST_NONE
           : m->all_read                                    ? LIST_DONE
                                                            : LIST_TO_READ;
    CHECK(m->list == list || (m->list == LIST_TO_PARK && list == LIST_NONE && !m->dropped) ||
          (m->list == LIST_DROPPING && m->dropped));
    all->waiting += of_message.waiting;
    all->busy += of_message.busy;
    all->rcpts += of_message.rcpts;
}

static void waiting_audit(const struct tree_node *node, const struct stripe *st,
                          uint64_t *ret_entries)
{
    uint64_t before = *ret_entries;
    const struct peer *p;
    const struct entry *e;

    if (node == NULL) {
        return;
    }
    p = PEER_OF(node);
    CHECK(p->stripe == st);
    CHECK(p->job->lane == st->lane);
    CHECK(!TAILQ_EMPTY(&p->waiting));
    CHECK(!heap_has(&st->ready) || !job_is_known_blocker(p->job));
    TAILQ_FOREACH(e, &p->waiting, link)
    {
        ++*ret_entries;
    }
    waiting_audit(node->left, st, ret_entries);
    waiting_audit(node->right, st, ret_entries);
    CHECK(node->summary == TREE_STALE || node->summary == *ret_entries - before);
}

static void stripe_audit(const struct stripe *st, uint64_t *ret_entries)
{
    stripe_tree_audit(st);
    waiting_audit(st->waiting, st, ret_entries);
    CHECK((st->first == NULL) == (st->waiting == NULL));
    CHECK(st->first == NULL || &st->first->node == tree_first(st->waiting));
    CHECK(st->first == NULL || st->place == &st->first->job->place);
}

static void dest_audit(const struct sched *s, const struct dest *d)
{
    const struct stripe *st;
    const struct entry *e;
    uint64_t waiting = 0, busy = 0;

    CHECK(s->dests[d->slot] == d);
    for (st = dest_next_stripe(d, NULL); st != NULL; st = dest_next_stripe(d, st)) {
        stripe_audit(st, &waiting);
    }
    TAILQ_FOREACH(e, &d->busy, link)
    {
        CHECK(peer_dest(e->peer) == d);
        entry_audit(s, e, true);
        busy++;
    }
    CHECK(waiting == d->waiting_count);
    CHECK(busy == d->busy_count);
    CHECK(d->told <= s->told);
    if (d->told == s->told) {
        window_audit(&d->window, dest_limits(d));
    }
    CHECK(d->told == s->told || d->slot < s->sweep_at);
    CHECK(d->closed == !dest_has_room(d));
    CHECK(d->contest != NULL || d->stripe.closed == !dest_is_open(d));
    CHECK(d->contest != NULL || heap_has(&d->stripe.ready) == (dest_is_open(d) && waiting > 0));
    CHECK(!d->held || (d->failing && dest_has_room(d) && waiting > 0));
    contest_audit(d);
    CHECK(d->draining == (d->state == DEST_DEAD && waiting > 0));
    CHECK((d->state == DEST_READY) == !heap_has(&d->timer.node));
    CHECK((d->state == DEST_DEAD || d->probing) == (d->reason != NULL));
    CHECK(!d->asleep || d->state == DEST_DEAD);
    CHECK(!d->probing || ((d->state != DEST_DEAD || d->asleep) && d->window.size == 1));
    CHECK(d->idle == (d->state == DEST_READY && waiting + busy == 0 && d->parking == NULL));
    share_audit(d);
}

static void transport_audit(const struct sched *s, const struct transport *t)
{
    const struct message *m;
    const struct job *j;
    const struct dest *d;
    uint64_t busy = 0, waiting = 0, shown = 0, peers_of_stripes = 0, held = 0, busy_failing = 0,
             messages = 0, wanting = 0, peers = 0;
    uint64_t unread = 0;
    int64_t slots = 0;

    for (d = t->dests; d != NULL; d = d->hh.next) {
        CHECK(d->transport == t);
        dest_audit(s, d);
        busy += d->busy_count;
        waiting += d->waiting_count;
        for (const struct stripe *st = NULL; (st = dest_next_stripe(d, st)) != NULL;) {
            shown += heap_has(&st->ready);
            peers_of_stripes += st->peers;
        }
        held += d->held;
        busy_failing += d->failing ? d->busy_count : 0;
        messages += d->messages;
        for (const struct parking *p = NULL; (p = parking_next(d, p)) != NULL;) {
            wanting += heap_has(&p->wanting);
        }
    }
    CHECK(t->busy == busy);
    CHECK(t->waiting == waiting);
    for (const struct lane *l = &t->lane; l != NULL; l = l == &t->lane ? t->lanes : l->hh.next) {
        shown -= l->ready.count;
        heap_audit(&l->ready);
    }
    CHECK(shown == 0);
    CHECK(peers_of_stripes == messages);
    CHECK(t->busy_failing == busy_failing);
    TAILQ_FOREACH(d, &t->held, link)
    {
        CHECK(d->held);
        held--;
    }
    CHECK(held == 0);
    CHECK(t->wanting.count == wanting);
    heap_audit(&t->wanting);
    CHECK((t->reason != NULL) == heap_has(&t->dead.node));
    CHECK(t->rate_locked == heap_has(&t->rate.node));
    lanes_audit(t);
    rings_audit(t);
    for (size_t i = 0; i < s->messages.size; i++) {
        if ((m = ids_at(&s->messages, i)) == NULL) {
            continue;
        }
        SLIST_FOREACH(j, &m->jobs, of_message)
        {
            if (j->lane->transport != t) {
                continue;
            }
            slots += j->rcpt_limit;
            unread += heap_has(&j->unread);
            for (const struct order_node *n = j->peers.first; n != NULL; n = n->next) {
                peers++;
            }
        }
    }
    transport_slots_audit(t, unread, slots);
    CHECK(peers == messages);
}

static void idle_audit(const struct sched *s)
{
    const struct dest *d, *before;
    uint32_t count = 0;

    TAILQ_FOREACH(d, &s->idle, link)
    {
        before = TAILQ_PREV(d, dest_list, link);
        CHECK(d->idle);
        CHECK(before == NULL || before->since_us <= d->since_us);
        count++;
    }
    CHECK(count == s->idle_count);
}

void sched_audit(const struct sched *s)
{
    const struct message *m;
    const struct deferral *deferral;
    struct sums sums = {0};
    uint64_t dests = 0, dead = 0, idle = 0, parked = 0, asked = 0, deferred = 0, busy_slots = 0,
             free_slots = 0, extra = 0;

    for (size_t i = 0; i < s->messages.size; i++) {
        if ((m = ids_at(&s->messages, i)) != NULL) {
            CHECK(message_find(s, m->id) == m);
            message_audit(s, m, &sums);
        }
    }
    CHECK(sums.waiting == s->waiting_count);
    CHECK(sums.busy == s->busy_count);
    CHECK(sums.rcpts == s->rcpt_count);
    for (uint32_t i = 0; i < s->transport_count; i++) {
        CHECK(s->transports[i]->index == i);
        transport_audit(s, s->transports[i]);
        dests += HASH_COUNT(s->transports[i]->dests);
        extra += s->transports[i]->extra;
    }
    CHECK(extra == s->extra);
    CHECK(dests == s->dest_count);
    for (uint32_t i = 0; i < s->dest_count; i++) {
        CHECK(s->dests[i]->slot == i);
        dead += s->dests[i]->state == DEST_DEAD;
        idle += s->dests[i]->idle;
        parked += s->dests[i]->parking != NULL;
        for (const struct parking *p = NULL; (p = parking_next(s->dests[i], p)) != NULL;) {
            asked += p->asked;
        }
    }
    CHECK(dead == s->dead_count);
    CHECK(idle == s->idle_count);
    idle_audit(s);
    CHECK(parked == s->parked_count);
    CHECK(asked == s->asked);
    CHECK(heap_has(&s->ask_again.node) == !TAILQ_EMPTY(&s->put_off));
    TAILQ_FOREACH(deferral, &s->deferrals, link)
    {
        CHECK(deferral->count > 0);
        deferred += deferral->count;
    }
    CHECK(deferred == s->deferred_rcpts);
    for (uint32_t i = 0; i < s->busy_size; i++) {
        busy_slots += s->busy[i].entry != NULL;
    }
    for (uint32_t i = s->busy_free; i != SLOT_NONE; i = s->busy[i].next_free) {
        CHECK(s->busy[i].entry == NULL);
        free_slots++;
    }
    CHECK(busy_slots == s->busy_count);
    CHECK(busy_slots + free_slots == s->busy_size);
    heap_audit(&s->timers);
}
