/*
 * Jobs: their list, known blockers, candidates for preemption, recipient slots. See sched.c.
 */
#include <string.h>

#include "check.h"
#include "mem.h"
#include "sched_private.h"

static bool linked(const struct job *j)
{
    return j->level >= 0;
}

static bool has_entries(const struct job *j)
{
    return j->selected < j->read;
}

/* ---- orders --------------------------------------------------------------------------------- */

#define AT_ATTENTION(n) CONTAINER_OF(n, struct job, attention)
#define AS_FRESH(n)     CONTAINER_OF(n, struct job, fresh)
#define AS_UNREAD(n)    CONTAINER_OF(n, struct job, unread)

static bool attention_less(const struct heap_node *a, const struct heap_node *b)
{
    return job_before(AT_ATTENTION(a), AT_ATTENTION(b));
}

/* Keeps skipped jobs in no order, as they are only put back all at once. */
static bool skipped_less(const struct heap_node *a, const struct heap_node *b)
{
    (void)a;
    (void)b;
    return false;
}

static bool fresh_less(const struct heap_node *a, const struct heap_node *b)
{
    return job_before(AS_FRESH(a), AS_FRESH(b));
}

static bool older_unread(const struct job *a, const struct job *b)
{
    int64_t ta = a->queued_s, tb = b->queued_s;

    return ta != tb ? ta < tb : a->serial < b->serial;
}

static bool unread_less(const struct heap_node *a, const struct heap_node *b)
{
    return older_unread(AS_UNREAD(a), AS_UNREAD(b));
}

void transport_slots_init(struct transport *t)
{
    heap_init(&t->unread, unread_less);
}

void class_queue_init(struct class_queue *q, struct transport *t)
{
    q->transport = t;
    heap_init(&q->ready, dest_queue_less);
    heap_init(&q->fresh, fresh_less);
    heap_init(&q->attention, attention_less);
    heap_init(&q->skipped, skipped_less);
}

void class_queue_fini(struct class_queue *q)
{
    heap_fini(&q->ready);
    heap_fini(&q->fresh);
    heap_fini(&q->attention);
    heap_fini(&q->skipped);
}

/* ---- known blockers ------------------------------------------------------------------------- */

static bool before_frontier(const struct job *j)
{
    const struct job *frontier = j->queue->frontier;

    return frontier == NULL || job_before(j, frontier);
}

bool job_is_known_blocker(const struct job *j)
{
    return linked(j) && !heap_has(&j->fresh) && before_frontier(j);
}

/* May more recipients be read for a job of this message? */
static bool refillable(const struct message *m)
{
    return !m->all_read && !m->reading && m->opened && !m->dropped && m->entries > 0 &&
           m->rcpt_limit > m->rcpt_count;
}

static void attention_update(struct job *j)
{
    struct class_queue *q = j->queue;
    bool wanted = linked(j) && (!has_entries(j) || refillable(j->message));
    bool park = wanted && job_is_known_blocker(j);

    if (heap_has(&j->attention)) {
        if (wanted && park == j->skipped) {
            return;
        }
        heap_remove(j->skipped ? &q->skipped : &q->attention, &j->attention);
    }
    if (wanted) {
        j->skipped = park;
        heap_add(park ? &q->skipped : &q->attention, &j->attention);
    }
}

static void fresh_add(struct job *j)
{
    if (!heap_has(&j->fresh)) {
        heap_add(&j->queue->fresh, &j->fresh);
        list_changed(j);
    }
}

static void fresh_remove(struct job *j)
{
    if (heap_has(&j->fresh)) {
        heap_remove(&j->queue->fresh, &j->fresh);
        list_changed(j);
    }
}

void job_changed(struct job *j)
{
    if (linked(j)) {
        list_numbers_changed(j);
    }
    attention_update(j);
}

void message_changed(struct message *m)
{
    struct job *j;

    SLIST_FOREACH(j, &m->jobs, of_message)
    {
        job_changed(j);
    }
}

void class_queue_forget_candidate(struct class_queue *q)
{
    q->candidate = q->candidate_of = NULL;
}

/* ---- release of blockers -------------------------------------------------------------------- */

static void release_blockers(struct class_queue *q)
{
    q->released_at = q->transport->sched->serial;
    while (q->fresh.count > 0) {
        fresh_remove(AS_FRESH(q->fresh.nodes[q->fresh.count - 1]));
    }
    q->frontier = q->jobs.first != NULL ? JOB_OF(q->jobs.first) : NULL;
    while (q->skipped.count > 0) {
        attention_update(AT_ATTENTION(q->skipped.nodes[q->skipped.count - 1]));
    }
    q->current = q->frontier;
    class_queue_forget_candidate(q);
}

/* Was a job that waits for this peer's destination found blocked since the last release? A job that
 * was unmarked since then counts if the peer already waited when the job was found blocked. */
static bool was_found_blocked(const struct peer *p)
{
    const struct job *j = p->job;

    return job_is_known_blocker(j) ||
           (j->freed_at > j->queue->released_at && p->since < j->freed_at);
}

/* Does a tree of peers contain a blocked job? The tree is in the order of the jobs' list, so
 * nothing beyond the frontier needs a check. */
static bool holds_blocked(const struct tree_node *node)
{
    while (node != NULL) {
        const struct peer *p = PEER_OF(node);

        if (before_frontier(p->job)) {
            if (was_found_blocked(p) || holds_blocked(node->right)) {
                return true;
            }
        }
        node = node->left;
    }
    return false;
}

void dest_queue_unblocks(struct dest_queue *dq)
{
    const struct peer *first = dq->first;

    if (first != NULL && before_frontier(first->job) &&
        (was_found_blocked(first) || holds_blocked(dq->waiting))) {
        release_blockers(dq->class_queue);
    }
}

/* ---- recipient slots ------------------------------------------------------------------------ */

static void give_unused(struct transport *t, struct job *to)
{
    if (t->rcpt_unused > 0) {
        to->rcpt_limit += t->rcpt_unused;
        to->message->rcpt_limit += t->rcpt_unused;
        t->rcpt_unused = 0;
        message_changed(to->message);
    }
}

void transport_slots_added(struct transport *t, int64_t slots)
{
    t->rcpt_unused += slots;
    if (t->next_unread != NULL) {
        give_unused(t, t->next_unread);
    }
}

/* Gives the slots that the job holds and doesn't use to the first job with recipients to read. */
static void hand_out(struct job *j)
{
    struct transport *t = j->queue->transport;
    struct message *m = j->message;
    int64_t spare = j->rcpt_limit - j->rcpt_count, room = m->rcpt_limit - m->rcpt_count;

    if (j == t->next_unread) {
        CHECK(!heap_has(&j->unread));
        t->next_unread = t->unread.count > 0 ? AS_UNREAD(heap_top(&t->unread)) : NULL;
    }
    if (spare > room) {
        spare = room;
    }
    if (spare > 0) {
        j->rcpt_limit -= spare;
        m->rcpt_limit -= spare;
        message_changed(m);
        transport_slots_added(t, spare);
    }
}

void job_slots_returned(struct job *j)
{
    struct message *m = j->message;
    struct job *sponsor;

    SLIST_FOREACH(sponsor, &m->jobs, of_message)
    {
        if (sponsor != j && sponsor->rcpt_count < sponsor->rcpt_limit &&
            (!linked(sponsor) || m->all_read)) {
            hand_out(sponsor);
        }
    }
    if (m->all_read) {
        hand_out(j);
    }
}

void message_slots_returned(struct message *m)
{
    struct job *j;

    SLIST_FOREACH(j, &m->jobs, of_message)
    {
        if (heap_has(&j->unread)) {
            heap_remove(&j->queue->transport->unread, &j->unread);
        }
    }
    SLIST_FOREACH(j, &m->jobs, of_message)
    {
        hand_out(j);
    }
}

/* ---- the list ------------------------------------------------------------------------------- */

/* Lets a job that was just linked, perhaps with recipients to read, take part in the distribution
 * of slots. */
static void wants_slots(struct job *j)
{
    struct transport *t = j->queue->transport;
    struct job *unread = t->next_unread;

    if (!j->message->all_read) {
        heap_add(&t->unread, &j->unread);
    }
    if (unread == NULL || older_unread(j, unread)) {
        t->next_unread = j;
        if (unread != NULL) {
            hand_out(unread);
        }
    }
    give_unused(t, j);
}

/* Links the job after all jobs of messages that arrived at `until_s` or before. */
static void job_link(struct job *j, int64_t until_s)
{
    struct class_queue *q = j->queue;
    struct job *prev = q->jobs.last != NULL ? JOB_OF(q->jobs.last) : NULL;

    CHECK(!linked(j));
    if (prev != NULL && (prev->parent != NULL || prev->queued_s > until_s)) {
        prev = list_last_as_old(q, until_s);
    }
    if (q->jobs.first == NULL) {
        TAILQ_INSERT_TAIL(&q->transport->with_jobs, q, link);
    }
    list_add_after(q, prev, j);
    j->level = 0;
    j->serial = ++q->transport->link_serial;
    if (q->frontier == NULL && j->place.next == NULL) {
        q->frontier = j;
    } else if (before_frontier(j)) {
        fresh_add(j);
    }
    if (q->current == NULL || job_before(j, q->current)) {
        q->current = j;
    }
    wants_slots(j);
    job_changed(j);
}

/* Gives the job another stack parent or none. */
static void set_parent(struct job *j, struct job *parent)
{
    struct job *old = j->parent;

    if (old == parent) {
        return;
    }
    j->parent = parent;
    list_changed(j);
    if (old != NULL) {
        LIST_REMOVE(j, siblings);
        list_numbers_changed(old);
    }
    if (parent != NULL) {
        LIST_INSERT_HEAD(&parent->children, j, siblings);
        list_numbers_changed(parent);
    }
}

static void set_parent_of_children(struct job *j, struct job *parent)
{
    while (!LIST_EMPTY(&j->children)) {
        set_parent(LIST_FIRST(&j->children), parent);
    }
}

/* Ends the job's preemption, and settles with the job that was charged for it, if that still
 * exists. */
static void pop(struct job *j)
{
    struct job *parent = j->parent;

    if (parent != NULL && j->level == parent->level + 1) {
        parent->slots_available -= j->slots_used * j->queue->transport->policy.slot_cost;
    }
    set_parent_of_children(j, parent);
    set_parent(j, NULL);
    j->level = 0;
    class_queue_forget_candidate(j->queue);
}

static void job_unlink(struct job *j)
{
    struct class_queue *q = j->queue;
    struct job *next = job_next(j);

    CHECK(j->level == 0);
    CHECK(j->parent == NULL);
    set_parent_of_children(j, NULL);
    if (q->current == j) {
        q->current = next;
    }
    if (q->candidate == j || q->candidate_of == j) {
        class_queue_forget_candidate(q);
    }
    if (q->frontier == j) {
        q->frontier = next;
    }
    if (q->asked == j) {
        q->asked = NULL;
    }
    fresh_remove(j);
    list_remove(j);
    if (q->jobs.first == NULL) {
        TAILQ_REMOVE(&q->transport->with_jobs, q, link);
    }
    j->level = -1;
    attention_update(j);
}

void job_retire(struct job *j)
{
    if (j->level > 0) {
        pop(j);
    }
    if (heap_has(&j->unread)) {
        heap_remove(&j->queue->transport->unread, &j->unread);
    }
    hand_out(j);
    job_unlink(j);
}

static void awaken(struct job *j, int64_t until_s)
{
    struct class_queue *q = j->queue;

    if (!linked(j)) {
        job_link(j, until_s);
    }
    class_queue_forget_candidate(q);
    if (job_is_known_blocker(j)) {
        fresh_add(j);
        j->freed_at = ++q->transport->sched->serial;
        attention_update(j);
        q->current = JOB_OF(q->jobs.first);
    }
}

/* The job was retired when its last entry was selected. It was then ahead of others that arrived in
 * the same second, or they would have been selected before. */
void job_given_back(struct job *j)
{
    awaken(j, j->message->queued_s - 1);
}

struct job *job_need(struct message *m, struct transport *t)
{
    struct job *j, *last = NULL;

    SLIST_FOREACH(j, &m->jobs, of_message)
    {
        if (j->queue->transport == t) {
            break;
        }
        last = j;
    }
    if (j == NULL) {
        j = slab_new(&t->sched->job_slab);
        j->message = m;
        j->queued_s = m->queued_s;
        j->queue = class_queue_need(t, m->mail_class);
        j->queue->refs++;
        j->level = -1;
        LIST_INIT(&j->children);
        heap_node_init(&j->attention);
        heap_node_init(&j->fresh);
        heap_node_init(&j->unread);
        if (last == NULL) {
            SLIST_INSERT_HEAD(&m->jobs, j, of_message);
        } else {
            SLIST_INSERT_AFTER(last, j, of_message);
        }
    }
    awaken(j, m->queued_s);
    return j;
}

void job_free(struct job *j)
{
    struct class_queue *q = j->queue;

    CHECK(!has_entries(j));
    CHECK(j->rcpt_count == 0);
    if (linked(j)) {
        job_retire(j);
    } else {
        hand_out(j);
    }
    CHECK(j->rcpt_limit == 0);
    slab_free(&q->transport->sched->job_slab, j);
    class_queue_unref(q);
}

/* ---- preemption ----------------------------------------------------------------------------- */

/* Returns the job that may pass `current`, or NULL. The result is remembered as in Postfix: a job
 * for the rest of the second, the absence of one until something new arrives. */
static struct job *find_candidate(struct job *current, int64_t now_s)
{
    struct class_queue *q = current->queue;
    int64_t slots_max = ((int64_t)current->read - current->selected + current->slots_available) /
                        q->transport->policy.slot_cost;

    if (q->candidate_of != current || (q->candidate_s != now_s && q->candidate != NULL)) {
        q->candidate = slots_max > 0 ? list_best_candidate(q, current, (uint64_t)slots_max) : NULL;
        q->candidate_of = current;
        q->candidate_s = now_s;
    }
    return q->candidate;
}

/* Gives a job that passes others recipient slots from the extra pool: half of the rest of the
 * pool. */
static void give_extra(struct job *j)
{
    struct transport *t = j->queue->transport;
    int64_t extra = ((int64_t)t->policy.extra_recipient_limit + t->rcpt_unused + 1) / 2;

    if (extra > 0) {
        j->rcpt_limit += extra;
        j->message->rcpt_limit += extra;
        t->rcpt_unused -= extra;
        message_changed(j->message);
    }
}

/* Moves `j` before `victim`, in all that is ordered by its place. */
static void move_before(struct job *j, struct job *victim)
{
    struct class_queue *q = j->queue;

    fresh_remove(j);
    if (heap_has(&j->attention)) {
        heap_remove(j->skipped ? &q->skipped : &q->attention, &j->attention);
    }
    job_peers_out(j);
    if (q->frontier == j) {
        q->frontier = job_next(j);
    }
    set_parent(j, victim);
    list_remove(j);
    list_add_after(q, victim->place.prev != NULL ? JOB_OF(victim->place.prev) : NULL, j);
    if (q->frontier == victim) {
        q->frontier = j;
    } else if (before_frontier(j)) {
        fresh_add(j);
    }
    job_peers_back(j);
    job_changed(j);
}

/* Lets another job pass the current one, if one is due. That job becomes the current one. */
static void maybe_preempt(struct job *current, int64_t now_s)
{
    struct class_queue *q = current->queue;
    const struct sched_transport_policy *policy = &q->transport->policy;
    struct job *j;
    int64_t expected;

    if (current->slots_available <= 0 ||
        job_total(current) < (uint64_t)policy->minimum_slots * (uint64_t)policy->slot_cost) {
        return;
    }
    j = find_candidate(current, now_s);
    if (j == NULL) {
        return;
    }
    expected = (int64_t)job_total(j) - j->selected;
    if ((double)(current->slots_available / policy->slot_cost + policy->slot_loan) <
        (double)(expected * (100 - policy->slot_discount)) / 100.0) {
        return;
    }
    if (j->level > 0) {
        pop(j);
    }
    move_before(j, current);
    j->level = current->level + 1;
    q->current = j;
    class_queue_forget_candidate(q);
    current->slots_available -= expected * policy->slot_cost;
    j->slots_used = -expected;
    if (!j->message->all_read) {
        give_extra(j);
    }
}

/* ---- selection ------------------------------------------------------------------------------ */

#define AS_READY(n) CONTAINER_OF(n, struct dest_queue, ready)

/* The top of the heap has the first job that can be served; see sched.c. */
struct peer *class_queue_first_ready(struct class_queue *q)
{
    while (q->ready.count > 0) {
        struct dest_queue *dq = AS_READY(heap_top(&q->ready));

        if (!dest_hold_back(dq->dest)) {
            return dq->first;
        }
    }
    return NULL;
}

/* Returns the first job, not known as a blocker, that has no entries or may read more. */
static struct job *first_attention(struct class_queue *q)
{
    while (q->attention.count > 0) {
        struct job *j = AT_ATTENTION(heap_top(&q->attention));

        if (!job_is_known_blocker(j)) {
            return j;
        }
        attention_update(j);
    }
    return NULL;
}

/* Marks all jobs before `stop` (NULL: all) as known blockers. */
static void walk_to(struct class_queue *q, struct job *stop)
{
    while (q->fresh.count > 0) {
        struct job *j = AS_FRESH(heap_top(&q->fresh));

        if (stop != NULL && !job_before(j, stop)) {
            break;
        }
        fresh_remove(j);
    }
    if (stop == NULL || (q->frontier != NULL && job_before(q->frontier, stop))) {
        q->frontier = stop;
    }
}

static void mark_blocker(struct job *j)
{
    struct class_queue *q = j->queue;

    if (heap_has(&j->fresh)) {
        fresh_remove(j);
    } else {
        CHECK(q->frontier == j);
        q->frontier = job_next(j);
    }
    attention_update(j);
}

static bool refill_due(const struct class_queue *q, const struct message *m, int64_t now_s)
{
    int64_t room = m->rcpt_limit - m->rcpt_count;

    return refillable(m) &&
           (room >= q->transport->policy.refill_limit ||
            us_seconds(q->transport->policy.refill_delay_us) <= now_s - m->refill_s);
}

static enum walk ask(struct job *j, bool last_chance, struct message **ret_message)
{
    struct class_queue *q = j->queue;

    q->selecting = true;
    q->asked = j;
    q->asked_last = last_chance;
    *ret_message = j->message;
    return WALK_READ;
}

enum walk class_queue_walk(struct class_queue *q, int64_t now_s, struct peer **ret_peer,
                           struct message **ret_message)
{
    if (q->selecting) {
        q->selecting = false;
    } else {
        q->asked = NULL;
        if (q->current != NULL && q->transport->policy.slot_cost >= 2) {
            maybe_preempt(q->current, now_s);
        }
    }
    for (;;) {
        struct peer *ready = class_queue_first_ready(q);
        struct job *j = first_attention(q);

        if (ready != NULL && (j == NULL || !job_before(j, ready->job))) {
            j = ready->job;
        }
        walk_to(q, j);
        if (j == NULL) {
            q->current = NULL;
            return WALK_NOTHING;
        }
        CHECK(!job_is_known_blocker(j));
        if (q->asked != j && refill_due(q, j->message, now_s)) {
            return ask(j, false, ret_message);
        }
        if (ready != NULL && ready->job == j) {
            *ret_peer = ready;
            return WALK_PEER;
        }
        if ((q->asked != j || !q->asked_last) && refillable(j->message)) {
            return ask(j, true, ret_message);
        }
        if (has_entries(j)) {
            mark_blocker(j);
        } else {
            job_retire(j);
        }
    }
}

void job_selected(struct job *j)
{
    struct class_queue *q = j->queue;

    j->slots_available++;
    j->slots_used++;
    if (q->candidate_of != j) {
        class_queue_forget_candidate(q);
    }
    q->current = j;
    job_changed(j);
    if (!has_entries(j) && j->message->all_read) {
        job_retire(j);
    }
}

/* ---- audit ---------------------------------------------------------------------------------- */

static void job_audit(const struct job *j)
{
    const struct class_queue *q = j->queue;
    const struct job *child;
    bool attention = !has_entries(j) || refillable(j->message);

    CHECK(linked(j));
    CHECK(j->parent == NULL || (linked(j->parent) && j->level > 0));
    CHECK(j->parent == NULL || j->level > j->parent->level);
    LIST_FOREACH(child, &j->children, siblings)
    {
        CHECK(child->parent == j);
        CHECK(job_before(child, j));
    }
    CHECK(attention == heap_has(&j->attention));
    /* A job in the attention heap may be known as a blocker (a walk then skips it); a skipped one
     * must be. */
    CHECK(!attention || !j->skipped || job_is_known_blocker(j));
    CHECK(!heap_has(&j->fresh) || before_frontier(j));
    CHECK(j->message->all_read == !heap_has(&j->unread));
    /* No job before `current`, where selection starts, can be selected. */
    CHECK(job_is_known_blocker(j) || (q->current != NULL && !job_before(j, q->current)));
}

void transport_slots_audit(const struct transport *t, uint64_t unread, int64_t slots)
{
    heap_audit(&t->unread);
    CHECK(t->unread.count == unread);
    CHECK(t->next_unread == (unread > 0 ? AS_UNREAD(heap_top(&t->unread)) : NULL));
    CHECK(t->next_unread == NULL || t->rcpt_unused <= 0);
    CHECK(t->rcpt_unused + slots == t->policy.recipient_limit);
}

void class_queue_audit(const struct class_queue *q)
{
    uint64_t jobs = 0, attentive = 0, fresh = 0;

    list_audit(q);
    for (const struct order_node *n = q->jobs.first; n != NULL; n = n->next) {
        const struct job *j = CONTAINER_OF(n, const struct job, place);
        job_audit(j);
        jobs++;
        attentive += heap_has(&j->attention);
        fresh += heap_has(&j->fresh);
    }
    heap_audit(&q->attention);
    CHECK(q->attention.count + q->skipped.count == attentive);
    heap_audit(&q->fresh);
    CHECK(q->fresh.count == fresh);
    CHECK(q->current == NULL || (jobs > 0 && linked(q->current)));
    CHECK(q->frontier == NULL || linked(q->frontier));
    CHECK(q->candidate == NULL || linked(q->candidate));
}
