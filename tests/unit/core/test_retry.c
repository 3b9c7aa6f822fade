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

/* Capture: interval 10 s, retries 1 2 3 4, skew 1, first tried 2 s after a boundary. */
static void a_sequence_is_walked_and_entered_again_at_random(void **state)
{
    static const uint32_t factors[] = {1, 2, 3, 4};
    struct retry_sequence sequence = {10 * S, factors, COUNT(factors), 1};
    struct retry_state at = {{0}, 0};
    struct wall now = {1700000002 * S};
    struct rng rng;
    bool seen[5] = {false};

    (void)state;
    rng_init(&rng, 4);
    retry_sequence_deferred(&sequence, &at, now, true, 0, &rng);
    assert_int_equal(at.due.us, now.us + 18 * S); /* next boundary, 10 s later */
    assert_int_equal(at.index, 1);
    for (uint32_t i = 2; i <= 4; i++) {
        now = at.due;
        retry_sequence_deferred(&sequence, &at, now, true, 0, &rng);
        assert_int_equal(at.due.us, now.us + 10 * i * S);
    }
    for (int i = 0; i < 200; i++) {
        int64_t steps;
        at.index = COUNT(factors);
        now = at.due;
        retry_sequence_deferred(&sequence, &at, now, true, 0, &rng);
        steps = (at.due.us - now.us) / (10 * S);
        assert_true(steps >= 1 && steps <= 4);
        seen[steps] = true;
    }
    assert_true(seen[1] && seen[2] && seen[3] && seen[4]);
}

static void only_the_first_deferral_of_a_run_decides(void **state)
{
    static const uint32_t factors[] = {6};
    struct retry_sequence sequence = {10 * S, factors, 1, 1};
    struct wall now = {1700000000 * S};
    struct retry_state at = {now, 0};
    struct rng rng;

    (void)state;
    rng_init(&rng, 5);
    retry_sequence_deferred(&sequence, &at, now, true, 0, &rng);
    assert_int_equal(at.due.us, now.us + 60 * S);
    retry_sequence_deferred(&sequence, &at, now, true, 0, &rng);
    retry_sequence_run_ended(&sequence, &at, now, 0, &rng);
    assert_int_equal(at.due.us, now.us + 60 * S);
    assert_int_equal(at.index, 1);
}

static void without_factors_it_stays_due(void **state)
{
    struct retry_sequence sequence = {10 * S, NULL, 0, 1};
    struct wall now = {1700000000 * S};
    struct retry_state at = {{1699999990 * S}, 0};
    struct rng rng;

    (void)state;
    rng_init(&rng, 6);
    retry_sequence_deferred(&sequence, &at, now, true, 10, &rng);
    retry_sequence_run_ended(&sequence, &at, now, 10, &rng);
    assert_int_equal(at.due.us, 1699999990 * S);
}

static void the_due_time_is_drawn_to_the_grid(void **state)
{
    static const uint32_t factors[] = {10};
    static const struct {
        int64_t past_boundary, want;
        uint32_t skew;
    } cases[] = {
        {0, 0, 1}, {1, 0, 1}, {4, 0, 1}, {5, 0, 1}, {4, 2, 2}, {3, 1, 2}, {4, 3, 4},
    };
    struct rng rng;

    (void)state;
    rng_init(&rng, 7);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct retry_sequence sequence = {10 * S, factors, 1, cases[i].skew};
        struct wall now = {(1700000000 + cases[i].past_boundary) * S};
        struct retry_state at = {now, 0};
        retry_sequence_deferred(&sequence, &at, now, true, 0, &rng);
        assert_int_equal(at.due.us, (1700000100 + cases[i].want) * S);
    }
}

static void a_run_without_deferral_takes_one_step(void **state)
{
    static const uint32_t factors[] = {2, 5};
    struct retry_sequence sequence = {10 * S, factors, COUNT(factors), 1};
    struct wall now = {1700000003 * S};
    struct retry_state at = {now, 0};
    struct rng rng;

    (void)state;
    rng_init(&rng, 8);
    retry_sequence_run_ended(&sequence, &at, now, 0, &rng);
    assert_int_equal(at.due.us, now.us + 20 * S);
    assert_int_equal(at.index, 1);
    now.us += 1000 * S;
    retry_sequence_run_ended(&sequence, &at, now, 0, &rng);
    assert_true(at.due.us > now.us && at.due.us <= now.us + 10 * S);
    assert_int_equal((at.due.us - 1700000003 * S) % (10 * S), 0);
}

static void sequences_are_spread_too(void **state)
{
    static const uint32_t factors[] = {100};
    struct retry_sequence sequence = {10 * S, factors, 1, 1};
    struct wall now = {1700000000 * S};
    struct rng rng;
    int64_t least = US_FOREVER, most = 0;

    (void)state;
    rng_init(&rng, 9);
    for (int i = 0; i < 1000; i++) {
        struct retry_state at = {now, 0};
        retry_sequence_deferred(&sequence, &at, now, true, 10, &rng);
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
          cmocka_unit_test(a_sequence_is_walked_and_entered_again_at_random),
          cmocka_unit_test(only_the_first_deferral_of_a_run_decides),
          cmocka_unit_test(without_factors_it_stays_due),
          cmocka_unit_test(the_due_time_is_drawn_to_the_grid),
          cmocka_unit_test(a_run_without_deferral_takes_one_step),
          cmocka_unit_test(sequences_are_spread_too))
