/* Memory of one configuration: strings and arrays that are freed together. */
#ifndef CONF_POOL_H
#define CONF_POOL_H

#include <stddef.h>

#include "slice.h"

struct pool_block;

/* A pool; {NULL} is an empty one. */
struct pool {
    struct pool_block *blocks;
};

/* Returns zeroed bytes that last until pool_fini, aligned for any object. */
void *pool_new(struct pool *pool, size_t size);

/* Returns a NUL-terminated copy. */
char *pool_string(struct pool *pool, struct slice s);

void pool_fini(struct pool *pool);

#endif
