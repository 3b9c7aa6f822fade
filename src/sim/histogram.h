/*
 * A distribution of intervals in a few kilobytes, however many there are.
 *
 * Logarithmic buckets (as HdrHistogram has them): up to 64 us each value has its own, above that
 * every power of two is cut into 64. A quantile is the middle of its bucket, so it is off by less
 * than 1/128 (0.8 %); count, sum, least and greatest are exact. Buckets of a power of two are
 * allocated when the first value falls there. Adding and merging do not depend on the order.
 */
#ifndef SIM_HISTOGRAM_H
#define SIM_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_STEPS  64 /* buckets of a power of two */
#define HISTOGRAM_RANGES 58 /* 0..63, then 2^6..2^7, ..., 2^62..2^63 */

struct histogram {
    uint64_t *ranges[HISTOGRAM_RANGES]; /* owned arrays of HISTOGRAM_STEPS; NULL: all 0 */
    uint64_t count;
    double sum;
    int64_t min, max; /* of those added; 0 without any */
};

void histogram_init(struct histogram *h);
void histogram_fini(struct histogram *h);

/* A negative value counts as 0. */
void histogram_add(struct histogram *h, int64_t value);

/* Add everything in `from` to `h`. */
void histogram_merge(struct histogram *h, const struct histogram *from);

/* The least value that `per_mille` thousandths of all do not exceed; 0 when there are none. */
int64_t histogram_quantile(const struct histogram *h, unsigned per_mille);

/* 0 when there are none. */
double histogram_mean(const struct histogram *h);

#endif
