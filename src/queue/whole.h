/*
 * A message as lists show it. One that is stored in parts (spool_parts.h) is one message: what its
 * parts say is put together, and its recipients are theirs.
 */
#ifndef QUEUE_WHOLE_H
#define QUEUE_WHOLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spool.h"
#include "spool_parts.h"

/* The report part, or what is not divided, and its parts. More parts than partitions there are only
 * for moments, while they move: the rest is left out. */
#define WHOLE_ROWS_MAX (1 + SPOOL_PARTITIONS_MAX)

struct whole {
    struct msg_id rows[WHOLE_ROWS_MAX];
    size_t count;
    bool is_active; /* something of it is in this process's memory */
};

/* How many rows it may have; 1 when it is not divided, or not at hand: then it is asked for, with
 * its parts, when it is to be read with these. *ret_is_at_hand: whole_read can be called. */
size_t whole_want(struct spool *sp, struct msg_id id, bool *ret_is_at_hand);

/* As spool_read; with `parts`, and if it has any, its state is that of the part that is worst off
 * (quarantined, held, deferred), its time the next of theirs, and what is pending is their sum. A
 * part that can't be read is left out. */
int whole_read(struct spool *sp, struct msg_id id, bool parts, struct spool_message *ret_message,
               struct whole *ret_whole);

/* The number of the last recipient of a page: of those behind `after` at most `max`, and no more
 * than have `bytes` in all as `size_of` counts them. UINT32_MAX for what is not divided. */
int whole_page(struct spool *sp, const struct whole *w, uint32_t after, size_t max, size_t bytes,
               size_t (*size_of)(const struct spool_rcpt *r), uint32_t *ret_last);

#endif
