/*
 * Idle connections kept for the next delivery to the same destination.
 *
 * A connection is found by its key, which its destination embeds; the one used last comes out
 * first, so that those a busy spell has left over grow old and are closed. The whole cache holds a
 * bounded number; one more drives out the oldest.
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

/* Keep a session. Returns one that has to go for it (the oldest, already taken out; perhaps the
 * same), or NULL. */
struct session *conncache_put(struct conncache *cache, struct conncache_key *key,
                              struct session *s);

/* Take out the session under this key that was used last, or NULL. */
struct session *conncache_take(struct conncache *cache, struct conncache_key *key);

/* Take out the session that was kept longest, or NULL. */
struct session *conncache_take_oldest(struct conncache *cache);

/* Take out a session that is in the cache. */
void conncache_remove(struct conncache *cache, struct session *s);

#endif
