/*
 * Checksums of stored data: of a message's content, and of those columns of a row that never
 * change.
 *
 * They find damage, such as a flipped bit, a piece of another file, or a cut; they do not protect
 * against an attacker who can write to the disk. The function is XXH3-64, whose values are the same
 * on every machine and in every version of its library. At several gigabytes per second it costs
 * less than copying the bytes.
 *
 * Stored values never change meaning; row_sum.c defines the bytes that are hashed for a row.
 */
#ifndef SPOOL_CHECKSUM_H
#define SPOOL_CHECKSUM_H

#include <stdint.h>

#include "slice.h"

/* Returns the checksum of bytes in one piece. */
uint64_t checksum_of(struct slice bytes);

/* A checksum of bytes that arrive in pieces; the pieces do not affect the value. */
struct checksum;
struct checksum *checksum_new(void);
void checksum_free(struct checksum *c); /* NULL is allowed */
void checksum_add(struct checksum *c, struct slice bytes);
uint64_t checksum_value(const struct checksum *c);

#endif
