/*
 * Virtual time and its events.
 *
 * Events are embedded in the objects that they concern. Events of the same time fire in the order
 * in which they were set. An event that fires is no longer set and may be set again, also by its
 * own function.
 */
#ifndef SIM_EVENTS_H
#define SIM_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "heap.h"
#include "times.h"

struct sim_event {
    struct heap_node node;
    int64_t at_us;
    uint64_t number;
    void (*fire)(struct sim_event *e);
};

struct sim_events {
    struct heap heap;
    struct mono now;
    uint64_t last_number;
};

/* Starts virtual time at 0. */
void sim_events_init(struct sim_events *events);
void sim_events_fini(struct sim_events *events);

void sim_event_init(struct sim_event *e, void (*fire)(struct sim_event *e));

/* Sets an event to `delay_us` >= 0 from now; one that is set already is moved. */
void sim_event_set(struct sim_events *events, struct sim_event *e, int64_t delay_us);

void sim_event_cancel(struct sim_events *events, struct sim_event *e);

/* Returns the time of the next event; MONO_NEVER if none is set. */
struct mono sim_events_next(const struct sim_events *events);

/* Advances time to `now`, which must not be past the next event, and fires all events that are due,
 * including those that become due by this. */
void sim_events_run(struct sim_events *events, struct mono now);

#endif
