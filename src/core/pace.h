/*
 * Pace: how fast a destination takes mail lately, and how long one delivery lasts.
 *
 * Deliveries are counted by intervals of PACE_INTERVAL_US. The rate is that of the present interval
 * and of as much of the one before as makes a whole one, so it tells of the last minute and forgets
 * what is older than two. The mean duration moves by an eighth of the difference with each delivery
 * (as TCP's estimate of a round trip, RFC 6298).
 *
 * It is for telling operators; no decision depends on it. A plain value, valid when zeroed.
 */
#ifndef CORE_PACE_H
#define CORE_PACE_H

#include <stdint.h>

#include "times.h"

#define PACE_INTERVAL_US (60 * US_PER_S)

struct pace {
    int64_t from_us;          /* start of the present interval */
    uint32_t current, before; /* deliveries that ended in it, and in the one before */
    uint32_t mean_us;         /* at most UINT32_MAX, 71 minutes */
    uint32_t intervals;       /* begun so far; 0: nothing has ended yet */
};

/* A delivery ended that took `took_us`. */
void pace_ended(struct pace *p, struct mono now, int64_t took_us);

/* Deliveries per second. Of the first second no rate is told: 0. */
double pace_per_second(const struct pace *p, struct mono now);

/* Mean duration, 0 when nothing has ended yet. */
int64_t pace_mean(const struct pace *p);

#endif
