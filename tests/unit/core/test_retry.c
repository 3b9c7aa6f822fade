#include "retry.h"

#include <stdbool.h>

#include "unit.h"

#define S US_PER_S

static void the_wait_is_the_age_within_bounds(void **state)
{
    static const struct {
        int64_t minimal, maximal, age, want;
    } cases[] = {
        {300 * S, 4000 * S, 0, 300 * S},         {300 * S, 4000 * S, 500 * S, 500 * S},
        {300 * S, 4000 * S, 4000 * S, 4000 * S}, {300 * S, 4000 * S, 432000 * S, 4000 * S},
        {300 * S, 4000 * S, -7 * S, 300 * S},    {500 * S, 400 * S, 450 * S, 500 * S},
        {0, US_FOREVER, US_FOREVER, US_FOREVER},
    };
    struct rng rng, before;

    (void)state;
    rng_init(&rng, 1);
    before = rng;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(retry_backoff(cases[i].minimal, cases[i].maximal, cases[i].age, 0, &rng),
                         cases[i].want);
    }
    assert_memory_equal(&rng, &before, sizeof rng);
}

static void jitter_spreads_evenly_and_never_shortens_the_wait(void **state)
{
    unsigned in_tenth[10] = {0};
    struct rng rng;

    (void)state;
    rng_init(&rng, 2);
    for (int i = 0; i < 100000; i++) {
        int64_t wait = retry_backoff(300 * S, 4000 * S, 1000 * S, 20, &rng);
        assert_true(wait >= 1000 * S && wait <= 1200 * S);
        in_tenth[wait == 1200 * S ? 9 : (wait - 1000 * S) / (20 * S)]++;
    }
    for (size_t i = 0; i < COUNT(in_tenth); i++) {
        assert_true(in_tenth[i] > 9500 && in_tenth[i] < 10500);
    }
}

/* Mail that is old waits as long as it may, so the spread must lie below that. */
static void jitter_stays_within_the_bounds_and_still_spreads_old_mail(void **state)
{
    static const struct {
        int64_t minimal, maximal, age;
        unsigned jitter;
        int64_t earliest, latest;
    } cases[] = {
        {300 * S, 4000 * S, 4000 * S, 10, 3600 * S, 4000 * S},
        {300 * S, 4000 * S, 432000 * S, 10, 3600 * S, 4000 * S},
        {300 * S, 4000 * S, 3900 * S, 10, 3610 * S, 4000 * S},
        {300 * S, 4000 * S, 432000 * S, 100, 300 * S, 4000 * S},
        {300 * S, 400 * S, 390 * S, 100, 300 * S, 400 * S},
        {300 * S, 300 * S, 390 * S, 100, 300 * S, 300 * S},
        {500 * S, 400 * S, 450 * S, 100, 500 * S, 500 * S},
        {0, US_FOREVER, US_FOREVER, 1, US_FOREVER / 100 * 99, US_FOREVER},
    };
    struct rng rng;

    (void)state;
    rng_init(&rng, 5);
    for (size_t i = 0; i < COUNT(cases); i++) {
        int64_t low = INT64_MAX, high = 0, span = cases[i].latest - cases[i].earliest;

        for (int n = 0; n < 10000; n++) {
            int64_t wait = retry_backoff(cases[i].minimal, cases[i].maximal, cases[i].age,
                                         cases[i].jitter, &rng);

            assert_true(wait >= cases[i].earliest);
            assert_true(wait <= cases[i].latest);
            low = wait < low ? wait : low;
            high = wait > high ? wait : high;
        }
        assert_true(high - low >= span / 100 * 95);
    }
}

static void extreme_waits_do_not_overflow(void **state)
{
    struct rng rng;

    (void)state;
    rng_init(&rng, 3);
    for (int i = 0; i < 1000; i++) {
        assert_true(retry_backoff(US_FOREVER, 0, 0, 100, &rng) >= 0);
        assert_int_equal(retry_backoff(0, 0, 5, 100, &rng), 0);
    }
}

static struct wall at_s(int64_t seconds)
{
    return (struct wall){seconds * S};
}

/* The whole rule: now + factor * interval, moved towards the nearest multiple of the interval. All
 * times are seconds after a multiple of each interval used. */
static void each_run_takes_one_step_from_now_to_the_grid(void **state)
{
    const int64_t base = 1700006400; /* a multiple of 10, 20, 60 and 3600 */
    static const struct {
        int64_t interval, due, now;
        uint32_t factor, skew;
        int64_t want;
    } cases[] = {
        /* a new destination: at least half an interval, at most one and a half */
        {20, -1, 0, 1, 1, 20},
        {20, -1, 1, 1, 1, 20},
        {20, -1, 10, 1, 1, 20},
        {20, -1, 11, 1, 1, 40},
        {20, -1, 19, 1, 1, 40},
        {60, -1, 2, 1, 1, 60},
        {10, -1, 2, 2, 1, 20},
        {3600, -1, 1700, 34, 1, 34 * 3600},
        /* the same for one that has waited: tried at its time, a moment later, long after it */
        {20, 20, 20, 1, 1, 40},
        {20, 20, 23, 1, 1, 40},
        {20, 20, 233, 1, 1, 260},
        {20, 20, 20, 3, 1, 80},
        /* a time in the future stays */
        {20, 20, 19, 1, 1, 20},
        /* skew: a part of the distance in whole seconds, rounded up */
        {60, -1, 10, 1, 5, 68},
        {60, -1, 3, 1, 5, 62},
        {60, -1, 30, 1, 5, 84},
        {60, -1, 31, 1, 5, 97},
        {60, -1, 59, 1, 5, 120},
        {10, -1, 4, 10, 2, 102},
        {10, -1, 3, 10, 2, 101},
        {10, -1, 4, 10, 4, 103},
        {20, -1, 10, 1, 100000, 29},
    };
    struct rng rng;

    (void)state;
    rng_init(&rng, 7);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct retry_sequence sequence = {cases[i].interval * S, &cases[i].factor, 1,
                                          cases[i].skew};
        struct retry_state at = {cases[i].due < 0 ? (struct wall){0} : at_s(base + cases[i].due),
                                 0};

        retry_sequence_ran(&sequence, &at, at_s(base + cases[i].now), 0, &rng);
        assert_int_equal(at.due.us / S - base, cases[i].want);
        assert_int_equal(at.due.us % S, 0);
    }
}

/* Also where the time is no whole second, or the interval a single one. */
static void one_factor_is_a_constant_interval(void **state)
{
    static const uint32_t one[] = {1};
    static const int64_t intervals[] = {1, 7, 20, 60, 3600};
    static const uint32_t skews[] = {1, 5, 10};
    struct rng rng;

    (void)state;
    rng_init(&rng, 4);
    for (size_t i = 0; i < COUNT(intervals) * COUNT(skews); i++) {
        int64_t interval = intervals[i % COUNT(intervals)] * S;
        struct retry_sequence sequence = {interval, one, 1, skews[i / COUNT(intervals)]};
        struct retry_state at = {{0}, 0};
        struct wall now = {1700000000 * S + (int64_t)rng_below(&rng, (uint64_t)interval)};

        for (int tries = 0; tries < 100; tries++) {
            retry_sequence_ran(&sequence, &at, now, 0, &rng);
            assert_true(at.due.us - now.us >= interval / 2);
            assert_true(at.due.us - now.us <= interval + interval / 2);
            if (tries > 0 && sequence.skew == 1) {
                assert_int_equal(at.due.us - now.us, interval);
            }
            now = at.due;
        }
        assert_int_equal(at.due.us % interval, 0);
    }
}

static void a_sequence_is_walked_and_entered_again_at_random(void **state)
{
    static const uint32_t factors[] = {1, 2, 3, 4};
    struct retry_sequence sequence = {10 * S, factors, COUNT(factors), 1};
    struct retry_state at = {{0}, 0};
    struct wall now = at_s(1700000002);
    struct rng rng;
    bool seen[5] = {false};

    (void)state;
    rng_init(&rng, 4);
    retry_sequence_ran(&sequence, &at, now, 0, &rng);
    assert_int_equal(at.due.us, now.us + 8 * S);
    assert_int_equal(at.index, 1);
    for (uint32_t i = 2; i <= 4; i++) {
        now = at.due;
        retry_sequence_ran(&sequence, &at, now, 0, &rng);
        assert_int_equal(at.due.us, now.us + 10 * i * S);
    }
    for (int i = 0; i < 200; i++) {
        int64_t steps;
        at.index = COUNT(factors);
        now = at.due;
        retry_sequence_ran(&sequence, &at, now, 0, &rng);
        steps = (at.due.us - now.us) / (10 * S);
        assert_true(steps >= 1 && steps <= 4);
        seen[steps] = true;
    }
    assert_true(seen[1] && seen[2] && seen[3] && seen[4]);
}

static void only_the_first_result_of_a_run_decides(void **state)
{
    static const uint32_t factors[] = {6};
    struct retry_sequence sequence = {10 * S, factors, 1, 1};
    struct wall now = at_s(1700000000);
    struct retry_state at = {now, 0};
    struct rng rng;

    (void)state;
    rng_init(&rng, 5);
    for (int i = 0; i < 3; i++) {
        retry_sequence_ran(&sequence, &at, now, 0, &rng);
        assert_int_equal(at.due.us, now.us + 60 * S);
        assert_int_equal(at.index, 1);
    }
}

static void without_factors_it_stays_due(void **state)
{
    struct retry_sequence sequence = {10 * S, NULL, 0, 1};
    struct retry_state at = {at_s(1699999990), 0};
    struct rng rng;

    (void)state;
    rng_init(&rng, 6);
    retry_sequence_ran(&sequence, &at, at_s(1700000000), 10, &rng);
    assert_int_equal(at.due.us, 1699999990 * S);
}

static void a_step_that_exceeds_all_time_never_comes(void **state)
{
    static const uint32_t factors[] = {UINT32_MAX};
    struct retry_sequence sequence = {US_FOREVER / 2, factors, 1, 1};
    struct retry_state at = {{0}, 0};
    struct rng rng;

    (void)state;
    rng_init(&rng, 8);
    retry_sequence_ran(&sequence, &at, at_s(1700000000), 100, &rng);
    assert_true(at.due.us > US_FOREVER / 4);
}

static void sequences_are_spread_too(void **state)
{
    static const uint32_t factors[] = {100};
    struct retry_sequence sequence = {10 * S, factors, 1, 1};
    struct wall now = at_s(1700000000);
    struct rng rng;
    int64_t least = US_FOREVER, most = 0;

    (void)state;
    rng_init(&rng, 9);
    for (int i = 0; i < 1000; i++) {
        struct retry_state at = {now, 0};
        retry_sequence_ran(&sequence, &at, now, 10, &rng);
        least = at.due.us < least ? at.due.us : least;
        most = at.due.us > most ? at.due.us : most;
    }
    assert_true(least >= now.us + 1000 * S && least < now.us + 1010 * S);
    assert_true(most <= now.us + 1100 * S && most > now.us + 1090 * S);
}

UNIT_MAIN(cmocka_unit_test(the_wait_is_the_age_within_bounds),
          cmocka_unit_test(jitter_spreads_evenly_and_never_shortens_the_wait),
          cmocka_unit_test(jitter_stays_within_the_bounds_and_still_spreads_old_mail),
          cmocka_unit_test(extreme_waits_do_not_overflow),
          cmocka_unit_test(each_run_takes_one_step_from_now_to_the_grid),
          cmocka_unit_test(one_factor_is_a_constant_interval),
          cmocka_unit_test(a_sequence_is_walked_and_entered_again_at_random),
          cmocka_unit_test(only_the_first_result_of_a_run_decides),
          cmocka_unit_test(without_factors_it_stays_due),
          cmocka_unit_test(a_step_that_exceeds_all_time_never_comes),
          cmocka_unit_test(sequences_are_spread_too))
