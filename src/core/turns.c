#include "turns.h"

#include "check.h"

#define ONE (UINT64_C(1) << TURNS_BITS)

#define TURN(n) CONTAINER_OF(n, struct turn, node)

static uint64_t deadline(const struct turn *t)
{
    return t->start + ONE / t->weight;
}

static bool before(uint64_t a, uint64_t b)
{
    return (int64_t)(a - b) < 0;
}

static bool start_less(const struct heap_node *a, const struct heap_node *b)
{
    const struct turn *ta = TURN(a), *tb = TURN(b);

    return ta->start != tb->start ? before(ta->start, tb->start) : ta->serial < tb->serial;
}

static bool deadline_less(const struct heap_node *a, const struct heap_node *b)
{
    uint64_t da = deadline(TURN(a)), db = deadline(TURN(b));

    return da != db ? before(da, db) : start_less(a, b);
}

void turns_init(struct turns *ts)
{
    *ts = (struct turns){0};
    heap_init(&ts->due, deadline_less);
    heap_init(&ts->later, start_less);
    SLIST_INIT(&ts->rested);
}

void turns_fini(struct turns *ts)
{
    heap_fini(&ts->due);
    heap_fini(&ts->later);
}

void turn_init(struct turn *t, uint32_t weight)
{
    CHECK(weight >= 1);
    CHECK(weight <= TURNS_WEIGHT_MAX);
    *t = (struct turn){.weight = weight};
    heap_node_init(&t->node);
}

bool turn_takes_part(const struct turn *t)
{
    return heap_has(&t->node);
}

static void put(struct turns *ts, struct turn *t)
{
    t->is_due = t->waits && !before(ts->now, t->start);
    heap_add(t->is_due ? &ts->due : &ts->later, &t->node);
}

static void take(struct turns *ts, struct turn *t)
{
    heap_remove(t->is_due ? &ts->due : &ts->later, &t->node);
}

void turns_join(struct turns *ts, struct turn *t)
{
    CHECK(!t->waits);
    t->waits = true;
    ts->waiting++;
    t->serial = ++ts->serial;
    if (turn_takes_part(t)) {
        heap_moved(&ts->later, &t->node); /* it was resting */
        return;
    }
    t->start = ts->now;
    ts->weight += t->weight;
    put(ts, t);
}

void turns_leave(struct turns *ts, struct turn *t)
{
    CHECK(t->waits);
    t->waits = false;
    ts->waiting--;
    if (t->is_due) {
        take(ts, t);
        t->is_due = false;
        ts->weight -= t->weight;
    }
}

/* Moves the first member of `later`, whose start has come. */
static void comes(struct turns *ts, struct turn *t)
{
    take(ts, t);
    if (t->waits) {
        put(ts, t);
    } else {
        ts->weight -= t->weight;
        SLIST_INSERT_HEAD(&ts->rested, t, rested);
    }
}

static struct turn *first_later(const struct turns *ts)
{
    return ts->later.count > 0 ? TURN(heap_top(&ts->later)) : NULL;
}

struct turn *turns_first(struct turns *ts)
{
    struct turn *t;

    while ((t = first_later(ts)) != NULL && (!before(ts->now, t->start) || ts->due.count == 0)) {
        if (before(ts->now, t->start)) {
            ts->now = t->start;
        }
        comes(ts, t);
    }
    return ts->due.count > 0 ? TURN(heap_top(&ts->due)) : NULL;
}

void turns_took(struct turns *ts, struct turn *t)
{
    CHECK(t->waits);
    take(ts, t);
    t->start = deadline(t);
    ts->now += ONE / ts->weight;
    put(ts, t);
}

struct turn *turns_next_rested(struct turns *ts)
{
    struct turn *t = SLIST_FIRST(&ts->rested);

    if (t != NULL) {
        SLIST_REMOVE_HEAD(&ts->rested, rested);
    }
    return t;
}

void turns_reweigh(struct turns *ts, struct turn *t, uint32_t weight)
{
    CHECK(weight >= 1);
    CHECK(weight <= TURNS_WEIGHT_MAX);
    if (turn_takes_part(t)) {
        ts->weight += (uint64_t)weight - t->weight;
    }
    t->weight = weight;
    if (t->is_due) {
        heap_moved(&ts->due, &t->node);
    }
}

void turns_audit(const struct turns *ts)
{
    uint64_t weight = 0, waiting = ts->due.count;

    heap_audit(&ts->due);
    heap_audit(&ts->later);
    for (size_t i = 0; i < ts->due.count; i++) {
        const struct turn *t = TURN(ts->due.nodes[i]);
        CHECK(t->is_due);
        CHECK(t->waits);
        CHECK(!before(ts->now, t->start));
        weight += t->weight;
    }
    for (size_t i = 0; i < ts->later.count; i++) {
        CHECK(!TURN(ts->later.nodes[i])->is_due);
        weight += TURN(ts->later.nodes[i])->weight;
        waiting += TURN(ts->later.nodes[i])->waits;
    }
    CHECK(weight == ts->weight);
    CHECK(waiting == ts->waiting);
}
