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

/* Parked jobs only wait to be put back: a bag. */
static bool parked_less(const struct heap_node *a, const struct heap_node *b)
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

void lane_init(struct lane *l, struct transport *t)
{
    l->transport = t;
    heap_init(&l->ready, stripe_less);
    heap_init(&l->fresh, fresh_less);
    heap_init(&l->attention, attention_less);
    heap_init(&l->parked, parked_less);
}

void lane_fini(struct lane *l)
{
    heap_fini(&l->ready);
    heap_fini(&l->fresh);
    heap_fini(&l->attention);
    heap_fini(&l->parked);
}

/* ---- known blockers ------------------------------------------------------------------------- */

static bool before_frontier(const struct job *j)
{
    const struct job *frontier = j->lane->frontier;

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
    struct lane *l = j->lane;
    bool wanted = linked(j) && (!has_entries(j) || refillable(j->message));
    bool park = wanted && job_is_known_blocker(j);

    if (heap_has(&j->attention)) {
        if (wanted && park == j->parked) {
            return;
        }
        heap_remove(j->parked ? &l->parked : &l->attention, &j->attention);
    }
    if (wanted) {
        j->parked = park;
        heap_add(park ? &l->parked : &l->attention, &j->attention);
    }
}

static void fresh_add(struct job *j)
{
    if (!heap_has(&j->fresh)) {
        heap_add(&j->lane->fresh, &j->fresh);
        list_changed(j);
    }
}

static void fresh_remove(struct job *j)
{
    if (heap_has(&j->fresh)) {
        heap_remove(&j->lane->fresh, &j->fresh);
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

void lane_forget_candidate(struct lane *l)
{
    l->candidate = l->candidate_of = NULL;
}

/* ---- release of blockers -------------------------------------------------------------------- */

static void release_blockers(struct lane *l)
{
    l->released_at = l->transport->sched->serial;
    while (l->fresh.count > 0) {
        fresh_remove(AS_FRESH(l->fresh.nodes[l->fresh.count - 1]));
    }
    l->frontier = l->jobs.first != NULL ? JOB_OF(l->jobs.first) : NULL;
    while (l->parked.count > 0) {
        attention_update(AT_ATTENTION(l->parked.nodes[l->parked.count - 1]));
    }
    l->current = l->frontier;
    lane_forget_candidate(l);
}

/* Has a job been found blocked since the last release that waits for this peer's destination? A job
 * that was unmarked since counts as long as the peer waited already when it was found blocked. */
static bool was_found_blocked(const struct peer *p)
{
    const struct job *j = p->job;

    return job_is_known_blocker(j) ||
           (j->freed_at > j->lane->released_at && p->since < j->freed_at);
}

/* The tree is in the order of the jobs' list: beyond the frontier nothing needs a look. */
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

void stripe_unblocks(struct stripe *st)
{
    const struct peer *first = st->first;

    if (first != NULL && before_frontier(first->job) &&
        (was_found_blocked(first) || holds_blocked(st->waiting))) {
        release_blockers(st->lane);
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

/* What the job holds and doesn't use goes to the first job that has recipients to read. */
static void hand_out(struct job *j)
{
    struct transport *t = j->lane->transport;
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
            heap_remove(&j->lane->transport->unread, &j->unread);
        }
    }
    SLIST_FOREACH(j, &m->jobs, of_message)
    {
        hand_out(j);
    }
}

/* ---- the list ------------------------------------------------------------------------------- */

/* It has come into the list, perhaps with recipients to read. */
static void wants_slots(struct job *j)
{
    struct transport *t = j->lane->transport;
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

/* Into the lists, behind all jobs of messages that came until `until_s`. */
static void job_link(struct job *j, int64_t until_s)
{
    struct lane *l = j->lane;
    struct job *prev = l->jobs.last != NULL ? JOB_OF(l->jobs.last) : NULL;

    CHECK(!linked(j));
    if (prev != NULL && (prev->parent != NULL || prev->queued_s > until_s)) {
        prev = list_last_as_old(l, until_s);
    }
    if (l->jobs.first == NULL) {
        TAILQ_INSERT_TAIL(&l->transport->with_jobs, l, link);
    }
    list_add_after(l, prev, j);
    j->level = 0;
    j->serial = ++l->transport->link_serial;
    if (l->frontier == NULL && j->place.next == NULL) {
        l->frontier = j;
    } else if (before_frontier(j)) {
        fresh_add(j);
    }
    if (l->current == NULL || job_before(j, l->current)) {
        l->current = j;
    }
    wants_slots(j);
    job_changed(j);
}

/* Give the job another stack parent or none. */
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

/* The job no longer preempts: settle with the one that was charged for it, if it is still there. */
static void pop(struct job *j)
{
    struct job *parent = j->parent;

    if (parent != NULL && j->level == parent->level + 1) {
        parent->slots_available -= j->slots_used * j->lane->transport->policy.slot_cost;
    }
    set_parent_of_children(j, parent);
    set_parent(j, NULL);
    j->level = 0;
    lane_forget_candidate(j->lane);
}

static void job_unlink(struct job *j)
{
    struct lane *l = j->lane;
    struct job *next = job_next(j);

    CHECK(j->level == 0);
    CHECK(j->parent == NULL);
    set_parent_of_children(j, NULL);
    if (l->current == j) {
        l->current = next;
    }
    if (l->candidate == j || l->candidate_of == j) {
        lane_forget_candidate(l);
    }
    if (l->frontier == j) {
        l->frontier = next;
    }
    if (l->asked == j) {
        l->asked = NULL;
    }
    fresh_remove(j);
    list_remove(j);
    if (l->jobs.first == NULL) {
        TAILQ_REMOVE(&l->transport->with_jobs, l, link);
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
        heap_remove(&j->lane->transport->unread, &j->unread);
    }
    hand_out(j);
    job_unlink(j);
}

static void awaken(struct job *j, int64_t until_s)
{
    struct lane *l = j->lane;

    if (!linked(j)) {
        job_link(j, until_s);
    }
    lane_forget_candidate(l);
    if (job_is_known_blocker(j)) {
        fresh_add(j);
        j->freed_at = ++l->transport->sched->serial;
        attention_update(j);
        l->current = JOB_OF(l->jobs.first);
    }
}

/* A job that was retired when its last entry was selected was ahead of others that came in the same
 * second, or they would have been selected before. */
void job_given_back(struct job *j)
{
    awaken(j, j->message->queued_s - 1);
}

struct job *job_need(struct message *m, struct transport *t)
{
    struct job *j, *last = NULL;

    SLIST_FOREACH(j, &m->jobs, of_message)
    {
        if (j->lane->transport == t) {
            break;
        }
        last = j;
    }
    if (j == NULL) {
        j = slab_new(&t->sched->job_slab);
        j->message = m;
        j->queued_s = m->queued_s;
        j->lane = lane_need(t, m->mail_class);
        j->lane->refs++;
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
    struct lane *l = j->lane;

    CHECK(!has_entries(j));
    CHECK(j->rcpt_count == 0);
    if (linked(j)) {
        job_retire(j);
    } else {
        hand_out(j);
    }
    CHECK(j->rcpt_limit == 0);
    slab_free(&l->transport->sched->job_slab, j);
    lane_unref(l);
}

/* ---- preemption ----------------------------------------------------------------------------- */

/* The job that `current` may have to let pass, remembered as Postfix does: a job for the rest of
 * the second, the absence of one until something new comes. */
static struct job *find_candidate(struct job *current, int64_t now_s)
{
    struct lane *l = current->lane;
    int64_t slots_max = ((int64_t)current->read - current->selected + current->slots_available) /
                        l->transport->policy.slot_cost;

    if (l->candidate_of != current || (l->candidate_s != now_s && l->candidate != NULL)) {
        l->candidate = slots_max > 0 ? list_best_candidate(l, current, (uint64_t)slots_max) : NULL;
        l->candidate_of = current;
        l->candidate_s = now_s;
    }
    return l->candidate;
}

/* Recipient slots from the extra pool for a job that passes others: half of what is left of it. */
static void give_extra(struct job *j)
{
    struct transport *t = j->lane->transport;
    int64_t extra = ((int64_t)t->policy.extra_recipient_limit + t->rcpt_unused + 1) / 2;

    if (extra > 0) {
        j->rcpt_limit += extra;
        j->message->rcpt_limit += extra;
        t->rcpt_unused -= extra;
        message_changed(j->message);
    }
}

/* Put `j` before `victim`, with all that is ordered by its place. */
static void move_before(struct job *j, struct job *victim)
{
    struct lane *l = j->lane;

    fresh_remove(j);
    if (heap_has(&j->attention)) {
        heap_remove(j->parked ? &l->parked : &l->attention, &j->attention);
    }
    job_peers_out(j);
    if (l->frontier == j) {
        l->frontier = job_next(j);
    }
    set_parent(j, victim);
    list_remove(j);
    list_add_after(l, victim->place.prev != NULL ? JOB_OF(victim->place.prev) : NULL, j);
    if (l->frontier == victim) {
        l->frontier = j;
    } else if (before_frontier(j)) {
        fresh_add(j);
    }
    job_peers_back(j);
    job_changed(j);
}

/* Let another job pass the current one, if one is due to. It becomes the current job. */
static void maybe_preempt(struct job *current, int64_t now_s)
{
    struct lane *l = current->lane;
    const struct sched_transport_policy *policy = &l->transport->policy;
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
    l->current = j;
    lane_forget_candidate(l);
    current->slots_available -= expected * policy->slot_cost;
    j->slots_used = -expected;
    if (!j->message->all_read) {
        give_extra(j);
    }
}

/* ---- selection ------------------------------------------------------------------------------ */

#define AS_READY(n) CONTAINER_OF(n, struct stripe, ready)

/* The job of the first peer that can be served. Above all others it is first of its destination. */
struct peer *lane_first_ready(struct lane *l)
{
    while (l->ready.count > 0) {
        struct stripe *st = AS_READY(heap_top(&l->ready));

        if (!dest_hold(st->dest)) {
            return st->first;
        }
    }
    return NULL;
}

/* The first job, not known as a blocker, that has no entries or may read more. */
static struct job *first_attention(struct lane *l)
{
    while (l->attention.count > 0) {
        struct job *j = AT_ATTENTION(heap_top(&l->attention));

        if (!job_is_known_blocker(j)) {
            return j;
        }
        attention_update(j);
    }
    return NULL;
}

/* All jobs before `stop` (NULL: all) are now known as blockers. */
static void walk_to(struct lane *l, struct job *stop)
{
    while (l->fresh.count > 0) {
        struct job *j = AS_FRESH(heap_top(&l->fresh));

        if (stop != NULL && !job_before(j, stop)) {
            break;
        }
        fresh_remove(j);
    }
    if (stop == NULL || (l->frontier != NULL && job_before(l->frontier, stop))) {
        l->frontier = stop;
    }
}

static void mark_blocker(struct job *j)
{
    struct lane *l = j->lane;

    if (heap_has(&j->fresh)) {
        fresh_remove(j);
    } else {
        CHECK(l->frontier == j);
        l->frontier = job_next(j);
    }
    attention_update(j);
}

static bool refill_due(const struct lane *l, const struct message *m, int64_t now_s)
{
    int64_t room = m->rcpt_limit - m->rcpt_count;

    return refillable(m) &&
           (room >= l->transport->policy.refill_limit ||
            us_seconds(l->transport->policy.refill_delay_us) <= now_s - m->refill_s);
}

static enum walk ask(struct job *j, bool last_chance, struct message **ret_message)
{
    struct lane *l = j->lane;

    l->selecting = true;
    l->asked = j;
    l->asked_last = last_chance;
    *ret_message = j->message;
    return WALK_READ;
}

enum walk lane_walk(struct lane *l, int64_t now_s, struct peer **ret_peer,
                    struct message **ret_message)
{
    if (l->selecting) {
        l->selecting = false;
    } else {
        l->asked = NULL;
        if (l->current != NULL && l->transport->policy.slot_cost >= 2) {
            maybe_preempt(l->current, now_s);
        }
    }
    for (;;) {
        struct peer *ready = lane_first_ready(l);
        struct job *j = first_attention(l);

        if (ready != NULL && (j == NULL || !job_before(j, ready->job))) {
            j = ready->job;
        }
        walk_to(l, j);
        if (j == NULL) {
            l->current = NULL;
            return WALK_NOTHING;
        }
        CHECK(!job_is_known_blocker(j));
        if (l->asked != j && refill_due(l, j->message, now_s)) {
            return ask(j, false, ret_message);
        }
        if (ready != NULL && ready->job == j) {
            *ret_peer = ready;
            return WALK_PEER;
        }
        if ((l->asked != j || !l->asked_last) && refillable(j->message)) {
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
    struct lane *l = j->lane;

    j->slots_available++;
    j->slots_used++;
    if (l->candidate_of != j) {
        lane_forget_candidate(l);
    }
    l->current = j;
    job_changed(j);
    if (!has_entries(j) && j->message->all_read) {
        job_retire(j);
    }
}

/* ---- audit ---------------------------------------------------------------------------------- */

static void job_audit(const struct job *j)
{
    const struct lane *l = j->lane;
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
    /* A job in the attention heap may be known as a blocker (it is parked when met); a parked one
     * must be. */
    CHECK(!attention || !j->parked || job_is_known_blocker(j));
    CHECK(!heap_has(&j->fresh) || before_frontier(j));
    CHECK(j->message->all_read == !heap_has(&j->unread));
    /* Where selection starts, nothing before can be selected. */
    CHECK(job_is_known_blocker(j) || (l->current != NULL && !job_before(j, l->current)));
}

void transport_slots_audit(const struct transport *t, uint64_t unread, int64_t slots)
{
    heap_audit(&t->unread);
    CHECK(t->unread.count == unread);
    CHECK(t->next_unread == (unread > 0 ? AS_UNREAD(heap_top(&t->unread)) : NULL));
    CHECK(t->next_unread == NULL || t->rcpt_unused <= 0);
    CHECK(t->rcpt_unused + slots == t->policy.recipient_limit);
}

void lane_audit(const struct lane *l)
{
    uint64_t jobs = 0, attentive = 0, fresh = 0;

    list_audit(l);
    for (const struct order_node *n = l->jobs.first; n != NULL; n = n->next) {
        const struct job *j = CONTAINER_OF(n, const struct job, place);
        job_audit(j);
        jobs++;
        attentive += heap_has(&j->attention);
        fresh += heap_has(&j->fresh);
    }
    heap_audit(&l->attention);
    CHECK(l->attention.count + l->parked.count == attentive);
    heap_audit(&l->fresh);
    CHECK(l->fresh.count == fresh);
    CHECK(l->current == NULL || (jobs > 0 && linked(l->current)));
    CHECK(l->frontier == NULL || linked(l->frontier));
    CHECK(l->candidate == NULL || linked(l->candidate));
}
