/*
 * Distributions of a quantity of the simulated world: an interval, a count, or a size.
 *
 *     200ms                       constant
 *     uniform(100ms,300ms)        all between them equally often
 *     exponential(200ms)          with this mean
 *     lognormal(200ms,0.5)        the median, and the standard deviation of the logarithm: 0.5 puts
 *                                 1 of 100 above 3.2 times the median
 *     empirical(90ms,100ms,2s)    one of these, each equally often
 *
 * Draws are whole numbers, at most DISTRIBUTION_MAX, and depend on nothing but the generator.
 */
#ifndef SIM_DISTRIBUTION_H
#define SIM_DISTRIBUTION_H

#include <stdbool.h>
#include <stdint.h>

#include "rng.h"
#include "slice.h"

#define DISTRIBUTION_SAMPLES_MAX 1000
#define DISTRIBUTION_MAX         INT64_C(3200000000000000) /* a hundred years in microseconds */

enum quantity {
    QUANTITY_INTERVAL, /* microseconds; "200ms" */
    QUANTITY_COUNT,    /* "50000" */
    QUANTITY_SIZE,     /* bytes; "4k" */
};

enum distribution_form {
    DISTRIBUTION_CONSTANT,    /* always a */
    DISTRIBUTION_UNIFORM,     /* a..b */
    DISTRIBUTION_EXPONENTIAL, /* mean a */
    DISTRIBUTION_LOGNORMAL,   /* median a, sigma */
    DISTRIBUTION_EMPIRICAL,   /* samples */
};

struct distribution {
    enum distribution_form form;
    int64_t a, b;
    double sigma;     /* 0..10 */
    int64_t *samples; /* owned */
    uint32_t count;   /* number of samples, >= 1 if empirical */
};

static inline struct distribution distribution_constant(int64_t value)
{
    return (struct distribution){.form = DISTRIBUTION_CONSTANT, .a = value};
}

/* Returns a distribution of copied samples; count is 1..DISTRIBUTION_SAMPLES_MAX, each sample
 * 0..DISTRIBUTION_MAX. */
struct distribution distribution_empirical(const int64_t *samples, uint32_t count);

void distribution_fini(struct distribution *d);

/* Returns a copy, which needs its own distribution_fini. */
struct distribution distribution_copy(const struct distribution *d);

/* Parses one of the above. Returns false on an error: *ret is then untouched, *ret_bad is the part
 * that was refused and *ret_expected describes a valid one. */
bool distribution_parse(struct slice text, enum quantity quantity, struct distribution *ret,
                        struct slice *ret_bad, const char **ret_expected);

/* Returns a random value. A constant draws nothing from the generator. */
int64_t distribution_draw(const struct distribution *d, struct rng *rng);

/* Returns the gap to the next event of a Poisson process, not rounded. */
double distribution_draw_gap(double mean, struct rng *rng);

#endif
