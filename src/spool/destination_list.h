/*
 * The destinations with the most recipients, or the first of them, from a stream of counts in order
 * of name.
 *
 * Memory grows with the length of the list, not with the stream.
 */
#ifndef SPOOL_DESTINATION_LIST_H
#define SPOOL_DESTINATION_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include "spool.h"
#include "spool_search.h"
#include "text_pool.h"

struct destination_list {
    struct text_pool *pool;        /* borrowed; the texts of `top` */
    struct spool_destination *top; /* borrowed; most recipients first, ties by name */
    size_t max, count;
    bool by_name;                     /* `top` is in order of name */
    struct spool_destination current; /* the one the stream is at; rcpts 0: none */
    struct text_pool texts;           /* of `current` */
};

/* At most `max` will be written to `top`, with texts in `pool`. */
void destination_list_init(struct destination_list *list, struct text_pool *pool,
                           struct spool_destination *top, size_t max);

/* The same, but those that come first in the stream. */
void destination_list_init_by_name(struct destination_list *list, struct text_pool *pool,
                                   struct spool_destination *top, size_t max);

/* By name, and complete: the rest of the stream changes nothing. */
bool destination_list_is_full(const struct destination_list *list);

/* What some recipients add; those of one destination come one after another. Copies. */
void destination_list_add(struct destination_list *list, const struct spool_destination *d);

/* The order of the stream: by nexthop, then by transport. As strcmp. */
int destination_order(const struct spool_destination *a, const struct spool_destination *b);

/* The number of destinations in `top`. Releases the rest. */
size_t destination_list_end(struct destination_list *list);

#endif
