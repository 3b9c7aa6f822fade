/* Destinations: dead ones and how they come back, what is remembered of idle ones, and how much of
 * a transport failing ones may use. */
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "check.h"

/* Ours: the documented rule, deaths that double, and an hour's memory. */
static struct sched_limits ours(void)
{
    struct sched_limits limits = bench_limits();

    limits.maximal_backoff_us = 1000 * S;
    limits.destination_memory_us = 3600 * S;
    limits.destination_share = 100;
    return limits;
}

static struct sched_transport_policy documented(uint32_t initial)
{
    struct sched_transport_policy policy = bench_policy();

    policy.window.rule = WINDOW_DOCUMENTED;
    policy.window.initial = initial;
    policy.dest_recipient_limit = 1;
    return policy;
}

static void start(struct bench *b, uint32_t initial)
{
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(initial);

    bench_start(b, &limits, &policy);
}

static struct sched_dest_info info_of(const struct bench *b, const char *dest)
{
    struct sched_dest_info info;

    assert_true(sched_dest_get(b->s, 0, slice_string(dest), &info));
    return info;
}

/* One delivery after the other fails until the destination is dead; nothing is told yet. */
static void kill_a(struct bench *b)
{
    struct sched_dest_info info;

    do {
        while (decide(b)) {
        }
        open_msg(b, 1, "a");
        while (decide(b)) {
        }
        finish(b, 1, "a", SCHED_DEST_FAIL);
        info = info_of(b, "a");
    } while (info.state != SCHED_DEST_DEAD_UNTIL);
}

/* ---- probes --------------------------------------------------------------------------------- */

static void a_dead_site_is_tried_with_one_delivery(void **state)
{
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(1);
    struct bench b;

    (void)state;
    bench_start(&b, &limits, &policy);
    policy.window.initial = 5;
    kill_a(&b);
    DECIDES(&b, "!a m1.");
    (void)sched_transport(b.s, b.now, "smtp", &policy);
    b.now.us = sched_wake_at(b.s).us;
    DECIDES(&b, "?a");
    assert_true(slice_equal(b.last.reason, SLICE("4.4.1 refused")));
    open_msg(&b, 2, "a a a a a a a a");
    DECIDES(&b, "m2:a(1)");
    assert_int_equal(info_of(&b, "a").state, SCHED_DEST_PROBING);
    finish(&b, 2, "a", SCHED_CRASH); /* tells nothing of the site */
    DECIDES(&b, "m2:a(1)");
    finish(&b, 2, "a", SCHED_OK);
    DECIDES(&b, "*a m2:a(1) m2:a(1) m2:a(1) m2:a(1) m2:a(1)");
    assert_int_equal(info_of(&b, "a").state, SCHED_DEST_READY);
    bench_end(&b);
}

/* The harm of the old way: as many fail as the initial window holds, each time. */
static void postfix_tries_with_the_initial_window(void **state)
{
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(5);
    struct bench b;

    (void)state;
    policy.window.rule = WINDOW_POSTFIX;
    bench_start(&b, &limits, &policy);
    kill_a(&b);
    DECIDES(&b, "!a m1.");
    b.now.us = sched_wake_at(b.s).us;
    DECIDES(&b, "*a");
    open_msg(&b, 2, "a a a a a a a a");
    DECIDES(&b, "m2:a(1) m2:a(1) m2:a(1) m2:a(1) m2:a(1)");
    bench_end(&b);
}

static void failed_probes_double_the_time(void **state)
{
    static const int64_t wants[] = {300, 300, 600, 1000, 1000};
    struct bench b;

    (void)state;
    start(&b, 1);
    kill_a(&b);
    DECIDES(&b, "!a m1.");
    for (size_t i = 0; i < COUNT(wants); i++) {
        struct sched_dest_info info = info_of(&b, "a");

        assert_int_equal(info.state, SCHED_DEST_DEAD_UNTIL);
        assert_int_equal(info.deaths, i + 1);
        assert_int_equal(info.until.us - b.now.us, wants[i] * S);
        b.now = info.until;
        DECIDES(&b, "?a");
        open_msg(&b, 2, "a a");
        DECIDES(&b, "m2:a(1)");
        finish(&b, 2, "a", SCHED_DEST_FAIL);
        DECIDES(&b, "!a -m2:a(1) m2.");
    }
    /* One that ends well makes all good. */
    b.now = info_of(&b, "a").until;
    DECIDES(&b, "?a");
    open_msg(&b, 2, "a");
    DECIDES(&b, "m2:a(1)");
    finish(&b, 2, "a", SCHED_OK);
    DECIDES(&b, "*a m2.");
    kill_a(&b);
    DECIDES(&b, "!a m1.");
    assert_int_equal(info_of(&b, "a").until.us - b.now.us, 300 * S);
    bench_end(&b);
}

static void the_log_is_told_until_when(void **state)
{
    struct bench b;

    (void)state;
    start(&b, 1);
    kill_a(&b);
    assert_true(decide(&b));
    assert_int_equal(b.last.type, SCHED_DEST_DEAD);
    assert_int_equal(b.last.until.us, b.now.us + 300 * S);
    assert_true(slice_equal(b.last.reason, SLICE("4.4.1 refused")));
    bench_end(&b);
}

/* The window after the probe of a site that once was well with a window of `well`, and has been
 * dead for so long. An unknown site gets 5. */
static uint32_t window_after_death(uint32_t well, int64_t dead_us)
{
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(well);
    struct bench b;
    uint32_t window;

    policy.window.max = well;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a");
    DECIDES(&b, "m1:a(1)");
    finish(&b, 1, "a", SCHED_OK);
    kill_a(&b);
    policy.window.initial = 5;
    policy.window.max = 20;
    (void)sched_transport(b.s, b.now, "smtp", &policy);
    DECIDES(&b, "!a m1.");
    b.now.us += dead_us;
    DECIDES(&b, "?a");
    open_msg(&b, 2, "a");
    DECIDES(&b, "m2:a(1)");
    finish(&b, 2, "a", SCHED_OK);
    DECIDES(&b, "*a m2.");
    window = info_of(&b, "a").window;
    bench_end(&b);
    return window;
}

static void it_starts_as_an_unknown_one_or_as_narrow_as_it_was(void **state)
{
    (void)state;
    assert_int_equal(window_after_death(20, 300 * S), 5);
    assert_int_equal(window_after_death(2, 300 * S), 2);
    assert_int_equal(window_after_death(1, 1800 * S), 3); /* half forgotten */
    assert_int_equal(window_after_death(1, 3600 * S), 5); /* long ago */
}

static void parked_mail_is_asked_for_one_to_probe_and_more_when_that_ends_well(void **state)
{
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(1);
    struct bench b;

    (void)state;
    limits.message_active_limit = 100;
    bench_start(&b, &limits, &policy);
    kill_a(&b);
    DECIDES(&b, "!a m1.");
    sched_parked(b.s, b.now, 0, SLICE("a"), SLICE(""));
    DECIDES(&b, ""); /* not while it is dead */
    assert_true(sched_share_full(b.s, 0, SLICE("a"), SLICE("")));
    b.now.us = sched_wake_at(b.s).us;
    DECIDES(&b, "?a aa.");
    assert_int_equal(b.last.max, 1);
    open_msg(&b, 2, "a");
    sched_admitted(b.s, b.now, 0, SLICE("a"), SLICE(""), 1, true);
    DECIDES(&b, "m2:a(1)");
    finish(&b, 2, "a", SCHED_OK);
    DECIDES(&b, "*a m2. aa.");
    assert_int_equal(b.last.max, 50);
    sched_admitted(b.s, b.now, 0, SLICE("a"), SLICE(""), 0, false);
    bench_end(&b);
}

/* Whatever classes have parked mail; then each of them is asked for. */
static void a_probe_is_one_message_of_one_class(void **state)
{
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(1);
    struct bench b;

    (void)state;
    limits.message_active_limit = 100;
    bench_start(&b, &limits, &policy);
    kill_a(&b);
    DECIDES(&b, "!a m1.");
    sched_parked(b.s, b.now, 0, SLICE("a"), SLICE(""));
    sched_parked(b.s, b.now, 0, SLICE("a"), SLICE("bulk"));
    DECIDES(&b, "");
    b.now.us = sched_wake_at(b.s).us;
    DECIDES(&b, "?a aa.");
    assert_int_equal(b.last.max, 1);
    assert_int_equal(b.last.class_name.len, 0);
    open_msg(&b, 2, "a");
    sched_admitted(b.s, b.now, 0, SLICE("a"), SLICE(""), 1, true);
    DECIDES(&b, "m2:a(1)");
    finish(&b, 2, "a", SCHED_OK);
    DECIDES(&b, "*a m2. aa. aa.");
    assert_int_equal(b.last.class_name.len, 0); /* bulk came first: it was not asked for yet */
    sched_admitted(b.s, b.now, 0, SLICE("a"), SLICE("bulk"), 0, false);
    assert_true(sched_class_get(b.s, 0, SLICE("a"), SLICE("")).parked);
    sched_admitted(b.s, b.now, 0, SLICE("a"), SLICE(""), 0, false);
    sched_audit(b.s);
    bench_end(&b);
}

/* ---- handed over by another scheduler -------------------------------------------------------- */

static struct sched_suspension dead_until(const struct bench *b, int64_t seconds)
{
    return (struct sched_suspension){.dest = SLICE("a"),
                                     .is_dead = true,
                                     .until = mono_after(b->now, seconds * S),
                                     .deaths = 3,
                                     .reason = SLICE("4.4.1 refused")};
}

static struct sched_suspension delayed_until(const struct bench *b, int64_t seconds)
{
    return (struct sched_suspension){.dest = SLICE("a"), .until = mono_after(b->now, seconds * S)};
}

static void what_is_dead_elsewhere_is_not_tried_before_its_time(void **state)
{
    struct sched_suspension x;
    struct bench b;

    (void)state;
    start(&b, 5);
    x = dead_until(&b, 500);
    sched_suspend(b.s, b.now, &x);
    sched_audit(b.s);
    assert_true(info_of(&b, "a").handed_over);
    assert_int_equal(info_of(&b, "a").until.us, x.until.us);
    open_msg(&b, 1, "a a");
    DECIDES(&b, "-m1:a(2) m1.");
    b.now.us += 499 * S;
    open_msg(&b, 2, "a a");
    DECIDES(&b, "-m2:a(2) m2.");
    b.now = x.until;
    DECIDES(&b, "?a");
    assert_false(info_of(&b, "a").handed_over);
    open_msg(&b, 3, "a a");
    DECIDES(&b, "m3:a(1)"); /* probed, as one that died here */
    finish(&b, 3, "a", SCHED_DEST_FAIL);
    DECIDES(&b, "!a -m3:a(1) m3.");
    assert_int_equal(info_of(&b, "a").deaths, 4);
    bench_end(&b);
}

static void a_rate_delay_that_runs_elsewhere_is_waited_for(void **state)
{
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(5);
    struct sched_suspension x;
    struct bench b;

    (void)state;
    policy.dest_rate_delay_us = 5 * S;
    bench_start(&b, &limits, &policy);
    x = delayed_until(&b, 3);
    sched_suspend(b.s, b.now, &x);
    x = delayed_until(&b, 2); /* the later one holds */
    sched_suspend(b.s, b.now, &x);
    open_msg(&b, 1, "a a");
    DECIDES(&b, "");
    assert_int_equal(info_of(&b, "a").state, SCHED_DEST_SUSPENDED);
    assert_true(info_of(&b, "a").handed_over);
    assert_int_equal(sched_wake_at(b.s).us, b.now.us + 3 * S);
    b.now.us += 3 * S;
    DECIDES(&b, "m1:a(1)");
    finish(&b, 1, "a", SCHED_OK);
    assert_false(info_of(&b, "a").handed_over);
    assert_int_equal(sched_wake_at(b.s).us, b.now.us + 5 * S);
    bench_end(&b);
}

static void one_without_mail_is_forgotten_in_its_time(void **state)
{
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(5);
    struct sched_dest_info info;
    struct sched_suspension x;
    struct bench b;

    (void)state;
    limits.destination_memory_us = 0;
    bench_start(&b, &limits, &policy);
    x = delayed_until(&b, 3);
    sched_suspend(b.s, b.now, &x);
    assert_int_equal(sched_totals(b.s).destinations, 1);
    b.now.us += 3 * S;
    DECIDES(&b, "");
    assert_false(sched_dest_get(b.s, 0, SLICE("a"), &info));
    x = dead_until(&b, 0); /* past */
    sched_suspend(b.s, b.now, &x);
    assert_false(sched_dest_get(b.s, 0, SLICE("a"), &info));
    bench_end(&b);
}

static void what_was_learned_here_goes_first(void **state)
{
    struct sched_suspension x;
    struct mono until;
    struct bench b;

    (void)state;
    start(&b, 1);
    kill_a(&b);
    DECIDES(&b, "!a m1.");
    until = info_of(&b, "a").until;
    x = dead_until(&b, 5000);
    sched_suspend(b.s, b.now, &x);
    x = delayed_until(&b, 5000);
    sched_suspend(b.s, b.now, &x);
    assert_int_equal(info_of(&b, "a").until.us, until.us);
    assert_false(info_of(&b, "a").handed_over);
    bench_end(&b);
}

static void
death_that_is_handed_over_ends_a_rate_delay_and_waits_for_what_is_under_way(void **state)
{
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(5);
    struct sched_suspension x;
    struct bench b;

    (void)state;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a a a");
    DECIDES(&b, "m1:a(1) m1:a(1) m1:a(1)");
    x = delayed_until(&b, 5);
    sched_suspend(b.s, b.now, &x);
    x = dead_until(&b, 500);
    sched_suspend(b.s, b.now, &x);
    open_msg(&b, 2, "a");
    DECIDES(&b, "-m2:a(1) m2.");
    finish(&b, 1, "a", SCHED_DEST_FAIL);
    assert_int_equal(info_of(&b, "a").until.us, x.until.us);
    finish(&b, 1, "a", SCHED_OK); /* it lives after all */
    DECIDES(&b, "*a");
    finish(&b, 1, "a", SCHED_OK);
    DECIDES(&b, "m1.");
    bench_end(&b);
}

static void what_is_suspended_can_be_walked_through(void **state)
{
    struct sched_suspension x, found;
    uint64_t cursor = 0;
    unsigned count = 0;
    struct bench b;

    (void)state;
    start(&b, 5);
    x = dead_until(&b, 500);
    sched_suspend(b.s, b.now, &x);
    x = (struct sched_suspension){.dest = SLICE("b"), .until = mono_after(b.now, S)};
    sched_suspend(b.s, b.now, &x);
    sched_postpone(b.s, b.now, 0, SLICE("c"), mono_after(b.now, S), SLICE("later"));
    while (sched_suspension_each(b.s, &cursor, &found)) {
        count++;
        if (found.is_dead) {
            assert_true(slice_equal(found.dest, SLICE("a")));
            assert_int_equal(found.until.us, b.now.us + 500 * S);
            assert_int_equal(found.deaths, 3);
            assert_true(slice_equal(found.reason, SLICE("4.4.1 refused")));
        } else {
            assert_true(slice_equal(found.dest, SLICE("b")));
            assert_int_equal(found.until.us, b.now.us + S);
        }
    }
    assert_int_equal(count, 2);
    bench_end(&b);
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Widen the window for "a" to 8: three deliveries end well, one after the other. */
static void widen(struct bench *b)
{
    for (uint64_t msg = 1; msg <= 3; msg++) {
        open_msg(b, msg, "a");
        while (decide(b)) {
        }
        finish(b, msg, "a", SCHED_OK);
        while (decide(b)) {
        }
    }
}

static void what_was_learned_outlives_an_empty_queue_and_fades(void **state)
{
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(5);
    struct sched_dest_info info;
    struct bench b;

    (void)state;
    policy.window.positive.base = 1;
    bench_start(&b, &limits, &policy);
    widen(&b);
    info = info_of(&b, "a");
    assert_int_equal(info.state, SCHED_DEST_IDLE);
    assert_int_equal(info.window, 6); /* one at a time makes it no wider */
    policy.window.initial = 2;
    (void)sched_transport(b.s, b.now, "smtp", &policy);
    assert_int_equal(info_of(&b, "a").window, 6);
    assert_int_equal(sched_totals(b.s).destinations, 0);
    assert_int_equal(sched_totals(b.s).idle_destinations, 1);
    b.now.us += 1800 * S;
    DECIDES(&b, "");
    assert_int_equal(info_of(&b, "a").window, 4);
    open_msg(&b, 1, "a a a a a a a a");
    DECIDES(&b, "m1:a(1) m1:a(1) m1:a(1) m1:a(1)");
    bench_end(&b);
}

static void without_memory_each_pause_starts_afresh(void **state)
{
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(5);
    struct sched_dest_info info;
    struct bench b;

    (void)state;
    limits.destination_memory_us = 0;
    bench_start(&b, &limits, &policy);
    widen(&b);
    assert_false(sched_dest_get(b.s, 0, SLICE("a"), &info));
    bench_end(&b);
}

/* Is the connection cache used for mail that comes right after the queue was empty? */
static bool cache_outlives_an_empty_queue(int64_t memory_us)
{
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(5);
    bool store;
    struct bench b;

    limits.destination_memory_us = memory_us;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a");
    DECIDES(&b, "m1:a(1)");
    assert_false(b.last.cache_store);
    finish(&b, 1, "a", SCHED_OK);
    DECIDES(&b, "m1.");
    open_msg(&b, 2, "a");
    DECIDES(&b, "m2:a(1)");
    store = b.last.cache_store;
    bench_end(&b);
    return store;
}

static void so_does_the_connection_cache(void **state)
{
    (void)state;
    assert_true(cache_outlives_an_empty_queue(3600 * S));
    assert_false(cache_outlives_an_empty_queue(0)); /* as in Postfix */
}

static void dead_ones_beyond_their_number_are_probed_early_but_not_forgotten(void **state)
{
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(5);
    struct bench b;
    char name[8];

    (void)state;
    limits.message_recipient_limit = 10;
    policy.window.failed_cohort_limit = 1;
    policy.window.initial = policy.window.max = 1;
    bench_start(&b, &limits, &policy);
    for (unsigned i = 0; i < 30; i++) {
        (void)snprintf(name, sizeof name, "d%u", i);
        for (int failures = 0; failures < 2; failures++) {
            open_msg(&b, 1, name);
            while (decide(&b)) {
            }
            finish(&b, 1, name, SCHED_DEST_FAIL);
            while (decide(&b)) {
            }
        }
        assert_int_equal(info_of(&b, name).deaths, 1);
    }
    assert_in_range(sched_totals(b.s).dead_destinations, 20, 22);
    assert_int_equal(sched_totals(b.s).dead_destinations + sched_totals(b.s).idle_destinations, 30);
    assert_int_equal(info_of(&b, "d29").state, SCHED_DEST_PROBING);
    bench_end(&b);
}

static void a_known_bad_site_is_still_probed_after_a_pause(void **state)
{
    struct bench b;

    (void)state;
    start(&b, 5);
    kill_a(&b);
    DECIDES(&b, "!a m1.");
    b.now.us += 300 * S;
    while (decide(&b)) {
    }
    assert_int_equal(sched_totals(b.s).idle_destinations, 1);
    b.now.us += 1000 * S;
    open_msg(&b, 2, "a a a a");
    DECIDES(&b, "m2:a(1)");
    finish(&b, 2, "a", SCHED_DEST_FAIL);
    DECIDES(&b, "!a -m2:a(3) m2.");
    assert_int_equal(info_of(&b, "a").deaths, 2);
    bench_end(&b);
}

static void after_its_time_all_is_forgotten(void **state)
{
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(1);
    struct sched_dest_info info;
    uint64_t cursor = 0;
    struct bench b;

    (void)state;
    bench_start(&b, &limits, &policy);
    kill_a(&b);
    DECIDES(&b, "!a m1.");
    b.now = sched_wake_at(b.s);
    DECIDES(&b, "?a");
    policy.window.initial = 3;
    (void)sched_transport(b.s, b.now, "smtp", &policy);
    b.now.us += 3600 * S;
    sched_revive(b.s, b.now, 0, SLICE("z")); /* the scheduler hears what time it is */
    assert_false(sched_dest_get(b.s, 0, SLICE("a"), &info));
    assert_false(sched_dest_each(b.s, &cursor, &info));
    open_msg(&b, 1, "a a a a");
    DECIDES(&b, "m1:a(1) m1:a(1) m1:a(1)");
    assert_int_equal(info_of(&b, "a").deaths, 0);
    bench_end(&b);
}

static void the_oldest_are_freed_a_few_at_a_time(void **state)
{
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(5);
    struct bench b;
    char name[8];

    (void)state;
    bench_start(&b, &limits, &policy);
    for (int i = 0; i < 40; i++) {
        (void)snprintf(name, sizeof name, "d%d", i);
        open_msg(&b, 1, name);
        while (decide(&b)) {
        }
        finish(&b, 1, name, SCHED_OK);
        while (decide(&b)) {
        }
    }
    assert_int_equal(sched_totals(b.s).idle_destinations, 40);
    b.now.us += 3600 * S;
    for (int left = 36; left >= 0; left -= 4) {
        DECIDES(&b, "");
        assert_int_equal(sched_totals(b.s).idle_destinations, left);
    }
    bench_end(&b);
}

static void no_more_are_remembered_than_the_limit(void **state)
{
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(5);
    struct sched *s = sched_new(&limits);
    struct mono now = {1000 * S};
    struct sched_dest_info info;
    char name[16];

    (void)state;
    (void)sched_transport(s, now, "smtp", &policy);
    for (unsigned i = 0; i < 100010; i++) {
        struct slice dest = slice_of(name, (size_t)snprintf(name, sizeof name, "d%u", i));

        sched_parked(s, now, 0, dest, SLICE(""));
        struct sched_action a;
        while (sched_next(s, now, &a) != SCHED_NONE) {
            assert_int_equal(a.type, SCHED_ADMIT);
            sched_admitted(s, now, 0, dest, SLICE(""), 0, false);
        }
    }
    assert_in_range(sched_totals(s).idle_destinations, 99990, 100001);
    assert_false(sched_dest_get(s, 0, SLICE("d0"), &info));
    assert_true(sched_dest_get(s, 0, SLICE("d100000"), &info));
    sched_free(s);
}

/* ---- failing ones --------------------------------------------------------------------------- */

/* Ten deliveries at once; sites a, b and c have failed once and are never dead. */
static void failing_start(struct bench *b, uint32_t share)
{
    static const char *const sites[] = {"a", "b", "c"};
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(5);

    limits.failing_share = share;
    policy.window.failed_cohort_limit = 0;
    policy.window.negative.base = 0;
    policy.process_limit = 10;
    bench_start(b, &limits, &policy);
    for (size_t i = 0; i < COUNT(sites); i++) {
        open_msg(b, 1, sites[i]);
        while (decide(b)) {
        }
        finish(b, 1, sites[i], SCHED_DEST_FAIL);
        while (decide(b)) {
        }
        assert_true(info_of(b, sites[i]).failing);
    }
    open_msg(b, 1, "a a a a a");
    open_msg(b, 2, "b b b b b");
    open_msg(b, 3, "c c c c c");
    open_msg(b, 4, "d d d d d d");
}

static void failing_sites_leave_half_of_the_deliveries_to_others(void **state)
{
    const uint32_t rcpt = 0;
    struct sched_wait wait;
    uint32_t group;
    struct bench b;

    (void)state;
    failing_start(&b, 50);
    DECIDES(&b, "m1:a(1) m1:a(1) m1:a(1) m1:a(1) m1:a(1) m4:d(1) m4:d(1) m4:d(1) m4:d(1) m4:d(1)");
    assert_int_equal(sched_why(b.s, (struct sched_msg){2}, &rcpt, 1, &group, &wait), 1);
    for (size_t i = 0; i < wait.gate_count; i++) {
        if (wait.gates[i].closed) { /* the transport's limit is reached, too */
            assert_int_equal(wait.gates[i].type, SCHED_GATE_FAILING);
            assert_int_equal(wait.gates[i].value, 5);
            assert_int_equal(wait.gates[i].limit, 5);
            break;
        }
    }
    finish(&b, 4, "d", SCHED_OK);
    DECIDES(&b, "m4:d(1)");
    finish(&b, 4, "d", SCHED_OK);
    DECIDES(&b, ""); /* a delivery is free, and stays so for those that are well */
    bench_end(&b);

    failing_start(&b, 100); /* as in Postfix: the others wait for the timeouts of these */
    DECIDES(&b, "m1:a(1) m1:a(1) m1:a(1) m1:a(1) m1:a(1) m2:b(1) m2:b(1) m2:b(1) m2:b(1) m2:b(1)");
    bench_end(&b);
}

static void failing_sites_go_on_in_the_usual_order(void **state)
{
    struct bench b;

    (void)state;
    failing_start(&b, 50);
    while (decide(&b)) {
    }
    finish(&b, 1, "a", SCHED_DEST_FAIL);
    DECIDES(&b, "m2:b(1)");
    finish(&b, 1, "a", SCHED_CRASH);
    finish(&b, 1, "a", SCHED_DEST_FAIL);
    DECIDES(&b, "m2:b(1) m2:b(1)");
    assert_true(sched_drop(b.s, b.now, (struct sched_msg){2}));
    finish(&b, 1, "a", SCHED_DEST_FAIL);
    DECIDES(&b, "m3:c(1)");
    bench_end(&b);
}

static void a_site_that_is_well_again_is_limited_no_more(void **state)
{
    struct bench b;

    (void)state;
    failing_start(&b, 50);
    while (decide(&b)) {
    }
    while (b.running_count > 5) {
        finish(&b, 4, "d", SCHED_CRASH);
    }
    finish(&b, 1, "a", SCHED_OK); /* so what runs for it does not count */
    assert_false(info_of(&b, "a").failing);
    DECIDES(&b, "m2:b(1) m2:b(1) m2:b(1) m2:b(1) m2:b(1) m4:d(1)");
    bench_end(&b);
}

static void what_is_held_goes_on_when_the_limit_goes(void **state)
{
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(5);
    struct bench b;

    (void)state;
    failing_start(&b, 50);
    while (decide(&b)) {
    }
    finish(&b, 4, "d", SCHED_OK);
    finish(&b, 4, "d", SCHED_OK);
    assert_true(sched_drop(b.s, b.now, (struct sched_msg){4}));
    DECIDES(&b, "");
    policy.process_limit = 9; /* too few to keep any for others */
    policy.window.failed_cohort_limit = 0;
    (void)sched_transport(b.s, b.now, "smtp", &policy);
    DECIDES(&b, "m2:b(1)");
    limits.failing_share = 100;
    sched_set_limits(b.s, &limits);
    policy.process_limit = 20;
    (void)sched_transport(b.s, b.now, "smtp", &policy);
    DECIDES(&b, "m2:b(1) m2:b(1) m2:b(1) m2:b(1) m3:c(1) m3:c(1) m3:c(1) m3:c(1) m3:c(1)");
    bench_end(&b);
}

/* ---- unproven ones -------------------------------------------------------------------------- */

#define UNKNOWN_FROM 100 /* the first message for an unknown site */

static void decide_all(struct bench *b)
{
    while (decide(b)) {
    }
}

/* Ten deliveries at once. Site `well` has proven itself, and has no mail any more. */
static void unknown_start(struct bench *b, uint32_t share, int64_t memory_us)
{
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(5);

    limits.message_active_limit = limits.message_recipient_limit = 400;
    limits.failing_share = limits.unproven_share = share;
    limits.destination_memory_us = memory_us;
    policy.process_limit = 10;
    bench_start(b, &limits, &policy);
    open_msg(b, 1, "well");
    decide_all(b);
    finish(b, 1, "well", SCHED_OK);
    decide_all(b);
    b->now.us += 2 * S; /* it has allowed one more until now */
}

/* One message each for so many sites that are not known. */
static void open_unknown(struct bench *b, unsigned count)
{
    static char names[150][16];

    for (unsigned i = 0; i < count; i++) {
        (void)snprintf(names[i], sizeof names[i], "u%u", i);
        open_msg(b, UNKNOWN_FROM + i, names[i]);
    }
    decide_all(b);
}

/* The one that runs for longest of unknown sites; its site is copied. */
static uint64_t first_unknown(const struct bench *b, char dest[32])
{
    for (size_t i = 0; i < b->running_count; i++) {
        if (b->running[i].msg >= UNKNOWN_FROM) {
            (void)snprintf(dest, 32, "%s", b->running[i].dest);
            return b->running[i].msg;
        }
    }
    fail_msg("nothing runs for an unknown site");
    return 0;
}

static bool runs(const struct bench *b, const char *dest)
{
    for (size_t i = 0; i < b->running_count; i++) {
        if (strcmp(b->running[i].dest, dest) == 0) {
            return true;
        }
    }
    return false;
}

/* 150 sites can't be reached: each attempt lasts for a timeout. 60 messages for the site that is
 * well come meanwhile, and each begins at once; its site is not forgotten while it has no mail. */
static void sites_that_can_t_be_reached_leave_deliveries_to_a_proven_one(void **state)
{
    static const int64_t memories[] = {0, 3600 * S};
    char dest[32];
    struct bench b;

    (void)state;
    for (size_t k = 0; k < COUNT(memories); k++) {
        unknown_start(&b, 30, memories[k]);
        open_unknown(&b, 150);
        assert_int_equal(b.running_count, 3);
        for (uint64_t msg = 2; msg < 62; msg++) {
            open_msg(&b, msg, "well");
            decide_all(&b);
            assert_true(runs(&b, "well"));
            assert_true(b.running_count <= 1 + 3 + 3 + 1); /* those that failed have a part, too */
            finish(&b, msg, "well", SCHED_OK);
            b.now.us += 10 * S;
            finish(&b, first_unknown(&b, dest), dest, SCHED_DEST_FAIL);
            decide_all(&b);
        }
        bench_end(&b);
    }
    unknown_start(&b, 100, 0); /* as in Postfix */
    open_unknown(&b, 150);
    assert_int_equal(b.running_count, 10);
    open_msg(&b, 2, "well");
    decide_all(&b);
    assert_false(runs(&b, "well"));
    bench_end(&b);
}

/* Which sites are well is not known at first. */
static void an_unknown_site_behind_many_that_hang_is_tried_soon(void **state)
{
    char dest[32];
    struct bench b;

    (void)state;
    unknown_start(&b, 30, 3600 * S);
    open_unknown(&b, 140);
    open_msg(&b, 90, "other");
    decide_all(&b);
    for (int i = 0; i < 2; i++) {
        assert_false(runs(&b, "other"));
        finish(&b, first_unknown(&b, dest), dest, SCHED_DEST_FAIL);
        decide_all(&b);
    }
    assert_true(runs(&b, "other"));
    finish(&b, 90, "other", SCHED_OK);
    open_msg(&b, 91, "other other other");
    decide_all(&b);
    assert_true(runs(&b, "other")); /* it is proven now */
    bench_end(&b);
}

/* A list of unknown sites has one newcomer, the last. The n-th at a time waits for n seconds, and
 * the last delivery is for proven sites. */
static void a_newcomer_behind_many_that_hang_is_tried_at_once(void **state)
{
    static const char *const names[] = {"n1", "n2", "n3", "n4", "n5", "n6"};
    struct bench b;

    (void)state;
    unknown_start(&b, 30, 0);
    open_unknown(&b, 140);
    assert_int_equal(b.running_count, 3);
    for (uint32_t i = 0; i < COUNT(names); i++) {
        int64_t before_us = b.now.us;

        b.now.us += 1;
        open_msg(&b, 80 + i, names[i]);
        decide_all(&b);
        assert_false(runs(&b, names[i]));
        b.now.us = sched_wake_at(b.s).us;
        decide_all(&b);
        assert_true(runs(&b, names[i]));
        assert_int_equal(b.running_count, 3 + i + 1);
        assert_int_equal(b.now.us - before_us, i == 0 ? S / 2 + 1 : i * S);
    }
    b.now.us += 1;
    open_msg(&b, 90, "other well");
    decide_all(&b);
    assert_true(runs(&b, "well"));
    b.now.us += 100 * S;
    finish(&b, 90, "well", SCHED_OK);
    decide_all(&b);
    assert_false(runs(&b, "other"));
    finish(&b, 85, "n6", SCHED_DEST_FAIL);
    decide_all(&b);
    assert_true(runs(&b, "other"));
    bench_end(&b);
}

/* A site that has failed is no newcomer when its mail is tried again, an hour later at most. */
static void a_site_that_failed_is_not_unknown_when_its_mail_returns(void **state)
{
    struct bench b;

    (void)state;
    unknown_start(&b, 30, 0);
    open_msg(&b, 2, "bad");
    decide_all(&b);
    finish(&b, 2, "bad", SCHED_DEST_FAIL);
    decide_all(&b);
    b.now.us += 300 * S;
    open_msg(&b, 3, "bad");
    decide_all(&b);
    assert_true(info_of(&b, "bad").failing);
    bench_end(&b);
}

/* A list of sites that are all well is not slowed down. */
static void unknown_sites_that_are_well_get_all_deliveries(void **state)
{
    char dest[32];
    struct bench b;

    (void)state;
    unknown_start(&b, 30, 3600 * S);
    open_unknown(&b, 100);
    for (int i = 0; i < 8; i++) {
        finish(&b, first_unknown(&b, dest), dest, SCHED_OK);
        decide_all(&b);
    }
    assert_int_equal(b.running_count, 10);
    b.now.us += 2 * S; /* then some hang */
    for (int i = 0; i < 7; i++) {
        finish(&b, first_unknown(&b, dest), dest, SCHED_DEST_FAIL);
        decide_all(&b);
    }
    assert_int_equal(b.running_count, 3 + 1); /* one of them is a newcomer */
    bench_end(&b);
}

/* ---- put off -------------------------------------------------------------------------------- */

static void postpone(struct bench *b, const char *dest, int64_t seconds)
{
    sched_postpone(b->s, b->now, 0, slice_string(dest), mono_after(b->now, seconds * S),
                   SLICE("4.2.0 come back later"));
}

static void a_postponed_destination_gets_nothing_until_then(void **state)
{
    struct bench b;

    (void)state;
    start(&b, 2);
    open_msg(&b, 1, "a a a b");
    DECIDES(&b, "m1:a(1) m1:b(1) m1:a(1)");
    postpone(&b, "a", 40);
    DECIDES(&b, "-m1:a(1)");
    assert_true(slice_equal(b.last.reason, SLICE("4.2.0 come back later")));
    open_msg(&b, 2, "a b");
    DECIDES(&b, "-m2:a(1) m2:b(1)");
    assert_int_equal(info_of(&b, "a").state, SCHED_DEST_DEAD_UNTIL);
    assert_true(info_of(&b, "a").postponed);
    assert_int_equal(info_of(&b, "a").until.us, b.now.us + 40 * S);
    finish(&b, 1, "a", SCHED_OK); /* what is under way goes on, and what it learns counts */
    finish(&b, 1, "a", SCHED_OK);
    DECIDES(&b, "");
    assert_int_equal(info_of(&b, "a").window, 3);
    b.now = sched_wake_at(b.s);
    DECIDES(&b, ""); /* the log hears nothing of it */
    assert_int_equal(info_of(&b, "a").state, SCHED_DEST_IDLE);
    open_msg(&b, 3, "a a a a a");
    DECIDES(&b, "m3:a(1) m3:a(1) m3:a(1)");
    bench_end(&b);
}

static void it_may_be_changed_and_ended(void **state)
{
    struct bench b;

    (void)state;
    start(&b, 2);
    postpone(&b, "a", 40); /* nothing was known of it */
    postpone(&b, "a", 20);
    assert_int_equal(sched_wake_at(b.s).us, b.now.us + 20 * S);
    postpone(&b, "b", 30);
    postpone(&b, "c", 30);
    postpone(&b, "d", -1); /* long past */
    open_msg(&b, 1, "a b c d");
    DECIDES(&b, "-m1:a(1) -m1:b(1) -m1:c(1) m1:d(1)");
    sched_revive(b.s, b.now, 0, SLICE("b"));
    b.now.us += 20 * S;
    open_msg(&b, 2, "a b c");
    DECIDES(&b, "-m2:c(1) m2:a(1) m2:b(1)");
    sched_revive_all(b.s, b.now);
    open_msg(&b, 3, "c c c");
    DECIDES(&b, "m3:c(1) m3:c(1)");
    bench_end(&b);
}

/* To be put off tells nothing of the site: one that is dead stays so, and is tried like one. */
static void a_dead_site_is_probed_when_it_was_postponed(void **state)
{
    struct bench b;

    (void)state;
    start(&b, 1);
    kill_a(&b);
    DECIDES(&b, "!a m1.");
    postpone(&b, "a", 500); /* longer than it would be dead */
    b.now = mono_after(b.now, 499 * S);
    open_msg(&b, 2, "a");
    DECIDES(&b, "-m2:a(1) m2.");
    b.now.us += 1 * S;
    DECIDES(&b, "?a");
    open_msg(&b, 3, "a a a");
    DECIDES(&b, "m3:a(1)");
    postpone(&b, "a", 100);
    DECIDES(&b, "-m3:a(2)");
    finish(&b, 3, "a", SCHED_DEST_FAIL);
    DECIDES(&b, "m3.");
    b.now.us += 100 * S;
    DECIDES(&b, "?a");
    assert_int_equal(info_of(&b, "a").deaths, 1);
    bench_end(&b);
}

static void failures_while_it_is_postponed_count_and_kill_later(void **state)
{
    struct bench b;

    (void)state;
    start(&b, 2);
    open_msg(&b, 1, "a a");
    DECIDES(&b, "m1:a(1) m1:a(1)");
    postpone(&b, "a", 40);
    finish(&b, 1, "a", SCHED_DEST_FAIL);
    finish(&b, 1, "a", SCHED_DEST_FAIL); /* window 1 by now, and more than one cohort */
    DECIDES(&b, "m1.");
    assert_true(info_of(&b, "a").failed_cohorts > 1);
    assert_int_equal(info_of(&b, "a").deaths, 0);
    b.now.us += 40 * S;
    open_msg(&b, 2, "a");
    DECIDES(&b, "m2:a(1)");
    finish(&b, 2, "a", SCHED_DEST_FAIL);
    DECIDES(&b, "!a m2.");
    bench_end(&b);
}

/* Not sooner than its rate delay allows. */
static void a_rate_delay_is_kept(void **state)
{
    struct sched_limits limits = ours();
    struct sched_transport_policy policy = documented(2);
    struct bench b;

    (void)state;
    policy.dest_rate_delay_us = 60 * S;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a a");
    DECIDES(&b, "m1:a(1)");
    finish(&b, 1, "a", SCHED_OK);
    DECIDES(&b, "");
    postpone(&b, "a", 20);
    assert_int_equal(info_of(&b, "a").until.us, b.now.us + 60 * S);
    bench_end(&b);
}

UNIT_MAIN(
    cmocka_unit_test(a_dead_site_is_tried_with_one_delivery),
    cmocka_unit_test(postfix_tries_with_the_initial_window),
    cmocka_unit_test(failed_probes_double_the_time), cmocka_unit_test(the_log_is_told_until_when),
    cmocka_unit_test(it_starts_as_an_unknown_one_or_as_narrow_as_it_was),
    cmocka_unit_test(parked_mail_is_asked_for_one_to_probe_and_more_when_that_ends_well),
    cmocka_unit_test(a_probe_is_one_message_of_one_class),
    cmocka_unit_test(what_is_dead_elsewhere_is_not_tried_before_its_time),
    cmocka_unit_test(a_rate_delay_that_runs_elsewhere_is_waited_for),
    cmocka_unit_test(one_without_mail_is_forgotten_in_its_time),
    cmocka_unit_test(what_was_learned_here_goes_first),
    cmocka_unit_test(death_that_is_handed_over_ends_a_rate_delay_and_waits_for_what_is_under_way),
    cmocka_unit_test(what_is_suspended_can_be_walked_through),
    cmocka_unit_test(what_was_learned_outlives_an_empty_queue_and_fades),
    cmocka_unit_test(without_memory_each_pause_starts_afresh),
    cmocka_unit_test(so_does_the_connection_cache),
    cmocka_unit_test(dead_ones_beyond_their_number_are_probed_early_but_not_forgotten),
    cmocka_unit_test(a_known_bad_site_is_still_probed_after_a_pause),
    cmocka_unit_test(after_its_time_all_is_forgotten),
    cmocka_unit_test(the_oldest_are_freed_a_few_at_a_time),
    cmocka_unit_test(no_more_are_remembered_than_the_limit),
    cmocka_unit_test(failing_sites_leave_half_of_the_deliveries_to_others),
    cmocka_unit_test(failing_sites_go_on_in_the_usual_order),
    cmocka_unit_test(a_site_that_is_well_again_is_limited_no_more),
    cmocka_unit_test(what_is_held_goes_on_when_the_limit_goes),
    cmocka_unit_test(sites_that_can_t_be_reached_leave_deliveries_to_a_proven_one),
    cmocka_unit_test(an_unknown_site_behind_many_that_hang_is_tried_soon),
    cmocka_unit_test(a_newcomer_behind_many_that_hang_is_tried_at_once),
    cmocka_unit_test(a_site_that_failed_is_not_unknown_when_its_mail_returns),
    cmocka_unit_test(unknown_sites_that_are_well_get_all_deliveries),
    cmocka_unit_test(a_postponed_destination_gets_nothing_until_then),
    cmocka_unit_test(it_may_be_changed_and_ended),
    cmocka_unit_test(a_dead_site_is_probed_when_it_was_postponed),
    cmocka_unit_test(failures_while_it_is_postponed_count_and_kill_later),
    cmocka_unit_test(a_rate_delay_is_kept))
