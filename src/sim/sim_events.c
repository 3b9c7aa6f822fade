#include "sim_events.h"

#include "check.h"

static bool sooner(const struct heap_node *a, const struct heap_node *b)
{
    const struct sim_event *x = CONTAINER_OF(a, const struct sim_event, node);
    const struct sim_event *y = CONTAINER_OF(b, const struct sim_event, node);

    return x->at_us != y->at_us ? x->at_us < y->at_us : x->number < y->number;
}

static struct sim_event *first(const struct sim_events *events)
{
    struct heap_node *top = heap_top(&events->heap);

    return top == NULL ? NULL : CONTAINER_OF(top, struct sim_event, node);
}

void sim_events_init(struct sim_events *events)
{
    *events = (struct sim_events){.now = {0}};
    heap_init(&events->heap, sooner);
}

void sim_events_fini(struct sim_events *events)
{
    heap_fini(&events->heap);
}

void sim_event_init(struct sim_event *e, void (*fire)(struct sim_event *e))
{
    *e = (struct sim_event){.fire = fire};
    heap_node_init(&e->node);
}

void sim_event_set(struct sim_events *events, struct sim_event *e, int64_t delay_us)
{
    CHECK(delay_us >= 0);
    sim_event_cancel(events, e);
    e->at_us = us_add(events->now.us, delay_us);
    e->number = ++events->last_number;
    heap_add(&events->heap, &e->node);
}

void sim_event_cancel(struct sim_events *events, struct sim_event *e)
{
    if (heap_has(&e->node)) {
        heap_remove(&events->heap, &e->node);
    }
}

struct mono sim_events_next(const struct sim_events *events)
{
    const struct sim_event *e = first(events);

    return e == NULL ? MONO_NEVER : (struct mono){e->at_us};
}

void sim_events_run(struct sim_events *events, struct mono now)
{
    struct sim_event *e;

    CHECK(now.us >= events->now.us && now.us <= sim_events_next(events).us);
    events->now = now;
    while ((e = first(events)) != NULL && e->at_us <= now.us) {
        heap_remove(&events->heap, &e->node);
        e->fire(e);
    }
}
