/*
 * How many lines one cause may add to the log, so that an attack does not flood it.
 *
 * A period begins with the first line. Its first lines_max lines are logged, the others counted;
 * when it is over, one line tells the count. Without I/O: the owner has the clock, a timer and the
 * log. A plain value: embed it. Fields are private to log_quota.c.
 */
#ifndef RECEIVE_LOG_QUOTA_H
#define RECEIVE_LOG_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "times.h"

#define LOG_QUOTA_PERIOD_US (60 * US_PER_S)

struct log_quota {
    uint64_t lines_max; /* the owner sets it */
    struct mono until;  /* end of the period; 0 at first */
    uint64_t lines;     /* of the period, logged or not */
    uint64_t unlogged;  /* not told yet, of this or an earlier period */
};

/* May a line be logged? If not, it is counted. */
bool log_quota_take(struct log_quota *q, struct mono now);

/* Are lines left out in this period? */
bool log_quota_is_spent(const struct log_quota *q, struct mono now);

/* When log_quota_tell is due; MONO_NEVER while nothing was left out. */
struct mono log_quota_due(const struct log_quota *q);

/* How many lines were left out, when the period is over; 0 before. They count as told. */
uint64_t log_quota_tell(struct log_quota *q, struct mono now);

#endif
