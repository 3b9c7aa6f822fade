/*
 * The simulated world against what can be computed by hand or from queueing theory.
 */
#include "sim_world.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"
#include "world.h"

/* One delivery at a time. */
#define ONE_SERVER                                                                                 \
    "default_process_limit = 1\ninitial_destination_concurrency = 1\n"                             \
    "default_destination_concurrency_limit = 1\nretry_jitter = 0\n"

static void assert_near(double value, double want, double relative_error)
{
    if (fabs(value - want) > relative_error * want) {
        fail_msg("%g is not within %g%% of %g", value, 100 * relative_error, want);
    }
}

static void an_undisturbed_delivery_takes_its_latency(void **unused)
{
    struct test_world t;

    (void)unused;
    test_world(&t, "",
               "site example.org setup=10ms latency=50ms recipient=5ms bandwidth=1M\n"
               "arrivals one at=1s recipients=2 size=1M to=example.org\n",
               1);
    assert_int_equal(t.result->total.sent, 2);
    assert_int_equal(t.result->total.attempts, 1);
    assert_int_equal(t.result->total.delay.max, 10000 + 50000 + 2 * 5000 + 1000000);
    assert_int_equal(t.result->ended.us, 1000000 + 1070000);
    assert_true(t.result->drained);
    test_world_close(&t);
}

/* Pollaczek and Khinchine: the mean wait is load * service / 2 (1 - load) with constant service,
 * twice that with exponential service. */
static void waiting_follows_queueing_theory(void **unused)
{
    static const struct {
        const char *latency;
        double want_delay_s;
    } cases[] = {
        {"100ms", 0.1 + 0.8 * 0.1 / (2 * 0.2)},
        {"exponential(100ms)", 0.1 / 0.2},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char workload[256];
        struct test_world t;

        snprintf(workload, sizeof workload,
                 "site example.org latency=%s\n"
                 "arrivals steady rate=8/s until=4h to=example.org\n",
                 cases[i].latency);
        test_world(&t, ONE_SERVER, workload, 1);
        assert_near(histogram_mean(&t.result->total.delay) / 1e6, cases[i].want_delay_s, 0.04);
        assert_near(t.result->total.busy_us / (double)t.result->ended.us, 0.8, 0.02);
        assert_int_equal(t.result->total.busy_peak, 1);
        test_world_close(&t);
    }
}

static void greylisting_costs_one_back_off(void **unused)
{
    struct test_world t;

    (void)unused;
    test_world(&t, "retry_jitter = 0\n",
               "site example.org latency=100ms greylist=5m\n"
               "arrivals one at=0s recipients=3 to=example.org\n",
               1);
    assert_int_equal(t.result->total.sent, 3);
    assert_int_equal(t.result->total.deferrals, 3);
    assert_int_equal(t.result->total.delay.min, 300200000);
    assert_int_equal(t.result->total.delay.max, 300200000);
    test_world_close(&t);
}

/* The site hangs for the first hour. The one message times out after 30 s, then waits as long as it
 * is old, at least 300 s. */
static void an_outage_is_waited_out(void **unused)
{
    struct test_world t;

    (void)unused;
    test_world(&t, "retry_jitter = 0\nsmtp_connect_timeout = 30s\n",
               "site example.org latency=1s outage=0s..1h:hang\n"
               "arrivals one at=0s to=example.org\n",
               1);
    /* Begun at 0, 330, 720, 1500, 3060; at 6180 it is up. */
    assert_int_equal(t.result->total.failures[SIM_TRY_CONNECT_TIMEOUT], 5);
    assert_int_equal(t.result->total.attempts, 6);
    assert_int_equal(t.result->total.delay.max, 6181000000);
    test_world_close(&t);
}

static void mail_that_is_too_old_goes_back(void **unused)
{
    struct test_world t;

    (void)unused;
    test_world(&t, "retry_jitter = 0\nmaximal_queue_lifetime = 1h\nbounce_queue_lifetime = 1h\n",
               "site example.org hosts=1 bad=1:refuse setup=1s\n"
               "arrivals one at=0s recipients=2 to=example.org\n",
               1);
    assert_int_equal(t.result->total.expired, 2);
    assert_int_equal(t.result->total.sent, 0);
    assert_true(t.result->drained);
    /* Tried at 0, 301, 604, 1210, 2422 and 4846 s. */
    assert_int_equal(t.result->ended.us, 4847000000);
    test_world_close(&t);
}

/* Of four hosts one is down: a delivery that meets it first goes on to another. */
static void the_next_host_is_tried(void **unused)
{
    struct test_world t;
    uint64_t refused;

    (void)unused;
    test_world(&t, "",
               "site example.org hosts=4 bad=1:refuse setup=1ms\n"
               "arrivals some every=1s count=4000 to=example.org\n",
               7);
    assert_int_equal(t.result->total.sent, 4000);
    assert_int_equal(t.result->total.deferrals, 0);
    refused = t.result->total.attempts;
    assert_int_equal(refused, 4000);
    /* One of four meets it: 100 + 1 ms, the others 101 + 1. */
    assert_near(histogram_mean(&t.result->total.delay), 101000 + 250, 0.001);
    test_world_close(&t);
}

/* More connections than slots: the listen queue waits, the rest is turned away. */
static void a_full_site_lets_wait_and_turns_away(void **unused)
{
    struct test_world t;

    (void)unused;
    test_world(&t,
               "initial_destination_concurrency = 10\nretry_jitter = 0\n"
               "smtp_connection_cache_on_demand = no\n",
               "site example.org slots=3 backlog=4 full=busy setup=1ms latency=1s\n"
               "arrivals burst at=0s count=10 to=example.org\n",
               1);
    assert_int_equal(t.result->total.failures[SIM_TRY_TURNED_AWAY], 3);
    assert_int_equal(t.result->total.failures[SIM_TRY_GREETING_TIMEOUT], 0);
    assert_int_equal(t.result->total.sent, 10);
    assert_int_equal(t.result->total.busy_peak, 10);
    test_world_close(&t);
}

static void probabilities_come_out(void **unused)
{
    struct test_world t;

    (void)unused;
    test_world(&t, "maximal_queue_lifetime = 0\nbounce_queue_lifetime = 0\n",
               "site example.org latency=1ms fail=3% defer=10%\n"
               "arrivals much every=10ms count=20000 recipients=2 to=example.org\n",
               3);
    assert_near((double)t.result->total.bounced, 0.03 * 40000, 0.08);
    assert_near((double)t.result->total.expired, 0.10 * 40000, 0.05);
    assert_int_equal(t.result->total.sent + t.result->total.bounced + t.result->total.expired,
                     40000);
    test_world_close(&t);
}

static void the_run_ends_with_its_duration(void **unused)
{
    struct test_world t;

    (void)unused;
    test_world(&t, "",
               "site example.org outage=0s..100d:refuse\n"
               "arrivals one every=1m to=example.org\nduration 1h\n",
               1);
    assert_int_equal(t.result->ended.us, 3600000000);
    assert_false(t.result->drained);
    assert_int_equal(sim_tally_left(&t.result->total), t.result->total.recipients);
    assert_int_equal(t.result->total.messages, 61);
    test_world_close(&t);
}

/* Behind a relay host all domains are one destination. */
static void mail_goes_where_the_configuration_routes_it(void **unused)
{
    struct test_world t;

    (void)unused;
    test_world(&t, "relayhost = [hub.example]\n",
               "site hub.example latency=1s\nsite *.example latency=5s\n"
               "arrivals all at=0s recipients=100 to=zipf(20,1)\n",
               1);
    assert_int_equal(t.result->dest_count, 1);
    assert_string_equal(t.result->dests[0]->name, "smtp/[hub.example]");
    assert_int_equal(t.result->total.attempts, 2); /* of 50 recipients */
    test_world_close(&t);
}

UNIT_MAIN(cmocka_unit_test(an_undisturbed_delivery_takes_its_latency),
          cmocka_unit_test(waiting_follows_queueing_theory),
          cmocka_unit_test(greylisting_costs_one_back_off),
          cmocka_unit_test(an_outage_is_waited_out),
          cmocka_unit_test(mail_that_is_too_old_goes_back),
          cmocka_unit_test(the_next_host_is_tried),
          cmocka_unit_test(a_full_site_lets_wait_and_turns_away),
          cmocka_unit_test(probabilities_come_out),
          cmocka_unit_test(the_run_ends_with_its_duration),
          cmocka_unit_test(mail_goes_where_the_configuration_routes_it))
