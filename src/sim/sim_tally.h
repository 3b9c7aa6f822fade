/*
 * Counts of a run: of all mail, of a class, or of a destination.
 *
 * Memory does not grow with the mail: delays go into a histogram.
 */
#ifndef SIM_TALLY_H
#define SIM_TALLY_H

#include <stdint.h>

#include "histogram.h"
#include "sim_site.h"
#include "times.h"

struct sim_tally {
    const char *name; /* borrowed from the workload or the world */

    uint64_t messages;                /* messages that arrived; for a destination: with a recipient
                                       * there */
    uint64_t recipients;              /* recipients of these messages */
    uint64_t sent, bounced, expired;  /* recipients with this final result; the others wait */
    uint64_t deferrals;               /* deferrals of recipients */
    uint64_t unattempted;             /* deferrals without an attempt, because the destination was
                                       * dead */
    uint64_t attempts;                /* deliveries (entries) that were started */
    uint64_t asked;                   /* recipients in these deliveries */
    uint64_t failures[SIM_TRY_KINDS]; /* attempts that did not reach the site, by the last reason */

    struct histogram delay; /* of recipients that were sent: from arrival to delivery */

    uint32_t busy, busy_peak;       /* deliveries in flight, and their maximum */
    double busy_us, busy_square_us; /* integrals over time of busy and of its square */
    double active_us;               /* time with at least one delivery in flight */
    int64_t busy_since_us;
    int64_t last_came_us, last_gone_us; /* times of the last arrival, and of the last final result
                                         * of a recipient */
};

void sim_tally_init(struct sim_tally *t, const char *name);
void sim_tally_fini(struct sim_tally *t);

/* Returns the number of recipients without a final result. */
uint64_t sim_tally_left(const struct sim_tally *t);

/* Counts a delivery that begins (+1) or ends (-1). */
void sim_tally_busy(struct sim_tally *t, struct mono now, int change);

/* Extends the integrals to `now`, at the end of the run. */
void sim_tally_close(struct sim_tally *t, struct mono now);

/* Returns the mean number of deliveries over the time in which any were in flight;
 * sim_tally_busy_deviation: the standard deviation. */
double sim_tally_busy_mean(const struct sim_tally *t);
double sim_tally_busy_deviation(const struct sim_tally *t);

/* Returns the part of all attempts and unattempted deferrals of recipients that were deferred:
 * 0..1. */
double sim_tally_defer_rate(const struct sim_tally *t);

/* Returns the time from the last arrival to the last final result; negative if recipients are
 * left. */
int64_t sim_tally_drain_us(const struct sim_tally *t);

/* Adds `from` to `to`, for a row that sums up several. Peaks of concurrency are not added; the sum
 * keeps the greatest. */
void sim_tally_merge(struct sim_tally *to, const struct sim_tally *from);

#endif
