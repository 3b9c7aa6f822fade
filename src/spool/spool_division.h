/*
 * Part of a spool: one message becomes several, which wait separately.
 *
 * For stores in which a message is one file with all of its recipients, while each destination has
 * its own retry times and another program may handle the rest. An engine without this part keeps
 * all pending recipients of a message due at the same time.
 *
 * A division exists in memory alone: after a crash the message is one again, and due at once. The
 * engine keeps the record; the caller owns the array of numbers.
 */
#ifndef SPOOL_SPOOL_DIVISION_H
#define SPOOL_SPOOL_DIVISION_H

#include "spool.h"

bool spool_divides(const struct spool *sp);

/* Removes recipients `ns` from the message and makes mail of its own of them, DEFERRED and parked
 * under `key` until `due`. They join mail that the same message has already parked there, if that
 * is not claimed. Such mail has its own id and is a message in every respect. This is a change, so
 * it is part of the batch. The message may be claimed or not, in any state but HOLD and CORRUPT.
 * -ENOTSUP when !spool_divides, -ENOENT if a recipient is not one of the message's pending ones,
 * -EINVAL for an impossible key. */
int spool_put_off(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count,
                  struct slice key, struct wall due);

/* Functions of an engine with this part; key and batch are checked before the call. */
struct spool_division_part {
    int (*put_off)(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count,
                   struct slice key, struct wall due);
};

#endif
