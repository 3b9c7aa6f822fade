/*
 * A small seeded random generator (xoshiro256**, Blackman and Vigna, public domain; seeded by
 * splitmix64). The same seed gives the same numbers, everywhere. Not for secrets.
 */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state[4];
};

void rng_init(struct rng *r, uint64_t seed);

/* Returns 64 random bits. */
uint64_t rng_next(struct rng *r);

/* Returns a number that is uniform in 0..bound-1, without bias; bound >= 1. */
uint64_t rng_below(struct rng *r, uint64_t bound);

/* Returns a number that is uniform in [0, 1). */
double rng_double(struct rng *r);

#endif
