/*
 * A slab: many objects of one size, from blocks of SLAB_BLOCK bytes.
 *
 * For objects that are created by the million and in order: an object costs no more than its size,
 * objects created together are neighbours in memory, and an empty block is freed. One empty block
 * is kept, so that a queue whose length varies around the edge of a block does not allocate and
 * free it again and again. A block is aligned to its size, so an object's block is found from its
 * address, and the block counts its used objects.
 *
 * Free objects are poisoned under AddressSanitizer.
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
    size_t size;                              /* size of an object, as laid out */
    uint32_t per_block;
    uint32_t empty; /* number of empty blocks: 0 or 1 */
    size_t bytes;   /* memory held, whether used or not */
};

/* Initializes a slab for objects of `size` bytes, at most SLAB_OBJECT_MAX, that need no more than
 * the alignment of pointers and 64-bit integers. */
void slab_init(struct slab *slab, size_t size);

/* Frees the slab; every object must have been freed. */
void slab_fini(struct slab *slab);

/* Returns a zeroed object. */
void *slab_new(struct slab *slab);

/* Frees an object of this slab; NULL is allowed. */
void slab_free(struct slab *slab, void *object);

#endif
