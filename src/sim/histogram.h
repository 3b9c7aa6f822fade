/*
 * A histogram of intervals in a few kilobytes, whatever their number.
 *
 * Logarithmic buckets (as in HdrHistogram): up to 64 us each value has its own, above that every
 * power of two is divided into 64. A quantile is the middle of its bucket, so it is off by less
 * than 1/128 (0.8 %); count, sum, least and greatest are exact. Buckets of a power of two are
 * allocated with their first value. Adding and merging give the same result in any order.
 */
#ifndef SIM_HISTOGRAM_H
#define SIM_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_STEPS  64 /* buckets per power of two */
#define HISTOGRAM_RANGES 58 /* 0..63, then 2^6..2^7, ..., 2^62..2^63 */

struct histogram {
    uint64_t *ranges[HISTOGRAM_RANGES]; /* owned arrays of HISTOGRAM_STEPS; NULL: all 0 */
    uint64_t count;
    double sum;
    int64_t min, max; /* least and greatest value added; 0 without any */
};

void histogram_init(struct histogram *h);
void histogram_fini(struct histogram *h);

/* Adds a value; a negative one counts as 0. */
void histogram_add(struct histogram *h, int64_t value);

/* Adds all values of `from` to `h`. */
void histogram_merge(struct histogram *h, const struct histogram *from);

/* Returns the least value that `per_mille` thousandths of all do not exceed; 0 if there are
 * none. */
int64_t histogram_quantile(const struct histogram *h, unsigned per_mille);

/* Returns the mean; 0 if there are no values. */
double histogram_mean(const struct histogram *h);

#endif
