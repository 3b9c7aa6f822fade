/*
 * Part of a spool: the journal of events (queue/journal.h). Events have numbers without gaps; they
 * come in blocks, one for each commit that has some, each a text with a line for each event.
 *
 * A block is added in the batch of the facts that it tells, so both are there after a crash, or
 * neither.
 *
 * An engine offers it that has a place for more than messages. For others there may be one beside
 * their store (side_store.h): then a change is durable when its call returns, and an error leaves
 * the batch as it was. Else every call is -ENOTSUP.
 */
#ifndef SPOOL_SPOOL_EVENTS_H
#define SPOOL_SPOOL_EVENTS_H

#include "spool.h"

struct spool_events_range {
    uint64_t first, last; /* numbers that are kept; last 0: there was never one */
    uint64_t bytes;       /* of all blocks; 0 when it is not asked for */
    struct wall oldest;   /* of the first block */
};

/* What is kept. With `count_bytes` all blocks are looked at. */
int spool_events_range(struct spool *sp, bool count_bytes, struct spool_events_range *ret);

/* Add a block with the events first..last, which follow on the last block. */
int spool_events_add(struct spool *sp, uint64_t first, uint64_t last, struct wall at,
                     struct slice lines);

/* The block with event `number`, or the next there is. -ENOENT: there is none. Slices as of
 * reading. */
int spool_events_read(struct spool *sp, uint64_t number, uint64_t *ret_first, uint64_t *ret_last,
                      struct slice *ret_lines);

/* Forget the first block, in the batch, unless it is the last, too. *ret_bytes: its length, or 0.
 */
int spool_events_forget(struct spool *sp, uint64_t *ret_bytes);

/* The part, as spool_engine.h wants it: arguments and batch are checked. */
struct spool_events_part {
    int (*range)(struct spool *sp, bool count_bytes, struct spool_events_range *ret);
    int (*add)(struct spool *sp, uint64_t first, uint64_t last, struct wall at, struct slice lines);
    int (*read)(struct spool *sp, uint64_t number, uint64_t *ret_first, uint64_t *ret_last,
                struct slice *ret_lines);
    int (*forget)(struct spool *sp, uint64_t *ret_bytes);
};

#endif
