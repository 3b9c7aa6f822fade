#include "agent_stops.h"

#include "buf.h"
#include "check.h"
#include "mem.h"
#include "wire.h"

#define KEY_MAX (2 * WIRE_HOST_MAX + 1)

struct stopped_thread {
    char *key; /* owned; hash key */
    size_t stops;
    UT_hash_handle hh;
};

struct agent_stop {
    uint64_t entry;
    struct stopped_thread *thread;
    UT_hash_handle hh;
};

static struct stopped_thread *find_thread(const struct agent_stops *all, struct slice transport,
                                          struct slice nexthop, struct buf *key)
{
    struct stopped_thread *t;

    (void)buf_add(key, transport);
    (void)buf_add_byte(key, '\0'); /* no name contains one */
    (void)buf_add(key, nexthop);
    CHECK(!key->failed); /* both names are limited by the frame */
    HASH_FIND(hh, all->by_thread, buf_slice(key).ptr, buf_len(key), t);
    return t;
}

void agent_stops_add(struct agent_stops *all, uint64_t entry, struct slice transport,
                     struct slice nexthop)
{
    struct stopped_thread *t;
    struct agent_stop *s;
    struct buf key;

    HASH_FIND(hh, all->by_entry, &entry, sizeof entry, s);
    if (s != NULL) {
        return;
    }
    buf_init(&key, KEY_MAX);
    t = find_thread(all, transport, nexthop, &key);
    if (t == NULL) {
        t = mem_new(sizeof *t);
        t->key = mem_copy(buf_slice(&key).ptr, buf_len(&key));
        HASH_ADD_KEYPTR(hh, all->by_thread, t->key, buf_len(&key), t);
    }
    buf_fini(&key);
    t->stops++;
    s = mem_new(sizeof *s);
    s->entry = entry;
    s->thread = t;
    HASH_ADD(hh, all->by_entry, entry, sizeof s->entry, s);
}

static void remove_stop(struct agent_stops *all, struct agent_stop *s)
{
    struct stopped_thread *t = s->thread;

    HASH_DEL(all->by_entry, s);
    mem_free(s);
    if (--t->stops == 0) {
        HASH_DEL(all->by_thread, t);
        mem_free(t->key);
        mem_free(t);
    }
}

bool agent_stops_processed(struct agent_stops *all, uint64_t entry)
{
    struct agent_stop *s;

    HASH_FIND(hh, all->by_entry, &entry, sizeof entry, s);
    if (s == NULL) {
        return false;
    }
    remove_stop(all, s);
    return true;
}

bool agent_stops_holds(const struct agent_stops *all, struct slice transport, struct slice nexthop)
{
    struct buf key;
    bool found;

    if (all->by_thread == NULL) {
        return false;
    }
    buf_init(&key, KEY_MAX);
    found = find_thread(all, transport, nexthop, &key) != NULL;
    buf_fini(&key);
    return found;
}

void agent_stops_fini(struct agent_stops *all)
{
    struct agent_stop *s, *next;

    HASH_ITER(hh, all->by_entry, s, next)
    {
        remove_stop(all, s);
    }
}
