/*
 * The seeded hash function behind every uthash table: SipHash-1-3 (Aumasson and Bernstein), so that
 * a stranger who chooses domain names cannot choose collisions. Include this instead of uthash.h.
 *
 * The key is one per process, set by hash_seed at start-up before the first table exists; without
 * that it is fixed, so simulation and tests replay. No decision may depend on a table's order.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Set the process-wide key. */
void hash_seed(uint64_t k0, uint64_t k1);

uint64_t hash_bytes(const void *bytes, size_t len);

#define HASH_FUNCTION(keyptr, keylen, hashv) ((hashv) = (unsigned)hash_bytes((keyptr), (keylen)))
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#include <uthash.h>
#pragma GCC diagnostic pop

#endif
