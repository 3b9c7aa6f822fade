/*
 * Turns of classes, and of the groups within a class. See sched.c.
 *
 * Two levels of turns.h: the classes take turns by weight, and each turn of a class goes to one of
 * its members (class queues, or the queues of one destination), which take turns as equals. A class
 * without groups has one member. A class waits while one of its members does. So the promise of
 * turns.h holds on each level: a class of weight w gets n*w/W - 1 of n turns, and each of its m
 * members an m-th of those, less one.
 *
 * A member that stops waiting rests (see turns.h) only while others of its class wait: if none
 * does, the member can't have gone ahead of another.
 */
#include "check.h"
#include "sched_private.h"

/* A class that has members here. */
struct class_turn {
    UT_hash_handle hh;        /* node in class_turns.by_class */
    struct mail_class *whole; /* counted; NULL: mail without a class */
    struct turn turn;         /* member of class_turns.classes; waits while a member of the class
                               * does */
    struct turns members;
    uint32_t count;               /* number of members, whether they take part or not */
    TAILQ_ENTRY(class_turn) link; /* link in class_turns.emptied */
    bool emptied;                 /* whether no member waits, though some may rest */
};

#define CLASS_TURN_OF(t) CONTAINER_OF(t, struct class_turn, turn)
#define MEMBER_OF(t)     CONTAINER_OF(t, struct queue_turn, turn)

void class_turns_init(struct class_turns *ts, struct sched *s)
{
    *ts = (struct class_turns){.sched = s};
    turns_init(&ts->classes);
    SLIST_INIT(&ts->rested);
    TAILQ_INIT(&ts->emptied);
}

static void class_turn_free(struct class_turns *ts, struct class_turn *c)
{
    if (c->emptied) {
        TAILQ_REMOVE(&ts->emptied, c, link);
    }
    HASH_DELETE(hh, ts->by_class, c);
    turns_fini(&c->members);
    class_unref(ts->sched, c->whole);
    sched_release(ts->sched, c, sizeof *c);
}

void class_turns_fini(struct class_turns *ts)
{
    struct class_turn *c, *next;

    HASH_ITER(hh, ts->by_class, c, next)
    {
        class_turn_free(ts, c);
    }
    turns_fini(&ts->classes);
}

static uint32_t weight_of(const struct class_turns *ts, const struct class_turn *c)
{
    return c->whole != NULL ? c->whole->weight : ts->sched->plain_weight;
}

/* Applies a changed weight; called whenever turns move on. */
static void reweigh(struct class_turns *ts, struct class_turn *c)
{
    if (c->turn.weight != weight_of(ts, c)) {
        turns_reweigh(&ts->classes, &c->turn, weight_of(ts, c));
    }
}

static struct class_turn *class_turn_need(struct class_turns *ts, struct mail_class *whole)
{
    struct class_turn *c;

    HASH_FIND(hh, ts->by_class, &whole, sizeof whole, c);
    if (c == NULL) {
        c = sched_alloc(ts->sched, sizeof *c);
        c->whole = whole;
        if (whole != NULL) {
            whole->refs++;
        }
        turns_init(&c->members);
        turn_init(&c->turn, weight_of(ts, c));
        HASH_ADD(hh, ts->by_class, whole, sizeof c->whole, c);
    }
    return c;
}

/* Frees the class's turn if it is no longer used. */
static void class_turn_check(struct class_turns *ts, struct class_turn *c)
{
    if (c->count == 0 && !turn_takes_part(&c->turn)) {
        class_turn_free(ts, c);
    }
}

void queue_turn_add(struct class_turns *ts, struct queue_turn *m, struct mail_class *mail_class)
{
    turn_init(&m->turn, 1);
    m->of = class_turn_need(ts, class_whole(mail_class));
    ts->class_count += m->of->count++ == 0;
}

void queue_turn_remove(struct class_turns *ts, struct queue_turn *m)
{
    CHECK(!m->turn.waits);
    CHECK(m->of->count > 0);
    ts->class_count -= --m->of->count == 0;
    class_turn_check(ts, m->of);
    m->of = NULL;
}

void queue_turn_join(struct class_turns *ts, struct queue_turn *m)
{
    struct class_turn *c = m->of;

    turns_join(&c->members, &m->turn);
    if (!c->turn.waits) {
        reweigh(ts, c);
        turns_join(&ts->classes, &c->turn);
    }
    ts->waiting++;
}

void queue_turn_leave(struct class_turns *ts, struct queue_turn *m)
{
    struct class_turn *c = m->of;

    turns_leave(&c->members, &m->turn);
    ts->waiting--;
    if (c->members.waiting == 0) {
        turns_leave(&ts->classes, &c->turn);
        if (!c->emptied) {
            c->emptied = true;
            TAILQ_INSERT_TAIL(&ts->emptied, c, link);
        }
    }
}

/* Returns the next member of a class. Moves members that finished resting to the list of
 * queue_turn_next_rested. */
static struct turn *members_first(struct class_turns *ts, struct class_turn *c)
{
    struct turn *first = turns_first(&c->members), *rested;

    while ((rested = turns_next_rested(&c->members)) != NULL) {
        SLIST_INSERT_HEAD(&ts->rested, rested, rested);
    }
    return first;
}

struct queue_turn *class_turns_first(struct class_turns *ts)
{
    struct turn *first = turns_first(&ts->classes), *rested;
    struct class_turn *c;

    while ((rested = turns_next_rested(&ts->classes)) != NULL) {
        class_turn_check(ts, CLASS_TURN_OF(rested));
    }
    while ((c = TAILQ_FIRST(&ts->emptied)) != NULL) {
        TAILQ_REMOVE(&ts->emptied, c, link);
        c->emptied = false;
        (void)members_first(ts, c); /* ends the rest of all members that do not wait */
    }
    if (first == NULL) {
        return NULL;
    }
    first = members_first(ts, CLASS_TURN_OF(first));
    CHECK(first != NULL);
    return MEMBER_OF(first);
}

void queue_turn_took(struct class_turns *ts, struct queue_turn *m)
{
    struct class_turn *c = m->of;

    turns_took(&c->members, &m->turn);
    reweigh(ts, c);
    turns_took(&ts->classes, &c->turn);
}

struct queue_turn *queue_turn_next_rested(struct class_turns *ts)
{
    struct turn *t = SLIST_FIRST(&ts->rested);

    if (t == NULL) {
        return NULL;
    }
    SLIST_REMOVE_HEAD(&ts->rested, rested);
    return MEMBER_OF(t);
}

struct turn_share queue_turn_share(const struct class_turns *ts, const struct queue_turn *m)
{
    return (struct turn_share){.weight = weight_of(ts, m->of),
                               .weights = ts->classes.weight,
                               .classes_waiting = ts->classes.waiting,
                               .members_waiting = m->of->members.waiting,
                               .class_count = ts->class_count,
                               .member_count = m->of->count};
}

void class_turns_audit(const struct class_turns *ts)
{
    const struct class_turn *c;
    uint64_t waiting = 0, taking_part = 0;
    uint32_t classes = 0;

    turns_audit(&ts->classes);
    for (c = ts->by_class; c != NULL; c = c->hh.next) {
        turns_audit(&c->members);
        CHECK(c->turn.waits == (c->members.waiting > 0));
        CHECK(c->count > 0 || turn_takes_part(&c->turn));
        CHECK(c->members.due.count + c->members.later.count <= c->count);
        CHECK(c->members.weight == c->members.due.count + c->members.later.count);
        waiting += c->members.waiting;
        classes += c->count > 0;
        taking_part += turn_takes_part(&c->turn);
    }
    CHECK(waiting == ts->waiting);
    CHECK(classes == ts->class_count);
    CHECK(taking_part == ts->classes.due.count + ts->classes.later.count);
}
