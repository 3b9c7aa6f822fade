/* What the scheduler does, one behaviour at a time. The order of selection: test_sched_order. */
#include <stdio.h>
#include <string.h>

#include "bench.h"

/* ---- selection ------------------------------------------------------------------------------ */

static void recipients_are_grouped_by_destination(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.dest_recipient_limit = 2;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "b a b a b");
    DECIDES(&b, "m1:a(2) m1:b(2) m1:b(1)");
    finish(&b, 1, "a", SCHED_OK);
    finish(&b, 1, "b", SCHED_OK);
    DECIDES(&b, "");
    finish(&b, 1, "b", SCHED_OK);
    DECIDES(&b, "m1.");
    bench_end(&b);
}

static void one_per_entry_never_groups(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    bench_start(&b, &limits, &policy);
    b.texts[1] = "a a";
    sched_open(b.s, b.now, (struct sched_msg){1}, 2, true);
    DECIDES(&b, "m1:a(1) m1:a(1)");
    bench_end(&b);
}

static void destinations_of_a_job_take_turns(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.dest_recipient_limit = policy.process_limit = 1;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a a b c c");
    DECIDES(&b, "m1:a(1)");
    finish(&b, 1, "a", SCHED_OK);
    DECIDES(&b, "m1:b(1)");
    finish(&b, 1, "b", SCHED_OK);
    DECIDES(&b, "m1:c(1)");
    finish(&b, 1, "c", SCHED_OK);
    DECIDES(&b, "m1:a(1)");
    finish(&b, 1, "a", SCHED_OK);
    DECIDES(&b, "m1:c(1)");
    bench_end(&b);
}

static void a_full_destination_is_passed_over_and_served_as_soon_as_it_has_room(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.dest_recipient_limit = policy.window.initial = policy.window.max = 1;
    policy.process_limit = 2;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "b");
    open_msg(&b, 2, "a a b c c");
    DECIDES(&b, "m1:b(1) m2:a(1)");
    finish(&b, 2, "a", SCHED_OK);
    DECIDES(&b, "m2:c(1)");
    finish(&b, 2, "c", SCHED_OK);
    DECIDES(&b, "m2:a(1)");
    finish(&b, 1, "b", SCHED_OK);
    DECIDES(&b, "m1. m2:b(1)");
    bench_end(&b);
}

static void messages_to_one_destination_stay_in_order(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.window.initial = policy.window.max = 1;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a");
    open_msg(&b, 2, "a");
    open_msg(&b, 3, "a b");
    DECIDES(&b, "m1:a(1) m3:b(1)");
    finish(&b, 1, "a", SCHED_OK);
    DECIDES(&b, "m1. m2:a(1)");
    finish(&b, 2, "a", SCHED_OK);
    DECIDES(&b, "m2. m3:a(1)");
    bench_end(&b);
}

static void transports_take_turns(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.dest_recipient_limit = 1;
    bench_start(&b, &limits, &policy);
    assert_int_equal(sched_transport(b.s, b.now, "local", &policy), 1);
    open_msg(&b, 1, "a a a 2/u 2/u 2/u");
    DECIDES(&b, "m1:u(1) m1:a(1) m1:u(1) m1:a(1) m1:u(1) m1:a(1)");
    bench_end(&b);
}

static void no_more_than_the_process_limit_run(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.process_limit = 3;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a b c d e");
    DECIDES(&b, "m1:a(1) m1:b(1) m1:c(1)");
    finish(&b, 1, "b", SCHED_OK);
    DECIDES(&b, "m1:d(1)");
    bench_end(&b);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void a_long_message_is_read_in_portions(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.recipient_limit = policy.extra_recipient_limit = 0;
    policy.dest_recipient_limit = 1;
    policy.window.initial = policy.window.max = 1;
    bench_start(&b, &limits, &policy);
    limits.message_recipient_minimum = 2;
    limits.message_recipient_limit = 10;
    sched_set_limits(b.s, &limits);
    open_msg(&b, 1, "a b c d e f g h i j k l");
    DECIDES(&b, "m1:a(1) m1:b(1) m1:c(1) m1:d(1) m1:e(1) m1:f(1) m1:g(1) m1:h(1) m1:i(1) m1:j(1)");
    assert_int_equal(sched_totals(b.s).recipients, 10);
    for (char c[2] = "a"; c[0] <= 'i'; c[0]++) {
        finish(&b, 1, c, SCHED_OK);
    }
    DECIDES(&b, ""); /* nothing is ready, so nothing is selected and nothing read */
    finish(&b, 1, "j", SCHED_OK);
    DECIDES(&b, "m1:k(1) m1:l(1)");
    bench_end(&b);
}

static void as_many_messages_as_the_active_limit_fit(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    bench_start(&b, &limits, &policy);
    for (uint64_t i = 1; i <= limits.message_active_limit; i++) {
        assert_true(sched_has_room(b.s));
        open_msg(&b, i, "a");
    }
    assert_false(sched_has_room(b.s));
    assert_true(sched_has_message(b.s, (struct sched_msg){10}));
    assert_false(sched_has_message(b.s, (struct sched_msg){11}));
    bench_end(&b);
}

/* ---- death and revival ---------------------------------------------------------------------- */

static void kill_a(struct bench *b)
{
    for (int i = 0; i < 3; i++) {
        finish(b, 1, "a", SCHED_DEST_FAIL);
    }
}

static void a_dead_destination_defers_what_waits_and_what_comes(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_dest_info info;
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.dest_recipient_limit = 1;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a a a a a a a");
    open_msg(&b, 2, "a b");
    DECIDES(&b, "m1:a(1) m1:a(1) m1:a(1) m1:a(1) m1:a(1) m2:b(1)");
    kill_a(&b);
    DECIDES(&b, "!a -m1:a(2) -m2:a(1)");
    assert_true(slice_equal(b.last.reason, SLICE("4.4.1 refused")));
    assert_true(sched_dest_get(b.s, 0, SLICE("a"), &info));
    assert_int_equal(info.state, SCHED_DEST_DEAD_UNTIL);
    assert_int_equal(info.until.us, 1300 * S);
    assert_int_equal(sched_totals(b.s).dead_destinations, 1);
    open_msg(&b, 3, "a c a");
    DECIDES(&b, "-m3:a(2) m3:c(1)");
    open_msg(&b, 4, "a");
    DECIDES(&b, "-m4:a(1) m4.");
    assert_int_equal(sched_wake_at(b.s).us, 1300 * S);
    b.now.us = 1300 * S;
    DECIDES(&b, "*a");
    open_msg(&b, 4, "a a a a");
    DECIDES(&b, "");                 /* two failing ones still run: the window is as wide */
    finish(&b, 1, "a", SCHED_CRASH); /* no feedback */
    DECIDES(&b, "m4:a(1)");
    bench_end(&b);
}

static void many_that_wait_for_the_dead_are_deferred_when_all_else_is_decided(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    size_t early = 0, late = 0;
    struct bench b;

    (void)state;
    policy.window.initial = 1;
    policy.recipient_limit = 1000;
    limits.message_active_limit = limits.message_recipient_limit = 1000;
    bench_start(&b, &limits, &policy);
    for (uint64_t id = 1; id <= 300; id++) {
        open_msg(&b, id, "a");
    }
    DECIDES(&b, "m1:a(1)");
    finish(&b, 1, "a", SCHED_DEST_FAIL);
    open_msg(&b, 400, "b");
    do {
        assert_true(decide(&b));
        early += b.last.type == SCHED_DEFER;
        assert_false(b.last.can_wait);
    } while (b.last.type != SCHED_DELIVER);
    assert_int_equal(b.last.msg.n, 400);
    assert_int_equal(sched_wake_at(b.s).us, b.now.us); /* the owner may stop here */
    while (decide(&b)) {
        late += b.last.can_wait;
    }
    assert_int_equal(early, 256);
    assert_int_equal(late, 43);
    assert_true(sched_wake_at(b.s).us > b.now.us);
    bench_end(&b);
}

static void a_success_while_dead_revives_at_what_runs(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_dest_info info;
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.dest_recipient_limit = 1;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a a a a a a");
    DECIDES(&b, "m1:a(1) m1:a(1) m1:a(1) m1:a(1) m1:a(1)");
    kill_a(&b);
    DECIDES(&b, "!a -m1:a(1)");
    finish(&b, 1, "a", SCHED_DEST_FAIL); /* ignored */
    DECIDES(&b, "");
    finish(&b, 1, "a", SCHED_OK);
    DECIDES(&b, "*a m1.");
    assert_false(sched_dest_get(b.s, 0, SLICE("a"), &info)); /* well and idle: forgotten */
    assert_int_equal(sched_wake_at(b.s).us, US_FOREVER);
    bench_end(&b);
}

static void revival_by_hand(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.window.initial = 1;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a b");
    DECIDES(&b, "m1:a(1) m1:b(1)");
    finish(&b, 1, "a", SCHED_DEST_FAIL);
    finish(&b, 1, "b", SCHED_DEST_FAIL);
    DECIDES(&b, "!a !b m1.");
    sched_revive(b.s, b.now, 0, SLICE("a"));
    DECIDES(&b, "*a");
    sched_revive_all(b.s, b.now);
    DECIDES(&b, "*b");
    assert_int_equal(sched_totals(b.s).destinations, 0);
    bench_end(&b);
}

static void too_many_dead_destinations_are_forgotten(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;
    char name[4] = "a00";

    (void)state;
    policy.window.initial = 1;
    limits.message_recipient_limit = 10;
    bench_start(&b, &limits, &policy);
    for (int i = 0; i < 50; i++) {
        name[1] = (char)('0' + i / 10);
        name[2] = (char)('0' + i % 10);
        open_msg(&b, 1, name);
        while (decide(&b)) {
        }
        finish(&b, 1, name, SCHED_DEST_FAIL);
        while (decide(&b)) {
        }
    }
    assert_int_equal(sched_totals(b.s).destinations, 21);
    bench_end(&b);
}

static void a_dead_transport_defers_everything(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.process_limit = 1;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a b c");
    open_msg(&b, 2, "a");
    DECIDES(&b, "m1:a(1)");
    sched_transport_failed(b.s, b.now, 0, SLICE("4.3.0 mail transport unavailable"));
    DECIDES(&b, "-m1:(2) -m2:(1) m2.");
    open_msg(&b, 3, "a b");
    DECIDES(&b, "-m3:(2) m3.");
    assert_int_equal(sched_wake_at(b.s).us, 1060 * S);
    finish(&b, 1, "a", SCHED_OK); /* that shows it lives */
    open_msg(&b, 4, "a");
    DECIDES(&b, "m1. m4:a(1)");
    sched_transport_failed(b.s, b.now, 0, SLICE("4.3.0 mail transport unavailable"));
    b.now.us += 60 * S;
    open_msg(&b, 5, "b");
    finish(&b, 4, "a", SCHED_CRASH);
    DECIDES(&b, "m4. m5:b(1)");
    bench_end(&b);
}

/* ---- rate delays ---------------------------------------------------------------------------- */

static void a_destination_rate_delay_is_from_end_to_start(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_dest_info info;
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.dest_recipient_limit = 1;
    policy.dest_rate_delay_us = S / 2;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a a b");
    DECIDES(&b, "m1:a(1) m1:b(1)");
    b.now.us += S;
    finish(&b, 1, "a", SCHED_OK);
    DECIDES(&b, "");
    assert_true(sched_dest_get(b.s, 0, SLICE("a"), &info));
    assert_int_equal(info.state, SCHED_DEST_SUSPENDED);
    assert_int_equal(sched_wake_at(b.s).us, b.now.us + S / 2);
    b.now.us += S / 2 - 1;
    DECIDES(&b, "");
    b.now.us += 1;
    DECIDES(&b, "m1:a(1)");
    finish(&b, 1, "a", SCHED_OK); /* empty now, yet the delay holds for the next message */
    open_msg(&b, 2, "a");
    DECIDES(&b, "");
    b.now.us += S / 2;
    DECIDES(&b, "m2:a(1)");
    bench_end(&b);
}

static void a_failure_under_a_rate_delay_is_death_as_usual(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.dest_rate_delay_us = 2 * S;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a");
    open_msg(&b, 2, "a");
    DECIDES(&b, "m1:a(1)");
    finish(&b, 1, "a", SCHED_DEST_FAIL);
    DECIDES(&b, "!a -m2:a(1) m1. m2.");
    b.now.us += 3 * S;
    open_msg(&b, 3, "a");
    DECIDES(&b, "-m3:a(1) m3.");
    b.now.us += 297 * S;
    open_msg(&b, 4, "a");
    DECIDES(&b, "*a m4:a(1)");
    bench_end(&b);
}

static void a_transport_rate_delay_spaces_starts_and_never_sticks(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.transport_rate_delay_us = S;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a b c d");
    DECIDES(&b, "m1:a(1)");
    finish(&b, 1, "a", SCHED_CRASH);
    b.now.us += S - 1;
    DECIDES(&b, "");
    assert_int_equal(sched_wake_at(b.s).us, b.now.us + 1);
    b.now.us += 1;
    DECIDES(&b, "m1:b(1)");
    b.now.us += S;
    DECIDES(&b, "m1:c(1)"); /* though b still runs */
    policy.transport_rate_delay_us = 0;
    assert_int_equal(sched_transport(b.s, b.now, "smtp", &policy), 0);
    DECIDES(&b, "m1:d(1)");
    bench_end(&b);
}

/* ---- taking out and giving back ------------------------------------------------------------- */

static void a_dropped_message_ends_when_what_runs_has_ended(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.process_limit = 1;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a b c");
    open_msg(&b, 2, "b");
    DECIDES(&b, "m1:a(1)");
    assert_true(sched_drop(b.s, b.now, (struct sched_msg){1}));
    assert_int_equal(sched_totals(b.s).recipients, 2);
    DECIDES(&b, "");
    finish(&b, 1, "a", SCHED_OK);
    DECIDES(&b, "m1. m2:b(1)");
    assert_false(sched_drop(b.s, b.now, (struct sched_msg){1}));
    bench_end(&b);
}

static void an_entry_given_back_is_selected_again(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_entry entry;
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.process_limit = 1;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a");
    open_msg(&b, 2, "a");
    DECIDES(&b, "m1:a(1)");
    entry = take(&b, 1, "a");
    assert_true(sched_unselect(b.s, b.now, entry));
    assert_false(sched_unselect(b.s, b.now, entry));
    assert_false(sched_finished(b.s, b.now, entry, SCHED_OK, SLICE("")));
    DECIDES(&b, "m1:a(1)");
    assert_int_not_equal(b.running[0].entry.n, entry.n);
    bench_end(&b);
}

static void an_invented_result_is_refused(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    bench_start(&b, &limits, &policy);
    assert_false(sched_finished(b.s, b.now, (struct sched_entry){0}, SCHED_OK, SLICE("")));
    open_msg(&b, 1, "a");
    DECIDES(&b, "m1:a(1)");
    for (uint64_t n = 0; n < 1000; n++) {
        if (n != b.running[0].entry.n) {
            assert_false(sched_finished(b.s, b.now, (struct sched_entry){n}, SCHED_OK, SLICE("")));
        }
    }
    assert_false(sched_finished(b.s, b.now, (struct sched_entry){UINT64_MAX}, SCHED_OK, SLICE("")));
    finish(&b, 1, "a", SCHED_OK);
    DECIDES(&b, "m1.");
    bench_end(&b);
}

/* ---- hints and looking ---------------------------------------------------------------------- */

static void connections_are_cached_while_deliveries_follow_closely(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.dest_recipient_limit = policy.window.initial = policy.window.max = 1;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a a a a");
    DECIDES(&b, "m1:a(1)");
    assert_false(b.last.cache_load || b.last.cache_store);
    finish(&b, 1, "a", SCHED_OK);
    DECIDES(&b, "m1:a(1)");
    assert_true(b.last.cache_load && b.last.cache_store);
    finish(&b, 1, "a", SCHED_OK);
    b.now.us += 5 * S; /* the owner was late */
    DECIDES(&b, "m1:a(1)");
    assert_true(b.last.cache_load && !b.last.cache_store);
    bench_end(&b);
}

/* The group of one recipient, or NULL when its message is not in memory. */
static const struct sched_wait *why(const struct bench *b, uint64_t msg, uint32_t n)
{
    static struct sched_wait wait;
    uint32_t group;

    if (sched_why(b->s, (struct sched_msg){msg}, &n, 1, &group, &wait) == 0) {
        return NULL;
    }
    assert_int_equal(group, 0);
    return &wait;
}

static void why_names_the_gate_that_binds(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    const struct sched_wait *w;
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.window.initial = policy.window.max = 1;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a");
    open_msg(&b, 2, "a");
    open_msg(&b, 3, "b a");
    DECIDES(&b, "m1:a(1) m3:b(1)");
    b.now.us += 3 * S;
    assert_null(why(&b, 9, 0));
    w = why(&b, 1, 0);
    assert_int_equal(w->gate_count, 1);
    assert_int_equal(w->gates[0].type, SCHED_GATE_BUSY);
    assert_int_equal(w->gates[0].since.us, b.now.us - 3 * S);
    assert_int_not_equal(w->entry.n, 0);
    w = why(&b, 1, 5);
    assert_int_equal(w->gate_count, 1);
    assert_int_equal(w->gates[0].type, SCHED_GATE_UNREAD);
    assert_int_equal(w->dest.len, 0);
    w = why(&b, 3, 2);
    assert_true(slice_equal(w->dest, SLICE("a")));
    assert_int_equal(w->entry.n, 0);
    assert_int_equal(w->gate_count, 7);
    for (size_t i = 0; i < w->gate_count; i++) {
        const struct sched_gate *g = &w->gates[i];

        assert_int_equal(g->closed, g->type == SCHED_GATE_WINDOW || g->type == SCHED_GATE_BEHIND);
        assert_int_equal(g->since.us, g->closed ? b.now.us - 3 * S : 0);
    }
    assert_int_equal(w->gates[4].limit, 1);
    assert_int_equal(w->gates[6].value, 1);
    bench_end(&b);
}

static void why_groups_recipients_by_destination_and_what_is_under_way(void **state)
{
    static const uint32_t rcpts[] = {0, 2, 4, 6, 8, 10, 99};
    struct sched_transport_policy policy = bench_policy();
    struct sched_wait waits[COUNT(rcpts)];
    uint32_t group[COUNT(rcpts)];
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.dest_recipient_limit = 2;
    policy.window.initial = policy.window.max = 1;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a a a a b b");
    DECIDES(&b, "m1:a(2) m1:b(2)");
    assert_int_equal(sched_why(b.s, (struct sched_msg){1}, rcpts, COUNT(rcpts), group, waits), 4);
    assert_int_not_equal(waits[group[0]].entry.n, 0);
    assert_true(slice_equal(waits[group[0]].dest, SLICE("a")));
    assert_int_equal(waits[group[0]].entries, 2);
    assert_int_equal(group[0], group[1]);
    assert_int_equal(waits[group[2]].entry.n, 0);
    assert_true(slice_equal(waits[group[2]].dest, SLICE("a")));
    assert_int_equal(group[2], group[3]);
    assert_true(slice_equal(waits[group[4]].dest, SLICE("b")));
    assert_int_equal(group[4], group[5]);
    assert_int_equal(waits[group[6]].gates[0].type, SCHED_GATE_UNREAD);
    bench_end(&b);
}

static void closed_gates_say_since_when_and_until_when(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_dest_info info;
    struct sched_limits limits = bench_limits();
    struct bench b;
    struct mono died;

    (void)state;
    policy.process_limit = 1;
    policy.transport_rate_delay_us = 10 * S;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a");
    open_msg(&b, 2, "b");
    DECIDES(&b, "m1:a(1)");
    assert_int_equal(why(&b, 2, 0)->gates[0].type, SCHED_GATE_TRANSPORT_RATE);
    assert_int_equal(why(&b, 2, 0)->gates[0].since.us, b.now.us);
    assert_int_equal(why(&b, 2, 0)->gates[0].until.us, b.now.us + 10 * S);
    assert_int_equal(why(&b, 2, 0)->gates[5].type, SCHED_GATE_TRANSPORT_LIMIT);
    assert_true(why(&b, 2, 0)->gates[5].closed);
    assert_int_equal(why(&b, 2, 0)->gates[5].since.us, b.now.us);
    bench_end(&b);

    policy = bench_policy();
    policy.dest_recipient_limit = 1;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a a a a");
    DECIDES(&b, "m1:a(1) m1:a(1) m1:a(1) m1:a(1)");
    kill_a(&b);
    died = b.now;
    b.now.us += 7 * S;
    assert_true(sched_dest_get(b.s, 0, SLICE("a"), &info));
    assert_int_equal(info.since.us, died.us);
    sched_transport_failed(b.s, b.now, 0, SLICE("4.3.0 no agent"));
    struct sched_transport_info t;
    sched_transport_get(b.s, 0, &t);
    assert_true(t.dead);
    assert_int_equal(t.since.us, b.now.us);
    sched_transport_works(b.s, b.now, 0);
    sched_transport_get(b.s, 0, &t);
    assert_false(t.dead);
    assert_true(sched_dest_get(b.s, 0, SLICE("a"), &info));
    assert_int_equal(info.state, SCHED_DEST_DEAD_UNTIL); /* that tells nothing of the sites */
    bench_end(&b);
}

static void why_tells_of_the_turns_of_classes(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    const struct sched_gate *gates;
    struct bench b;

    (void)state;
    policy.window.initial = policy.window.max = 1;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a");
    open_msg(&b, 2, "a");
    for (uint64_t i = 3; i <= 4; i++) {
        b.texts[i] = "a";
        sched_open_in_class(b.s, b.now, (struct sched_msg){i}, 1, false, SLICE("resets"), 3);
    }
    DECIDES(&b, "m3:a(1)");
    gates = why(&b, 4, 0)->gates;
    assert_int_equal(gates[6].type, SCHED_GATE_CLASS);
    assert_true(gates[6].closed);
    assert_int_equal(gates[6].value, 3);
    assert_int_equal(gates[6].limit, 4);
    assert_int_equal(gates[7].type, SCHED_GATE_BEHIND);
    assert_false(gates[7].closed); /* the other message is of another class */
    assert_int_equal(why(&b, 2, 0)->gates[6].value, 1);
    bench_end(&b);
}

static void the_pace_of_a_destination_is_known(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_dest_info info;
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.window.initial = policy.window.max = 1;
    bench_start(&b, &limits, &policy);
    for (uint64_t i = 1; i <= 10; i++) {
        open_msg(&b, i, "a");
    }
    for (uint64_t i = 1; i <= 9; i++) {
        char want[40];

        (void)snprintf(want, sizeof want, "m%d. m%d:a(1)", (int)i - 1, (int)i);
        DECIDES(&b, i == 1 ? "m1:a(1)" : want);
        b.now.us += 2 * S;
        finish(&b, i, "a", SCHED_OK);
        assert_int_equal(sched_window_step(b.s).before, 1);
        assert_int_equal(sched_window_step(b.s).after, 1);
    }
    assert_true(sched_dest_get(b.s, 0, SLICE("a"), &info));
    assert_int_equal(info.mean_us, 2 * S);
    assert_true(info.per_second > 0.4 && info.per_second < 0.6);
    bench_end(&b);
}

static void all_destinations_can_be_listed(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_dest_info info;
    uint64_t cursor = 0;
    struct sched_limits limits = bench_limits();
    struct bench b;
    size_t count = 0;

    (void)state;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a b c");
    DECIDES(&b, "m1:a(1) m1:b(1) m1:c(1)");
    while (sched_dest_each(b.s, &cursor, &info)) {
        assert_int_equal(info.busy, 1);
        assert_int_equal(info.window, 5);
        assert_int_equal(info.window_max, 20);
        count++;
    }
    assert_int_equal(count, 3);
    bench_end(&b);
}

static void a_destination_can_have_a_policy_of_its_own(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_dest_policy own = {.window = policy.window, .depth = 1};
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.dest_recipient_limit = 1;
    own.window.initial = 2;
    bench_start(&b, &limits, &policy);
    open_msg(&b, 1, "a a a a");
    assert_true(decide(&b)); /* the read */
    sched_dest_policy(b.s, b.now, 0, SLICE("a"), &own);
    sched_dest_policy(b.s, b.now, 0, SLICE("nowhere"), &own);
    DECIDES(&b, "m1:a(1) m1:a(1)");
    own.window.max = 10;
    sched_dest_policy(b.s, b.now, 0, SLICE("a"), &own);
    DECIDES(&b, ""); /* what a window has learned stays */
    finish(&b, 1, "a", SCHED_OK);
    DECIDES(&b, "m1:a(1) m1:a(1)");
    bench_end(&b);
}

UNIT_MAIN(cmocka_unit_test(recipients_are_grouped_by_destination),
          cmocka_unit_test(one_per_entry_never_groups),
          cmocka_unit_test(destinations_of_a_job_take_turns),
          cmocka_unit_test(a_full_destination_is_passed_over_and_served_as_soon_as_it_has_room),
          cmocka_unit_test(messages_to_one_destination_stay_in_order),
          cmocka_unit_test(transports_take_turns),
          cmocka_unit_test(no_more_than_the_process_limit_run),
          cmocka_unit_test(a_long_message_is_read_in_portions),
          cmocka_unit_test(as_many_messages_as_the_active_limit_fit),
          cmocka_unit_test(a_dead_destination_defers_what_waits_and_what_comes),
          cmocka_unit_test(many_that_wait_for_the_dead_are_deferred_when_all_else_is_decided),
          cmocka_unit_test(a_success_while_dead_revives_at_what_runs),
          cmocka_unit_test(revival_by_hand),
          cmocka_unit_test(too_many_dead_destinations_are_forgotten),
          cmocka_unit_test(a_dead_transport_defers_everything),
          cmocka_unit_test(a_destination_rate_delay_is_from_end_to_start),
          cmocka_unit_test(a_failure_under_a_rate_delay_is_death_as_usual),
          cmocka_unit_test(a_transport_rate_delay_spaces_starts_and_never_sticks),
          cmocka_unit_test(a_dropped_message_ends_when_what_runs_has_ended),
          cmocka_unit_test(an_entry_given_back_is_selected_again),
          cmocka_unit_test(an_invented_result_is_refused),
          cmocka_unit_test(connections_are_cached_while_deliveries_follow_closely),
          cmocka_unit_test(why_names_the_gate_that_binds),
          cmocka_unit_test(why_groups_recipients_by_destination_and_what_is_under_way),
          cmocka_unit_test(closed_gates_say_since_when_and_until_when),
          cmocka_unit_test(why_tells_of_the_turns_of_classes),
          cmocka_unit_test(the_pace_of_a_destination_is_known),
          cmocka_unit_test(all_destinations_can_be_listed),
          cmocka_unit_test(a_destination_can_have_a_policy_of_its_own))
