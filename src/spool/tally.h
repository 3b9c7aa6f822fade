/*
 * Sums up changes of the counts per destination until a commit writes them: a batch that defers a
 * thousand messages for one destination then writes one row.
 */
#ifndef SPOOL_TALLY_H
#define SPOOL_TALLY_H

#include <stdint.h>

#include "hash.h"
#include "slice.h"

struct tally_entry {
    char *key; /* owned; nexthop, NUL, transport */
    size_t nexthop_len, key_len;
    int64_t rcpts, messages;
    UT_hash_handle hh;
};

/* Zeroed = empty. */
struct tally {
    struct tally_entry *entries;
};

void tally_add(struct tally *t, struct slice nexthop, struct slice transport, int64_t rcpts,
               int64_t messages);

/* Removes all entries. */
void tally_clear(struct tally *t);

static inline struct slice tally_nexthop(const struct tally_entry *e)
{
    return slice_of(e->key, e->nexthop_len);
}

static inline struct slice tally_transport(const struct tally_entry *e)
{
    return slice_of(e->key + e->nexthop_len + 1, e->key_len - e->nexthop_len - 1);
}

#endif
