/*
 * The simulated world against what can be computed by hand or from queueing theory.
 */
#include "sim_world.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim_report.h"
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

#define FIVE_SERVERS                                                                               \
    "initial_destination_concurrency = 5\ndefault_destination_concurrency_limit = 5\n"

/* A window that is no limit. */
#define WIDE "initial_destination_concurrency = 20\n"

/* Pollaczek and Khinchine: the mean wait is load * service / 2 (1 - load) with constant service,
 * twice that with exponential service. Erlang: of five such servers all are busy at an arrival with
 * probability 0.5541, and then the wait is service / 5 (1 - load). */
static void waiting_follows_queueing_theory(void **unused)
{
    static const struct {
        const char *conf, *latency;
        int servers;
        double want_delay_s;
    } cases[] = {
        {ONE_SERVER, "100ms", 1, 0.1 + 0.8 * 0.1 / (2 * 0.2)},
        {ONE_SERVER, "exponential(100ms)", 1, 0.1 / 0.2},
        {FIVE_SERVERS, "exponential(500ms)", 5, 0.5 + 0.5541 * 0.5 / (5 * 0.2)},
        {"smtp/* maxthr=1\n", "exponential(100ms)", 1, 0.1 / 0.2},
        {WIDE "smtp/* maxring=5\n", "exponential(500ms)", 5, 0.5 + 0.5541 * 0.5 / (5 * 0.2)},
        {WIDE "*/* maxta=5\nsmtp/* size_limit=0\n", "exponential(500ms)", 5,
         0.5 + 0.5541 * 0.5 / (5 * 0.2)},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char workload[256];
        struct test_world t;

        snprintf(workload, sizeof workload,
                 "site example.org latency=%s\n"
                 "arrivals steady rate=8/s until=4h to=example.org\n",
                 cases[i].latency);
        test_world(&t, cases[i].conf, workload, 1);
        assert_near(histogram_mean(&t.result->total.delay) / 1e6, cases[i].want_delay_s, 0.04);
        assert_near(t.result->total.busy_us / (double)t.result->ended.us, 0.8 * cases[i].servers,
                    0.02);
        assert_int_equal(t.result->total.busy_peak, cases[i].servers);
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

    (void)unused;
    test_world(&t, "smtp_connection_cache_on_demand = no\n",
               "site example.org hosts=4 bad=1:refuse setup=1ms\n"
               "arrivals some every=1s count=4000 to=example.org\n",
               7);
    assert_int_equal(t.result->total.sent, 4000);
    assert_int_equal(t.result->total.deferrals, 0);
    assert_int_equal(t.result->total.attempts, 4000);
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

/* Who waits in the backlog is as if never greeted: after the client's patience it is over. */
static void patience_in_the_backlog_ends(void **unused)
{
    struct test_world t;

    (void)unused;
    test_world(&t,
               "initial_destination_concurrency = 10\nsmtp_connection_cache_on_demand = no\n"
               "smtp_helo_timeout = 5s\nmaximal_queue_lifetime = 0\nbounce_queue_lifetime = 0\n",
               "site example.org slots=1 backlog=9 latency=2s\n"
               "arrivals burst at=0s count=10 to=example.org\n",
               1);
    /* Served at 0, 2 and 4 s; at 5 s the others have gone. */
    assert_int_equal(t.result->total.sent, 3);
    assert_int_equal(t.result->total.failures[SIM_TRY_GREETING_TIMEOUT], 7);
    assert_int_equal(t.result->ended.us, 6000000);
    test_world_close(&t);
}

static void a_client_tries_so_many_addresses(void **unused)
{
    static const struct {
        const char *conf;
        int64_t want_us;
    } cases[] = {
        {"smtp_mx_address_limit = 2\n", 60000000},
        {"smtp_mx_address_limit = 9\n", 90000000},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char conf[256];
        struct test_world t;

        snprintf(conf, sizeof conf,
                 "%smaximal_queue_lifetime = 0\nbounce_queue_lifetime = 0\n"
                 "smtp_connect_timeout = 30s\n",
                 cases[i].conf);
        test_world(&t, conf, "site a.example hosts=3 bad=3\narrivals x at=0s to=a.example\n", 1);
        assert_int_equal(t.result->total.expired, 1);
        assert_int_equal(t.result->total.failures[SIM_TRY_CONNECT_TIMEOUT], 1);
        assert_int_equal(t.result->ended.us, cases[i].want_us);
        test_world_close(&t);
    }
}

/* 60 an hour: the bucket takes 60 at once, then one a minute. */
static void a_limited_site_defers_what_is_too_much(void **unused)
{
    struct test_world t;

    (void)unused;
    test_world(&t, "maximal_queue_lifetime = 0\nbounce_queue_lifetime = 0\n",
               "site a.example limit=60/h latency=1ms\n"
               "arrivals x every=1s count=600 to=a.example\n",
               1);
    assert_int_equal(t.result->total.sent, 60 + 9);
    assert_int_equal(t.result->total.expired, 600 - 69);
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

/* Up to its end a connection in the cache holds its slot; the next delivery needs no setup. */
static void connections_are_kept_when_the_scheduler_says_so(void **unused)
{
    static const struct {
        const char *conf;
        int64_t want_ended_us;
    } cases[] = {
        {ONE_SERVER, 10 * 1100000 + 1000000},
        {ONE_SERVER "smtp_connection_cache_on_demand = no\n", 11 * 1100000},
        {ONE_SERVER "smtp_connection_reuse_count_limit = 1\n", 11 * 1100000},
        {ONE_SERVER "smtp_connection_reuse_time_limit = 1s\n", 11 * 1100000},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct test_world t;

        test_world(&t, cases[i].conf,
                   "site example.org setup=1s latency=100ms\n"
                   "arrivals some at=0s count=11 to=example.org\n",
                   1);
        assert_int_equal(t.result->total.sent, 11);
        if (i == 0) { /* what is kept saves setups, how many is the scheduler's affair */
            assert_true(t.result->ended.us < cases[i].want_ended_us);
        } else {
            assert_int_equal(t.result->ended.us, cases[i].want_ended_us);
        }
        test_world_close(&t);
    }
}

/* Two backlogs of 1000 at one server, 1 s each: with equal weights both end together; with 3 to 1
 * the heavier ends after 1333 s. Without classes the first that came goes first. */
static void classes_take_turns_by_their_weights(void **unused)
{
    static const struct {
        const char *conf, *classes[2];
        int64_t want_last_s[2];
    } cases[] = {
        {ONE_SERVER, {"class=a", "class=b"}, {1999, 2000}},
        {ONE_SERVER "class/a\n    weight=3\n", {"class=a", "class=b"}, {1333, 2000}},
        {ONE_SERVER, {"", ""}, {1000, 2000}},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char workload[512];
        struct test_world t;

        snprintf(workload, sizeof workload,
                 "site x.example latency=1s\n"
                 "arrivals a %s at=0s count=1000 to=x.example\n"
                 "arrivals b %s at=0s count=1000 to=x.example\n",
                 cases[i].classes[0], cases[i].classes[1]);
        test_world(&t, cases[i].conf, workload, 1);
        for (size_t k = 0; k < 2; k++) {
            assert_near((double)t.result->classes[k].delay.max / 1e6,
                        (double)cases[i].want_last_s[k], 0.002);
        }
        test_world_close(&t);
    }
}

/* A backlog is parked, it does not fill the active queue; mail of another class that comes later is
 * served in its turn nevertheless: after the delivery under way, and one of the backlog. */
static void a_parked_class_keeps_no_other_waiting(void **unused)
{
    struct test_world t;

    (void)unused;
    test_world(&t,
               ONE_SERVER "qmgr_message_active_limit = 200\n"
                          "qmgr_message_recipient_limit = 200\n",
               "site x.example latency=1s\n"
               "arrivals bulk class=a at=0s count=2000 to=x.example\n"
               "arrivals urgent class=b every=10s count=100 to=x.example\n",
               1);
    assert_int_equal(t.result->total.sent, 2100);
    assert_true(t.result->active_peak < 150);
    assert_true(t.result->classes[1].delay.max <= 3100000);
    test_world_close(&t);
}

/* 60 messages wait for a site that is back after ten minutes and takes one at a time, 100 s each.
 * New mail comes from then on, as fast as it is delivered: it passes the old mail, which gets half
 * of the deliveries nevertheless. */
static void new_mail_and_deferred_mail_of_a_site_alternate(void **unused)
{
    static const char *const shares[] = {"100", "0"};

    (void)unused;
    for (size_t i = 0; i < 2; i++) {
        struct test_world t;
        char conf[400];

        snprintf(conf, sizeof conf,
                 ONE_SERVER "qmgr_message_active_limit = 20\nqmgr_message_recipient_limit = 20\n"
                            "qmgr_destination_share = %s\nmaximal_backoff_time = 600s\n",
                 shares[i]);
        test_world(&t, conf,
                   "site x.example latency=100s outage=0s..10m:refuse\n"
                   "arrivals old class=old at=0s count=60 to=x.example\n"
                   "arrivals new class=new every=100s count=200 from=30m to=x.example\n",
                   1);
        assert_int_equal(t.result->total.sent, 260);
        /* The first of the new ones wait for what is in memory, .. */
        assert_true(histogram_quantile(&t.result->classes[1].delay, 10) < 30 * 100 * US_PER_S);
        /* .. and the old ones get half of 120 deliveries. */
        assert_true(t.result->classes[0].last_gone_us < (1800 + 20 * 100 + 120 * 100) * US_PER_S);
        test_world_close(&t);
    }
}

/* ---- histories ------------------------------------------------------------------------------ */

/* Something of everything, more than the active queue holds. */
static const char rough_conf[] =
    "qmgr_message_active_limit = 50\nqmgr_message_recipient_limit = 80\n"
    "default_destination_recipient_limit = 7\nmaximal_queue_lifetime = 3h\n"
    "bounce_queue_lifetime = 3h\nlocal_domains = mailbox.example\n"
    "smtp/d3.*\n    destination_concurrency_limit=2 destination_rate_delay=1s\n";

static const char rough_workload[] =
    "site d1.crowd.example slots=3 backlog=2 full=busy latency=exponential(2s) setup=100ms\n"
    "site d2.crowd.example hosts=3 bad=1:hang latency=lognormal(1s,1) greylist=4m\n"
    "site d3.crowd.example fail=10% defer=20%\n"
    "site d4.crowd.example outage=10m..2h:mute outage=3h..5h:refuse\n"
    "site d5.crowd.example hosts=1 bad=1:hang\n"
    "site * latency=uniform(10ms,3s) bandwidth=100k\n"
    "arrivals bulk class=lists at=5m count=3 recipients=uniform(1,400) "
    "to=zipf(30,1.1,crowd.example)\n"
    "arrivals small rate=20/m until=1h recipients=uniform(1,3) size=exponential(50k)"
    " to=zipf(30,1.1,crowd.example)\n"
    "arrivals people class=mail every=1m count=40 to=mailbox.example\n";

/* What a hook has seen of a message. */
struct seen {
    uint32_t rcpt_count, ended;
    uint8_t *gone; /* owned; per recipient */
};

#define SEEN_MAX 4096

struct checker {
    struct seen messages[SEEN_MAX];
    uint64_t deliveries, reads, ends;
    struct mono last;
};

static void on_arrived(void *arg, struct mono now, uint64_t message, uint32_t rcpt_count)
{
    struct checker *c = arg;

    assert_true(message > 0 && message < SEEN_MAX);
    assert_null(c->messages[message].gone);
    c->messages[message] =
        (struct seen){.rcpt_count = rcpt_count, .gone = test_calloc(rcpt_count, 1)};
    assert_true(now.us >= c->last.us);
    c->last = now;
}

static void on_decided(void *arg, struct mono now, uint64_t message,
                       const struct sched_action *action)
{
    struct checker *c = arg;

    assert_true(now.us >= c->last.us);
    assert_true(message < SEEN_MAX);
    c->deliveries += action->type == SCHED_DELIVER;
    c->reads += action->type == SCHED_READ;
    for (size_t i = 0; action->type == SCHED_DELIVER && i < action->rcpt_count; i++) {
        /* Nobody is delivered to again after his end. */
        assert_false(c->messages[message].gone[action->rcpts[i] - 1]);
    }
}

static void on_settled(void *arg, struct mono now, uint64_t message, uint32_t rcpt_n,
                       const char *destination, enum sim_disposition disposition)
{
    struct checker *c = arg;
    struct seen *m = &c->messages[message];

    assert_true(rcpt_n >= 1 && rcpt_n <= m->rcpt_count);
    assert_non_null(strchr(destination, '/'));
    assert_false(m->gone[rcpt_n - 1]);
    if (disposition != SIM_DISPOSITION_DEFERRED) {
        m->gone[rcpt_n - 1] = 1;
        m->ended++;
        c->ends++;
    }
    assert_true(now.us >= c->last.us);
    c->last = now;
}

/* Whatever the world does, each recipient comes to exactly one end. A failure is replayed by its
 * seed. */
static void every_recipient_comes_to_one_end(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct checker *c = test_calloc(1, sizeof *c);
        struct sim_hooks hooks = {
            .arg = c, .arrived = on_arrived, .decided = on_decided, .settled = on_settled};
        struct test_world t;

        print_message("seed %llu\n", (unsigned long long)seed);
        test_world_open(&t, rough_conf, rough_workload, seed, &hooks, NULL);
        test_world_run(&t);
        assert_true(t.result->drained);
        assert_int_equal(c->ends, t.result->total.recipients);
        assert_int_equal(c->deliveries, t.result->total.attempts);
        assert_true(t.result->active_peak <= 50);
        assert_int_equal(sched_totals(sim_world_sched(t.world)).messages, 0);
        for (size_t i = 0; i < SEEN_MAX; i++) {
            assert_int_equal(c->messages[i].ended, c->messages[i].rcpt_count);
            test_free(c->messages[i].gone);
        }
        test_world_close(&t);
        test_free(c);
    }
}

static char *report_of(const char *conf, const char *workload, uint64_t seed)
{
    struct sim_report_options options = {.seed = 0, .rows = 1000};
    struct test_world t;
    json_t *object;
    char *text;

    test_world(&t, conf, workload, seed);
    object = sim_report_json(t.result, &options);
    text = json_dumps(object, JSON_SORT_KEYS);
    json_decref(object);
    test_world_close(&t);
    return text;
}

static void the_same_seed_is_the_same_run(void **unused)
{
    char *first = report_of(rough_conf, rough_workload, 42);
    char *again = report_of(rough_conf, rough_workload, 42);
    char *other = report_of(rough_conf, rough_workload, 43);

    (void)unused;
    assert_string_equal(first, again);
    assert_string_not_equal(first, other);
    free(first);
    free(again);
    free(other);
}

/* What a configuration does must not change what comes. */
static void two_configurations_meet_the_same_mail(void **unused)
{
    struct test_world a, b;

    (void)unused;
    test_world(&a, rough_conf, rough_workload, 9);
    test_world(&b, "relayhost = d1.crowd.example\nmaximal_queue_lifetime = 1d\n", rough_workload,
               9);
    assert_int_equal(a.result->total.messages, b.result->total.messages);
    assert_int_equal(a.result->total.recipients, b.result->total.recipients);
    assert_int_not_equal(a.result->dest_count, b.result->dest_count);
    test_world_close(&a);
    test_world_close(&b);
}

/* Ten times the mail takes no more memory when no more of it waits. */
static void memory_is_bounded_by_what_waits(void **unused)
{
    static const char *const workloads[] = {
        "site * latency=100ms\narrivals a every=100ms count=1000 to=uniform(10)\n",
        "site * latency=100ms\narrivals a every=100ms count=10000 to=uniform(10)\n",
    };
    size_t bytes[2];

    (void)unused;
    for (size_t i = 0; i < COUNT(workloads); i++) {
        struct test_world t;

        test_world(&t, "", workloads[i], 1);
        assert_true(t.result->queue_peak <= 3);
        assert_true(t.result->series->count < SIM_SERIES_MAX);
        bytes[i] = sched_totals(sim_world_sched(t.world)).bytes;
        test_world_close(&t);
    }
    assert_int_equal(bytes[0], bytes[1]);
}

static void the_series_shows_the_queue(void **unused)
{
    const struct sim_series *series;
    struct test_world t;

    (void)unused;
    test_world(&t, ONE_SERVER,
               "site example.org latency=1s\narrivals burst at=10s count=100 to=example.org\n", 1);
    series = t.result->series;
    assert_int_equal(series->dest_count, 1);
    assert_string_equal(series->names[0], "smtp/example.org");
    assert_int_equal(series->step_us, 200000); /* 110 s in at most 1024 samples */
    assert_int_equal(series->count, 550);
    assert_int_equal(series->queue[49].active, 0);
    assert_int_equal(series->queue[50].active, 100);
    assert_int_equal(series->dests[0][50].busy, 1);
    assert_int_equal(series->dests[0][50].window, 1);
    assert_int_equal(series->dests[0][50].waiting, 99);
    assert_int_equal(series->queue[50 + 5 * 60].active, 40);
    test_world_close(&t);
}

static void a_trace_brings_its_mail_and_its_times(void **unused)
{
    int64_t samples[] = {3000000};
    struct trace_domain slow = {.name = (char[]){"slow.example"}, .sample_count = 1};
    struct trace_domain fast = {.name = (char[]){"fast.example"}};
    struct trace_domain *domains[] = {&slow, &fast};
    struct trace_message messages[] = {
        {.at_us = 0, .size_bytes = 1, .first_rcpt = 0, .rcpt_count = 2},
        {.at_us = 5000000, .size_bytes = 1, .first_rcpt = 2, .rcpt_count = 1},
    };
    uint32_t rcpts[] = {0, 1, 0};
    const struct trace trace = {.messages = messages,
                                .message_count = 2,
                                .rcpts = rcpts,
                                .rcpt_count = 3,
                                .domains = domains,
                                .domain_count = 2};
    struct test_world t;

    (void)unused;
    slow.samples[0] = samples[0];
    test_world_open(&t, "", "site fast.example latency=7ms\nsite slow.example setup=1s\n", 1, NULL,
                    &trace);
    test_world_run(&t);
    assert_int_equal(t.result->class_count, 1);
    assert_string_equal(t.result->classes[0].name, "trace");
    assert_int_equal(t.result->total.sent, 3);
    assert_int_equal(t.result->total.delay.min, 7000);
    assert_int_equal(t.result->total.delay.max, 4000000);
    assert_int_equal(t.result->ended.us, 9000000);
    test_world_close(&t);
}

UNIT_MAIN(
    cmocka_unit_test(an_undisturbed_delivery_takes_its_latency),
    cmocka_unit_test(waiting_follows_queueing_theory),
    cmocka_unit_test(greylisting_costs_one_back_off), cmocka_unit_test(an_outage_is_waited_out),
    cmocka_unit_test(mail_that_is_too_old_goes_back), cmocka_unit_test(the_next_host_is_tried),
    cmocka_unit_test(a_full_site_lets_wait_and_turns_away),
    cmocka_unit_test(patience_in_the_backlog_ends),
    cmocka_unit_test(a_client_tries_so_many_addresses),
    cmocka_unit_test(a_limited_site_defers_what_is_too_much),
    cmocka_unit_test(probabilities_come_out), cmocka_unit_test(the_run_ends_with_its_duration),
    cmocka_unit_test(mail_goes_where_the_configuration_routes_it),
    cmocka_unit_test(connections_are_kept_when_the_scheduler_says_so),
    cmocka_unit_test(classes_take_turns_by_their_weights),
    cmocka_unit_test(a_parked_class_keeps_no_other_waiting),
    cmocka_unit_test(new_mail_and_deferred_mail_of_a_site_alternate),
    cmocka_unit_test(every_recipient_comes_to_one_end),
    cmocka_unit_test(the_same_seed_is_the_same_run),
    cmocka_unit_test(two_configurations_meet_the_same_mail),
    cmocka_unit_test(memory_is_bounded_by_what_waits), cmocka_unit_test(the_series_shows_the_queue),
    cmocka_unit_test(a_trace_brings_its_mail_and_its_times))
