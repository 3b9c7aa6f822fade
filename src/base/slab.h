/*
 * A slab: many objects of one size, from blocks of SLAB_BLOCK bytes.
 *
 * For what comes by the million and in order: an object costs its size and no more, neighbours in
 * time are neighbours in memory, and a block that has become empty goes back (but for one, so that
 * a queue that hovers around a block's edge does not go back and forth). A block is aligned to its
 * size, so an object finds its block, and the block counts what is used of it.
 *
 * Under AddressSanitizer what is free is poisoned.
 */
#ifndef BASE_SLAB_H
#define BASE_SLAB_H

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define SLAB_BLOCK      ((size_t)1 << 15)
#define SLAB_OBJECT_MAX (SLAB_BLOCK / 8)

struct slab_block;
struct slab {
    TAILQ_HEAD(slab_blocks, slab_block) open; /* blocks with free objects */
    size_t size;                              /* of an object, as laid out */
    uint32_t per_block;
    uint32_t empty; /* blocks held of which nothing is used: 0 or 1 */
    size_t bytes;   /* held, whether used or not */
};

/* For objects of `size` bytes, at most SLAB_OBJECT_MAX, that need no more than the alignment of
 * pointers and 64-bit integers. */
void slab_init(struct slab *slab, size_t size);

/* Every object must have been freed. */
void slab_fini(struct slab *slab);

/* A zeroed object. */
void *slab_new(struct slab *slab);

/* An object of this slab; NULL is fine. */
void slab_free(struct slab *slab, void *object);

#endif
