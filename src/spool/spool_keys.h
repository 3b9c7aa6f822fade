/*
 * Part of a spool: keys of client requests. A client that does not know whether its message was
 * stored repeats the request with the same key, and gets the message that exists (or existed).
 *
 * A key is stored in the batch of its message, so after a crash both exist, or neither. It is kept
 * until it expires, however soon the message is delivered. A sum of the request is stored with it:
 * the same key with another request is an error of the client.
 *
 * Engines that can store more than messages offer this part. Without it every call returns
 * -ENOTSUP.
 */
#ifndef SPOOL_SPOOL_KEYS_H
#define SPOOL_SPOOL_KEYS_H

#include "spool.h"

#define SPOOL_KEY_MAX 272 /* bytes */
#define SPOOL_KEY_SUM 16
/* Limit of expired keys that one call removes, so that no call takes long. */
#define SPOOL_KEYS_FORGOTTEN 4

struct spool_key {
    struct slice key;
    uint8_t sum[SPOOL_KEY_SUM];
    struct msg_id id;
    struct wall until;
};

/* Finds k->key. Returns 0 and sets the rest of *k; -ENOENT if the key does not exist and there is
 * room for it; -ENOSPC if it does not exist and `max` other keys do. Opens the batch, and sees the
 * keys in it. */
int spool_key_find(struct spool *sp, struct spool_key *k, struct wall now, uint64_t max);

/* Adds a new key to the batch in which its message was submitted. An error fails the batch. */
int spool_key_add(struct spool *sp, const struct spool_key *k);

/* Functions of an engine with this part. */
struct spool_keys_part {
    int (*find)(struct spool *sp, struct spool_key *k, struct wall now, uint64_t max);
    int (*add)(struct spool *sp, const struct spool_key *k);
};

#endif
