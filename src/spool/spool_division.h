/*
 * Part of a spool: one message becomes several, that wait apart from each other.
 *
 * For stores in which a message is one file with all of its recipients, while each destination has
 * times of its own, and another program may see to the others. An engine without it
 * keeps all pending recipients of a message due at the same time.
 *
 * What divides is kept in memory alone: after a crash it is one message again, and due at once. The
 * store is the engine's; the caller owns the array of numbers.
 */
#ifndef SPOOL_SPOOL_DIVISION_H
#define SPOOL_SPOOL_DIVISION_H

#include "spool.h"

bool spool_divides(const struct spool *sp);

/* Recipients `ns` of the message leave it and become mail of their own, DEFERRED and parked under
 * `key` until `due`; they join what the same message has parked there and is not claimed. Such mail
 * has an id of its own and is a message in every respect. A change, part of the batch; the message
 * may be claimed or not, in any state but HOLD and CORRUPT. -ENOTSUP when !spool_divides, -ENOENT
 * when a recipient is none of the message's pending ones, -EINVAL for an impossible key. */
int spool_put_off(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count,
                  struct slice key, struct wall due);

/* The part, as spool_engine.h wants it: key and batch are checked. */
struct spool_division_part {
    int (*put_off)(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count,
                   struct slice key, struct wall due);
};

#endif
