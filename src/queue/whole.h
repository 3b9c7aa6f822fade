/*
 * A message as lists show it. A message that is stored in parts (spool_parts.h) is shown as one:
 * the states of its parts are combined, and their recipients are its recipients.
 */
#ifndef QUEUE_WHOLE_H
#define QUEUE_WHOLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spool.h"
#include "spool_parts.h"

/* Most rows of a message: the report part, or an undivided message, and its parts. There are more
 * parts than partitions only for moments, while parts move; the rest is left out. */
#define WHOLE_ROWS_MAX (1 + SPOOL_PARTITIONS_MAX)

struct whole {
    struct msg_id rows[WHOLE_ROWS_MAX];
    size_t count;
    bool is_active; /* a row is in this process's memory */
};

/* Returns how many rows a message may have: 1 if it is not divided or not loaded. Requests rows
 * that are not loaded. *ret_is_at_hand: whole_read can be called. */
size_t whole_want(struct spool *sp, struct msg_id id, bool *ret_is_at_hand);

/* Reads a message, like spool_read. With `parts`, a message that has parts gets the worst of their
 * states (corrupt, hold, deferred, incoming), the next of their times, and the sum of their pending
 * recipients. A part that can't be read is left out. */
int whole_read(struct spool *sp, struct msg_id id, bool parts, struct spool_message *ret_message,
               struct whole *ret_whole);

/* Returns in *ret_last the number of the last recipient of a page. A page has at most `max`
 * recipients after `after`, and ends with the one that reaches `bytes` in all, as `size_of` counts
 * them. UINT32_MAX for an undivided message. */
int whole_page(struct spool *sp, const struct whole *w, uint32_t after, size_t max, size_t bytes,
               size_t (*size_of)(const struct spool_rcpt *r), uint32_t *ret_last);

#endif
