/*
 * The seeded hash function of every uthash table: SipHash-1-3 (Aumasson and Bernstein), so that a
 * stranger who chooses domain names cannot choose collisions. Include this instead of uthash.h.
 *
 * The key is one per process, set by hash_seed at start-up before the first table exists. Without
 * that the key is fixed, so that simulation and tests are reproducible. No decision may depend on a
 * table's order.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Sets the process-wide key. */
void hash_seed(uint64_t k0, uint64_t k1);

uint64_t hash_bytes(const void *bytes, size_t len);

#define HASH_FUNCTION(keyptr, keylen, hashv) ((hashv) = (unsigned)hash_bytes((keyptr), (keylen)))
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#include <uthash.h>
#pragma GCC diagnostic pop

/* Walks a table bucket by bucket, for callers that visit all elements a part at a time and not all
 * at once. `any` is the handle of some element, NULL if the table is empty. Returns the first
 * handle of bucket *cursor, or NULL if the bucket is empty; the others follow by hh_next. Advances
 * *cursor, to 0 after the last bucket. A table that grows in between makes the walk skip or repeat
 * elements. */
static inline struct UT_hash_handle *hash_bucket(const struct UT_hash_handle *any, uint64_t *cursor)
{
    const struct UT_hash_table *table = any != NULL ? any->tbl : NULL;
    struct UT_hash_handle *first;

    if (table == NULL || *cursor >= table->num_buckets) {
        *cursor = 0;
        return NULL;
    }
    first = table->buckets[*cursor].hh_head;
    *cursor = *cursor + 1 == table->num_buckets ? 0 : *cursor + 1;
    return first;
}

#endif
