/*
 * Classes of mail: class queues, and their turns. See sched.c.
 *
 * A transport has a class queue for mail without a class, and one for each class that has mail
 * there. A destination has a queue (struct dest_queue) for each class queue that has mail for it.
 * The first is embedded in the destination, which has dest_turns while there are several.
 */
#include <string.h>

#include "check.h"
#include "mem.h"
#include "sched_private.h"

/* Number of hidden queues of destinations that are shown with each start, if the transport is the
 * bottleneck. */
#define SHOWN_PER_START 4

/* Turns of one queue of a destination, where other queues wait, too, or did until just now. */
struct dest_turn {
    UT_hash_handle hh; /* node in dest_turns.by_queue */
    struct class_queue *class_queue;
    struct dest_queue *queue;
    struct queue_turn member;
    TAILQ_ENTRY(dest_turn) link; /* link in dest_turns.shown or .hidden, while the queue waits */
    bool shown;
};
TAILQ_HEAD(dest_turn_list, dest_turn);

/* Queues of a destination with several class queues. A shown queue may be selected from; it is in
 * the heap of its class queue. */
struct dest_turns {
    struct class_turns turns;
    struct dest_turn *by_queue; /* uthash */
    struct dest_turn_list shown, hidden;
    TAILQ_ENTRY(dest_turns)
    link; /* link in transport.unshown, while open with hidden queues */
    bool listed;
    uint64_t more_at; /* value of transport.starts from which hidden queues are shown */
};

#define QUEUE_OF(t)     CONTAINER_OF(t, struct class_queue, turn)
#define DEST_TURN_OF(t) CONTAINER_OF(t, struct dest_turn, member)

/* ---- classes -------------------------------------------------------------------------------- */

struct mail_class *class_find(const struct sched *s, struct slice name)
{
    struct mail_class *c;

    HASH_FIND(hh, s->classes, name.ptr, name.len, c);
    return c;
}

struct slice class_name_of(const struct mail_class *c)
{
    return c != NULL ? slice_of(c->name, c->name_len) : slice_of("", 0);
}

struct mail_class *class_whole(struct mail_class *c)
{
    return c != NULL && c->whole != NULL ? c->whole : c;
}

struct mail_class *class_need(struct sched *s, struct slice name)
{
    size_t of = slice_find(name, SCHED_GROUP_MARK);
    struct mail_class *c;

    if (name.len == 0) {
        return NULL;
    }
    CHECK(name.len <= SCHED_CLASS_NAME_MAX);
    c = class_find(s, name);
    if (c == NULL) {
        c = sched_alloc(s, sizeof *c + name.len);
        c->whole = of < name.len ? class_need(s, slice_of(name.ptr, of)) : NULL;
        c->weight = 1;
        c->name_len = (uint16_t)name.len;
        memcpy(c->name, name.ptr, name.len);
        HASH_ADD_KEYPTR(hh, s->classes, c->name, c->name_len, c);
    }
    c->refs++;
    return c;
}

void class_unref(struct sched *s, struct mail_class *c)
{
    if (c != NULL && --c->refs == 0) {
        HASH_DELETE(hh, s->classes, c);
        class_unref(s, c->whole);
        sched_release(s, c, sizeof *c + c->name_len);
    }
}

/* ---- class queues --------------------------------------------------------------------------- */

/* Does the transport have class queues besides the one for mail without a class? */
static bool divided(const struct transport *t)
{
    return t->class_queues != NULL;
}

void class_queue_ready_changed(struct class_queue *q)
{
    struct class_turns *ts = &q->transport->turns_of_queues;
    bool waits = q->ready.count > 0;

    if (!divided(q->transport) || waits == q->turn.turn.waits) {
        return;
    }
    if (waits) {
        queue_turn_join(ts, &q->turn);
    } else {
        queue_turn_leave(ts, &q->turn);
    }
}

/* Resets the turns once the class queue for mail without a class is the only one again. */
static void class_queues_forget_turns(struct transport *t)
{
    class_turns_fini(&t->turns_of_queues);
    class_turns_init(&t->turns_of_queues, t->sched);
    t->plain.turn = (struct queue_turn){.of = NULL};
}

struct class_queue *class_queue_need(struct transport *t, struct mail_class *c)
{
    struct sched *s = t->sched;
    bool first = !divided(t);
    struct class_queue *q;

    if (c == NULL) {
        return &t->plain;
    }
    HASH_FIND(hh, t->class_queues, &c, sizeof c, q);
    if (q == NULL) {
        q = sched_alloc(s, sizeof *q);
        class_queue_init(q, t);
        q->mail_class = c;
        c->refs++;
        HASH_ADD(hh, t->class_queues, mail_class, sizeof q->mail_class, q);
        if (first) {
            queue_turn_add(&t->turns_of_queues, &t->plain.turn, NULL);
            class_queue_ready_changed(&t->plain);
        }
        queue_turn_add(&t->turns_of_queues, &q->turn, c);
    }
    return q;
}

static void class_queue_free(struct class_queue *q)
{
    struct transport *t = q->transport;
    struct sched *s = t->sched;

    HASH_DELETE(hh, t->class_queues, q);
    if (s->resume == q) {
        s->resume = NULL;
    }
    queue_turn_remove(&t->turns_of_queues, &q->turn);
    class_unref(s, q->mail_class);
    class_queue_fini(q);
    sched_release(s, q, sizeof *q);
    if (!divided(t)) {
        class_queues_forget_turns(t);
    }
}

static void class_queue_check(struct class_queue *q)
{
    if (q->refs == 0 && q->mail_class != NULL && !turn_takes_part(&q->turn.turn)) {
        class_queue_free(q);
    }
}

void class_queue_unref(struct class_queue *q)
{
    CHECK(q->refs > 0);
    q->refs--;
    class_queue_check(q);
}

void class_queues_free(struct transport *t)
{
    struct class_queue *q, *next;

    HASH_ITER(hh, t->class_queues, q, next)
    {
        class_queue_free(q);
    }
    class_turns_fini(&t->turns_of_queues);
    class_queue_fini(&t->plain);
}

/* Returns the class queue whose turn it is; NULL if none waits. */
static struct class_queue *queue_whose_turn_it_is(struct transport *t)
{
    struct queue_turn *first, *rested;

    if (!divided(t)) {
        return t->plain.ready.count > 0 ? &t->plain : NULL;
    }
    first = class_turns_first(&t->turns_of_queues);
    while (divided(t) && (rested = queue_turn_next_rested(&t->turns_of_queues)) != NULL) {
        class_queue_check(QUEUE_OF(rested));
    }
    return first != NULL ? QUEUE_OF(first) : NULL;
}

struct class_queue *transport_next_queue(struct transport *t)
{
    struct class_queue *q;

    do {
        q = queue_whose_turn_it_is(t);
    } while (q != NULL && class_queue_first_ready(q) == NULL); /* all that it had was held back
                                                                * now */
    return q;
}

void class_queue_took(struct class_queue *q)
{
    if (divided(q->transport)) {
        queue_turn_took(&q->transport->turns_of_queues, &q->turn);
    }
}

/* ---- turns at a destination ----------------------------------------------------------------- */

static void dest_turn_new(struct dest_turns *dt, struct dest_queue *dq)
{
    struct dest_turn *turn = sched_alloc(dq->dest->transport->sched, sizeof *turn);

    turn->class_queue = dq->class_queue;
    turn->queue = dq;
    queue_turn_add(&dt->turns, &turn->member, dq->class_queue->mail_class);
    HASH_ADD(hh, dt->by_queue, class_queue, sizeof turn->class_queue, turn);
    dq->turn = turn;
}

static void dest_turn_free(struct dest_turns *dt, struct dest_turn *turn)
{
    queue_turn_remove(&dt->turns, &turn->member);
    HASH_DELETE(hh, dt->by_queue, turn);
    turn->queue->turn = NULL;
    sched_release(turn->class_queue->transport->sched, turn, sizeof *turn);
}

static void dest_turns_new(struct dest *d)
{
    struct dest_turns *dt = sched_alloc(d->transport->sched, sizeof *dt);

    class_turns_init(&dt->turns, d->transport->sched);
    TAILQ_INIT(&dt->shown);
    TAILQ_INIT(&dt->hidden);
    d->turns = dt;
    dest_turn_new(dt, &d->queue);
    if (d->queue.waiting != NULL) {
        dest_queue_waits(&d->queue, true);
    }
    dest_turns_refresh(d, &d->queue);
}

bool dest_queue_share(const struct dest_queue *dq, struct turn_share *ret_share)
{
    const struct dest_turns *dt = dq->dest->turns;

    if (dt == NULL || dq->turn == NULL) {
        return false;
    }
    *ret_share = queue_turn_share(&dt->turns, &dq->turn->member);
    return true;
}

static void dest_turns_free(struct dest *d)
{
    struct dest_turns *dt = d->turns;

    if (dt->listed) {
        TAILQ_REMOVE(&d->transport->unshown, dt, link);
    }
    class_turns_fini(&dt->turns);
    d->turns = NULL;
    sched_release(d->transport->sched, dt, sizeof *dt);
}

/* Frees a queue without peers. */
static void dest_queue_free(struct dest_queue *dq)
{
    struct dest *d = dq->dest;
    struct class_queue *q = dq->class_queue;

    CHECK(dq->waiting == NULL);
    CHECK(!heap_has(&dq->ready));
    if (dq->turn != NULL) {
        dest_turn_free(d->turns, dq->turn);
    }
    dq->class_queue = NULL;
    if (dq != &d->queue) {
        sched_release(d->transport->sched, dq, sizeof *dq);
    }
    class_queue_unref(q);
}

/* Frees the turns of a destination that has only one queue left. */
static void dest_turns_check(struct dest *d)
{
    struct dest_turns *dt = d->turns;

    if (dt != NULL && HASH_COUNT(dt->by_queue) == 1 && d->queue.turn != NULL) {
        if (d->queue.turn->member.turn.waits) {
            dest_queue_waits(&d->queue, false);
        }
        dest_turn_free(dt, d->queue.turn);
    }
    if (dt != NULL && dt->by_queue == NULL) {
        dest_turns_free(d);
        if (d->queue.class_queue != NULL && d->queue.peers == 0) {
            dest_queue_free(&d->queue); /* it was resting */
        }
        dest_queue_refresh(&d->queue, dest_is_open(d));
    }
}

void dest_turns_forget(struct dest *d)
{
    struct dest_turn *turn, *next;

    if (d->turns != NULL) {
        HASH_ITER(hh, d->turns->by_queue, turn, next)
        {
            dest_queue_free(turn->queue);
        }
        dest_turns_free(d);
    }
}

const struct dest_queue *dest_queue_find(const struct dest *d, struct slice class_name)
{
    struct transport *t = d->transport;
    struct class_queue *q = &t->plain;
    const struct dest_turn *turn;
    struct mail_class *c;

    if (class_name.len > 0) {
        c = class_find(t->sched, class_name);
        HASH_FIND(hh, t->class_queues, &c, sizeof c, q); /* finds none if c is NULL */
    }
    if (q == NULL || d->turns == NULL) {
        return q != NULL && d->queue.class_queue == q ? &d->queue : NULL;
    }
    HASH_FIND(hh, d->turns->by_queue, &q, sizeof q, turn);
    return turn != NULL ? turn->queue : NULL;
}

uint64_t dest_queue_parts(const struct dest_queue *dq)
{
    struct turn_share share;

    return dest_queue_share(dq, &share) ? (uint64_t)share.class_count * share.member_count : 1;
}

struct dest_queue *dest_queue_need(struct dest *d, struct class_queue *q)
{
    struct dest_queue *dq = &d->queue;
    struct dest_turn *turn;

    if (d->turns == NULL) {
        if (dq->class_queue == q) {
            return dq;
        }
        if (dq->class_queue != NULL) {
            dest_turns_new(d);
        }
    } else {
        HASH_FIND(hh, d->turns->by_queue, &q, sizeof q, turn);
        if (turn != NULL) {
            return turn->queue;
        }
    }
    if (dq->class_queue != NULL) {
        dq = sched_alloc(d->transport->sched, sizeof *dq);
        dest_queue_init(dq, d);
    }
    dq->class_queue = q;
    q->refs++;
    if (d->turns != NULL) {
        dest_turn_new(d->turns, dq);
    }
    return dq;
}

void dest_queue_check(struct dest_queue *dq)
{
    struct dest *d = dq->dest;

    if (dq->peers == 0 && (dq->turn == NULL || !turn_takes_part(&dq->turn->member.turn))) {
        dest_queue_free(dq);
        dest_turns_check(d);
    }
}

/* Is the transport the bottleneck, so that it can't start all that is shown? */
static bool transport_limited(const struct transport *t)
{
    return t->rate_locked || (t->policy.process_limit > 0 && t->busy >= t->policy.process_limit);
}

static void show(struct dest_turns *dt, struct dest_turn *turn)
{
    TAILQ_REMOVE(&dt->hidden, turn, link);
    TAILQ_INSERT_TAIL(&dt->shown, turn, link);
    turn->shown = true;
    dest_queue_refresh(turn->queue, true);
}

static void hide(struct dest_turns *dt, struct dest_turn *turn)
{
    TAILQ_REMOVE(&dt->shown, turn, link);
    TAILQ_INSERT_TAIL(&dt->hidden, turn, link);
    turn->shown = false;
    dest_queue_refresh(turn->queue, false);
}

void dest_queue_waits(struct dest_queue *dq, bool waits)
{
    struct dest_turns *dt = dq->dest->turns;
    struct dest_turn *turn = dq->turn;

    if (turn == NULL) {
        return;
    }
    if (waits) {
        queue_turn_join(&dt->turns, &turn->member);
        TAILQ_INSERT_TAIL(&dt->hidden, turn, link);
        if (dest_is_open(dq->dest) && transport_limited(dq->dest->transport)) {
            show(dt, turn);
        }
    } else {
        queue_turn_leave(&dt->turns, &turn->member);
        TAILQ_REMOVE(turn->shown ? &dt->shown : &dt->hidden, turn, link);
        turn->shown = false;
    }
}

void dest_queue_took(struct dest_queue *dq)
{
    const struct transport *t = dq->dest->transport;
    struct dest_turns *dt = dq->dest->turns;
    bool fills = t->policy.transport_rate_delay_us > 0 ||
                 (t->policy.process_limit > 0 && t->busy + 1 >= t->policy.process_limit);
    struct queue_turn *first;

    if (dt == NULL) {
        return;
    }
    /* The turn is used up even if another queue used it. Otherwise the order would stop at a queue
     * that is busy elsewhere. */
    first = class_turns_first(&dt->turns);
    queue_turn_took(&dt->turns, first);
    if (!fills && class_turns_first(&dt->turns) != &dq->turn->member && dq->turn->shown) {
        hide(dt, dq->turn);
    }
}

/* Returns the number of starts of the transport for which a destination shows only the class queue
 * whose turn it is. The transport needs about as many to reach this class queue, after the other
 * groups of its class. */
static uint64_t head_start(const struct class_queue *q)
{
    struct turn_share share;
    uint64_t members;

    if (!divided(q->transport)) {
        return 2;
    }
    share = queue_turn_share(&q->transport->turns_of_queues, &q->turn);
    members = share.members_waiting > 0 ? share.members_waiting : 1;
    return 2 * (share.weights / share.weight) * members + 2;
}

static void dest_turns_list(struct dest *d)
{
    struct dest_turns *dt = d->turns;
    bool list = dest_is_open(d) && !TAILQ_EMPTY(&dt->hidden);

    if (list != dt->listed) {
        dt->listed = list;
        if (list) {
            TAILQ_INSERT_TAIL(&d->transport->unshown, dt, link);
        } else {
            TAILQ_REMOVE(&d->transport->unshown, dt, link);
        }
    }
}

void dest_turns_refresh(struct dest *d, struct dest_queue *touched)
{
    struct dest_turns *dt = d->turns;
    bool room = dest_is_open(d);
    struct queue_turn *first, *rested;

    if (!room) {
        while (!TAILQ_EMPTY(&dt->shown)) {
            hide(dt, TAILQ_FIRST(&dt->shown));
        }
    } else {
        first = class_turns_first(&dt->turns);
        if (first != NULL && !DEST_TURN_OF(first)->shown) {
            show(dt, DEST_TURN_OF(first));
            dt->more_at = d->transport->starts + head_start(DEST_TURN_OF(first)->class_queue);
        }
    }
    if (touched != NULL) {
        dest_queue_refresh(touched, touched->turn->shown);
    }
    dest_turns_list(d);
    while (d->turns != NULL && (rested = queue_turn_next_rested(&dt->turns)) != NULL) {
        dest_queue_check(DEST_TURN_OF(rested)->queue);
    }
}

void transport_show_more(struct transport *t)
{
    struct dest_turns *dt;

    t->starts++;
    if (!transport_limited(t)) {
        return;
    }
    for (int i = 0; i < SHOWN_PER_START; i++) {
        dt = TAILQ_FIRST(&t->unshown);
        if (dt == NULL || t->starts < dt->more_at) {
            return;
        }
        show(dt, TAILQ_FIRST(&dt->hidden));
        TAILQ_REMOVE(&t->unshown, dt, link);
        dt->listed = !TAILQ_EMPTY(&dt->hidden);
        if (dt->listed) {
            TAILQ_INSERT_TAIL(&t->unshown, dt, link);
        }
    }
}

/* ---- queries -------------------------------------------------------------------------------- */

struct dest_queue *dest_first_queue(struct dest *d)
{
    struct queue_turn *first;

    if (d->turns == NULL) {
        return &d->queue;
    }
    first = class_turns_first(&d->turns->turns);
    return first != NULL ? DEST_TURN_OF(first)->queue : &d->queue;
}

const struct dest_queue *dest_shown_queue(const struct dest *d)
{
    const struct dest_turn *turn;

    if (d->turns == NULL) {
        return &d->queue;
    }
    turn = TAILQ_FIRST(&d->turns->shown);
    return turn != NULL ? turn->queue : &d->queue;
}

const struct dest_queue *dest_next_queue(const struct dest *d, const struct dest_queue *dq)
{
    const struct dest_turn *turn;

    if (dq == NULL) {
        return &d->queue;
    }
    if (d->turns == NULL) {
        return NULL;
    }
    turn = dq == &d->queue ? d->turns->by_queue : dq->turn->hh.next;
    if (turn != NULL && turn->queue == &d->queue) {
        turn = turn->hh.next;
    }
    return turn != NULL ? turn->queue : NULL;
}

/* ---- audit ---------------------------------------------------------------------------------- */

void dest_turns_audit(const struct dest *d)
{
    const struct dest_turns *dt = d->turns;
    const struct dest_turn *turn;

    if (dt == NULL) {
        CHECK(d->queue.turn == NULL);
        CHECK((d->queue.class_queue != NULL) == (d->queue.peers > 0));
        return;
    }
    class_turns_audit(&dt->turns);
    CHECK(dt->by_queue != NULL);
    for (turn = dt->by_queue; turn != NULL; turn = turn->hh.next) {
        CHECK(turn->queue->turn == turn);
        CHECK(turn->queue->dest == d);
        CHECK(turn->queue->class_queue == turn->class_queue);
        CHECK(turn->member.turn.waits == (turn->queue->waiting != NULL));
        CHECK(turn->queue->peers > 0 || turn_takes_part(&turn->member.turn));
        CHECK(!turn->shown || dest_is_open(d));
        CHECK(turn->shown == heap_has(&turn->queue->ready));
    }
    CHECK(dt->listed == (dest_is_open(d) && !TAILQ_EMPTY(&dt->hidden)));
    CHECK(!dest_is_open(d) || dt->turns.waiting == 0 || !TAILQ_EMPTY(&dt->shown));
}

void class_queues_audit(const struct transport *t)
{
    const struct class_queue *q;
    uint64_t waiting = t->plain.turn.turn.waits;

    class_turns_audit(&t->turns_of_queues);
    class_queue_audit(&t->plain);
    CHECK(!divided(t) || t->plain.turn.turn.waits == (t->plain.ready.count > 0));
    for (q = t->class_queues; q != NULL; q = q->hh.next) {
        CHECK(q->transport == t);
        CHECK(q->turn.turn.waits == (q->ready.count > 0));
        CHECK(q->refs > 0 || turn_takes_part(&q->turn.turn));
        waiting += q->turn.turn.waits;
        class_queue_audit(q);
    }
    CHECK(waiting == t->turns_of_queues.waiting);
}
