#include "retry.h"

#include "check.h"

/* Returns `jitter_percent` per cent of a wait. */
static int64_t span_of(int64_t wait_us, unsigned jitter_percent)
{
    CHECK(wait_us >= 0);
    CHECK(jitter_percent <= RETRY_JITTER_MAX);
    /* Dividing first keeps the product in range; the up to 99 us that are lost don't matter. */
    return wait_us / 100 * jitter_percent;
}

/* Returns a time of `from_us` to `from_us + span_us`, uniform in whole microseconds. */
static int64_t draw(int64_t from_us, int64_t span_us, struct rng *rng)
{
    return span_us == 0 ? from_us : us_add(from_us, (int64_t)rng_below(rng, (uint64_t)span_us + 1));
}

/* Returns `wait_us` and up to `jitter_percent` per cent more. */
static int64_t spread(int64_t wait_us, unsigned jitter_percent, struct rng *rng)
{
    return draw(wait_us, span_of(wait_us, jitter_percent), rng);
}

int64_t retry_backoff(int64_t minimal_us, int64_t maximal_us, int64_t age_us,
                      unsigned jitter_percent, struct rng *rng)
{
    int64_t wait = age_us, earliest, span;

    CHECK(minimal_us >= 0);
    if (wait > maximal_us) {
        wait = maximal_us;
    }
    if (wait < minimal_us) {
        wait = minimal_us;
    }
    if (minimal_us >= maximal_us) {
        return wait; /* the bounds leave no room for a spread */
    }
    span = span_of(wait, jitter_percent);
    earliest = wait;
    if (span > maximal_us - wait) {
        /* The span ends at the upper bound; the part cut off there is added in front. */
        earliest = maximal_us - span < minimal_us ? minimal_us : maximal_us - span;
        span = maximal_us - earliest;
    }
    return draw(earliest, span, rng);
}

/* Returns the next factor. After its end the sequence is entered again at random, so that
 * destinations that have failed for long are not retried in step. */
static uint32_t next_factor(const struct retry_sequence *sequence, struct retry_state *state,
                            struct rng *rng)
{
    CHECK(sequence->count <= RETRY_SEQUENCE_MAX);
    if (state->index >= sequence->count) {
        state->index = sequence->count > 1 ? (size_t)rng_below(rng, sequence->count) : 0;
    }
    return sequence->factors[state->index++];
}

static int64_t scaled(int64_t interval_us, uint32_t factor)
{
    int64_t wait;

    return __builtin_mul_overflow(interval_us, factor, &wait) ? US_FOREVER : wait;
}

/* Returns `due`, moved towards the nearest multiple of the interval. */
static struct wall nudged(const struct retry_sequence *sequence, struct wall due)
{
    int64_t interval = sequence->interval_us, past, distance, step;

    CHECK(interval >= US_PER_S);
    CHECK(sequence->skew >= 1);
    past = due.us % interval;
    distance = past <= interval / 2 ? past : interval - past;
    step = us_seconds(distance / sequence->skew + US_PER_S - 1) * US_PER_S;
    step = step < distance ? step : distance;
    return past <= interval / 2 ? (struct wall){due.us - step} : wall_after(due, step);
}

void retry_sequence_ran(const struct retry_sequence *sequence, struct retry_state *state,
                        struct wall now, unsigned jitter_percent, struct rng *rng)
{
    struct wall due;

    if (state->due.us > now.us || sequence->count == 0) {
        return;
    }
    due = wall_after(now, scaled(sequence->interval_us, next_factor(sequence, state, rng)));
    due = nudged(sequence, due);
    CHECK(due.us > now.us);
    state->due = wall_after(now, spread(due.us - now.us, jitter_percent, rng));
}
