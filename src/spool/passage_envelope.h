/*
 * Encodes a message without its content, and its recipients, as the envelope of a record of mail in
 * passage (passage.h). It covers only the values that a newly submitted message can have.
 */
#ifndef SPOOL_PASSAGE_ENVELOPE_H
#define SPOOL_PASSAGE_ENVELOPE_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "segments.h"
#include "spool.h"

/* Limit of recipients; mail to more of them is rarely delivered at once. */
#define PASSAGE_RCPTS_MAX 16

struct passage_envelope {
    struct spool_message m; /* its id is not set */
    struct spool_rcpt rcpts[PASSAGE_RCPTS_MAX];
    struct segment_place place; /* place of content that is not in the record; segment 0 = it is in
                                 * the record */
    uint64_t content_sum;       /* sum of content that is not in the record */
};

/* Appends an envelope. At most PASSAGE_RCPTS_MAX recipients; `place` and `content_sum` as above. */
void passage_envelope_add(struct buf *b, const struct spool_message *m,
                          const struct spool_rcpt *rcpts, struct segment_place place,
                          uint64_t content_sum);

/* Decodes an envelope; slices of *ret point into `bytes`. Returns false if it is malformed or
 * beyond the limits of spool.h. */
bool passage_envelope_read(struct slice bytes, struct passage_envelope *ret);

#endif
