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

static bool job_before(const struct job *a, const struct job *b)
{
    return order_before(&a->place, &b->place);
}

static struct job *job_next(const struct job *j)
{
    return j->place.next != NULL ? JOB_OF(j->place.next) : NULL;
}

uint64_t job_total(const struct job *j)
{
    return (uint64_t)j->read + j->message->rcpt_unread;
}

/* ---- orders --------------------------------------------------------------------------------- */

#define BY_PLACE(n)     CONTAINER_OF(n, struct job, by_place)
#define IN_BUCKET(n)    CONTAINER_OF(n, struct job, in_bucket)
#define AT_ATTENTION(n) CONTAINER_OF(n, struct job, attention)
#define AS_FRESH(n)     CONTAINER_OF(n, struct job, fresh)
#define AS_UNREAD(n)    CONTAINER_OF(n, struct job, unread)

static bool by_place_less(const struct tree_node *a, const struct tree_node *b)
{
    return job_before(BY_PLACE(a), BY_PLACE(b));
}

static bool in_bucket_less(const struct tree_node *a, const struct tree_node *b)
{
    return job_before(IN_BUCKET(a), IN_BUCKET(b));
}

/* The older of two jobs; `a`, which comes first in the list, when they are equal. */
static struct job *older(struct job *a, struct job *b)
{
    if (a == NULL || b == NULL) {
        return a == NULL ? b : a;
    }
    return a->message->queued_s <= b->message->queued_s ? a : b;
}

static struct job *by_place_oldest(const struct tree_node *n)
{
    return n != NULL ? BY_PLACE(n)->by_place_oldest : NULL;
}

static bool by_place_update(struct tree_node *n)
{
    struct job *before = BY_PLACE(n)->by_place_oldest;

    BY_PLACE(n)->by_place_oldest =
        older(older(by_place_oldest(n->left), BY_PLACE(n)), by_place_oldest(n->right));
    return BY_PLACE(n)->by_place_oldest != before;
}

static struct job *in_bucket_oldest(const struct tree_node *n)
{
    return n != NULL ? IN_BUCKET(n)->in_bucket_oldest : NULL;
}

static bool in_bucket_update(struct tree_node *n)
{
    struct job *before = IN_BUCKET(n)->in_bucket_oldest;

    IN_BUCKET(n)->in_bucket_oldest =
        older(older(in_bucket_oldest(n->left), IN_BUCKET(n)), in_bucket_oldest(n->right));
    return IN_BUCKET(n)->in_bucket_oldest != before;
}

static const struct tree_type by_place_type = {by_place_less, by_place_update};
static const struct tree_type in_bucket_type = {in_bucket_less, in_bucket_update};

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
    int64_t ta = a->message->queued_s, tb = b->message->queued_s;

    return ta != tb ? ta < tb : a->serial < b->serial;
}

static bool unread_less(const struct heap_node *a, const struct heap_node *b)
{
    return older_unread(AS_UNREAD(a), AS_UNREAD(b));
}

void transport_lists_init(struct transport *t)
{
    heap_init(&t->fresh, fresh_less);
    heap_init(&t->attention, attention_less);
    heap_init(&t->parked, parked_less);
    heap_init(&t->unread, unread_less);
    t->generation = 1;
}

void transport_lists_fini(struct transport *t)
{
    heap_fini(&t->fresh);
    heap_fini(&t->attention);
    heap_fini(&t->parked);
    heap_fini(&t->unread);
    mem_free(t->buckets);
}

/* ---- known blockers ------------------------------------------------------------------------- */

static bool before_frontier(const struct job *j)
{
    const struct job *frontier = j->transport->frontier;

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
    struct transport *t = j->transport;
    bool wanted = linked(j) && (!has_entries(j) || refillable(j->message));
    bool park = wanted && job_is_known_blocker(j);

    if (heap_has(&j->attention)) {
        if (wanted && park == j->parked) {
            return;
        }
        heap_remove(j->parked ? &t->parked : &t->attention, &j->attention);
    }
    if (wanted) {
        j->parked = park;
        heap_add(park ? &t->parked : &t->attention, &j->attention);
    }
}

static void fresh_add(struct job *j)
{
    if (!heap_has(&j->fresh)) {
        heap_add(&j->transport->fresh, &j->fresh);
    }
}

static void fresh_remove(struct job *j)
{
    if (heap_has(&j->fresh)) {
        heap_remove(&j->transport->fresh, &j->fresh);
    }
}

/* ---- possible candidates -------------------------------------------------------------------- */

/* Where the bucket is or would be. */
static size_t bucket_index(const struct transport *t, uint64_t total, uint32_t selected)
{
    size_t low = 0, high = t->bucket_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct bucket *b = t->buckets[middle];

        if (b->total < total || (b->total == total && b->selected < selected)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void bucket_leave(struct job *j)
{
    struct transport *t = j->transport;
    struct bucket *b = j->bucket;

    if (b == NULL) {
        return;
    }
    j->bucket = NULL;
    tree_remove(&in_bucket_type, &b->jobs, &j->in_bucket);
    if (b->jobs == NULL) {
        size_t i = bucket_index(t, b->total, b->selected);
        CHECK(i < t->bucket_count && t->buckets[i] == b);
        t->bucket_count--;
        memmove(&t->buckets[i], &t->buckets[i + 1],
                (t->bucket_count - i) * sizeof(struct bucket *));
        sched_release(t->sched, b, sizeof *b);
    }
}

static void bucket_enter(struct job *j)
{
    struct transport *t = j->transport;
    size_t i = bucket_index(t, job_total(j), j->selected);
    struct bucket *b = i < t->bucket_count ? t->buckets[i] : NULL;

    if (b == NULL || b->total != job_total(j) || b->selected != j->selected) {
        if (t->bucket_count == t->bucket_size) {
            t->bucket_size = t->bucket_size == 0 ? 8 : t->bucket_size * 2;
            t->buckets = mem_resize(t->buckets, t->bucket_size, sizeof(struct bucket *));
        }
        b = sched_alloc(t->sched, sizeof *b);
        b->total = job_total(j);
        b->selected = j->selected;
        memmove(&t->buckets[i + 1], &t->buckets[i],
                (t->bucket_count - i) * sizeof(struct bucket *));
        t->buckets[i] = b;
        t->bucket_count++;
    }
    j->bucket = b;
    tree_add(&in_bucket_type, &b->jobs, &j->in_bucket, (uint32_t)rng_next(&t->sched->rng));
}

static void bucket_update(struct job *j)
{
    struct transport *t = j->transport;
    bool wanted = linked(j) && j != t->current && LIST_EMPTY(&j->children) &&
                  t->policy.slot_cost >= 2 && job_total(j) > j->selected;

    if (wanted && j->bucket != NULL && j->bucket->total == job_total(j) &&
        j->bucket->selected == j->selected) {
        return;
    }
    bucket_leave(j);
    if (wanted) {
        bucket_enter(j);
    }
}

void job_changed(struct job *j)
{
    bucket_update(j);
    attention_update(j);
}

void message_changed(struct message *m)
{
    struct job *j;

    LIST_FOREACH(j, &m->jobs, of_message)
    {
        job_changed(j);
    }
}

void transport_forget_candidate(struct transport *t)
{
    t->candidate = t->candidate_of = NULL;
}

static void set_current(struct transport *t, struct job *j)
{
    struct job *old = t->current;

    if (old == j) {
        return;
    }
    t->current = j;
    if (old != NULL) {
        bucket_update(old);
    }
    if (j != NULL) {
        bucket_update(j);
    }
}

/* ---- release of blockers -------------------------------------------------------------------- */

static void release_blockers(struct transport *t)
{
    t->generation++;
    while (t->fresh.count > 0) {
        heap_remove(&t->fresh, t->fresh.nodes[t->fresh.count - 1]);
    }
    t->frontier = t->jobs.first != NULL ? JOB_OF(t->jobs.first) : NULL;
    while (t->parked.count > 0) {
        attention_update(AT_ATTENTION(t->parked.nodes[t->parked.count - 1]));
    }
    set_current(t, t->frontier);
    transport_forget_candidate(t);
}

/* Has a job been found blocked in this generation that waits for this peer's destination? A job
 * that was unmarked since counts as long as the peer waited already when it was found blocked. */
static bool was_found_blocked(const struct peer *p)
{
    const struct job *j = p->job;

    return job_is_known_blocker(j) ||
           (j->freed_in == j->transport->generation && p->since < j->freed_at);
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

void dest_unblocks(struct dest *d)
{
    if (dest_has_room(d) && d->waiting != NULL && holds_blocked(d->waiting)) {
        release_blockers(d->transport);
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
    struct transport *t = j->transport;
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

    LIST_FOREACH(sponsor, &m->jobs, of_message)
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

    LIST_FOREACH(j, &m->jobs, of_message)
    {
        if (heap_has(&j->unread)) {
            heap_remove(&j->transport->unread, &j->unread);
        }
    }
    LIST_FOREACH(j, &m->jobs, of_message)
    {
        hand_out(j);
    }
}

/* ---- the list ------------------------------------------------------------------------------- */

/* The last job in the list that has no stack parent and is at least as old. */
static struct job *last_as_old(struct tree_node *node, int64_t queued_s)
{
    while (node != NULL && by_place_oldest(node)->message->queued_s <= queued_s) {
        const struct job *right = by_place_oldest(node->right);

        if (right != NULL && right->message->queued_s <= queued_s) {
            node = node->right;
        } else if (BY_PLACE(node)->message->queued_s <= queued_s) {
            return BY_PLACE(node);
        } else {
            node = node->left;
        }
    }
    return NULL;
}

static void fathers_add(struct job *j)
{
    struct transport *t = j->transport;

    tree_add(&by_place_type, &t->fathers, &j->by_place, (uint32_t)rng_next(&t->sched->rng));
}

/* Into the lists, behind all jobs of messages that came until `until_s`. */
static void job_link(struct job *j, int64_t until_s)
{
    struct transport *t = j->transport;
    struct job *prev = t->jobs.last != NULL ? JOB_OF(t->jobs.last) : NULL, *unread;

    CHECK(!linked(j));
    if (prev != NULL && (prev->parent != NULL || prev->message->queued_s > until_s)) {
        prev = last_as_old(t->fathers, until_s);
    }
    order_add_after(&t->jobs, prev != NULL ? &prev->place : NULL, &j->place);
    j->level = 0;
    j->serial = ++t->link_serial;
    fathers_add(j);
    if (t->frontier == NULL && j->place.next == NULL) {
        t->frontier = j;
    } else if (before_frontier(j)) {
        fresh_add(j);
    }
    if (t->current == NULL || job_before(j, t->current)) {
        set_current(t, j);
    }
    unread = t->next_unread;
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
    job_changed(j);
}

/* Give the job another stack parent or none. Only jobs without one are in the tree of fathers. */
static void set_parent(struct job *j, struct job *parent)
{
    if (j->parent == parent) {
        return;
    }
    if (j->parent != NULL) {
        struct job *old = j->parent;
        LIST_REMOVE(j, siblings);
        j->parent = NULL;
        bucket_update(old);
    } else {
        tree_remove(&by_place_type, &j->transport->fathers, &j->by_place);
    }
    j->parent = parent;
    if (parent != NULL) {
        LIST_INSERT_HEAD(&parent->children, j, siblings);
        bucket_update(parent);
    } else {
        fathers_add(j);
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
        parent->slots_available -= j->slots_used * j->transport->policy.slot_cost;
    }
    set_parent_of_children(j, parent);
    set_parent(j, NULL);
    j->level = 0;
    transport_forget_candidate(j->transport);
}

static void job_unlink(struct job *j)
{
    struct transport *t = j->transport;
    struct job *next = job_next(j);

    CHECK(j->level == 0);
    CHECK(j->parent == NULL);
    set_parent_of_children(j, NULL);
    if (t->current == j) {
        set_current(t, next);
    }
    if (t->candidate == j || t->candidate_of == j) {
        transport_forget_candidate(t);
    }
    if (t->frontier == j) {
        t->frontier = next;
    }
    if (t->asked == j) {
        t->asked = NULL;
    }
    fresh_remove(j);
    bucket_leave(j);
    tree_remove(&by_place_type, &t->fathers, &j->by_place);
    order_remove(&t->jobs, &j->place);
    j->level = -1;
    attention_update(j);
}

void job_retire(struct job *j)
{
    if (j->level > 0) {
        pop(j);
    }
    if (heap_has(&j->unread)) {
        heap_remove(&j->transport->unread, &j->unread);
    }
    hand_out(j);
    job_unlink(j);
}

static void awaken(struct job *j, int64_t until_s)
{
    struct transport *t = j->transport;

    if (!linked(j)) {
        job_link(j, until_s);
    }
    transport_forget_candidate(t);
    if (job_is_known_blocker(j)) {
        fresh_add(j);
        j->freed_in = t->generation;
        j->freed_at = ++t->sched->serial;
        attention_update(j);
        set_current(t, JOB_OF(t->jobs.first));
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
    struct job *j;

    LIST_FOREACH(j, &m->jobs, of_message)
    {
        if (j->transport == t) {
            break;
        }
    }
    if (j == NULL) {
        j = slab_new(&t->sched->job_slab);
        j->message = m;
        j->transport = t;
        j->level = -1;
        LIST_INIT(&j->children);
        heap_node_init(&j->attention);
        heap_node_init(&j->fresh);
        heap_node_init(&j->unread);
        if (m->last_job == NULL) {
            LIST_INSERT_HEAD(&m->jobs, j, of_message);
        } else {
            LIST_INSERT_AFTER(m->last_job, j, of_message);
        }
        m->last_job = j;
    }
    awaken(j, m->queued_s);
    return j;
}

/* All jobs of a message are freed together, so last_job need not be kept. */
void job_free(struct job *j)
{
    CHECK(!has_entries(j));
    CHECK(j->rcpt_count == 0);
    if (linked(j)) {
        job_retire(j);
    } else {
        hand_out(j);
    }
    CHECK(j->rcpt_limit == 0);
    LIST_REMOVE(j, of_message);
    slab_free(&j->transport->sched->job_slab, j);
}

/* ---- preemption ----------------------------------------------------------------------------- */

/* The oldest job of the bucket from the frontier on, the first in the list among equals. */
static struct job *oldest_from(const struct tree_node *node, const struct job *frontier)
{
    struct job *best = NULL;

    while (node != NULL) {
        if (job_before(IN_BUCKET(node), frontier)) {
            node = node->right;
        } else {
            /* What was found so far lies behind this node. */
            best = older(older(IN_BUCKET(node), in_bucket_oldest(node->right)), best);
            node = node->left;
        }
    }
    return best;
}

static double score(const struct job *j, int64_t now_s)
{
    return (double)(now_s - j->message->queued_s + 1) / (double)job_total(j);
}

struct choice {
    int64_t now_s, slots_max;
    struct job *best;
    double score;
};

static void consider(struct choice *c, struct job *j)
{
    double s;

    if (j == NULL || j->bucket == NULL || job_total(j) - j->selected > (uint64_t)c->slots_max) {
        return;
    }
    s = score(j, c->now_s);
    if (s > c->score || (c->best != NULL && s == c->score && job_before(j, c->best))) {
        c->best = j;
        c->score = s;
    }
}

/* The job that `current` may have to let pass, remembered as Postfix does: a job for the rest of
 * the second, the absence of one until something new comes. */
static struct job *find_candidate(struct job *current, int64_t now_s)
{
    struct transport *t = current->transport;
    struct choice c = {.now_s = now_s};

    if (t->candidate_of == current && (t->candidate_s == now_s || t->candidate == NULL)) {
        return t->candidate;
    }
    c.slots_max = ((int64_t)current->read - current->selected + current->slots_available) /
                  t->policy.slot_cost;
    if (c.slots_max > 0) {
        for (size_t i = 0; t->frontier != NULL && i < t->bucket_count; i++) {
            const struct bucket *b = t->buckets[i];
            if (b->total - b->selected <= (uint64_t)c.slots_max &&
                score(in_bucket_oldest(b->jobs), now_s) >= c.score) {
                consider(&c, oldest_from(b->jobs, t->frontier));
            }
        }
        for (size_t i = 0; i < t->fresh.count; i++) {
            consider(&c, AS_FRESH(t->fresh.nodes[i]));
        }
    }
    t->candidate = c.best;
    t->candidate_of = current;
    t->candidate_s = now_s;
    return c.best;
}

/* Recipient slots from the extra pool for a job that passes others: half of what is left of it. */
static void give_extra(struct job *j)
{
    struct transport *t = j->transport;
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
    struct transport *t = j->transport;

    bucket_leave(j);
    fresh_remove(j);
    if (heap_has(&j->attention)) {
        heap_remove(j->parked ? &t->parked : &t->attention, &j->attention);
    }
    job_peers_out(j);
    if (t->frontier == j) {
        t->frontier = job_next(j);
    }
    set_parent(j, victim);
    order_remove(&t->jobs, &j->place);
    order_add_after(&t->jobs, victim->place.prev, &j->place);
    if (t->frontier == victim) {
        t->frontier = j;
    } else if (before_frontier(j)) {
        fresh_add(j);
    }
    job_peers_back(j);
    job_changed(j);
}

/* Let another job pass the current one, if one is due to. It becomes the current job. */
static void maybe_preempt(struct job *current, int64_t now_s)
{
    struct transport *t = current->transport;
    const struct sched_transport_policy *policy = &t->policy;
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
    set_current(t, j);
    transport_forget_candidate(t);
    current->slots_available -= expected * policy->slot_cost;
    j->slots_used = -expected;
    if (!j->message->all_read) {
        give_extra(j);
    }
}

/* ---- selection ------------------------------------------------------------------------------ */

#define AS_READY(n) CONTAINER_OF(n, struct dest, ready)

/* The job of the first peer that can be served. Above all others it is first of its destination. */
static struct peer *first_ready(const struct transport *t)
{
    return t->ready.count > 0 ? AS_READY(heap_top(&t->ready))->first : NULL;
}

/* The first job, not known as a blocker, that has no entries or may read more. */
static struct job *first_attention(struct transport *t)
{
    while (t->attention.count > 0) {
        struct job *j = AT_ATTENTION(heap_top(&t->attention));

        if (!job_is_known_blocker(j)) {
            return j;
        }
        attention_update(j);
    }
    return NULL;
}

/* All jobs before `stop` (NULL: all) are now known as blockers. */
static void walk_to(struct transport *t, struct job *stop)
{
    while (t->fresh.count > 0) {
        struct job *j = AS_FRESH(heap_top(&t->fresh));

        if (stop != NULL && !job_before(j, stop)) {
            break;
        }
        fresh_remove(j);
    }
    if (stop == NULL || (t->frontier != NULL && job_before(t->frontier, stop))) {
        t->frontier = stop;
    }
}

static void mark_blocker(struct job *j)
{
    struct transport *t = j->transport;

    if (heap_has(&j->fresh)) {
        fresh_remove(j);
    } else {
        CHECK(t->frontier == j);
        t->frontier = job_next(j);
    }
    attention_update(j);
}

static bool refill_due(const struct transport *t, const struct message *m, int64_t now_s)
{
    int64_t room = m->rcpt_limit - m->rcpt_count;

    return refillable(m) && (room >= t->policy.refill_limit ||
                             us_seconds(t->policy.refill_delay_us) <= now_s - m->refill_s);
}

static enum walk ask(struct job *j, bool last_chance, struct message **ret_message)
{
    struct transport *t = j->transport;

    t->selecting = true;
    t->asked = j;
    t->asked_last = last_chance;
    *ret_message = j->message;
    return WALK_READ;
}

enum walk transport_walk(struct transport *t, int64_t now_s, struct peer **ret_peer,
                         struct message **ret_message)
{
    if (t->selecting) {
        t->selecting = false;
    } else {
        t->asked = NULL;
        if (t->current != NULL && t->policy.slot_cost >= 2) {
            maybe_preempt(t->current, now_s);
        }
    }
    for (;;) {
        struct peer *ready = first_ready(t);
        struct job *j = first_attention(t);

        if (ready != NULL && (j == NULL || !job_before(j, ready->job))) {
            j = ready->job;
        }
        walk_to(t, j);
        if (j == NULL) {
            set_current(t, NULL);
            return WALK_NOTHING;
        }
        CHECK(!job_is_known_blocker(j));
        if (t->asked != j && refill_due(t, j->message, now_s)) {
            return ask(j, false, ret_message);
        }
        if (ready != NULL && ready->job == j) {
            *ret_peer = ready;
            return WALK_PEER;
        }
        if ((t->asked != j || !t->asked_last) && refillable(j->message)) {
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
    struct transport *t = j->transport;

    j->slots_available++;
    j->slots_used++;
    if (t->candidate_of != j) {
        transport_forget_candidate(t);
    }
    set_current(t, j);
    job_changed(j);
    if (!has_entries(j) && j->message->all_read) {
        job_retire(j);
    }
}

/* ---- audit ---------------------------------------------------------------------------------- */

static void bucket_audit(const struct tree_node *n, const struct bucket *b)
{
    if (n == NULL) {
        return;
    }
    CHECK(IN_BUCKET(n)->bucket == b);
    CHECK(IN_BUCKET(n)->in_bucket_oldest ==
          older(older(in_bucket_oldest(n->left), IN_BUCKET(n)), in_bucket_oldest(n->right)));
    bucket_audit(n->left, b);
    bucket_audit(n->right, b);
}

static void fathers_audit(const struct tree_node *n)
{
    if (n == NULL) {
        return;
    }
    CHECK(BY_PLACE(n)->parent == NULL);
    CHECK(BY_PLACE(n)->by_place_oldest ==
          older(older(by_place_oldest(n->left), BY_PLACE(n)), by_place_oldest(n->right)));
    fathers_audit(n->left);
    fathers_audit(n->right);
}

static void job_audit(const struct job *j)
{
    const struct transport *t = j->transport;
    const struct job *child;
    bool candidate = j != t->current && LIST_EMPTY(&j->children) && t->policy.slot_cost >= 2 &&
                     job_total(j) > j->selected;
    bool attention = !has_entries(j) || refillable(j->message);

    CHECK(linked(j));
    CHECK(j->parent == NULL || (linked(j->parent) && j->level > 0));
    CHECK(j->parent == NULL || j->level > j->parent->level);
    LIST_FOREACH(child, &j->children, siblings)
    {
        CHECK(child->parent == j);
        CHECK(job_before(child, j));
    }
    CHECK(candidate == (j->bucket != NULL));
    if (candidate) {
        CHECK(j->bucket->total == job_total(j));
        CHECK(j->bucket->selected == j->selected);
    }
    CHECK(attention == heap_has(&j->attention));
    /* A job in the attention heap may be known as a blocker (it is parked when met); a parked one
     * must be. */
    CHECK(!attention || !j->parked || job_is_known_blocker(j));
    CHECK(!heap_has(&j->fresh) || before_frontier(j));
    CHECK(j->message->all_read == !heap_has(&j->unread));
    /* Where selection starts, nothing before can be selected. */
    CHECK(job_is_known_blocker(j) || (t->current != NULL && !job_before(j, t->current)));
}

void transport_lists_audit(const struct transport *t)
{
    uint64_t jobs = 0, fathers = 0, candidates = 0, in_buckets = 0, attentive = 0, fresh = 0;
    uint64_t unread = 0;

    order_audit(&t->jobs);
    for (const struct order_node *n = t->jobs.first; n != NULL; n = n->next) {
        const struct job *j = CONTAINER_OF(n, const struct job, place);
        job_audit(j);
        jobs++;
        fathers += j->parent == NULL;
        candidates += j->bucket != NULL;
        attentive += heap_has(&j->attention);
        fresh += heap_has(&j->fresh);
        unread += heap_has(&j->unread);
    }
    CHECK(tree_audit(&by_place_type, t->fathers) == fathers);
    fathers_audit(t->fathers);
    for (size_t i = 0; i < t->bucket_count; i++) {
        const struct bucket *b = t->buckets[i];
        CHECK(b->jobs != NULL);
        CHECK(bucket_index(t, b->total, b->selected) == i);
        in_buckets += tree_audit(&in_bucket_type, b->jobs);
        bucket_audit(b->jobs, b);
    }
    CHECK(in_buckets == candidates);
    heap_audit(&t->attention);
    CHECK(t->attention.count + t->parked.count == attentive);
    heap_audit(&t->fresh);
    CHECK(t->fresh.count == fresh);
    heap_audit(&t->unread);
    CHECK(t->unread.count == unread);
    CHECK(t->next_unread == (unread > 0 ? AS_UNREAD(heap_top(&t->unread)) : NULL));
    CHECK(t->next_unread == NULL || t->rcpt_unused <= 0);
    CHECK(t->current == NULL || (jobs > 0 && linked(t->current)));
    CHECK(t->frontier == NULL || linked(t->frontier));
    CHECK(t->candidate == NULL || linked(t->candidate));
}
