#include "window.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "recordings.h"
#include "unit.h"

#define RECORDINGS       TEST_DATA_DIR "/postfix-window.jsonl"
#define RECORDINGS_DEATH TEST_DATA_DIR "/postfix-death.jsonl" /* and what comes after it */

static const struct feedback one = {FEEDBACK_CONSTANT, 1};
static const struct feedback none = {FEEDBACK_CONSTANT, 0};
static const struct feedback quarter = {FEEDBACK_CONSTANT, 0.25};
static const struct feedback per_window = {FEEDBACK_PER_WINDOW, 1};
static const struct feedback per_sqrt = {FEEDBACK_PER_SQRT_WINDOW, 1};

static struct window_limits limits_of(enum window_rule rule, uint32_t initial, uint32_t max)
{
    return (struct window_limits){.rule = rule,
                                  .initial = initial,
                                  .max = max,
                                  .positive = {FEEDBACK_CONSTANT, 1},
                                  .negative = {FEEDBACK_CONSTANT, 1},
                                  .failed_cohort_limit = 1};
}

static void feedback_has_three_forms(void **state)
{
    (void)state;
    assert_true(feedback_value(&quarter, 9) == 0.25);
    assert_true(feedback_value(&per_window, 8) == 0.125);
    assert_true(feedback_value(&per_sqrt, 16) == 0.25);
}

/* Sizes after each of a run of failures, "dead" at the end if it came to that. */
static void tell_failures(const struct window_limits *limits, int failures, char out[256])
{
    struct window w;

    out[0] = '\0';
    window_init(&w, limits);
    for (int i = 0; i < failures; i++) {
        size_t at = strlen(out);
        if (window_failed(&w, limits)) {
            (void)snprintf(out + at, 256 - at, " dead");
            return;
        }
        window_audit(&w, limits);
        (void)snprintf(out + at, 256 - at, " %u", w.size);
    }
}

static void failures_narrow_and_kill_as_in_the_program(void **state)
{
    static const struct {
        uint32_t initial;
        const struct feedback *negative;
        uint32_t cohorts;
        int failures;
        const char *want;
    } cases[] = {
        {1, &one, 1, 99, " dead"},
        {2, &one, 1, 99, " 1 dead"},
        {5, &one, 1, 99, " 3 2 dead"},
        {10, &one, 1, 99, " 8 7 6 5 4 3 dead"},
        {20, &one, 1, 99, " 18 17 16 15 14 13 12 11 10 9 8 7 dead"},
        {5, &per_window, 1, 99, " 4 4 4 3 dead"},
        {5, &none, 1, 99, " 5 5 5 5 dead"},
        {5, &none, 2, 99, " 5 5 5 5 5 5 5 5 5 5 dead"},
        {10, &none, 1, 99, " 10 10 10 10 10 10 10 10 10 10 dead"},
        {5, &quarter, 0, 8, " 4 4 4 3 3 3 3 2"},
        {1, &one, 0, 3, " 1 1 1"},
    };
    char told[256];

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct window_limits limits = limits_of(WINDOW_POSTFIX, cases[i].initial, 20);
        limits.negative = *cases[i].negative;
        limits.failed_cohort_limit = cases[i].cohorts;
        tell_failures(&limits, cases[i].failures, told);
        assert_string_equal(told, cases[i].want);
    }
}

static void a_higher_cohort_limit_takes_more_failures_in_the_program(void **state)
{
    struct window_limits limits = limits_of(WINDOW_POSTFIX, 5, 20);
    struct window w;
    int failures = 1;

    (void)state;
    limits.negative = per_window;
    limits.failed_cohort_limit = 10;
    window_init(&w, &limits);
    while (!window_failed(&w, &limits)) {
        failures++;
    }
    assert_int_equal(failures, 17);
}

static void failures_narrow_and_kill_as_in_the_text(void **state)
{
    static const struct {
        uint32_t initial;
        const struct feedback *negative;
        uint32_t cohorts;
        int failures;
        const char *want;
    } cases[] = {
        {1, &one, 1, 99, " 1 dead"},
        {2, &one, 1, 99, " 1 dead"},
        {5, &one, 1, 99, " 4 3 2 dead"},
        {5, &none, 1, 99, " 5 5 5 5 5 dead"},
        {5, &none, 2, 99, " 5 5 5 5 5 5 5 5 5 5 dead"},
        {10, &none, 1, 99, " 10 10 10 10 10 10 10 10 10 10 dead"},
        {3, &none, 1, 99, " 3 3 3 dead"},
        {5, &quarter, 0, 9, " 4 4 4 4 3 3 3 3 2"},
        {1, &one, 0, 3, " 1 1 1"},
    };
    char told[256];

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct window_limits limits = limits_of(WINDOW_DOCUMENTED, cases[i].initial, 20);
        limits.negative = *cases[i].negative;
        limits.failed_cohort_limit = cases[i].cohorts;
        tell_failures(&limits, cases[i].failures, told);
        assert_string_equal(told, cases[i].want);
    }
}

/* One N-th of a unit takes N events to make a unit, whatever binary fractions do to 1/N. */
static void one_nth_takes_exactly_n_events(void **state)
{
    static const enum window_rule rules[] = {WINDOW_DOCUMENTED, WINDOW_POSTFIX};

    (void)state;
    for (size_t r = 0; r < COUNT(rules); r++) {
        struct window_limits limits = limits_of(rules[r], 1, 0);
        struct window w;

        limits.positive = per_window;
        window_init(&w, &limits);
        for (uint32_t n = 1; n <= 1000; n++) {
            for (uint32_t i = 0; i < n; i++) {
                assert_int_equal(w.size, n);
                assert_true(window_succeeded(&w, &limits, n));
                window_audit(&w, &limits);
            }
        }
        assert_int_equal(w.size, 1001);
    }
}

/* The same with a constant, over very many rounds: rounding does not add up. */
static void rounding_does_not_add_up(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 50; n++) {
        struct window_limits limits = limits_of(WINDOW_DOCUMENTED, 1000000, 0);
        struct window w;

        limits.positive.base = limits.negative.base = 1.0 / n;
        limits.failed_cohort_limit = 0;
        window_init(&w, &limits);
        for (uint32_t i = 1; i <= 100 * n; i++) {
            assert_true(window_succeeded(&w, &limits, 1000000));
            assert_int_equal(w.size, 1000000 + i / n);
        }
        window_init(&w, &limits);
        for (uint32_t i = 0; i < 100 * n; i++) {
            assert_false(window_failed(&w, &limits));
            assert_int_equal(w.size, 1000000 - 1 - i / n);
        }
    }
}

static void full_windows_of_successes_open_at_the_known_pace(void **state)
{
    static const struct {
        struct feedback positive;
        int want;
    } cases[] = {
        {{FEEDBACK_CONSTANT, 1}, 15},       {{FEEDBACK_CONSTANT, 0.5}, 30},
        {{FEEDBACK_CONSTANT, 1.0 / 3}, 45}, {{FEEDBACK_CONSTANT, 0.25}, 60},
        {{FEEDBACK_PER_WINDOW, 1}, 180},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct window_limits limits = limits_of(WINDOW_POSTFIX, 5, 20);
        struct window w;
        int events = 0;

        limits.positive = cases[i].positive;
        window_init(&w, &limits);
        while (w.size < 20) {
            assert_true(window_succeeded(&w, &limits, w.size));
            events++;
        }
        assert_int_equal(events, cases[i].want);
        assert_false(window_succeeded(&w, &limits, w.size));
        assert_int_equal(w.size, 20);
    }
}

static void four_tenths_alternate_between_two_and_three_events(void **state)
{
    static const int want[] = {2, 3, 2, 3, 2, 3};
    struct window_limits limits = limits_of(WINDOW_POSTFIX, 5, 20);
    struct window w;

    (void)state;
    limits.positive.base = 0.4;
    window_init(&w, &limits);
    for (size_t i = 0; i < COUNT(want); i++) {
        uint32_t size = w.size;
        int events = 0;
        while (w.size == size) {
            (void)window_succeeded(&w, &limits, size); /* false only at the maximum */
            events++;
        }
        assert_int_equal(events, want[i]);
    }
}

static void an_idle_window_stops_at_use_plus_initial(void **state)
{
    static const enum window_rule rules[] = {WINDOW_DOCUMENTED, WINDOW_POSTFIX};

    (void)state;
    for (size_t r = 0; r < COUNT(rules); r++) {
        struct window_limits limits = limits_of(rules[r], 5, 20);
        struct window w;

        window_init(&w, &limits);
        assert_true(window_succeeded(&w, &limits, 1));
        assert_int_equal(w.size, 6);
        assert_false(window_succeeded(&w, &limits, 1));
        assert_int_equal(w.size, 6);
        assert_true(window_succeeded(&w, &limits, 2));
        assert_int_equal(w.size, 7);
    }
}

static void a_success_forgets_failed_cohorts_even_at_the_maximum(void **state)
{
    struct window_limits limits = limits_of(WINDOW_DOCUMENTED, 5, 5);
    struct window w;

    (void)state;
    limits.negative = none;
    window_init(&w, &limits);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 5; i++) {
            assert_false(window_failed(&w, &limits));
        }
        assert_false(window_succeeded(&w, &limits, 5));
    }
}

static void initial_size_respects_the_maximum(void **state)
{
    struct window_limits limits = limits_of(WINDOW_DOCUMENTED, 5, 3);
    struct window w;

    (void)state;
    window_init(&w, &limits);
    assert_int_equal(w.size, 3);
    limits.max = 2;
    window_limits_changed(&w, &limits);
    assert_int_equal(w.size, 2);
    limits.max = 0;
    window_init(&w, &limits);
    assert_int_equal(w.size, 5);
}

static void revival_takes_what_is_running_or_the_initial_size(void **state)
{
    struct window_limits limits = limits_of(WINDOW_POSTFIX, 5, 20);
    struct window w;

    (void)state;
    window_init(&w, &limits);
    assert_false(window_failed(&w, &limits));
    assert_false(window_failed(&w, &limits));
    assert_true(window_failed(&w, &limits));
    window_revive(&w, &limits, 3);
    assert_int_equal(w.size, 3);
    assert_true(w.success == 0 && w.failure == 0 && w.failed_cohorts == 0);
    window_revive(&w, &limits, 0);
    assert_int_equal(w.size, 5);
}

static void recorded_paths_come_out_step_by_step(void **state)
{
    (void)state;
    recordings_replay(RECORDINGS, 6, window_recording_replay);
}

static void recorded_deaths_come_out_step_by_step(void **state)
{
    (void)state;
    recordings_replay(RECORDINGS_DEATH, 4, window_recording_replay);
}

static void forgetting_moves_to_the_initial_values(void **state)
{
    static const struct {
        uint32_t size, want;
        double kept;
    } cases[] = {{20, 20, 1}, {20, 13, 0.5}, {20, 6, 0.05}, {20, 5, 0},
                 {1, 1, 1},   {1, 3, 0.5},   {1, 5, 0},     {1, 4, 0.25}};
    struct window_limits limits = limits_of(WINDOW_DOCUMENTED, 5, 20);

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct window w = {
            .size = cases[i].size, .success = 0.5, .failure = 0.25, .failed_cohorts = 1};

        window_fade(&w, &limits, cases[i].kept);
        window_audit(&w, &limits);
        assert_int_equal(w.size, cases[i].want);
        assert_true(w.success == 0.5 * cases[i].kept);
        assert_true(w.failure == 0.25 * cases[i].kept);
        assert_true(w.failed_cohorts == cases[i].kept);
    }
}

static void a_restart_is_at_the_size_asked_for_within_the_limits(void **state)
{
    struct window_limits limits = limits_of(WINDOW_DOCUMENTED, 5, 20);
    struct window w = {.size = 7, .success = 0.5, .failed_cohorts = 1};

    (void)state;
    window_restart(&w, &limits, 3);
    assert_int_equal(w.size, 3);
    assert_true(w.success == 0);
    assert_true(w.failed_cohorts == 0);
    window_restart(&w, &limits, 0);
    assert_int_equal(w.size, 1);
    window_restart(&w, &limits, 50);
    assert_int_equal(w.size, 20);
}

UNIT_MAIN(cmocka_unit_test(feedback_has_three_forms),
          cmocka_unit_test(failures_narrow_and_kill_as_in_the_program),
          cmocka_unit_test(a_higher_cohort_limit_takes_more_failures_in_the_program),
          cmocka_unit_test(failures_narrow_and_kill_as_in_the_text),
          cmocka_unit_test(one_nth_takes_exactly_n_events),
          cmocka_unit_test(rounding_does_not_add_up),
          cmocka_unit_test(full_windows_of_successes_open_at_the_known_pace),
          cmocka_unit_test(four_tenths_alternate_between_two_and_three_events),
          cmocka_unit_test(an_idle_window_stops_at_use_plus_initial),
          cmocka_unit_test(a_success_forgets_failed_cohorts_even_at_the_maximum),
          cmocka_unit_test(initial_size_respects_the_maximum),
          cmocka_unit_test(revival_takes_what_is_running_or_the_initial_size),
          cmocka_unit_test(forgetting_moves_to_the_initial_values),
          cmocka_unit_test(a_restart_is_at_the_size_asked_for_within_the_limits),
          cmocka_unit_test(recorded_paths_come_out_step_by_step),
          cmocka_unit_test(recorded_deaths_come_out_step_by_step))
