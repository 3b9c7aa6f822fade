/*
 * A message without its content, and its recipients, as bytes: what a record of mail in passage
 * says of it (passage.h). Only what a message can have that was just submitted.
 */
#ifndef SPOOL_PASSAGE_ENVELOPE_H
#define SPOOL_PASSAGE_ENVELOPE_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "segments.h"
#include "spool.h"

/* Mail to more of them rarely ends at once. */
#define PASSAGE_RCPTS_MAX 16

struct passage_envelope {
    struct spool_message m; /* without id */
    struct spool_rcpt rcpts[PASSAGE_RCPTS_MAX];
    struct segment_place place; /* of content that is not in the record; segment 0: it is there */
    uint64_t content_sum;       /* of such content */
};

/* Append it. At most PASSAGE_RCPTS_MAX recipients; `place` and `content_sum` as above. */
void passage_envelope_add(struct buf *b, const struct spool_message *m,
                          const struct spool_rcpt *rcpts, struct segment_place place,
                          uint64_t content_sum);

/* Slices of *ret point into `bytes`. False: it makes no sense, or is beyond limits of spool.h. */
bool passage_envelope_read(struct slice bytes, struct passage_envelope *ret);

#endif
