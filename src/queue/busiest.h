/*
 * The destinations with the most deliveries under way and waiting, and those that have been dead
 * for the longest time, for metrics and pages that name them.
 *
 * Found by a walk over all destinations, some at a time, so that it costs little however many there
 * are; what is told is of the last whole walk. At most BUSIEST_MAX, whatever mail comes, or names
 * that strangers choose would fill the store of metrics.
 */
#ifndef QUEUE_BUSIEST_H
#define QUEUE_BUSIEST_H

#include <stddef.h>
#include <stdint.h>

#include "scheduler.h"

#define BUSIEST_MAX 20

struct busiest_destination {
    uint64_t load; /* entries under way and waiting; of a dead one the higher the longer it is */
    uint32_t transport;
    char *dest; /* owned */
};

struct busiest_list {
    struct busiest_destination destinations[BUSIEST_MAX]; /* the busiest first */
    size_t count;
};

struct busiest {
    uint64_t cursor;
    struct busiest_list found;                         /* of the walk under way */
    struct busiest_list told;                          /* of the last whole one */
    struct busiest_list troubled_found, troubled_told; /* likewise: those longest dead first */
};

void busiest_init(struct busiest *b);
void busiest_fini(struct busiest *b);

/* Look at the next `budget` destinations. */
void busiest_step(struct busiest *b, const struct sched *s, uint32_t budget);

#endif
