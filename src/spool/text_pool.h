/*
 * Copies of texts that all go at once: what a read hands out until the next one.
 *
 * The oldest chunk is kept from one use to the next when it is no larger than TEXT_POOL_KEEP, so
 * reading a message allocates nothing.
 */
#ifndef SPOOL_TEXT_POOL_H
#define SPOOL_TEXT_POOL_H

#include <stddef.h>

#include "slice.h"

#define TEXT_POOL_KEEP ((size_t)1 << 20) /* bytes of the chunk that is kept, at most */

struct text_chunk;

struct text_pool {
    struct text_chunk *chunks; /* owned; the first one is being filled */
    size_t held;               /* bytes of all chunks */
};

/* Zeroed = empty. */
void text_pool_clear(struct text_pool *pool);
void text_pool_fini(struct text_pool *pool);

/* A copy that lasts until text_pool_clear. */
struct slice text_pool_add(struct text_pool *pool, struct slice text);

#endif
