/*
 * Copies of texts that are all freed at once: the texts that a read returns until the next one.
 *
 * The oldest chunk is kept from one use to the next if it is at most TEXT_POOL_KEEP long, so
 * reading a message allocates nothing.
 */
#ifndef SPOOL_TEXT_POOL_H
#define SPOOL_TEXT_POOL_H

#include <stddef.h>

#include "slice.h"

#define TEXT_POOL_KEEP ((size_t)1 << 20) /* size limit of the chunk that is kept */

struct text_chunk;

struct text_pool {
    struct text_chunk *chunks; /* owned; the first one is being filled */
    size_t held;               /* size of all chunks */
};

/* Frees all texts; the pool can be used again. A zeroed pool is empty. */
void text_pool_clear(struct text_pool *pool);
void text_pool_fini(struct text_pool *pool);

/* Copies a text; the copy lasts until text_pool_clear. */
struct slice text_pool_add(struct text_pool *pool, struct slice text);

#endif
