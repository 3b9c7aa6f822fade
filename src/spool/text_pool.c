#include "text_pool.h"

#include <string.h>

#include "mem.h"

#define CHUNK_SIZE ((size_t)1 << 16)

struct text_chunk {
    struct text_chunk *next;
    size_t used, size;
    char bytes[];
};

static void drop_chunk(struct text_pool *pool)
{
    struct text_chunk *chunk = pool->chunks;

    pool->chunks = chunk->next;
    pool->held -= chunk->size;
    mem_free(chunk);
}

void text_pool_clear(struct text_pool *pool)
{
    while (pool->chunks != NULL && (pool->chunks->next != NULL || pool->held > TEXT_POOL_KEEP)) {
        drop_chunk(pool);
    }
    if (pool->chunks != NULL) {
        pool->chunks->used = 0;
    }
}

void text_pool_fini(struct text_pool *pool)
{
    while (pool->chunks != NULL) {
        drop_chunk(pool);
    }
}

struct slice text_pool_add(struct text_pool *pool, struct slice text)
{
    struct text_chunk *chunk = pool->chunks;
    char *copy;

    if (text.len == 0) {
        return SLICE("");
    }
    if (chunk == NULL || chunk->size - chunk->used < text.len) {
        size_t size = text.len > CHUNK_SIZE ? text.len : CHUNK_SIZE;

        chunk = mem_new(sizeof *chunk + size);
        chunk->size = size;
        chunk->next = pool->chunks;
        pool->chunks = chunk;
        pool->held += size;
    }
    copy = chunk->bytes + chunk->used;
    memcpy(copy, text.ptr, text.len);
    chunk->used += text.len;
    return slice_of(copy, text.len);
}
