/*
 * Reads and writes the fields of a frame between two of our processes.
 *
 * A frame has a type and a body of fields. Numbers are little-endian and of fixed width; byte
 * strings are a 32-bit length and the bytes. The reader has a sticky error and is strict: each
 * length is checked against the remaining bytes, booleans are 0 or 1, and frame_reader_end requires
 * that all bytes were used. The sender may be an attacker who controls a confined process; a frame
 * that does not decode ends the connection.
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

/* Returns the next field; after a failure 0, false or an empty slice. Slices point into the
 * body. */
uint8_t frame_get_u8(struct frame_reader *r);
uint32_t frame_get_u32(struct frame_reader *r);
uint64_t frame_get_u64(struct frame_reader *r);
int64_t frame_get_i64(struct frame_reader *r);
bool frame_get_bool(struct frame_reader *r);
/* Returns a byte string of at most `max` bytes. */
struct slice frame_get_bytes(struct frame_reader *r, size_t max);

/* Returns a number of elements that follow, each at least `element_min` bytes long. Fails if the
 * number exceeds `max` or the rest of the body is too short for it, so that a caller never
 * allocates too much. */
uint32_t frame_get_count(struct frame_reader *r, size_t element_min, uint32_t max);

/* Was there no failure, and were all bytes used? */
bool frame_reader_end(const struct frame_reader *r);

/* Appends a field to a body; the buffer's sticky error shows that a limit was reached. */
void frame_put_u8(struct buf *b, uint8_t value);
void frame_put_u32(struct buf *b, uint32_t value);
void frame_put_u64(struct buf *b, uint64_t value);
void frame_put_i64(struct buf *b, int64_t value);
void frame_put_bool(struct buf *b, bool value);
void frame_put_bytes(struct buf *b, struct slice bytes);

#endif
