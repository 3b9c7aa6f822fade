/*
 * Pace: the recent rate of deliveries to a destination, and the duration of one delivery.
 *
 * Deliveries are counted by intervals of PACE_INTERVAL_US. The rate is computed from the present
 * interval and the part of the previous one that completes a whole interval. So it covers the last
 * minute and ignores everything older than two. The mean duration moves by an eighth of the
 * difference with each delivery (as TCP's estimate of a round trip, RFC 6298).
 *
 * The pace is shown to operators; no decision depends on it. A plain value, valid when zeroed.
 */
#ifndef CORE_PACE_H
#define CORE_PACE_H

#include <stdint.h>

#include "times.h"

#define PACE_INTERVAL_US (60 * US_PER_S)

struct pace {
    int64_t from_us; /* start of the present interval */
    uint32_t current,
        before;         /* deliveries that ended in the present and in the previous interval */
    uint32_t mean_us;   /* mean duration; at most UINT32_MAX, 71 minutes */
    uint32_t intervals; /* number of intervals begun, at most 2; 0 if no delivery has ended yet */
};

/* Counts a delivery that ended and took `took_us`. */
void pace_ended(struct pace *p, struct mono now, int64_t took_us);

/* Returns deliveries per second; 0 during the first second. */
double pace_per_second(const struct pace *p, struct mono now);

/* Returns the mean duration; 0 if no delivery has ended yet. */
int64_t pace_mean(const struct pace *p);

#endif
