/*
 * The audit: the list in sched_fault.c, then the structures that it relies on: lists, trees, heaps,
 * and the counts that can only be checked against all of them together.
 */
#include "check.h"
#include "sched_private.h"

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
    sums->waiting += waiting;
    sums->busy += busy;
    sums->rcpts += rcpts;
    return waiting;
}

static void message_audit(const struct sched *s, const struct message *m, struct sums *all)
{
    const struct job *j;
    int64_t limits = 0;
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
            CHECK(peer_dest(p)->transport == j->queue->transport);
            (void)peer_audit(s, p, &of_job); /* the sums are in of_job */
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
    CHECK(m->rcpt_limit - limits >= 1); /* message_recipient_minimum at the time of sched_open */
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

static void waiting_audit(const struct tree_node *node, const struct dest_queue *dq,
                          uint64_t *ret_entries)
{
    uint64_t before = *ret_entries;
    const struct peer *p;
    const struct entry *e;

    if (node == NULL) {
        return;
    }
    p = PEER_OF(node);
    CHECK(p->queue == dq);
    CHECK(p->job->queue == dq->class_queue);
    CHECK(!TAILQ_EMPTY(&p->waiting));
    CHECK(!heap_has(&dq->ready) || !job_is_known_blocker(p->job));
    TAILQ_FOREACH(e, &p->waiting, link)
    {
        ++*ret_entries;
    }
    waiting_audit(node->left, dq, ret_entries);
    waiting_audit(node->right, dq, ret_entries);
    CHECK(node->summary == TREE_STALE || node->summary == *ret_entries - before);
}

static void dest_queue_audit(const struct dest_queue *dq, uint64_t *ret_entries)
{
    dest_queue_tree_audit(dq);
    waiting_audit(dq->waiting, dq, ret_entries);
    CHECK((dq->first == NULL) == (dq->waiting == NULL));
    CHECK(dq->first == NULL || &dq->first->node == tree_first(dq->waiting));
    CHECK(dq->first == NULL || dq->place == &dq->first->job->place);
}

static void dest_audit(const struct sched *s, const struct dest *d)
{
    const struct dest_queue *dq;
    const struct entry *e;
    uint64_t waiting = 0;

    CHECK(s->dests[d->slot] == d);
    for (dq = dest_next_queue(d, NULL); dq != NULL; dq = dest_next_queue(d, dq)) {
        dest_queue_audit(dq, &waiting);
    }
    TAILQ_FOREACH(e, &d->busy, link)
    {
        CHECK(peer_dest(e->peer) == d);
        entry_audit(s, e, true);
    }
    CHECK(d->told <= s->told);
    if (d->told == s->told) {
        window_audit(&d->window, dest_limits(d));
    }
    CHECK(d->told == s->told || d->slot < s->sweep_at);
    CHECK(d->closed == !dest_has_room(d));
    CHECK(d->turns != NULL || d->queue.closed == !dest_is_open(d));
    CHECK(d->turns != NULL || heap_has(&d->queue.ready) == (dest_is_open(d) && waiting > 0));
    CHECK(!d->held_back || (d->standing != STANDING_PROVEN && dest_has_room(d) && waiting > 0));
    dest_turns_audit(d);
    CHECK(!d->draining || (d->state == DEST_DEAD && waiting > 0));
    CHECK(d->state != DEST_READY || !heap_has(&d->timer.node));
    CHECK((d->state == DEST_DEAD || d->probing) == (d->reason != NULL));
    CHECK(!d->postponed || d->state == DEST_DEAD);
    CHECK(!d->probing || ((d->state != DEST_DEAD || d->postponed) && d->window.size == 1));
    CHECK(d->idle ==
          (d->state == DEST_READY && waiting + d->busy_count == 0 && d->parking == NULL));
    share_audit(d);
}

static void transport_audit(const struct sched *s, const struct transport *t)
{
    const struct message *m;
    const struct job *j;
    const struct dest *d;
    uint64_t busy = 0, waiting = 0, shown = 0, peers_of_queues = 0, held = 0, messages = 0,
             wanting = 0, peers = 0;
    uint64_t unread = 0, newcomers = 0, busy_by[STANDINGS] = {0};
    int64_t slots = 0;

    for (d = t->dests; d != NULL; d = d->hh.next) {
        CHECK(d->transport == t);
        dest_audit(s, d);
        busy += d->busy_count;
        waiting += d->waiting_count;
        for (const struct dest_queue *dq = NULL; (dq = dest_next_queue(d, dq)) != NULL;) {
            shown += heap_has(&dq->ready);
            peers_of_queues += dq->peers;
        }
        held += d->held_back;
        newcomers += d->newcomer;
        CHECK(!d->newcomer || d->standing == STANDING_UNPROVEN);
        busy_by[d->standing] += d->busy_count;
        messages += d->messages;
        for (const struct parking *p = NULL; (p = parking_next(d, p)) != NULL;) {
            wanting += heap_has(&p->wanting);
        }
    }
    CHECK(t->busy == busy);
    CHECK(t->newcomers == newcomers);
    CHECK(t->waiting == waiting);
    for (const struct class_queue *q = &t->plain; q != NULL;
         q = q == &t->plain ? t->class_queues : q->hh.next) {
        shown -= q->ready.count;
        heap_audit(&q->ready);
    }
    CHECK(shown == 0);
    CHECK(peers_of_queues == messages);
    for (int i = 0; i < STANDINGS; i++) {
        CHECK(t->busy_by[i] == busy_by[i]);
        TAILQ_FOREACH(d, &t->held_back[i], link)
        {
            CHECK(d->held_back);
            CHECK(d->standing == i);
            held--;
        }
    }
    CHECK(held == 0);
    CHECK(t->wanting.count == wanting);
    heap_audit(&t->wanting);
    CHECK(t->reason != NULL || !heap_has(&t->dead.node));
    CHECK(t->rate_locked || !heap_has(&t->rate.node));
    class_queues_audit(t);
    rings_audit(t);
    for (size_t i = 0; i < s->messages.size; i++) {
        if ((m = ids_at(&s->messages, i)) == NULL) {
            continue;
        }
        SLIST_FOREACH(j, &m->jobs, of_message)
        {
            if (j->queue->transport != t) {
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
    uint64_t dead = 0, idle = 0, parked = 0, asked = 0, deferred = 0, busy_slots = 0,
             free_slots = 0;

    invariants_audit(s);
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
    }
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
    CHECK(!heap_has(&s->ask_again.node) || !TAILQ_EMPTY(&s->ask_later));
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
