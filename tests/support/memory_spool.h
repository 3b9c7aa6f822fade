/*
 * A spool in memory, for tests: the model that other engines are compared with, and a spool for
 * tests of what uses one. Durable until the process ends.
 */
#ifndef TESTS_MEMORY_SPOOL_H
#define TESTS_MEMORY_SPOOL_H

#include "spool.h"

/* Never fails. Close it with spool_close. */
struct spool *memory_spool_open(const struct spool_options *options);

/* From now on mail is stored in parts, its destinations lie in so many partitions. */
void memory_spool_divide(struct spool *sp, unsigned partitions);

/* The same with commits that end later, two at a time. What is committed outlasts spool_close. */
struct memory_later {
    unsigned looks; /* calls of spool_commit_end that find a commit still under way */
    bool holds;     /* none ends: memory_later_hold */
    int rc;         /* how they end */
    void *kept;     /* owned; NULL before the first is opened */
};

struct spool *memory_spool_open_later(const struct spool_options *options,
                                      struct memory_later *later);
void memory_later_hold(struct memory_later *later, bool holds);
void memory_later_free(struct memory_later *later);

#endif
