/*
 * Queue files of a real Postfix 3.7.11, as tests/unit/postfix/data/queue-files has them: a list of
 * the records in the order of reading, then a hexadecimal dump.
 */
#ifndef TEST_EXAMPLE_FILE_H
#define TEST_EXAMPLE_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

#define EXAMPLE_RECORDS_MAX 100

struct example_record {
    uint64_t offset;
    char type;
    struct slice data;
};

struct example {
    struct buf text;  /* what the slices below point into */
    struct buf bytes; /* the queue file */
    struct example_record records[EXAMPLE_RECORDS_MAX];
    size_t count;
};

/* The names of all examples, up to NULL. */
extern const char *const example_names[];

/* Fails the test when there is no such example. */
void example_read(const char *name, struct example *ret_example);
void example_fini(struct example *e);

/* The first record of this type at or behind index *at; NULL when there is none. *at goes on. */
const struct example_record *example_next(const struct example *e, const char *types, size_t *at);

#endif
