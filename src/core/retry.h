/*
 * When to try again: two strategies, both pure functions of what is known of an attempt.
 *
 *   retry_backoff   Postfix's, per message: wait as long as the message is old, within two bounds;
 *                   so the interval doubles until the upper bound.
 *   retry_sequence  ZMailer's, per destination: an interval times a sequence of factors, entered
 *                   again at a random place when it is through.
 *
 * Both can be spread at random ("jitter"), so that what failed together does not come back as one
 * wave. The spread is uniform over jitter per cent of the wait and goes upwards, so that no attempt
 * comes before the wait is over. Where the upper bound of the back-off is nearer than that, the
 * spread ends at the bound and begins earlier: old mail, which waits as long as it may, is spread
 * as widely, and never waits for longer.
 */
#ifndef CORE_RETRY_H
#define CORE_RETRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rng.h"
#include "times.h"

#define RETRY_JITTER_MAX    100 /* per cent */
#define RETRY_SEQUENCE_MAX  1000
#define RETRY_BOUNDARY_LATE (10 * US_PER_S)

/* How long to wait after a failed attempt at a message of age `age_us`: the age, at least
 * `minimal_us`, at most `maximal_us` (the minimum wins when they cross), spread within the same
 * bounds. A negative age (a clock set back) counts as 0. With jitter 0 no random number is
 * drawn. */
int64_t retry_backoff(int64_t minimal_us, int64_t maximal_us, int64_t age_us,
                      unsigned jitter_percent, struct rng *rng);

/* A clause's `interval`, `retries` and `skew`. */
struct retry_sequence {
    int64_t interval_us;     /* >= 1 s */
    const uint32_t *factors; /* borrowed */
    size_t count;            /* 0..RETRY_SEQUENCE_MAX; 0: stay due, try without end */
    uint32_t skew;           /* >= 1; 1 = move to the interval's grid at once, larger = slower */
};

/* Where a destination stands; {due = 0, index = 0} when it is new. */
struct retry_state {
    struct wall due;
    size_t index; /* not reset by success: it goes with the destination */
};

/* A recipient of the destination was deferred at `now` (zmailer-scheduler 11.2): move `due`. Only
 * the first deferral of a run does, as then `due` is in the future. `attempted`: it had been tried
 * before this run. Whole seconds decide, as there. */
void retry_sequence_deferred(const struct retry_sequence *sequence, struct retry_state *state,
                             struct wall now, bool attempted, unsigned jitter_percent,
                             struct rng *rng);

/* A run ended and no recipient was deferred, yet recipients are left (11.3): one step of the
 * sequence. */
void retry_sequence_run_ended(const struct retry_sequence *sequence, struct retry_state *state,
                              struct wall now, unsigned jitter_percent, struct rng *rng);

#endif
