/*
 * Virtual time and what is to happen in it.
 *
 * Events are embedded in what they concern; equal times come in the order in which they were set.
 * An event that fires is set no more and may be set again, also by its own function.
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

/* Time begins at 0. */
void sim_events_init(struct sim_events *events);
void sim_events_fini(struct sim_events *events);

void sim_event_init(struct sim_event *e, void (*fire)(struct sim_event *e));

/* Let it happen `delay_us` >= 0 from now; one that is set already is moved. */
void sim_event_set(struct sim_events *events, struct sim_event *e, int64_t delay_us);

void sim_event_cancel(struct sim_events *events, struct sim_event *e);

/* When the next one is due; MONO_NEVER when none is set. */
struct mono sim_events_next(const struct sim_events *events);

/* Time goes on to `now`, which is not past the next event; what is due fires, and what that makes
 * due at once, too. */
void sim_events_run(struct sim_events *events, struct mono now);

#endif
