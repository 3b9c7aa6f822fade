/*
 * Limit of the log lines of one cause, so that an attack does not flood the log.
 *
 * A period begins with the first line. Its first lines_max lines are logged, and the others
 * counted; after the period one line reports the count. The module has no I/O: the owner has the
 * clock, a timer and the log. A plain value: embed it. Its fields except `lines_max` are private to
 * log_quota.c.
 */
#ifndef RECEIVE_LOG_QUOTA_H
#define RECEIVE_LOG_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "times.h"

#define LOG_QUOTA_PERIOD_US (60 * US_PER_S)

struct log_quota {
    uint64_t lines_max; /* set by the owner */
    struct mono until;  /* end of the period; 0 at first */
    uint64_t lines;     /* number of lines of the period, logged or not */
    uint64_t unlogged;  /* number of lines left out and not reported, of this or an earlier
                         * period */
};

/* May a line be logged? If not, the line is counted. */
bool log_quota_take(struct log_quota *q, struct mono now);

/* Is the quota of this period used up? */
bool log_quota_is_spent(const struct log_quota *q, struct mono now);

/* Returns the time to call log_quota_tell; MONO_NEVER if no line was left out. */
struct mono log_quota_due(const struct log_quota *q);

/* Returns the number of lines left out, and resets it; 0 before the end of the period. */
uint64_t log_quota_tell(struct log_quota *q, struct mono now);

#endif
