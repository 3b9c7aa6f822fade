/*
 * Lists the destinations with the most entries, and those that have been dead for the longest time,
 * for metrics and pages that name them.
 *
 * Each step of a walk examines some destinations, so the cost is small however many there are. The
 * lists are those of the last complete walk. They have at most BUSIEST_MAX names, because strangers
 * could otherwise fill a store of metrics with names that they choose.
 */
#ifndef QUEUE_BUSIEST_H
#define QUEUE_BUSIEST_H

#include <stddef.h>
#include <stdint.h>

#include "scheduler.h"

#define BUSIEST_MAX 20

struct busiest_destination {
    uint64_t load; /* entries in flight and waiting; for a dead one: grows with the time since
                      its death */
    uint32_t transport;
    char *dest; /* owned */
};

struct busiest_list {
    struct busiest_destination destinations[BUSIEST_MAX]; /* in descending order of load */
    size_t count;
};

struct busiest {
    uint64_t cursor;
    struct busiest_list found; /* lists of the current walk, and of the
                                                          last complete one */
    struct busiest_list told;
    /* The corresponding lists of dead destinations, the longest dead first. */
    struct busiest_list troubled_found, troubled_told;
};

void busiest_init(struct busiest *b);
void busiest_fini(struct busiest *b);

/* Continues the walk by `budget` destinations. */
void busiest_step(struct busiest *b, const struct sched *s, uint32_t budget);

#endif
