/*
 * The destinations with the most recipients, from a stream of counts in order of name.
 *
 * Memory grows with the length of the list, not with the stream.
 */
#ifndef SPOOL_DESTINATION_LIST_H
#define SPOOL_DESTINATION_LIST_H

#include <stdint.h>

#include "spool.h"
#include "text_pool.h"

struct destination_list {
    struct text_pool *pool;        /* borrowed; the texts of `top` */
    struct spool_destination *top; /* borrowed; most recipients first, ties by name */
    size_t max, count;
    struct spool_destination current; /* the one the stream is at; rcpts 0: none */
    struct text_pool texts;           /* of `current` */
};

/* At most `max` will be written to `top`, with texts in `pool`. */
void destination_list_init(struct destination_list *list, struct text_pool *pool,
                           struct spool_destination *top, size_t max);

/* What some recipients add; those of one destination come one after another. Copies. */
void destination_list_add(struct destination_list *list, const struct spool_destination *d);

/* The order of the stream: by nexthop, then by transport. As strcmp. */
int destination_order(const struct spool_destination *a, const struct spool_destination *b);

/* The number of destinations in `top`. Releases the rest. */
size_t destination_list_end(struct destination_list *list);

#endif
