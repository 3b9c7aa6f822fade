/*
 * Time of the next attempt: two strategies, both pure functions.
 *
 *   retry_backoff   Postfix's, per message: wait as long as the message is old, within two bounds;
 *                   so the interval doubles until the upper bound.
 *   retry_sequence  ZMailer's, per destination: an interval times a sequence of factors. After its
 *                   end the sequence is entered again at a random place. The time is moved towards
 *                   a multiple of the interval, so that destinations are tried together.
 *
 * Both can be spread at random ("jitter"), so that mail that failed together does not return as one
 * wave. The spread is uniform over jitter per cent of the wait and goes upwards, so that no attempt
 * comes before the wait is over. If the upper bound of the back-off is nearer than that, the spread
 * ends at the bound and begins earlier: old mail, which waits for the maximum, is spread as widely
 * and never waits for longer.
 */
#ifndef CORE_RETRY_H
#define CORE_RETRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rng.h"
#include "times.h"

#define RETRY_JITTER_MAX   100 /* per cent */
#define RETRY_SEQUENCE_MAX 1000

/* Returns the wait after a failed attempt at a message of age `age_us`: the age, at least
 * `minimal_us`, at most `maximal_us` (the minimum wins if they cross), spread within the same
 * bounds. A negative age (a clock set back) counts as 0. With jitter 0 no random number is
 * drawn. */
int64_t retry_backoff(int64_t minimal_us, int64_t maximal_us, int64_t age_us,
                      unsigned jitter_percent, struct rng *rng);

/* `interval`, `retries` and `skew` of a clause. */
struct retry_sequence {
    int64_t interval_us;     /* >= 1 s */
    const uint32_t *factors; /* borrowed */
    size_t count;            /* 0..RETRY_SEQUENCE_MAX; 0: stay due, try without end */
    uint32_t
        skew; /* >= 1; 1 moves the time to the interval's grid at once, a larger skew more slowly */
};

/* Retry state of a destination; {due = 0, index = 0} if the destination is new. */
struct retry_state {
    struct wall due;
    size_t index; /* index of the next factor; a success does not reset it */
};

/* Moves `due` after a run that left mail and ended at `now`: the next factor times the interval
 * later, moved to the nearest multiple of the interval (zmailer-scheduler 11.2). With a skew S the
 * move is an S-th of the distance, in whole seconds rounded up. The wait is therefore at least half
 * an interval. Only the first result of a run has an effect, because `due` is in the future after
 * it. */
void retry_sequence_ran(const struct retry_sequence *sequence, struct retry_state *state,
                        struct wall now, unsigned jitter_percent, struct rng *rng);

#endif
