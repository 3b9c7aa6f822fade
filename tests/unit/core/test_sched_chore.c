/* What is done in pieces, with pieces of two. */
#include "bench.h"
#include "pieces.h"

static void a_message_is_dropped_in_pieces_and_none_of_it_is_delivered(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;
    int calls = 0;

    (void)state;
    policy.dest_recipient_limit = policy.process_limit = 1;
    policy.slot_cost = 0; /* the second does not pass the first */
    bench_start(&b, &limits, &policy);
    pieces_set(b.s, 2);
    open_msg(&b, 1, "a a b b c c d d e e a a b b c c d d e e");
    open_msg(&b, 2, "a");
    DECIDES(&b, "m1:a(1)");
    finish(&b, 1, "a", SCHED_OK);
    assert_true(sched_drop(b.s, b.now, (struct sched_msg){1}));
    b.story[0] = '\0';
    while (!decide(&b)) {
        assert_true(pieces_left(b.s));
        assert_int_equal(sched_wake_at(b.s).us, b.now.us);
        calls++;
    }
    assert_in_range(calls, 2, 10);
    assert_string_equal(b.story, "m1.");
    DECIDES(&b, "m2:a(1)");
    bench_end(&b);
}

static void kill_all(struct bench *b)
{
    open_msg(b, 1, "a b c d e");
    DECIDES(b, "m1:a(1) m1:b(1) m1:c(1) m1:d(1) m1:e(1)");
    for (char name[] = "a"; name[0] <= 'e'; name[0]++) {
        finish(b, 1, name, SCHED_DEST_FAIL);
    }
    DECIDES(b, "!a !b !c !d !e m1.");
    assert_int_equal(sched_totals(b->s).dead_destinations, 5);
}

static void all_destinations_are_revived_in_pieces(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.window.initial = 1;
    bench_start(&b, &limits, &policy);
    pieces_set(b.s, 2);
    kill_all(&b);
    sched_revive_all(b.s, b.now);
    assert_true(pieces_left(b.s));
    assert_int_equal(sched_wake_at(b.s).us, b.now.us);
    DECIDES(&b, "*e *d *c *b *a");
    assert_false(pieces_left(b.s));
    assert_int_equal(sched_totals(b.s).dead_destinations, 0);
    bench_end(&b);
}

static void mail_for_one_that_is_still_to_be_revived_is_not_deferred(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;
    struct sched_action a;
    struct sched_rcpt rcpt = {.n = 0, .transport = 0, .dest = SLICE("a")};

    (void)state;
    policy.window.initial = 1;
    bench_start(&b, &limits, &policy);
    pieces_set(b.s, 1);
    kill_all(&b);
    sched_open(b.s, b.now, (struct sched_msg){2}, 1, false);
    assert_int_equal(sched_next(b.s, b.now, &a), SCHED_READ);
    sched_revive_all(b.s, b.now); /* e is the first to know */
    assert_true(pieces_left(b.s));
    sched_recipients(b.s, b.now, a.msg, &rcpt, 1, 0, true);
    sched_audit(b.s);
    DECIDES(&b, "*e *a *d *c *b m2:a(1)");
    bench_end(&b);
}

static void windows_follow_a_new_policy_before_anything_is_selected(void **state)
{
    struct sched_transport_policy policy = bench_policy();
    struct sched_limits limits = bench_limits();
    struct bench b;

    (void)state;
    policy.dest_recipient_limit = 1;
    policy.process_limit = 1;
    bench_start(&b, &limits, &policy);
    pieces_set(b.s, 1);
    open_msg(&b, 1, "a a a b b b c c c");
    DECIDES(&b, "m1:a(1)");
    policy.process_limit = 0;
    policy.window.initial = policy.window.max = 1;
    assert_int_equal(sched_transport(b.s, b.now, "smtp", &policy), 0);
    assert_true(pieces_left(b.s));
    sched_audit(b.s);
    while (pieces_left(b.s)) {
        struct sched_action a;

        assert_int_equal(sched_wake_at(b.s).us, b.now.us);
        if (sched_next(b.s, b.now, &a) != SCHED_NONE) {
            assert_false(pieces_left(b.s));
            assert_int_equal(a.type, SCHED_DELIVER);
            assert_true(slice_equal(a.dest, SLICE("b")));
        }
    }
    sched_audit(b.s);
    bench_end(&b);
}

UNIT_MAIN(cmocka_unit_test(a_message_is_dropped_in_pieces_and_none_of_it_is_delivered),
          cmocka_unit_test(all_destinations_are_revived_in_pieces),
          cmocka_unit_test(mail_for_one_that_is_still_to_be_revived_is_not_deferred),
          cmocka_unit_test(windows_follow_a_new_policy_before_anything_is_selected))
