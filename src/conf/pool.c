#include "pool.h"

#include <stdalign.h>
#include <string.h>

#include "check.h"
#include "mem.h"

#define POOL_BLOCK_SIZE 16384 /* bytes; most values are short */

struct pool_block {
    struct pool_block *next;
    size_t used, size;
    alignas(max_align_t) char bytes[];
};

static void add_block(struct pool *pool, size_t size)
{
    struct pool_block *b = mem_new(sizeof *b + size);

    b->size = size;
    b->next = pool->blocks;
    pool->blocks = b;
}

void *pool_new(struct pool *pool, size_t size)
{
    CHECK(size < (size_t)-1 / 4);
    size = (size + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
    if (pool->blocks == NULL || pool->blocks->size - pool->blocks->used < size) {
        add_block(pool, size > POOL_BLOCK_SIZE ? size : POOL_BLOCK_SIZE);
    }
    void *p = pool->blocks->bytes + pool->blocks->used;
    pool->blocks->used += size;
    return p;
}

char *pool_string(struct pool *pool, struct slice s)
{
    char *copy = pool_new(pool, s.len + 1);

    if (s.len > 0) {
        memcpy(copy, s.ptr, s.len);
    }
    return copy;
}

void pool_fini(struct pool *pool)
{
    while (pool->blocks != NULL) {
        struct pool_block *b = pool->blocks;

        pool->blocks = b->next;
        mem_free(b);
    }
}
