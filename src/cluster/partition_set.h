/*
 * Set of partitions: one bit for each.
 */
#ifndef CLUSTER_PARTITION_SET_H
#define CLUSTER_PARTITION_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "check.h"
#include "partition.h"

struct partition_set {
    uint64_t bits[PARTITIONS / 64];
};

static inline bool partition_set_has(const struct partition_set *s, int p)
{
    CHECK(p >= 0 && p < PARTITIONS);
    return (s->bits[p / 64] >> (p % 64) & 1) != 0;
}

static inline void partition_set_add(struct partition_set *s, int p)
{
    CHECK(p >= 0 && p < PARTITIONS);
    s->bits[p / 64] |= UINT64_C(1) << (p % 64);
}

static inline void partition_set_remove(struct partition_set *s, int p)
{
    CHECK(p >= 0 && p < PARTITIONS);
    s->bits[p / 64] &= ~(UINT64_C(1) << (p % 64));
}

static inline int partition_set_count(const struct partition_set *s)
{
    int count = 0;

    for (int i = 0; i < PARTITIONS / 64; i++) {
        count += __builtin_popcountll(s->bits[i]);
    }
    return count;
}

static inline bool partition_set_is_empty(const struct partition_set *s)
{
    return partition_set_count(s) == 0;
}

#endif
