/*
 * What is counted of a run: of all mail, of a class, or of a destination.
 *
 * Memory does not grow with the mail that passes: delays go into a histogram.
 */
#ifndef SIM_TALLY_H
#define SIM_TALLY_H

#include <stdint.h>

#include "histogram.h"
#include "sim_site.h"
#include "times.h"

struct sim_tally {
    const char *name; /* borrowed from the workload or the world */

    uint64_t messages;                /* that arrived; of a destination: with a recipient there */
    uint64_t recipients;              /* of them */
    uint64_t sent, bounced, expired;  /* recipients that came to their end so; the rest wait */
    uint64_t deferrals;               /* times that a recipient was deferred */
    uint64_t unattempted;             /* of these, without an attempt: the destination was dead */
    uint64_t attempts;                /* deliveries (entries) that were begun */
    uint64_t asked;                   /* recipients that were in them, each time */
    uint64_t failures[SIM_TRY_KINDS]; /* attempts that did not reach the site, by the last reason */

    struct histogram delay; /* of recipients that were sent: from arrival to delivery */

    uint32_t busy, busy_peak;       /* deliveries under way */
    double busy_us, busy_square_us; /* integrals over time of busy and of its square */
    double active_us;               /* time with at least one under way */
    int64_t busy_since_us;
    int64_t last_came_us, last_gone_us; /* the last arrival, and the last end of a recipient */
};

void sim_tally_init(struct sim_tally *t, const char *name);
void sim_tally_fini(struct sim_tally *t);

/* Recipients that have not come to their end. */
uint64_t sim_tally_left(const struct sim_tally *t);

/* A delivery begins (+1) or ends (-1). */
void sim_tally_busy(struct sim_tally *t, struct mono now, int change);

/* The run ends: integrals go up to `now`. */
void sim_tally_close(struct sim_tally *t, struct mono now);

/* Mean and standard deviation over the time in which anything was under way. */
double sim_tally_busy_mean(const struct sim_tally *t);
double sim_tally_busy_deviation(const struct sim_tally *t);

/* Of all times that a recipient was attempted or deferred unattempted, the part that was
 * deferred: 0..1. */
double sim_tally_defer_rate(const struct sim_tally *t);

/* From the last arrival to the last end; negative when recipients are left. */
int64_t sim_tally_drain_us(const struct sim_tally *t);

/* Add `from` to `to`, for a row that sums several. Peaks of concurrency do not add; the sum keeps
 * the greatest. */
void sim_tally_merge(struct sim_tally *to, const struct sim_tally *from);

#endif
