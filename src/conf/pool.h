/*
 * Memory of one configuration: strings and arrays that live and die together.
 */
#ifndef CONF_POOL_H
#define CONF_POOL_H

#include <stddef.h>

#include "slice.h"

struct pool_block;

/* {NULL} is an empty pool. */
struct pool {
    struct pool_block *blocks;
};

/* Zeroed bytes until pool_fini, suitably aligned for any object. */
void *pool_new(struct pool *pool, size_t size);

/* A NUL-terminated copy. */
char *pool_string(struct pool *pool, struct slice s);

void pool_fini(struct pool *pool);

#endif
