/*
 * Part of a spool: keys by which a client that does not know whether a message was stored asks for
 * it again, and gets the message that there is (or was).
 *
 * A key is stored in the batch of its message, so both are there after a crash, or neither. It is
 * kept until its time is over, however soon the message is delivered. With it stands a sum of what
 * the client asked for: the same key for something else is a mistake of the client's.
 *
 * An engine offers it that has a place for more than messages. Without it every call is -ENOTSUP.
 */
#ifndef SPOOL_SPOOL_KEYS_H
#define SPOOL_SPOOL_KEYS_H

#include "spool.h"

#define SPOOL_KEY_MAX 272 /* bytes */
#define SPOOL_KEY_SUM 16
/* Keys whose time is over that are forgotten in one call, so that none takes long. */
#define SPOOL_KEYS_FORGOTTEN 4

struct spool_key {
    struct slice key;
    uint8_t sum[SPOOL_KEY_SUM];
    struct msg_id id;
    struct wall until;
};

/* Look for k->key: 0, and the rest of *k is filled in; -ENOENT: it is not there, and there is room
 * for it; -ENOSPC: neither, `max` are there. Opens the batch, and sees what stands in it. */
int spool_key_find(struct spool *sp, struct spool_key *k, struct wall now, uint64_t max);

/* Add one that is not there to the batch, in which its message was submitted. When that fails, so
 * has the batch. */
int spool_key_add(struct spool *sp, const struct spool_key *k);

/* The part, as spool_engine.h wants it. */
struct spool_keys_part {
    int (*find)(struct spool *sp, struct spool_key *k, struct wall now, uint64_t max);
    int (*add)(struct spool *sp, const struct spool_key *k);
};

#endif
