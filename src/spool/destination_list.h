/*
 * Builds a list of the destinations with the most recipients, or of the first destinations, from a
 * stream of counts in order of name.
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
    struct text_pool *pool;        /* borrowed; storage for the texts of `top` */
    struct spool_destination *top; /* borrowed; most recipients first, ties by name */
    size_t max, count;
    bool by_name;                     /* `top` is in order of name */
    struct spool_destination current; /* destination that the stream is at; rcpts 0 = none */
    struct text_pool texts;           /* texts of `current` */
};

/* Begins a list of the destinations with the most recipients: at most `max` in `top`, with texts in
 * `pool`. */
void destination_list_init(struct destination_list *list, struct text_pool *pool,
                           struct spool_destination *top, size_t max);

/* Begins a list of the first destinations of the stream. */
void destination_list_init_by_name(struct destination_list *list, struct text_pool *pool,
                                   struct spool_destination *top, size_t max);

/* Is it a complete list by name, so that the rest of the stream changes nothing? */
bool destination_list_is_full(const struct destination_list *list);

/* Adds counts of a destination, which it copies. All counts of one destination must be
 * consecutive. */
void destination_list_add(struct destination_list *list, const struct spool_destination *d);

/* Compares in the order of the stream: by nexthop, then by transport. Result as strcmp. */
int destination_order(const struct spool_destination *a, const struct spool_destination *b);

/* Returns the number of destinations in `top`, and frees the texts of the stream. */
size_t destination_list_end(struct destination_list *list);

#endif
