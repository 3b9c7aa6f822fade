/*
 * Idle connections kept for the next delivery to the same destination.
 *
 * A connection is found by its key, which its destination embeds. The connection used last is taken
 * first, so that surplus connections of a busy time become old and are closed. The whole cache has
 * a limit; an additional connection replaces the oldest.
 *
 * The cache owns nothing: sessions belong to the caller.
 */
#ifndef DELIVER_CONNCACHE_H
#define DELIVER_CONNCACHE_H

#include <stddef.h>
#include <sys/queue.h>

struct session;

struct conncache_key {
    TAILQ_HEAD(, session) idle; /* latest first */
};

struct conncache {
    TAILQ_HEAD(conncache_list, session) all; /* latest first */
    size_t count;
    size_t limit;
};

void conncache_init(struct conncache *cache, size_t limit);
void conncache_key_init(struct conncache_key *key);

/* Adds a session. If the cache is full, returns the oldest session (possibly `s` itself), already
 * removed, for the caller to close; otherwise NULL. */
struct session *conncache_put(struct conncache *cache, struct conncache_key *key,
                              struct session *s);

/* Removes and returns the session with this key that was used last, or NULL. */
struct session *conncache_take(struct conncache *cache, struct conncache_key *key);

/* Removes and returns the session that was kept longest, or NULL. */
struct session *conncache_take_oldest(struct conncache *cache);

/* Removes a session that is in the cache. */
void conncache_remove(struct conncache *cache, struct session *s);

#endif
