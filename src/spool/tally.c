#include "tally.h"

#include <string.h>

#include "mem.h"

/* Joins a next hop and a transport to one key, separated by NUL, which neither contains. */
static char *key_of(struct slice nexthop, struct slice transport, size_t *ret_len)
{
    size_t len = nexthop.len + 1 + transport.len;
    char *key = mem_new(len);

    if (nexthop.len > 0) {
        memcpy(key, nexthop.ptr, nexthop.len);
    }
    if (transport.len > 0) {
        memcpy(key + nexthop.len + 1, transport.ptr, transport.len);
    }
    *ret_len = len;
    return key;
}

void tally_add(struct tally *t, struct slice nexthop, struct slice transport, int64_t rcpts,
               int64_t messages)
{
    struct tally_entry *e;
    size_t len;
    char *key = key_of(nexthop, transport, &len);

    HASH_FIND(hh, t->entries, key, len, e);
    if (e == NULL) {
        e = mem_new(sizeof *e);
        e->key = key;
        e->key_len = len;
        e->nexthop_len = nexthop.len;
        HASH_ADD_KEYPTR(hh, t->entries, e->key, len, e);
    } else {
        mem_free(key);
    }
    e->rcpts += rcpts;
    e->messages += messages;
}

void tally_clear(struct tally *t)
{
    struct tally_entry *e, *next;

    HASH_ITER(hh, t->entries, e, next)
    {
        HASH_DEL(t->entries, e);
        mem_free(e->key);
        mem_free(e);
    }
}
