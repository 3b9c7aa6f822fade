#include "unit.h"

#include "pace.h"

#define S US_PER_S

static void nothing_is_known_before_something_ended(void **state)
{
    struct pace p = {0};

    (void)state;
    assert_true(pace_per_second(&p, (struct mono){100 * S}) == 0);
    assert_int_equal(pace_mean(&p), 0);
    pace_ended(&p, (struct mono){100 * S}, 3 * S);
    assert_true(pace_per_second(&p, (struct mono){100 * S}) == 0);
    assert_int_equal(pace_mean(&p), 3 * S);
}

static void a_steady_rate_is_told_as_it_is(void **state)
{
    struct pace p = {0};
    double rate;

    (void)state;
    for (int64_t i = 0; i <= 1000; i++) {
        pace_ended(&p, (struct mono){100 * S + i * S / 4}, S / 2);
        rate = pace_per_second(&p, (struct mono){100 * S + i * S / 4});
        if (i > 40) {
            assert_true(rate > 3.6 && rate < 4.4);
        }
    }
    assert_int_equal(pace_mean(&p), S / 2);
}

static void what_is_older_than_two_minutes_is_forgotten(void **state)
{
    struct pace p = {0};
    struct mono end = {120 * S};

    (void)state;
    for (int64_t i = 0; i < 120; i++) {
        pace_ended(&p, (struct mono){i * S}, S);
    }
    assert_true(pace_per_second(&p, mono_after(end, 30 * S)) < 0.6);
    assert_true(pace_per_second(&p, mono_after(end, 30 * S)) > 0.4);
    assert_true(pace_per_second(&p, mono_after(end, 120 * S)) == 0);
    pace_ended(&p, mono_after(end, 600 * S), 9 * S);
    assert_int_equal(pace_mean(&p), 2 * S);
}

UNIT_MAIN(cmocka_unit_test(nothing_is_known_before_something_ended),
          cmocka_unit_test(a_steady_rate_is_told_as_it_is),
          cmocka_unit_test(what_is_older_than_two_minutes_is_forgotten))
