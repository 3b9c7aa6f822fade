/*
 * The destinations with the most recipients, from a stream of recipients in order of nexthop.
 *
 * Memory grows with the transports of one nexthop and the length of the list, not with the stream.
 */
#ifndef SPOOL_DESTINATION_LIST_H
#define SPOOL_DESTINATION_LIST_H

#include <stdint.h>

#include "spool.h"
#include "text_pool.h"

/* A transport of the nexthop that the stream is at. */
struct destination_part {
    struct slice transport;
    uint64_t rcpts;
};

struct destination_list {
    struct text_pool *pool;        /* borrowed; the texts of `top` */
    struct spool_destination *top; /* borrowed; most recipients first, ties by name */
    size_t max, count;
    struct slice nexthop;           /* current */
    struct destination_part *parts; /* owned; of the current nexthop */
    size_t part_count, part_size;
    struct text_pool current; /* the texts of the current nexthop */
};

/* At most `max` will be written to `top`, with texts in `pool`. */
void destination_list_init(struct destination_list *list, struct text_pool *pool,
                           struct spool_destination *top, size_t max);

/* One recipient; equal nexthops come one after another. Copies. */
void destination_list_add(struct destination_list *list, struct slice nexthop,
                          struct slice transport);

/* The number of destinations in `top`. Releases the rest. */
size_t destination_list_end(struct destination_list *list);

#endif
