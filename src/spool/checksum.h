/*
 * Checksums of what is stored: of a message's content, and of what never changes in a row.
 *
 * They find damage, such as a flipped bit, a piece of another file, or a cut; they are no defence
 * against who can write to the disk. The function is XXH3-64, whose values are the same on every
 * machine and in every version of its library; at several gigabytes per second it costs less than
 * copying the bytes does.
 *
 * Stored values never change meaning: a row is hashed as checksum_number and checksum_text put its
 * columns one after the other, see sqlite_sum.c.
 */
#ifndef SPOOL_CHECKSUM_H
#define SPOOL_CHECKSUM_H

#include <stdint.h>

#include "slice.h"

/* Of bytes that are in one piece. */
uint64_t checksum_of(struct slice bytes);

/* Of bytes that come in pieces; the same value, whatever the pieces are. */
struct checksum;
struct checksum *checksum_new(void);
void checksum_free(struct checksum *c); /* NULL is fine */
void checksum_add(struct checksum *c, struct slice bytes);
uint64_t checksum_value(const struct checksum *c);

#endif
