#include "histogram.h"

#include <stddef.h>

#include "check.h"
#include "mem.h"

#define STEP_BITS 6

_Static_assert(1 << STEP_BITS == HISTOGRAM_STEPS, "a step is a value of its bits");
_Static_assert(HISTOGRAM_RANGES == 64 - STEP_BITS, "every value from 0 to INT64_MAX has a place");

struct place {
    unsigned range, step;
};

static struct place place_of(uint64_t value)
{
    unsigned log2, shift;

    if (value < HISTOGRAM_STEPS) {
        return (struct place){0, (unsigned)value};
    }
    log2 = 63u - (unsigned)__builtin_clzll(value);
    shift = log2 - STEP_BITS;
    return (struct place){shift + 1, (unsigned)(value >> shift) - HISTOGRAM_STEPS};
}

static int64_t middle_of(struct place p)
{
    unsigned shift;

    if (p.range == 0) {
        return p.step;
    }
    shift = p.range - 1;
    return (int64_t)(((uint64_t)(HISTOGRAM_STEPS + p.step) << shift) + (UINT64_C(1) << shift) / 2);
}

void histogram_init(struct histogram *h)
{
    *h = (struct histogram){.count = 0};
}

void histogram_fini(struct histogram *h)
{
    for (size_t i = 0; i < HISTOGRAM_RANGES; i++) {
        mem_free(h->ranges[i]);
    }
    histogram_init(h);
}

static uint64_t *range_need(struct histogram *h, unsigned range)
{
    if (h->ranges[range] == NULL) {
        h->ranges[range] = mem_array(HISTOGRAM_STEPS, sizeof *h->ranges[range]);
    }
    return h->ranges[range];
}

static void widen(struct histogram *h, int64_t min, int64_t max)
{
    h->min = h->count == 0 || min < h->min ? min : h->min;
    h->max = h->count == 0 || max > h->max ? max : h->max;
}

void histogram_add(struct histogram *h, int64_t value)
{
    int64_t v = value < 0 ? 0 : value;
    struct place p = place_of((uint64_t)v);

    range_need(h, p.range)[p.step]++;
    widen(h, v, v);
    h->count++;
    h->sum += (double)v;
}

void histogram_merge(struct histogram *h, const struct histogram *from)
{
    if (from->count == 0) {
        return;
    }
    for (unsigned range = 0; range < HISTOGRAM_RANGES; range++) {
        for (unsigned step = 0; from->ranges[range] != NULL && step < HISTOGRAM_STEPS; step++) {
            range_need(h, range)[step] += from->ranges[range][step];
        }
    }
    widen(h, from->min, from->max);
    h->count += from->count;
    h->sum += from->sum;
}

int64_t histogram_quantile(const struct histogram *h, unsigned per_mille)
{
    uint64_t wanted, seen = 0;

    CHECK(per_mille <= 1000);
    /* The rank, rounded up, without the overflow of count * per_mille. */
    wanted = h->count / 1000 * per_mille + (h->count % 1000 * per_mille + 999) / 1000;
    if (wanted >= h->count) {
        return h->max;
    }
    for (unsigned range = 0; range < HISTOGRAM_RANGES; range++) {
        for (unsigned step = 0; h->ranges[range] != NULL && step < HISTOGRAM_STEPS; step++) {
            seen += h->ranges[range][step];
            if (seen >= wanted && seen > 0) {
                int64_t middle = middle_of((struct place){range, step});

                middle = middle < h->min ? h->min : middle;
                return middle > h->max ? h->max : middle;
            }
        }
    }
    UNREACHABLE("the buckets hold `count` values");
}

double histogram_mean(const struct histogram *h)
{
    return h->count == 0 ? 0 : h->sum / (double)h->count;
}
