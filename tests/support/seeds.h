/*
 * Seeds of random histories: SLUICE_SEEDS=FIRST-LAST runs others than the usual, SLUICE_SEEDS=N-N
 * replays the one that a failure has printed.
 */
#ifndef TESTS_SEEDS_H
#define TESTS_SEEDS_H

#include <stdint.h>
#include <stdio.h>

#include "unit.h"

static inline void for_each_seed(uint64_t first, uint64_t last, void (*history)(uint64_t seed))
{
    const char *text = getenv("SLUICE_SEEDS");
    unsigned long long a = first, b = last;

    if (text != NULL) {
        assert_int_equal(sscanf(text, "%llu-%llu", &a, &b), 2);
    }
    for (uint64_t seed = a; seed <= b; seed++) {
        history(seed);
    }
}

#endif
