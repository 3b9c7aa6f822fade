#include "client_pace.h"

#include "unit.h"

#define S  US_PER_S
#define MS US_PER_MS

static struct mono at(int64_t us)
{
    return (struct mono){1000 * S + us};
}

static void a_client_that_has_just_come_is_fast_and_gets_slower(void **unused)
{
    static const struct {
        int64_t after_us;
        uint64_t want;
    } cases[] = {
        {0, 1000000}, {20 * MS, 50000}, {200 * MS, 5000}, {1 * S, 1000}, {100 * S, 10},
    };
    struct client_pace p;

    (void)unused;
    client_pace_begin(&p, at(0), 0);
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_in_range((uint64_t)client_pace_rate(&p, at(cases[i].after_us)), cases[i].want,
                        cases[i].want);
        assert_int_equal(client_pace_waited_us(&p, at(cases[i].after_us)), cases[i].after_us);
    }
}

/* Send `bytes` each second for so long, and tell the pace. */
static double rate_of_sender(struct client_pace *p, uint64_t bytes, int64_t seconds)
{
    client_pace_begin(p, at(0), 0);
    for (int64_t i = 1; i <= seconds; i++) {
        client_pace_add(p, at(i * S), bytes);
    }
    return client_pace_rate(p, at(seconds * S));
}

static void a_steady_sender_keeps_its_rate(void **unused)
{
    static const uint64_t rates[] = {100, 600, 10000, 5000000};

    (void)unused;
    for (size_t i = 0; i < COUNT(rates); i++) {
        struct client_pace p;

        assert_in_range((uint64_t)rate_of_sender(&p, rates[i], 60), rates[i] * 9 / 10,
                        rates[i] * 11 / 10 + 20);
        assert_in_range((uint64_t)rate_of_sender(&p, rates[i], 6000), rates[i] * 9 / 10,
                        rates[i] * 11 / 10 + 20);
    }
}

static void much_at_once_is_forgotten(void **unused)
{
    struct client_pace p;

    (void)unused;
    client_pace_begin(&p, at(0), 0);
    client_pace_add(&p, at(1 * S), 10000000);
    assert_true(client_pace_rate(&p, at(1 * S)) > 1000000);
    assert_true(client_pace_rate(&p, at(60 * S)) < 10000);
    assert_true(client_pace_rate(&p, at(200 * S)) < 20);
    for (int64_t i = 61; i < 300; i++) {
        client_pace_add(&p, at(i * S), 1); /* a drip keeps nothing alive */
    }
    assert_true(client_pace_rate(&p, at(300 * S)) < 20);
}

static void time_that_is_ours_does_not_count(void **unused)
{
    struct client_pace p;
    double before;

    (void)unused;
    client_pace_begin(&p, at(0), 0);
    client_pace_add(&p, at(1 * S), 5000);
    before = client_pace_rate(&p, at(1 * S));
    client_pace_rest(&p, at(1 * S));
    assert_false(client_pace_waits(&p));
    assert_true(client_pace_rate(&p, at(100 * S)) == before);
    assert_int_equal(client_pace_waited_us(&p, at(100 * S)), 1 * S);
    client_pace_rest(&p, at(100 * S)); /* no effect */
    client_pace_wait(&p, at(100 * S));
    client_pace_wait(&p, at(101 * S)); /* likewise */
    assert_true(client_pace_waits(&p));
    assert_int_equal(client_pace_waited_us(&p, at(102 * S)), 3 * S);
}

static void a_message_makes_good_for_the_time_it_took(void **unused)
{
    struct client_pace p;

    (void)unused;
    client_pace_begin(&p, at(0), 0);
    client_pace_rest(&p, at(50 * S));
    client_pace_delivered(&p, at(51 * S));
    client_pace_wait(&p, at(51 * S));
    assert_int_equal(client_pace_waited_us(&p, at(51 * S)), 0);
    assert_true(client_pace_rate(&p, at(51 * S)) >= 1000000);
    assert_int_equal(client_pace_waited_us(&p, at(52 * S)), 1 * S);
}

static void what_was_waited_before_can_be_carried_over(void **unused)
{
    struct client_pace p;

    (void)unused;
    client_pace_begin(&p, at(0), 10 * S);
    assert_true(client_pace_rate(&p, at(0)) == 100);
}

static void extremes_do_not_overflow(void **unused)
{
    struct client_pace p;

    (void)unused;
    client_pace_begin(&p, at(0), US_FOREVER - 1);
    client_pace_add(&p, at(0), UINT64_MAX);
    client_pace_add(&p, at(0), UINT64_MAX);
    (void)client_pace_rate(&p, at(0));
    client_pace_add(&p, (struct mono){US_FOREVER - 1}, 1);
    assert_true(client_pace_rate(&p, (struct mono){US_FOREVER - 1}) < 2);
    client_pace_begin(&p, at(5 * S), 0);
    assert_int_equal(client_pace_waited_us(&p, at(0)), 0); /* a clock that was read earlier */
}

UNIT_MAIN(cmocka_unit_test(a_client_that_has_just_come_is_fast_and_gets_slower),
          cmocka_unit_test(a_steady_sender_keeps_its_rate),
          cmocka_unit_test(much_at_once_is_forgotten),
          cmocka_unit_test(time_that_is_ours_does_not_count),
          cmocka_unit_test(a_message_makes_good_for_the_time_it_took),
          cmocka_unit_test(what_was_waited_before_can_be_carried_over),
          cmocka_unit_test(extremes_do_not_overflow))
