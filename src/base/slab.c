#include "slab.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(ptr, size)   ((void)(ptr), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(ptr, size) ((void)(ptr), (void)(size))
#endif

/* Size of a block without the 16 bytes that malloc puts in front of it, so that blocks are
 * adjacent. */
#define BLOCK_BYTES (SLAB_BLOCK - 16)

struct free_object {
    struct free_object *next;
};

struct slab_block {
    TAILQ_ENTRY(slab_block) link; /* link in slab.open, while an object is free */
    struct free_object *freed;
    uint32_t used;               /* number of used objects */
    uint32_t fresh;              /* number of objects at the end that were never used */
    _Alignas(64) char objects[]; /* objects whose size is a multiple of a cache line are aligned to
                                  * lines */
};

void slab_init(struct slab *slab, size_t size)
{
    CHECK(size > 0);
    CHECK(size <= SLAB_OBJECT_MAX);
    size = (size + 7) & ~(size_t)7;
    *slab = (struct slab){
        .size = size,
        .per_block = (uint32_t)((BLOCK_BYTES - offsetof(struct slab_block, objects)) / size)};
    TAILQ_INIT(&slab->open);
}

static void block_free(struct slab *slab, struct slab_block *block)
{
    TAILQ_REMOVE(&slab->open, block, link);
    slab->bytes -= SLAB_BLOCK;
    ASAN_UNPOISON_MEMORY_REGION(block->objects, slab->per_block * slab->size);
    free(block);
}

void slab_fini(struct slab *slab)
{
    struct slab_block *block = TAILQ_FIRST(&slab->open);

    if (block != NULL) {
        CHECK(block->used == 0);
        block_free(slab, block);
    }
    CHECK(slab->bytes == 0);
}

static struct slab_block *block_new(struct slab *slab)
{
    struct slab_block *block;
    void *memory;

    if (posix_memalign(&memory, SLAB_BLOCK, BLOCK_BYTES) != 0) {
        check_failed(__FILE__, __LINE__, "slab", "out of memory");
    }
    block = memory;
    block->freed = NULL;
    block->used = 0;
    block->fresh = slab->per_block;
    ASAN_POISON_MEMORY_REGION(block->objects, slab->per_block * slab->size);
    TAILQ_INSERT_HEAD(&slab->open, block, link);
    slab->bytes += SLAB_BLOCK;
    slab->empty++;
    return block;
}

void *slab_new(struct slab *slab)
{
    struct slab_block *block = TAILQ_FIRST(&slab->open);
    void *object;

    if (block == NULL) {
        block = block_new(slab);
    }
    if (block->freed != NULL) {
        object = block->freed;
        ASAN_UNPOISON_MEMORY_REGION(object, slab->size);
        block->freed = block->freed->next;
    } else {
        object = block->objects + (slab->per_block - block->fresh) * slab->size;
        ASAN_UNPOISON_MEMORY_REGION(object, slab->size);
        block->fresh--;
    }
    slab->empty -= block->used == 0;
    block->used++;
    if (block->freed == NULL && block->fresh == 0) {
        TAILQ_REMOVE(&slab->open, block, link);
    }
    return memset(object, 0, slab->size);
}

void slab_free(struct slab *slab, void *object)
{
    struct slab_block *block;
    struct free_object *freed = object;

    if (object == NULL) {
        return;
    }
    block = (struct slab_block *)((uintptr_t)object & ~(uintptr_t)(SLAB_BLOCK - 1));
    CHECK(block->used > 0);
    if (block->freed == NULL && block->fresh == 0) {
        TAILQ_INSERT_TAIL(&slab->open, block, link); /* other blocks are filled first */
    }
    freed->next = block->freed;
    block->freed = freed;
    ASAN_POISON_MEMORY_REGION(object, slab->size);
    if (--block->used == 0 && ++slab->empty > 1) {
        slab->empty--;
        block_free(slab, block);
    }
}
