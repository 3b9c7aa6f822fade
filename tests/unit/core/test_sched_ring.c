/* Rings: agents that destinations share, and agents that have several entries at once. */
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "check.h"
#include "pieces.h"
#include "rng.h"

static struct sched_limits limits_here(void)
{
    struct sched_limits limits = bench_limits();

    limits.message_active_limit = 1000;
    limits.message_recipient_limit = 10000;
    limits.message_recipient_minimum = 50;
    limits.destination_memory_us = 3600 * S;
    return limits;
}

/* Entries of one recipient, and windows that stand still. */
static struct sched_transport_policy policy_here(uint32_t window)
{
    struct sched_transport_policy policy = bench_policy();

    policy.window = (struct window_limits){
        .rule = WINDOW_DOCUMENTED, .initial = window, .max = window, .failed_cohort_limit = 1};
    policy.dest_recipient_limit = 1;
    return policy;
}

static void start(struct bench *b, uint32_t window)
{
    struct sched_limits limits = limits_here();
    struct sched_transport_policy policy = policy_here(window);

    bench_start(b, &limits, &policy);
}

/* And a second transport, "2/.." in texts. */
static void start_two(struct bench *b, uint32_t window)
{
    struct sched_transport_policy policy = policy_here(window);

    start(b, window);
    assert_int_equal(sched_transport(b->s, b->now, "local", &policy), 1);
}

static void make_ring(struct bench *b, uint32_t transport, uint32_t ring, uint32_t ring_limit,
                      uint32_t transport_limit, uint32_t total_limit)
{
    struct sched_ring_policy policy = {ring_limit, transport_limit, total_limit};

    sched_ring(b->s, b->now, transport, ring, &policy);
}

/* Each of `dests`, "a b c". */
static void put_into(struct bench *b, uint32_t transport, const char *dests, uint32_t ring,
                     uint32_t window, uint32_t depth)
{
    struct sched_dest_policy policy = {
        .window = policy_here(window).window, .ring = ring, .depth = depth};
    struct slice rest = slice_string(dests);

    while (rest.ptr != NULL) {
        sched_dest_policy(b->s, b->now, transport, slice_cut(&rest, ' '), &policy);
    }
}

static void decide_all(struct bench *b)
{
    while (decide(b)) {
    }
}

/* One delivery has ended well: what is decided then? */
#define ENDS_DECIDES(b, msg, dest, want)                                                           \
    do {                                                                                           \
        finish(b, msg, dest, SCHED_OK);                                                            \
        DECIDES(b, want);                                                                          \
    } while (0)

/* It is read; nothing is delivered yet. */
static void open_read(struct bench *b, uint64_t msg, const char *text)
{
    open_msg(b, msg, text);
    assert_true(decide(b));
    assert_int_equal(b->last.type, SCHED_READ);
}

static struct sched_dest_info info_of(const struct bench *b, const char *dest)
{
    struct sched_dest_info info;

    assert_true(sched_dest_get(b->s, 0, slice_string(dest), &info));
    return info;
}

/* ---- agents --------------------------------------------------------------------------------- */

static void an_agent_has_as_many_entries_as_its_depth(void **state)
{
    struct bench b;

    (void)state;
    start(&b, 1);
    open_read(&b, 1, "a a a a a a a a");
    put_into(&b, 0, "a", 0, 2, 3);
    DECIDES(&b, "m1:a(1) m1:a(1) m1:a(1) m1:a(1) m1:a(1) m1:a(1)");
    assert_int_equal(info_of(&b, "a").agents, 2);
    assert_int_equal(info_of(&b, "a").busy, 6);
    assert_int_equal(info_of(&b, "a").depth, 3);
    ENDS_DECIDES(&b, 1, "a", "m1:a(1)");
    put_into(&b, 0, "a", 0, 2, 1); /* what runs goes on */
    assert_int_equal(info_of(&b, "a").agents, 6);
    ENDS_DECIDES(&b, 1, "a", "");
    bench_end(&b);
}

static void a_rate_delay_lets_one_entry_start(void **state)
{
    struct sched_dest_policy policy = {
        .window = policy_here(5).window, .rate_delay_us = S, .depth = 5};
    struct bench b;

    (void)state;
    start(&b, 1);
    open_read(&b, 1, "a a a");
    sched_dest_policy(b.s, b.now, 0, SLICE("a"), &policy);
    DECIDES(&b, "m1:a(1)");
    assert_int_equal(info_of(&b, "a").depth, 1);
    bench_end(&b);
}

/* A dead site with deep agents is tried with one entry all the same. */
static void a_probe_is_one_entry(void **state)
{
    struct bench b;

    (void)state;
    start(&b, 1);
    open_read(&b, 1, "a a a");
    put_into(&b, 0, "a", 0, 1, 1);
    DECIDES(&b, "m1:a(1)");
    finish(&b, 1, "a", SCHED_DEST_FAIL);
    DECIDES(&b, "m1:a(1)");
    finish(&b, 1, "a", SCHED_DEST_FAIL);
    DECIDES(&b, "!a -m1:a(1) m1.");
    b.now = sched_wake_at(b.s);
    DECIDES(&b, "?a");
    open_read(&b, 2, "a a a");
    put_into(&b, 0, "a", 0, 4, 3);
    DECIDES(&b, "m2:a(1)");
    ENDS_DECIDES(&b, 2, "a", "*a m2:a(1) m2:a(1)");
    bench_end(&b);
}

/* ---- limits --------------------------------------------------------------------------------- */

static void a_ring_has_no_more_agents_than_its_limit(void **state)
{
    struct bench b;

    (void)state;
    start(&b, 5);
    make_ring(&b, 0, 1, 3, 0, 0);
    open_read(&b, 1, "a a a b c c");
    put_into(&b, 0, "a b", 1, 5, 1);
    DECIDES(&b, "m1:a(1) m1:b(1) m1:c(1) m1:a(1) m1:c(1)"); /* c is in no ring */
    assert_int_equal(info_of(&b, "a").ring, 1);
    ENDS_DECIDES(&b, 1, "c", "");
    ENDS_DECIDES(&b, 1, "b", "m1:a(1)");
    bench_end(&b);
}

/* An entry that fits into an agent in use needs none of the ring's. */
static void a_full_ring_fills_the_agents_that_it_has(void **state)
{
    struct bench b;

    (void)state;
    start(&b, 5);
    make_ring(&b, 0, 1, 2, 0, 0);
    open_read(&b, 1, "a a a a b b b c");
    put_into(&b, 0, "a b c", 1, 1, 2);
    DECIDES(&b, "m1:a(1) m1:b(1) m1:a(1) m1:b(1)");
    ENDS_DECIDES(&b, 1, "a", "m1:a(1)");
    ENDS_DECIDES(&b, 1, "b", "m1:b(1)");
    ENDS_DECIDES(&b, 1, "b", ""); /* one entry left, but an agent all the same */
    ENDS_DECIDES(&b, 1, "b", "m1:c(1)");
    bench_end(&b);
}

/* The number is shared, the limit is the ring's: ring 2 has an agent that ring 1 can't get. */
static void each_ring_compares_with_its_own_limits(void **state)
{
    struct bench b;

    (void)state;
    start(&b, 9);
    make_ring(&b, 0, 1, 0, 2, 0);
    make_ring(&b, 0, 2, 0, 3, 0);
    open_read(&b, 1, "a a a a");
    put_into(&b, 0, "a", 1, 9, 1);
    DECIDES(&b, "m1:a(1) m1:a(1)");
    open_read(&b, 2, "b b");
    put_into(&b, 0, "b", 2, 9, 1);
    DECIDES(&b, "m2:b(1)");
    ENDS_DECIDES(&b, 1, "a", "m2:b(1)");
    finish(&b, 1, "a", SCHED_OK); /* two are left, both of ring 2 */
    DECIDES(&b, "");
    ENDS_DECIDES(&b, 2, "b", "m1:a(1)");
    bench_end(&b);
}

static void all_transports_count_for_the_total(void **state)
{
    struct bench b;

    (void)state;
    start_two(&b, 9);
    make_ring(&b, 0, 1, 0, 0, 2);
    make_ring(&b, 1, 1, 0, 0, 3);
    open_read(&b, 1, "2/b 2/b 2/b 2/b");
    put_into(&b, 1, "b", 1, 9, 1);
    DECIDES(&b, "m1:b(1) m1:b(1) m1:b(1)");
    open_read(&b, 2, "a");
    put_into(&b, 0, "a", 1, 9, 1);
    DECIDES(&b, "");
    ENDS_DECIDES(&b, 1, "b", "m1:b(1)"); /* its limit is the higher one */
    finish(&b, 1, "b", SCHED_OK);
    ENDS_DECIDES(&b, 1, "b", "m2:a(1)");
    bench_end(&b);
}

static void a_ring_may_be_changed_while_deliveries_run(void **state)
{
    struct bench b;

    (void)state;
    start(&b, 9);
    make_ring(&b, 0, 1, 2, 0, 0);
    make_ring(&b, 0, 2, 1, 0, 0);
    open_read(&b, 1, "a a a a a a");
    put_into(&b, 0, "a", 1, 9, 1);
    DECIDES(&b, "m1:a(1) m1:a(1)");
    make_ring(&b, 0, 1, 3, 0, 0);
    DECIDES(&b, "m1:a(1)");
    make_ring(&b, 0, 1, 1, 0, 0);
    ENDS_DECIDES(&b, 1, "a", "");
    put_into(&b, 0, "a", 2, 9, 1); /* with the two that run */
    DECIDES(&b, "");
    open_read(&b, 2, "b");
    put_into(&b, 0, "b", 1, 9, 1);
    DECIDES(&b, "m2:b(1)");
    put_into(&b, 0, "a", 0, 9, 1);
    DECIDES(&b, "m1:a(1) m1:a(1) m1:a(1)");
    bench_end(&b);
}

/* ---- turns ---------------------------------------------------------------------------------- */

static void destinations_of_a_full_ring_get_agents_in_turn(void **state)
{
    struct bench b;

    (void)state;
    start(&b, 1);
    make_ring(&b, 0, 1, 1, 0, 0);
    open_read(&b, 1, "a b c");
    put_into(&b, 0, "a b c", 1, 1, 1);
    DECIDES(&b, "m1:a(1)");
    ENDS_DECIDES(&b, 1, "a", "m1:b(1)");
    open_read(&b, 2, "a");
    put_into(&b, 0, "a", 1, 1, 1);
    ENDS_DECIDES(&b, 1, "b", "m1:c(1)");
    ENDS_DECIDES(&b, 1, "c", "m1. m2:a(1)");
    bench_end(&b);
}

/* How many deliveries to `dest` in a row begin, each after the one before has ended. */
static uint32_t in_a_row(struct bench *b, uint64_t msg, const char *dest)
{
    uint32_t count = 0;

    while (b->running_count > 0 && strcmp(b->running[0].dest, dest) == 0) {
        count++;
        finish(b, msg, dest, SCHED_OK);
        decide_all(b);
    }
    return count;
}

#define FORTY "a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a"

/* An agent stays with a site for a turn, so that it can use its connection again, and no longer. */
static void a_turn_ends_when_others_wait(void **state)
{
    struct bench b;

    (void)state;
    start(&b, 1);
    make_ring(&b, 0, 1, 1, 0, 0);
    open_read(&b, 1, FORTY " b");
    put_into(&b, 0, "a b", 1, 1, 1);
    decide_all(&b);
    assert_int_equal(in_a_row(&b, 1, "a"), SCHED_RING_TURN);
    assert_int_equal(in_a_row(&b, 1, "b"), 1);
    assert_int_equal(in_a_row(&b, 1, "a"), 40 - SCHED_RING_TURN);
    bench_end(&b);
}

/* Nor is an agent that has room for ever filled again. */
static void a_deep_agent_runs_dry_when_its_turn_is_over(void **state)
{
    struct bench b;

    (void)state;
    start(&b, 1);
    make_ring(&b, 0, 1, 1, 0, 0);
    open_read(&b, 1, FORTY " b");
    put_into(&b, 0, "a b", 1, 1, 3);
    decide_all(&b);
    assert_int_equal(in_a_row(&b, 1, "a"), SCHED_RING_TURN);
    bench_end(&b);
}

/* The same for an agent whose place another transport could have. */
static void a_deep_agent_runs_dry_for_another_transport(void **state)
{
    struct bench b;

    (void)state;
    start_two(&b, 1);
    make_ring(&b, 0, 1, 0, 0, 1);
    make_ring(&b, 1, 1, 0, 0, 1);
    open_read(&b, 1, FORTY);
    put_into(&b, 0, "a", 1, 1, 3);
    decide_all(&b);
    open_read(&b, 2, "2/x");
    put_into(&b, 1, "x", 1, 1, 3);
    decide_all(&b);
    assert_int_equal(in_a_row(&b, 1, "a"), SCHED_RING_TURN);
    ENDS_DECIDES(&b, 2, "x", "m2. m1:a(1) m1:a(1) m1:a(1)");
    bench_end(&b);
}

/* A site with a backlog and a wide window takes one agent after the other, as the others do. */
static void who_wants_many_agents_stands_in_line_for_each(void **state)
{
    struct bench b;

    (void)state;
    start(&b, 9);
    make_ring(&b, 0, 1, 4, 0, 0);
    open_read(&b, 1, "a a a a a b c");
    put_into(&b, 0, "a b c", 1, 9, 1);
    DECIDES(&b, "m1:a(1) m1:b(1) m1:c(1) m1:a(1)");
    bench_end(&b);
}

static void rings_take_turns_at_a_limit_that_they_share(void **state)
{
    struct bench b;

    (void)state;
    start(&b, 1);
    make_ring(&b, 0, 1, 0, 1, 0);
    make_ring(&b, 0, 2, 0, 1, 0);
    open_read(&b, 1, "a b c"); /* all of ring 1, and older */
    put_into(&b, 0, "a b c", 1, 1, 1);
    open_read(&b, 2, "x y");
    put_into(&b, 0, "x y", 2, 1, 1);
    DECIDES(&b, "m1:a(1)");
    ENDS_DECIDES(&b, 1, "a", "m2:x(1)");
    ENDS_DECIDES(&b, 2, "x", "m1:b(1)");
    ENDS_DECIDES(&b, 1, "b", "m2:y(1)");
    bench_end(&b);
}

static void transports_take_turns_at_a_limit_that_they_share(void **state)
{
    struct bench b;

    (void)state;
    start_two(&b, 1);
    make_ring(&b, 0, 1, 0, 0, 1);
    make_ring(&b, 1, 1, 0, 0, 1);
    open_read(&b, 1, "a b 2/x 2/y");
    put_into(&b, 0, "a b", 1, 1, 1);
    put_into(&b, 1, "x y", 1, 1, 1);
    DECIDES(&b, "m1:x(1)");
    ENDS_DECIDES(&b, 1, "x", "m1:a(1)");
    ENDS_DECIDES(&b, 1, "a", "m1:y(1)");
    ENDS_DECIDES(&b, 1, "y", "m1:b(1)");
    bench_end(&b);
}

/* What was shown to a transport that can't select keeps no agent from another. */
static void a_transport_that_waits_keeps_no_agent(void **state)
{
    struct sched_transport_policy policy = policy_here(1);
    struct bench b;

    (void)state;
    start_two(&b, 1);
    make_ring(&b, 0, 1, 0, 0, 2);
    make_ring(&b, 1, 1, 0, 0, 2);
    policy.transport_rate_delay_us = 60 * S;
    (void)sched_transport(b.s, b.now, "smtp", &policy);
    open_read(&b, 1, "a b");
    put_into(&b, 0, "a b", 1, 1, 1);
    DECIDES(&b, "m1:a(1)");
    open_read(&b, 2, "2/x 2/y");
    put_into(&b, 1, "x y", 1, 1, 1);
    DECIDES(&b, "m2:x(1)");
    b.now.us += 60 * S;
    DECIDES(&b, ""); /* smtp could select, but there is no agent */
    ENDS_DECIDES(&b, 1, "a", "m1:b(1)");
    bench_end(&b);
}

/* Of the transport's two agents one is a failing site's, and no more of those may run: another that
 * fails, though it is its ring's turn, does not keep the second from one that is well. */
static void who_is_held_for_failing_keeps_no_agent(void **state)
{
    struct sched_limits limits = limits_here();
    struct sched_transport_policy policy = policy_here(1);
    struct bench b;

    (void)state;
    limits.failing_share = 10;
    policy.process_limit = 10;
    policy.window.failed_cohort_limit = 9;
    bench_start(&b, &limits, &policy);
    make_ring(&b, 0, 1, 0, 2, 0);
    make_ring(&b, 0, 2, 0, 2, 0);
    open_read(&b, 1, "a x");
    DECIDES(&b, "m1:a(1) m1:x(1)");
    finish(&b, 1, "a", SCHED_DEST_FAIL);
    finish(&b, 1, "x", SCHED_DEST_FAIL);
    DECIDES(&b, "m1.");
    open_msg(&b, 2, "x");
    DECIDES(&b, "m2:x(1)");
    open_read(&b, 3, "a b");
    put_into(&b, 0, "a", 1, 1, 1);
    put_into(&b, 0, "b", 2, 1, 1);
    DECIDES(&b, "m3:b(1)");
    ENDS_DECIDES(&b, 2, "x", "m2. m3:a(1)");
    bench_end(&b);
}

/* Nor do many of them stall a decision: they are held a few at a time. */
static void a_line_of_failing_ones_is_held_in_pieces(void **state)
{
    struct sched_limits limits = limits_here();
    struct sched_transport_policy policy = policy_here(1);
    uint32_t pieces = 0;
    struct bench b;

    (void)state;
    limits.failing_share = 10;
    policy.process_limit = 10;
    policy.window.failed_cohort_limit = 9;
    bench_start(&b, &limits, &policy);
    pieces_set(b.s, 2);
    make_ring(&b, 0, 1, 1, 0, 0);
    open_read(&b, 1, "a b c d e f g h x");
    put_into(&b, 0, "a b c d e f g h", 1, 1, 1);
    while (b.running_count > 0 || decide(&b)) {
        decide_all(&b);
        if (b.running_count > 0) {
            finish(&b, 1, b.running[0].dest, SCHED_DEST_FAIL);
        }
    }
    open_msg(&b, 2, "x");
    DECIDES(&b, "m2:x(1)"); /* which is all that may fail at once */
    open_read(&b, 3, "a b c d e f g h y");
    put_into(&b, 0, "a b c d e f g h", 1, 1, 1);
    put_into(&b, 0, "y", 1, 1, 1); /* behind all of them */
    b.story[0] = '\0';
    while (sched_wake_at(b.s).us <= b.now.us || pieces == 0) {
        pieces++;
        (void)decide(&b);
    }
    assert_string_equal(b.story, "m3:y(1)");
    assert_in_range(pieces, 4, 9);
    bench_end(&b);
}

/* ---- starvation ----------------------------------------------------------------------------- */

#define CROWD 40

/* All have mail at all times, some of several agents' worth. Ends come in random order. Between two
 * deliveries to one of them all others have at most a turn each, and one for each agent. */
static void none_in_a_full_ring_starves(uint32_t agents, uint32_t window, uint32_t depth)
{
    struct sched_limits limits = limits_here();
    struct sched_transport_policy policy = policy_here(1);
    struct sched_entry running[256];
    uint64_t starts = 0, last[CROWD] = {0}, next = 1,
             bound =
                 (CROWD + agents) * (uint64_t)(depth > SCHED_RING_TURN ? depth : SCHED_RING_TURN);
    uint32_t owner[256], waiting[CROWD] = {0}, count = 0;
    struct sched_action a;
    char names[CROWD][8];
    struct rng rng;
    struct bench b;

    rng_init(&rng, agents * 100 + depth);
    bench_start(&b, &limits, &policy);
    make_ring(&b, 0, 1, agents, 0, 0);
    for (uint32_t i = 0; i < CROWD; i++) {
        (void)snprintf(names[i], sizeof names[i], "d%u", i);
    }
    while (starts < 5000) {
        for (uint32_t i = 0; i < CROWD; i++) {
            struct sched_rcpt rcpt = {.n = i, .dest = slice_string(names[i])};

            while (waiting[i] < 1 + i % 7) {
                sched_open(b.s, b.now, (struct sched_msg){next++}, 1, false);
                while (sched_next(b.s, b.now, &a) != SCHED_READ) {
                    CHECK(a.type == SCHED_DONE);
                }
                sched_recipients(b.s, b.now, a.msg, &rcpt, 1, 0, true);
                put_into(&b, 0, names[i], 1, window, depth);
                waiting[i]++;
            }
        }
        while (sched_next(b.s, b.now, &a) != SCHED_NONE) {
            if (a.type == SCHED_DELIVER) {
                uint32_t i = a.rcpts[0];

                assert_true(starts - last[i] <= bound);
                last[i] = ++starts;
                waiting[i]--;
                owner[count] = i;
                running[count++] = a.entry;
                CHECK(count < 256);
            }
        }
        sched_audit(b.s);
        assert_true(count > 0);
        uint32_t end = (uint32_t)rng_below(&rng, count);
        assert_true(owner[end] < CROWD);
        assert_true(sched_finished(b.s, b.now, running[end], SCHED_OK, SLICE("")));
        running[end] = running[--count];
        owner[end] = owner[count];
    }
    for (uint32_t i = 0; i < CROWD; i++) {
        assert_true(starts - last[i] <= bound);
    }
    bench_end(&b);
}

static void every_destination_of_a_full_ring_is_served(void **state)
{
    (void)state;
    none_in_a_full_ring_starves(1, 1, 1);
    none_in_a_full_ring_starves(5, 3, 1);
    none_in_a_full_ring_starves(3, 2, 4);
    none_in_a_full_ring_starves(2, 1, 30);
}

/* ---- why ------------------------------------------------------------------------------------ */

/* The gate of a message's only recipient. */
static struct sched_gate gate_of(const struct bench *b, uint64_t msg, enum sched_gate_type type)
{
    const uint32_t n = 0;
    struct sched_wait wait;
    uint32_t group;

    assert_int_equal(sched_why(b->s, (struct sched_msg){msg}, &n, 1, &group, &wait), 1);
    for (size_t i = 0; i < wait.gate_count; i++) {
        if (wait.gates[i].type == type) {
            return wait.gates[i];
        }
    }
    fail_msg("no such gate");
    return (struct sched_gate){0};
}

static void closed_since(struct sched_gate g, uint64_t value, uint64_t limit, struct mono since)
{
    assert_true(g.closed);
    assert_int_equal(g.value, value);
    assert_int_equal(g.limit, limit);
    assert_int_equal(g.since.us, since.us);
}

static void why_tells_of_rings_and_agents(void **state)
{
    struct mono since;
    struct bench b;

    (void)state;
    start(&b, 1);
    make_ring(&b, 0, 1, 1, 4, 5);
    open_read(&b, 1, "a");
    put_into(&b, 0, "a", 1, 1, 1);
    DECIDES(&b, "m1:a(1)");
    b.now.us += 3 * S;
    since = b.now;
    open_read(&b, 2, "b");
    put_into(&b, 0, "b", 1, 1, 1);
    DECIDES(&b, "");
    b.now.us += 3 * S;
    closed_since(gate_of(&b, 2, SCHED_GATE_RING), 1, 1, since);
    assert_false(gate_of(&b, 2, SCHED_GATE_AGENTS).closed);
    assert_int_equal(gate_of(&b, 2, SCHED_GATE_AGENTS).limit, 5);
    assert_false(gate_of(&b, 2, SCHED_GATE_TRANSPORT_LIMIT).closed);
    assert_int_equal(gate_of(&b, 2, SCHED_GATE_TRANSPORT_LIMIT).limit, 4);
    make_ring(&b, 0, 1, 2, 1, 0);
    DECIDES(&b, "");
    assert_false(gate_of(&b, 2, SCHED_GATE_RING).closed);
    closed_since(gate_of(&b, 2, SCHED_GATE_TRANSPORT_LIMIT), 1, 1, since);
    make_ring(&b, 0, 1, 0, 0, 1);
    DECIDES(&b, "");
    closed_since(gate_of(&b, 2, SCHED_GATE_AGENTS), 1, 1, since);
    bench_end(&b);
}

/* ---- which gate binds ----------------------------------------------------------------------- */

#define BIT(gate) (1u << (gate))

/* Mail waits for "a" behind these gates, and it has one destination in a ring. */
static void close_gates(struct bench *b, unsigned closed, int64_t rate_us, int64_t dead_us)
{
    struct sched_limits limits = limits_here();
    struct sched_transport_policy policy = policy_here(closed & BIT(SCHED_GATE_WINDOW) ? 1 : 9);
    struct sched_dest_policy of_dest = {.window = policy.window, .ring = 1, .depth = 1};

    policy.process_limit = closed & BIT(SCHED_GATE_TRANSPORT_LIMIT) ? 1 : 0;
    policy.transport_rate_delay_us = closed & BIT(SCHED_GATE_TRANSPORT_RATE) ? 10 * S : 0;
    of_dest.rate_delay_us = closed & BIT(SCHED_GATE_DEST_RATE) ? rate_us : 0;
    bench_start(b, &limits, &policy);
    make_ring(b, 0, 1, closed & BIT(SCHED_GATE_RING) ? 1 : 0, 0,
              closed & BIT(SCHED_GATE_AGENTS) ? 1 : 0);
    open_read(b, 1, "a a a");
    sched_dest_policy(b->s, b->now, 0, SLICE("a"), &of_dest);
    decide_all(b);
    if (of_dest.rate_delay_us > 0) { /* the pause begins; another destination is busy then */
        finish(b, 1, "a", SCHED_OK);
        b->now.us += policy.transport_rate_delay_us;
        of_dest.rate_delay_us = 0;
        open_read(b, 2, "b b");
        sched_dest_policy(b->s, b->now, 0, SLICE("b"), &of_dest);
        decide_all(b);
    }
    if (closed & BIT(SCHED_GATE_DEST_DEAD)) {
        sched_postpone(b->s, b->now, 0, SLICE("a"), mono_after(b->now, dead_us), SLICE("4.4.1 no"));
    }
    if (closed & BIT(SCHED_GATE_TRANSPORT_DEAD)) {
        sched_transport_failed(b->s, b->now, 0, SLICE("4.3.0 no agent")); /* for a minute */
    }
}

static enum sched_gate_type binding(const struct bench *b, unsigned *ret_closed)
{
    enum sched_gate_type first = SCHED_GATE_BUSY;
    struct sched_wait w;

    *ret_closed = 0;
    sched_why_dest(b->s, 0, SLICE("a"), &w);
    for (size_t i = 0; i < w.gate_count; i++) {
        if (w.gates[i].closed && w.gates[i].type != SCHED_GATE_BEHIND) {
            first = *ret_closed == 0 ? w.gates[i].type : first;
            *ret_closed |= BIT(w.gates[i].type);
        }
    }
    return first;
}

/* Of any two that are closed. Those that open when a delivery ends are in order; those with a time
 * come before them, and among these the later one. */
static void of_two_closed_gates_the_one_that_binds_is_told_first(void **state)
{
    static const enum sched_gate_type all[] = {
        SCHED_GATE_TRANSPORT_DEAD,  SCHED_GATE_DEST_DEAD, SCHED_GATE_DEST_RATE,
        SCHED_GATE_TRANSPORT_RATE,  SCHED_GATE_WINDOW,    SCHED_GATE_RING,
        SCHED_GATE_TRANSPORT_LIMIT, SCHED_GATE_AGENTS};
    static const struct {
        enum sched_gate_type a, b;
        int64_t rate_us, dead_us;
        enum sched_gate_type want;
    } timed[] = {
        {SCHED_GATE_TRANSPORT_DEAD, SCHED_GATE_DEST_DEAD, 0, 59 * S, SCHED_GATE_TRANSPORT_DEAD},
        {SCHED_GATE_TRANSPORT_DEAD, SCHED_GATE_DEST_DEAD, 0, 61 * S, SCHED_GATE_DEST_DEAD},
        {SCHED_GATE_TRANSPORT_DEAD, SCHED_GATE_DEST_RATE, 59 * S, 0, SCHED_GATE_TRANSPORT_DEAD},
        {SCHED_GATE_TRANSPORT_DEAD, SCHED_GATE_DEST_RATE, 61 * S, 0, SCHED_GATE_DEST_RATE},
        {SCHED_GATE_TRANSPORT_DEAD, SCHED_GATE_TRANSPORT_RATE, 0, 0, SCHED_GATE_TRANSPORT_DEAD},
        {SCHED_GATE_DEST_DEAD, SCHED_GATE_TRANSPORT_RATE, 0, 9 * S, SCHED_GATE_TRANSPORT_RATE},
        {SCHED_GATE_DEST_DEAD, SCHED_GATE_TRANSPORT_RATE, 0, 11 * S, SCHED_GATE_DEST_DEAD},
        {SCHED_GATE_DEST_RATE, SCHED_GATE_TRANSPORT_RATE, 19 * S, 0, SCHED_GATE_TRANSPORT_RATE},
        {SCHED_GATE_DEST_RATE, SCHED_GATE_TRANSPORT_RATE, 21 * S, 0, SCHED_GATE_DEST_RATE},
    };
    unsigned closed;
    struct bench b;

    (void)state;
    for (size_t i = 0; i < COUNT(timed); i++) {
        close_gates(&b, BIT(timed[i].a) | BIT(timed[i].b), timed[i].rate_us, timed[i].dead_us);
        assert_int_equal(binding(&b, &closed), timed[i].want);
        assert_int_equal(closed, BIT(timed[i].a) | BIT(timed[i].b));
        sched_free(b.s);
    }
    for (size_t i = 0; i < COUNT(all); i++) {
        for (size_t j = i + 1 > 4 ? i + 1 : 4; j < COUNT(all); j++) {
            if (all[i] == SCHED_GATE_DEST_RATE && all[j] == SCHED_GATE_WINDOW) {
                continue; /* a pause begins when the only delivery has ended */
            }
            close_gates(&b, BIT(all[i]) | BIT(all[j]), S, S);
            assert_int_equal(binding(&b, &closed), all[i]);
            assert_int_equal(closed, BIT(all[i]) | BIT(all[j]));
            sched_free(b.s);
        }
    }
}

UNIT_MAIN(cmocka_unit_test(an_agent_has_as_many_entries_as_its_depth),
          cmocka_unit_test(a_rate_delay_lets_one_entry_start),
          cmocka_unit_test(a_probe_is_one_entry),
          cmocka_unit_test(a_ring_has_no_more_agents_than_its_limit),
          cmocka_unit_test(a_full_ring_fills_the_agents_that_it_has),
          cmocka_unit_test(each_ring_compares_with_its_own_limits),
          cmocka_unit_test(all_transports_count_for_the_total),
          cmocka_unit_test(a_ring_may_be_changed_while_deliveries_run),
          cmocka_unit_test(destinations_of_a_full_ring_get_agents_in_turn),
          cmocka_unit_test(a_turn_ends_when_others_wait),
          cmocka_unit_test(a_deep_agent_runs_dry_when_its_turn_is_over),
          cmocka_unit_test(a_deep_agent_runs_dry_for_another_transport),
          cmocka_unit_test(who_wants_many_agents_stands_in_line_for_each),
          cmocka_unit_test(rings_take_turns_at_a_limit_that_they_share),
          cmocka_unit_test(transports_take_turns_at_a_limit_that_they_share),
          cmocka_unit_test(a_transport_that_waits_keeps_no_agent),
          cmocka_unit_test(who_is_held_for_failing_keeps_no_agent),
          cmocka_unit_test(a_line_of_failing_ones_is_held_in_pieces),
          cmocka_unit_test(every_destination_of_a_full_ring_is_served),
          cmocka_unit_test(why_tells_of_rings_and_agents),
          cmocka_unit_test(of_two_closed_gates_the_one_that_binds_is_told_first))
