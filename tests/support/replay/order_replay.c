#include "order_replay.h"

#include <stdio.h>

#include "check.h"
#include "class_name.h"
#include "heap.h"
#include "mem.h"
#include "policy.h"

#define START_US  (1000 * US_PER_S)
#define PLUG      0 /* the plug's number; arrivals count from 1 */
#define NAME_SIZE 32

struct running {
    struct heap_node node;
    struct mono ends;
    uint64_t sequence;
    struct sched_entry entry;
};

struct replay {
    const struct order_scenario *scenario;
    struct sched *s;
    struct mono start, now;
    struct heap running; /* owned elements */
    uint64_t started;
    size_t arrived;           /* of the scenario's arrivals */
    size_t opened;            /* of those: the others wait for room */
    uint32_t *read;           /* recipients, by message */
    struct sched_rcpt *rcpts; /* SCHED_READ_MAX of them, and their names */
    char (*names)[NAME_SIZE];
    uint32_t *order;
    size_t order_count, order_size;
};

static bool ends_before(const struct heap_node *a, const struct heap_node *b)
{
    const struct running *x = CONTAINER_OF(a, const struct running, node);
    const struct running *y = CONTAINER_OF(b, const struct running, node);

    return x->ends.us != y->ends.us ? x->ends.us < y->ends.us : x->sequence < y->sequence;
}

static uint32_t recipients_of(const struct replay *r, uint64_t msg)
{
    return msg == PLUG ? 1 : r->scenario->arrivals[msg - 1].recipients;
}

/* Names sort as they are read. */
static void answer(struct replay *r, const struct sched_action *a)
{
    uint32_t *read = &r->read[a->msg.n];
    uint32_t count = recipients_of(r, a->msg.n) - *read;
    bool alone = r->scenario->policy.dest_recipient_limit == 1;

    if (count > a->max) {
        count = a->max;
    }
    for (uint32_t i = 0; i < count; i++) {
        char *name = r->names[i];
        int len = alone ? snprintf(name, NAME_SIZE, "r%07u@m%07u", *read, (unsigned)a->msg.n)
                        : snprintf(name, NAME_SIZE, "site");
        r->rcpts[i] = (struct sched_rcpt){.n = (*read)++, .dest = slice_of(name, (size_t)len)};
    }
    sched_recipients(r->s, r->now, a->msg, r->rcpts, count, 0, *read == recipients_of(r, a->msg.n));
}

static void deliver(struct replay *r, const struct sched_action *a)
{
    struct running *e = mem_new(sizeof *e);
    bool plug = a->msg.n == PLUG;

    heap_node_init(&e->node);
    e->entry = a->entry;
    e->ends = mono_after(r->now, plug ? r->scenario->plug_us : r->scenario->delivery_us);
    e->sequence = r->started++;
    heap_add(&r->running, &e->node);
    if (!plug) {
        r->order = mem_grow(r->order, r->order_count, &r->order_size, sizeof *r->order);
        r->order[r->order_count++] = (uint32_t)(a->msg.n - 1);
    }
}

static void audit(const struct replay *r)
{
    if (r->scenario->audit) {
        sched_audit(r->s);
    }
}

/* As the default configuration has it: mail without a mark of bulk is of one class. */
static void open_one(struct replay *r, uint64_t msg, uint32_t recipients)
{
    sched_open_in_class(r->s, r->now, (struct sched_msg){msg}, recipients, false,
                        SLICE(CLASS_NAME_PERSONAL), CLASS_WEIGHT_PERSONAL);
}

/* Messages enter as there is room, and before the next selection: a queue manager looks for mail
 * between two events, and a free agent is an event. */
static void open_waiting(struct replay *r)
{
    while (r->opened < r->arrived && sched_has_room(r->s)) {
        uint64_t msg = ++r->opened;

        open_one(r, msg, recipients_of(r, msg));
        audit(r);
    }
}

/* Decisions until there are none. */
static void pull(struct replay *r)
{
    struct sched_action a;

    while (sched_next(r->s, r->now, &a) != SCHED_NONE) {
        audit(r);
        if (a.type == SCHED_READ) {
            answer(r, &a);
        } else if (a.type == SCHED_DELIVER) {
            deliver(r, &a);
        } else {
            CHECK(a.type == SCHED_DONE);
            open_waiting(r);
        }
        audit(r);
    }
}

static void finish(struct replay *r, struct running *e)
{
    heap_remove(&r->running, &e->node);
    CHECK(sched_finished(r->s, r->now, e->entry, SCHED_OK, SLICE("")));
    mem_free(e);
    audit(r);
    pull(r);
}

static struct running *next_to_end(const struct replay *r)
{
    struct heap_node *node = heap_top(&r->running);

    return node == NULL ? NULL : CONTAINER_OF(node, struct running, node);
}

static struct mono next_arrival(const struct replay *r)
{
    const struct order_scenario *scenario = r->scenario;

    return r->arrived < scenario->arrival_count
               ? mono_after(r->start, scenario->arrivals[r->arrived].at_us)
               : MONO_NEVER;
}

/* When something happens next. */
static struct mono next_event(const struct replay *r)
{
    const struct running *e = next_to_end(r);
    struct mono at = mono_min(next_arrival(r), sched_wake_at(r->s));

    return e == NULL ? at : mono_min(at, e->ends);
}

/* What happens now: an arrival goes before the end of a delivery. */
static void step(struct replay *r)
{
    struct running *e = next_to_end(r);

    if (mono_reached(next_arrival(r), r->now)) {
        r->arrived++;
        open_waiting(r);
        pull(r);
    } else if (e != NULL && mono_reached(e->ends, r->now)) {
        finish(r, e);
    } else {
        pull(r);
    }
}

uint32_t *order_replay(const struct order_scenario *scenario, size_t *ret_count)
{
    struct replay r = {.scenario = scenario, .start = {START_US + scenario->phase_us}};
    struct mono next;

    r.now = r.start;
    CHECK(scenario->arrival_count <= ORDER_REPLAY_MESSAGES_MAX);
    heap_init(&r.running, ends_before);
    r.read = mem_array(scenario->arrival_count + 1, sizeof *r.read);
    r.rcpts = mem_array(SCHED_READ_MAX, sizeof *r.rcpts);
    r.names = mem_array(SCHED_READ_MAX, sizeof *r.names);
    r.s = sched_new(&scenario->limits);
    CHECK(sched_transport(r.s, r.now, "replay", &scenario->policy) == 0);
    open_one(&r, PLUG, 1);
    pull(&r);
    while ((next = next_event(&r)).us != US_FOREVER) {
        r.now.us = next.us > r.now.us ? next.us : r.now.us;
        step(&r);
    }
    CHECK(sched_totals(r.s).messages == 0);
    CHECK(r.opened == scenario->arrival_count);
    sched_free(r.s);
    heap_fini(&r.running);
    mem_free(r.read);
    mem_free(r.rcpts);
    mem_free(r.names);
    *ret_count = r.order_count;
    return r.order;
}
