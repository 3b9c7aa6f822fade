/*
 * Part of a spool: the journal of events (queue/journal.h). Events have numbers without gaps. They
 * are stored in blocks, one for each commit that has events; a block is a text with one line for
 * each event.
 *
 * A block is added in the same batch as the changes that it describes, so after a crash both exist,
 * or neither.
 *
 * Engines that can store more than messages offer this part. For the others a database next to
 * their store may offer it (side_store.h): then a change is durable when its call returns, and an
 * error leaves the batch as it was. Otherwise every call returns -ENOTSUP.
 */
#ifndef SPOOL_SPOOL_EVENTS_H
#define SPOOL_SPOOL_EVENTS_H

#include "spool.h"

struct spool_events_range {
    uint64_t first, last; /* numbers that are stored; last 0 = there never was an event */
    uint64_t bytes;       /* size of all blocks; 0 if not requested */
    struct wall oldest;   /* time of the first block */
};

/* Returns the range of stored events. With `count_bytes` it reads all blocks. */
int spool_events_range(struct spool *sp, bool count_bytes, struct spool_events_range *ret);

/* Adds a block with the events first..last, which follow the last block. */
int spool_events_add(struct spool *sp, uint64_t first, uint64_t last, struct wall at,
                     struct slice lines);

/* Reads the block with event `number`, or the next block. -ENOENT: there is none. Slices last until
 * the next call. */
int spool_events_read(struct spool *sp, uint64_t number, uint64_t *ret_first, uint64_t *ret_last,
                      struct slice *ret_lines);

/* Removes the first block, in the batch, unless it is also the last. *ret_bytes: its length, or
 * 0. */
int spool_events_forget(struct spool *sp, uint64_t *ret_bytes);

/* Functions of an engine with this part; arguments and batch are checked before the call. */
struct spool_events_part {
    int (*range)(struct spool *sp, bool count_bytes, struct spool_events_range *ret);
    int (*add)(struct spool *sp, uint64_t first, uint64_t last, struct wall at, struct slice lines);
    int (*read)(struct spool *sp, uint64_t number, uint64_t *ret_first, uint64_t *ret_last,
                struct slice *ret_lines);
    int (*forget)(struct spool *sp, uint64_t *ret_bytes);
};

#endif
