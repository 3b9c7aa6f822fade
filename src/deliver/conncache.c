#include "conncache.h"

#include "check.h"
#include "session.h"

void conncache_init(struct conncache *cache, size_t limit)
{
    TAILQ_INIT(&cache->all);
    cache->count = 0;
    cache->limit = limit;
}

void conncache_key_init(struct conncache_key *key)
{
    TAILQ_INIT(&key->idle);
}

void conncache_remove(struct conncache *cache, struct session *s)
{
    CHECK(s->cached_under != NULL);
    CHECK(cache->count > 0);
    TAILQ_REMOVE(&cache->all, s, cache_all);
    TAILQ_REMOVE(&s->cached_under->idle, s, cache_key);
    s->cached_under = NULL;
    cache->count--;
}

struct session *conncache_put(struct conncache *cache, struct conncache_key *key, struct session *s)
{
    CHECK(s->cached_under == NULL);
    s->cached_under = key;
    TAILQ_INSERT_HEAD(&cache->all, s, cache_all);
    TAILQ_INSERT_HEAD(&key->idle, s, cache_key);
    cache->count++;
    return cache->count > cache->limit ? conncache_take_oldest(cache) : NULL;
}

struct session *conncache_take(struct conncache *cache, struct conncache_key *key)
{
    struct session *s = TAILQ_FIRST(&key->idle);

    if (s != NULL) {
        conncache_remove(cache, s);
    }
    return s;
}

struct session *conncache_take_oldest(struct conncache *cache)
{
    struct session *s = TAILQ_LAST(&cache->all, conncache_list);

    if (s != NULL) {
        conncache_remove(cache, s);
    }
    return s;
}
