/*
 * Reading and writing the fields of a frame between two of our processes.
 *
 * A frame is what one process tells another: a type and a body of fields. Numbers are little-endian
 * and of fixed width, byte strings are a 32-bit length and the bytes. The reader has a sticky error
 * and is strict: every length is checked against what is there, booleans are 0 or 1, and
 * frame_reader_end insists that every byte was used. The sender may be an attacker who has taken
 * over a confined process; a frame that does not decode ends the connection to it.
 */
#ifndef PROCESS_FRAME_H
#define PROCESS_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

struct frame_reader {
    struct slice rest;
    bool failed;
};

void frame_reader_init(struct frame_reader *r, struct slice body);

/* After a failure all of these return 0, false or the empty slice. Slices point into the body. */
uint8_t frame_get_u8(struct frame_reader *r);
uint32_t frame_get_u32(struct frame_reader *r);
uint64_t frame_get_u64(struct frame_reader *r);
int64_t frame_get_i64(struct frame_reader *r);
bool frame_get_bool(struct frame_reader *r);
/* At most `max` bytes. */
struct slice frame_get_bytes(struct frame_reader *r, size_t max);

/* A number of elements to follow, each at least `element_min` bytes long: refuses a number that the
 * rest of the body can't hold, so that nothing is allocated for it, and one above `max`. */
uint32_t frame_get_count(struct frame_reader *r, size_t element_min, uint32_t max);

/* No failure, and nothing left over. */
bool frame_reader_end(const struct frame_reader *r);

/* Appending to a body under construction; the buffer's sticky error tells of a limit. */
void frame_put_u8(struct buf *b, uint8_t value);
void frame_put_u32(struct buf *b, uint32_t value);
void frame_put_u64(struct buf *b, uint64_t value);
void frame_put_i64(struct buf *b, int64_t value);
void frame_put_bool(struct buf *b, bool value);
void frame_put_bytes(struct buf *b, struct slice bytes);

#endif
