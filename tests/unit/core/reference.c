#include "reference.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "check.h"
#include "mem.h"

struct reference_entry {
    TAILQ_ENTRY(reference_entry) link; /* of its peer, while waiting */
    struct peer *peer;
    uint32_t *rcpts;
    uint32_t count;
    bool busy;
};
TAILQ_HEAD(entries, reference_entry);

struct peer {
    TAILQ_ENTRY(peer) link; /* of its job, rotated */
    struct job *job;
    struct queue *queue;
    struct entries todo;
    int refcount;
};

enum state { READY, THROTTLED, SUSPENDED };

struct queue {
    TAILQ_ENTRY(queue) link;
    struct transport *transport;
    char *name;
    struct window window;
    enum state state;
    int64_t until;
    uint64_t armed;
    int64_t died; /* order of death, for draining */
    uint32_t todo, busy;
    int blocker_tag;
};

struct job {
    TAILQ_ENTRY(job) link;   /* scheduler's list */
    TAILQ_ENTRY(job) bytime; /* in order of age */
    TAILQ_ENTRY(job) of_message;
    struct message *message;
    struct transport *transport;
    TAILQ_HEAD(, peer) peers;
    struct job *parent;
    int level, blocker_tag;
    int slots_available, slots_used, selected, read, rcpt_count, rcpt_limit;
};
TAILQ_HEAD(jobs, job);

struct message {
    TAILQ_ENTRY(message) link;
    uint64_t id;
    struct jobs jobs;
    int64_t queued, refilled;
    int refcount, rcpt_count, rcpt_limit;
    uint32_t rcpt_unread;
    bool single, all_read, opened, to_read, done;
};
TAILQ_HEAD(messages, message);

struct transport {
    TAILQ_ENTRY(transport) link;
    struct reference *r;
    char *name;
    uint32_t index;
    struct sched_transport_policy policy;
    struct window_limits limits;
    TAILQ_HEAD(, queue) queues;
    struct jobs list, bytime;
    struct job *current, *next_unread, *candidate, *candidate_current;
    int64_t candidate_time, rate_until;
    int blocker_tag, rcpt_unused;
    uint32_t busy;
};

struct reference {
    struct sched_limits limits;
    reference_read *reader;
    reference_chosen *chosen;
    void *arg;
    TAILQ_HEAD(transports, transport) transports;
    struct transport *by_index[8];
    uint32_t transport_count;
    struct messages messages;   /* all that are in memory, none waiting below */
    struct message *list[1024]; /* ready to be read or done, in order of becoming so */
    size_t list_count;
    int rcpt_count;
    int64_t now_us, deaths;
    uint64_t armed;
};

static int64_t now_s(const struct reference *r)
{
    return us_seconds(r->now_us);
}

/* ---- recipient slots: 7.3 ------------------------------------------------------------------- */

static void hand_out(struct job *j)
{
    struct transport *t = j->transport;
    struct message *m = j->message;
    int spare;

    if (j == t->next_unread) {
        struct job *n = TAILQ_NEXT(j, bytime);
        while (n != NULL && n->message->all_read) {
            n = TAILQ_NEXT(n, bytime);
        }
        t->next_unread = n;
    }
    spare = j->rcpt_limit - j->rcpt_count;
    if (m->rcpt_limit - m->rcpt_count < spare) {
        spare = m->rcpt_limit - m->rcpt_count;
    }
    if (spare > 0) {
        j->rcpt_limit -= spare;
        m->rcpt_limit -= spare;
        t->rcpt_unused += spare;
        if (t->next_unread != NULL && t->rcpt_unused > 0) {
            t->next_unread->rcpt_limit += t->rcpt_unused;
            t->next_unread->message->rcpt_limit += t->rcpt_unused;
            t->rcpt_unused = 0;
        }
    }
}

/* ---- jobs: 4.5, 4.6 ------------------------------------------------------------------------- */

static void forget_candidate(struct transport *t)
{
    t->candidate = t->candidate_current = NULL;
}

static bool has_children(const struct job *j)
{
    const struct job *c;

    TAILQ_FOREACH(c, &j->transport->list, link)
    {
        if (c->parent == j) {
            return true;
        }
    }
    return false;
}

static void adopt(struct job *from, struct job *to)
{
    struct job *c;

    TAILQ_FOREACH(c, &from->transport->list, link)
    {
        if (c->parent == from) {
            c->parent = to;
        }
    }
}

static void pop(struct job *j)
{
    struct job *p = j->parent;

    if (p != NULL && j->level == p->level + 1) {
        p->slots_available -= j->slots_used * j->transport->policy.slot_cost;
    }
    adopt(j, p);
    j->parent = NULL;
    j->level = 0;
    forget_candidate(j->transport);
}

static void unlink_job(struct job *j)
{
    struct transport *t = j->transport;

    adopt(j, NULL);
    if (t->current == j) {
        t->current = TAILQ_NEXT(j, link);
    }
    if (t->candidate == j || t->candidate_current == j) {
        forget_candidate(t);
    }
    TAILQ_REMOVE(&t->list, j, link);
    TAILQ_REMOVE(&t->bytime, j, bytime);
    j->level = -1;
}

static void retire(struct job *j)
{
    if (j->level > 0) {
        pop(j);
    }
    hand_out(j);
    unlink_job(j);
}

static void link_job(struct job *j)
{
    struct transport *t = j->transport;
    struct job *prev, *current = t->current, *unread = t->next_unread;

    TAILQ_FOREACH_REVERSE(prev, &t->list, jobs, link)
    {
        if (prev->parent == NULL && prev->message->queued <= j->message->queued) {
            break;
        }
        if (prev == current) {
            current = NULL;
        }
    }
    if (prev == NULL) {
        TAILQ_INSERT_HEAD(&t->list, j, link);
    } else {
        TAILQ_INSERT_AFTER(&t->list, prev, j, link);
    }
    if (current == NULL) {
        t->current = j;
    }
    TAILQ_FOREACH_REVERSE(prev, &t->bytime, jobs, bytime)
    {
        if (prev->message->queued <= j->message->queued) {
            break;
        }
        if (prev == unread) {
            unread = NULL;
        }
    }
    if (prev == NULL) {
        TAILQ_INSERT_HEAD(&t->bytime, j, bytime);
    } else {
        TAILQ_INSERT_AFTER(&t->bytime, prev, j, bytime);
    }
    if (unread == NULL) {
        struct job *old = t->next_unread;
        t->next_unread = j;
        if (old != NULL) {
            hand_out(old);
        }
    }
    j->level = 0;
    if (t->rcpt_unused > 0) {
        j->rcpt_limit += t->rcpt_unused;
        j->message->rcpt_limit += t->rcpt_unused;
        t->rcpt_unused = 0;
    }
}

static struct job *job_of(struct message *m, struct transport *t)
{
    struct job *j;

    TAILQ_FOREACH(j, &m->jobs, of_message)
    {
        if (j->transport == t) {
            break;
        }
    }
    if (j == NULL) {
        j = mem_new(sizeof *j);
        j->message = m;
        j->transport = t;
        j->level = -1;
        TAILQ_INIT(&j->peers);
        TAILQ_INSERT_TAIL(&m->jobs, j, of_message);
    }
    if (j->level < 0) {
        link_job(j);
    }
    forget_candidate(t);
    if (j->blocker_tag == t->blocker_tag) {
        j->blocker_tag = 0;
        t->current = TAILQ_FIRST(&t->list);
    }
    return j;
}

/* ---- queues and entries: 3.3, 4.4, 4.7 ------------------------------------------------------ */

static void queue_changed(struct queue *q)
{
    struct transport *t = q->transport;
    bool room = q->state == READY && q->window.size > q->busy;

    if (q->blocker_tag != t->blocker_tag) {
        return;
    }
    if (room && q->todo > 0) {
        t->blocker_tag += 2;
        t->current = TAILQ_FIRST(&t->list);
        forget_candidate(t);
    }
    if (room || q->state == THROTTLED) {
        q->blocker_tag = 0;
    }
}

static struct queue *queue_of(struct transport *t, struct slice name)
{
    struct queue *q;

    TAILQ_FOREACH(q, &t->queues, link)
    {
        if (slice_equal(slice_string(q->name), name)) {
            return q;
        }
    }
    q = mem_new(sizeof *q);
    q->transport = t;
    q->name = mem_copy(name.ptr, name.len);
    window_init(&q->window, &t->limits);
    TAILQ_INSERT_TAIL(&t->queues, q, link);
    return q;
}

static void queue_check(struct queue *q)
{
    if (q->todo == 0 && q->busy == 0 && q->state == READY) {
        TAILQ_REMOVE(&q->transport->queues, q, link);
        mem_free(q->name);
        mem_free(q);
    }
}

static void queue_arm(struct queue *q, enum state state, int64_t delay)
{
    q->state = state;
    q->until = q->transport->r->now_us + delay;
    q->armed = ++q->transport->r->armed;
}

static void message_check(struct reference *r, struct message *m)
{
    if (m->refcount > 0 || m->to_read || m->done) {
        return;
    }
    CHECK(r->list_count < 1024);
    *(m->all_read ? &m->done : &m->to_read) = true;
    r->list[r->list_count++] = m;
}

static void entry_done(struct reference_entry *e)
{
    struct peer *p = e->peer;
    struct queue *q = p->queue;
    struct transport *t = q->transport;
    struct job *j = p->job, *sponsor;
    struct message *m = j->message;

    if (e->busy) {
        q->busy--;
        t->busy--;
    } else {
        TAILQ_REMOVE(&p->todo, e, link);
        q->todo--;
        j->selected++;
    }
    j->rcpt_count -= (int)e->count;
    m->rcpt_count -= (int)e->count;
    t->r->rcpt_count -= (int)e->count;
    TAILQ_FOREACH(sponsor, &m->jobs, of_message)
    {
        if (sponsor != j && sponsor->rcpt_count < sponsor->rcpt_limit &&
            (sponsor->level < 0 || m->all_read)) {
            hand_out(sponsor);
        }
    }
    if (m->all_read) {
        hand_out(j);
    }
    /* Not as in Postfix: a dead destination stays dead though it has a rate delay. */
    if (e->busy && t->policy.dest_rate_delay_us > 0 && q->state == READY) {
        queue_arm(q, SUSPENDED, t->policy.dest_rate_delay_us);
    }
    if (q->state != SUSPENDED) {
        queue_changed(q);
    }
    if (--p->refcount == 0) {
        TAILQ_REMOVE(&j->peers, p, link);
        mem_free(p);
    }
    queue_check(q);
    m->refcount--;
    message_check(t->r, m);
    mem_free(e->rcpts);
    mem_free(e);
}

static struct peer *peer_of(struct job *j, struct queue *q)
{
    struct peer *p;

    TAILQ_FOREACH(p, &j->peers, link)
    {
        if (p->queue == q) {
            return p;
        }
    }
    p = mem_new(sizeof *p);
    p->job = j;
    p->queue = q;
    TAILQ_INIT(&p->todo);
    TAILQ_INSERT_TAIL(&j->peers, p, link);
    return p;
}

/* Stable, by transport name and destination: 3.1. */
static void sort_rcpts(const struct reference *r, struct sched_rcpt *rcpts, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct sched_rcpt x = rcpts[i];
        size_t at = i;

        while (at > 0) {
            int order =
                strcmp(r->by_index[rcpts[at - 1].transport]->name, r->by_index[x.transport]->name);
            if (order == 0) {
                order = slice_compare(rcpts[at - 1].dest, x.dest);
            }
            if (order <= 0) {
                break;
            }
            rcpts[at] = rcpts[at - 1];
            at--;
        }
        rcpts[at] = x;
    }
}

static void assign_one(struct reference *r, struct message *m, const struct sched_rcpt *rcpt)
{
    struct transport *t = r->by_index[rcpt->transport];
    struct queue *q = queue_of(t, rcpt->dest);
    struct reference_entry *e;
    struct peer *p;
    struct job *j;

    if (q->state == THROTTLED) {
        r->chosen(r->arg, m->id, t->index, q->name, NULL, &rcpt->n, 1);
        return;
    }
    j = job_of(m, t);
    p = peer_of(j, q);
    e = TAILQ_LAST(&p->todo, entries);
    if (e == NULL || m->single ||
        (t->policy.dest_recipient_limit != 0 && e->count >= t->policy.dest_recipient_limit)) {
        e = mem_new(sizeof *e);
        e->peer = p;
        TAILQ_INSERT_TAIL(&p->todo, e, link);
        p->refcount++;
        q->todo++;
        j->read++;
        m->refcount++;
    }
    e->rcpts = mem_resize(e->rcpts, e->count + 1, sizeof *e->rcpts);
    e->rcpts[e->count++] = rcpt->n;
    j->rcpt_count++;
    m->rcpt_count++;
    r->rcpt_count++;
}

static void refill(struct reference *r, struct message *m)
{
    int room = m->rcpt_limit - m->rcpt_count;
    const struct sched_rcpt *rcpts;
    struct sched_rcpt *sorted;
    uint32_t disposed, passed;
    bool complete;
    struct job *j;
    size_t count;

    if (!m->opened && (int)r->limits.message_recipient_limit - r->rcpt_count > room) {
        room = (int)r->limits.message_recipient_limit - r->rcpt_count;
    }
    CHECK(room > 0);
    if (room > SCHED_READ_MAX) {
        room = SCHED_READ_MAX;
    }
    m->opened = true;
    count = r->reader(r->arg, m->id, (uint32_t)room, &rcpts, &disposed, &complete);
    m->refilled = now_s(r);
    passed = (uint32_t)count + disposed;
    m->rcpt_unread = passed < m->rcpt_unread ? m->rcpt_unread - passed : 0;
    if (complete) {
        m->all_read = true;
        m->rcpt_unread = 0;
    }
    sorted = mem_array(count + 1, sizeof *sorted);
    memcpy(sorted, rcpts, count * sizeof *sorted);
    sort_rcpts(r, sorted, count);
    for (size_t i = 0; i < count; i++) {
        assign_one(r, m, &sorted[i]);
    }
    mem_free(sorted);
    TAILQ_FOREACH(j, &m->jobs, of_message)
    {
        if (j->selected < j->read && j->blocker_tag != j->transport->blocker_tag) {
            forget_candidate(j->transport);
        }
    }
    if (complete) {
        TAILQ_FOREACH(j, &m->jobs, of_message)
        {
            hand_out(j);
        }
    }
    message_check(r, m);
}

/* ---- preemption: 5.2, 5.3, 7.5 -------------------------------------------------------------- */

static struct job *candidate(struct job *c)
{
    struct transport *t = c->transport;
    int64_t now = now_s(t->r);
    struct job *j, *best = NULL;
    double best_score = 0;
    int max_slots;

    if (t->candidate_current == c && (t->candidate_time == now || t->candidate == NULL)) {
        return t->candidate;
    }
    max_slots = (c->read - c->selected + c->slots_available) / t->policy.slot_cost;
    if (max_slots > 0) {
        for (j = TAILQ_NEXT(c, link); j != NULL; j = TAILQ_NEXT(j, link)) {
            int total = j->read + (int)j->message->rcpt_unread, needed = total - j->selected;
            int age = (int)(now - j->message->queued + 1);

            if (has_children(j) || j->blocker_tag == t->blocker_tag) {
                continue;
            }
            if (needed > 0 && needed <= max_slots) {
                double score = (double)age / total;
                if (score > best_score) {
                    best_score = score;
                    best = j;
                }
            }
            if (age <= best_score && j->level == 0) {
                break;
            }
        }
    }
    t->candidate = best;
    t->candidate_current = c;
    t->candidate_time = now;
    return best;
}

static struct job *maybe_preempt(struct job *c)
{
    struct transport *t = c->transport;
    const struct sched_transport_policy *policy = &t->policy;
    struct job *j;
    int expected;

    if (c->slots_available <= 0 ||
        c->read + (int)c->message->rcpt_unread < policy->minimum_slots * policy->slot_cost) {
        return c;
    }
    j = candidate(c);
    if (j == NULL) {
        return c;
    }
    expected = j->read + (int)j->message->rcpt_unread - j->selected;
    if (c->slots_available / policy->slot_cost + policy->slot_loan <
        expected * (100 - policy->slot_discount) / 100.0) {
        return c;
    }
    if (j->level > 0) {
        pop(j);
    }
    TAILQ_REMOVE(&t->list, j, link);
    TAILQ_INSERT_BEFORE(c, j, link);
    j->parent = c;
    j->level = c->level + 1;
    t->current = j;
    forget_candidate(t);
    c->slots_available -= expected * policy->slot_cost;
    j->slots_used = -expected;
    if (!j->message->all_read) {
        int extra = ((int)policy->extra_recipient_limit + t->rcpt_unused + 1) / 2;
        j->rcpt_limit += extra;
        j->message->rcpt_limit += extra;
        t->rcpt_unused -= extra;
    }
    return j;
}

/* ---- selection: 4.1, 4.2, 4.3 --------------------------------------------------------------- */

static struct peer *rotate_pick(struct job *j)
{
    struct peer *p, *first;

    TAILQ_FOREACH(p, &j->peers, link)
    {
        if (p->queue->state == READY && p->queue->window.size > p->queue->busy &&
            !TAILQ_EMPTY(&p->todo)) {
            do {
                first = TAILQ_FIRST(&j->peers);
                TAILQ_REMOVE(&j->peers, first, link);
                TAILQ_INSERT_TAIL(&j->peers, first, link);
            } while (first != p);
            return p;
        }
    }
    return NULL;
}

static struct peer *choose_peer(struct job *j)
{
    struct transport *t = j->transport;
    struct message *m = j->message;
    int room = m->rcpt_limit - m->rcpt_count;
    struct peer *p;

    if (!m->all_read && m->refcount > 0 &&
        (room >= (int)t->policy.refill_limit ||
         (room > 0 && now_s(t->r) - m->refilled >= us_seconds(t->policy.refill_delay_us)))) {
        if (room > 0) {
            refill(t->r, m);
        }
    }
    if (j->selected < j->read && (p = rotate_pick(j)) != NULL) {
        return p;
    }
    if (!m->all_read && m->refcount > 0 && m->rcpt_limit - m->rcpt_count > 0) {
        refill(t->r, m);
        if (j->selected < j->read) {
            return rotate_pick(j);
        }
    }
    return NULL;
}

static void start(struct peer *p)
{
    struct reference_entry *e = TAILQ_FIRST(&p->todo);
    struct queue *q = p->queue;
    struct job *j = p->job;
    struct transport *t = j->transport;

    TAILQ_REMOVE(&p->todo, e, link);
    e->busy = true;
    q->todo--;
    q->busy++;
    t->busy++;
    j->selected++;
    j->slots_available++;
    j->slots_used++;
    if (t->candidate_current != j) {
        forget_candidate(t);
    }
    t->current = j;
    if (t->policy.transport_rate_delay_us > 0) {
        t->rate_until = t->r->now_us + t->policy.transport_rate_delay_us;
    }
    t->r->chosen(t->r->arg, j->message->id, t->index, q->name, e, e->rcpts, e->count);
    if (j->selected == j->read && j->message->all_read) {
        retire(j);
    }
}

static bool select_entry(struct transport *t)
{
    struct job *j = t->current, *next;
    struct peer *p;

    if (j == NULL) {
        return false;
    }
    if (t->policy.slot_cost >= 2) {
        j = maybe_preempt(j);
    }
    for (; j != NULL; j = next) {
        next = TAILQ_NEXT(j, link);
        if (j->blocker_tag == t->blocker_tag) {
            continue;
        }
        p = choose_peer(j);
        if (p != NULL) {
            start(p);
            return true;
        }
        if (j->selected < j->read) {
            j->blocker_tag = t->blocker_tag;
            TAILQ_FOREACH(p, &j->peers, link)
            {
                if (!TAILQ_EMPTY(&p->todo)) {
                    p->queue->blocker_tag = t->blocker_tag;
                }
            }
        } else {
            retire(j);
        }
    }
    t->current = NULL;
    return false;
}

/* Not as in Postfix: no pending connections, a limit of processes, and room never negative. */
static bool may_select(const struct transport *t)
{
    const struct queue *q;

    if (t->rate_until > t->r->now_us ||
        (t->policy.process_limit > 0 && t->busy >= t->policy.process_limit)) {
        return false;
    }
    TAILQ_FOREACH(q, &t->queues, link)
    {
        if (q->state == READY && q->window.size > q->busy && q->todo > 0) {
            return true;
        }
    }
    return false;
}

/* ---- decisions ------------------------------------------------------------------------------ */

static bool deliver_one(struct reference *r)
{
    struct transport *t, *first;

    TAILQ_FOREACH(t, &r->transports, link)
    {
        if (may_select(t)) {
            do {
                first = TAILQ_FIRST(&r->transports);
                TAILQ_REMOVE(&r->transports, first, link);
                TAILQ_INSERT_TAIL(&r->transports, first, link);
            } while (first != t);
            CHECK(select_entry(t));
            return true;
        }
    }
    return false;
}

/* All that waits for a dead destination is deferred, in the order of jobs. */
static bool drain_one(struct reference *r)
{
    struct queue *q, *first = NULL;
    struct peer *p;
    struct job *j;

    for (uint32_t i = 0; i < r->transport_count; i++) {
        TAILQ_FOREACH(q, &r->by_index[i]->queues, link)
        {
            if (q->state == THROTTLED && q->todo > 0 && (first == NULL || q->died < first->died)) {
                first = q;
            }
        }
    }
    if (first == NULL) {
        return false;
    }
    TAILQ_FOREACH(j, &first->transport->list, link)
    {
        TAILQ_FOREACH(p, &j->peers, link)
        {
            if (p->queue == first && !TAILQ_EMPTY(&p->todo)) {
                struct reference_entry *e = TAILQ_FIRST(&p->todo);
                r->chosen(r->arg, j->message->id, first->transport->index, first->name, NULL,
                          e->rcpts, e->count);
                entry_done(e);
                return true;
            }
        }
    }
    CHECK(false);
    return true;
}

static void message_free(struct reference *r, struct message *m)
{
    struct job *j;

    while ((j = TAILQ_FIRST(&m->jobs)) != NULL) {
        if (j->level >= 0) {
            retire(j);
        } else {
            hand_out(j);
        }
        CHECK(j->rcpt_limit == 0);
        TAILQ_REMOVE(&m->jobs, j, of_message);
        mem_free(j);
    }
    TAILQ_REMOVE(&r->messages, m, link);
    mem_free(m);
}

/* Messages whose entries are all gone: those fully read end first, then one reads on. */
static bool complete_one(struct reference *r)
{
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < r->list_count; i++) {
            struct message *m = r->list[i];

            if (pass == 0 ? m->done : m->to_read) {
                memmove(&r->list[i], &r->list[i + 1], (--r->list_count - i) * sizeof(void *));
                m->to_read = false;
                if (pass == 0) {
                    message_free(r, m);
                } else {
                    refill(r, m);
                }
                return true;
            }
        }
    }
    return false;
}

static bool timer_one(struct reference *r)
{
    struct queue *q, *first = NULL;

    for (uint32_t i = 0; i < r->transport_count; i++) {
        TAILQ_FOREACH(q, &r->by_index[i]->queues, link)
        {
            if (q->state != READY && q->until <= r->now_us &&
                (first == NULL || q->until < first->until ||
                 (q->until == first->until && q->armed < first->armed))) {
                first = q;
            }
        }
    }
    if (first == NULL) {
        return false;
    }
    if (first->state == THROTTLED) {
        window_revive(&first->window, &first->transport->limits, first->busy);
        first->state = READY;
    } else {
        first->state = READY;
        queue_changed(first);
    }
    queue_check(first);
    return true;
}

void reference_run(struct reference *r, struct mono now)
{
    r->now_us = now.us;
    while (timer_one(r)) {
    }
    while (drain_one(r) || complete_one(r) || deliver_one(r)) {
    }
}

void reference_finished(struct reference *r, struct mono now, struct reference_entry *e,
                        enum sched_outcome outcome)
{
    struct queue *q = e->peer->queue;
    const struct window_limits *limits = &q->transport->limits;

    r->now_us = now.us;
    if (outcome == SCHED_OK && q->state == THROTTLED) {
        q->state = READY;
        window_revive(&q->window, limits, q->busy);
    } else if (outcome == SCHED_OK && q->state == READY) {
        (void)window_succeeded(&q->window, limits, q->busy);
    } else if (outcome == SCHED_DEST_FAIL && q->state == READY &&
               window_failed(&q->window, limits)) {
        queue_arm(q, THROTTLED, r->limits.minimal_backoff_us);
        q->died = ++r->deaths;
    }
    entry_done(e);
}

void reference_open(struct reference *r, struct mono now, uint64_t msg, uint32_t recipients,
                    bool one_per_entry)
{
    struct message *m = mem_new(sizeof *m);

    r->now_us = now.us;
    m->id = msg;
    TAILQ_INIT(&m->jobs);
    m->queued = now_s(r);
    m->rcpt_unread = recipients;
    m->rcpt_limit = (int)r->limits.message_recipient_minimum;
    m->single = one_per_entry;
    TAILQ_INSERT_TAIL(&r->messages, m, link);
    message_check(r, m);
}

/* ---- life ----------------------------------------------------------------------------------- */

struct reference *reference_new(const struct sched_limits *limits, reference_read *read,
                                reference_chosen *chosen, void *arg)
{
    struct reference *r = mem_new(sizeof *r);

    r->limits = *limits;
    r->reader = read;
    r->chosen = chosen;
    r->arg = arg;
    TAILQ_INIT(&r->transports);
    TAILQ_INIT(&r->messages);
    return r;
}

void reference_transport(struct reference *r, const struct sched_transport_policy *policy,
                         const char *name)
{
    struct transport *t = mem_new(sizeof *t);

    CHECK(r->transport_count < 8);
    t->r = r;
    t->name = mem_string(name);
    t->policy = *policy;
    t->limits = policy->window;
    if (policy->dest_rate_delay_us > 0) {
        t->limits.initial = t->limits.max = 1;
    }
    t->rcpt_unused = (int)policy->recipient_limit;
    t->blocker_tag = 1;
    TAILQ_INIT(&t->queues);
    TAILQ_INIT(&t->list);
    TAILQ_INIT(&t->bytime);
    t->index = r->transport_count;
    r->by_index[r->transport_count++] = t;
    TAILQ_INSERT_HEAD(&r->transports, t, link);
}

size_t reference_messages(const struct reference *r)
{
    const struct message *m;
    size_t count = 0;

    TAILQ_FOREACH(m, &r->messages, link)
    {
        count++;
    }
    return count;
}

/* Only when all mail is gone. */
void reference_free(struct reference *r)
{
    CHECK(TAILQ_EMPTY(&r->messages));
    for (uint32_t i = 0; i < r->transport_count; i++) {
        struct transport *t = r->by_index[i];
        struct queue *q;

        while ((q = TAILQ_FIRST(&t->queues)) != NULL) {
            TAILQ_REMOVE(&t->queues, q, link);
            mem_free(q->name);
            mem_free(q);
        }
        mem_free(t->name);
        mem_free(t);
    }
    mem_free(r);
}
