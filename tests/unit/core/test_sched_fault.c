/*
 * The search for faults: a sound scheduler has none, and each way to break one that leaves mail
 * stuck is found. The tests break it through its private structures, and mend it again.
 */
#include <string.h>

#include "check.h"
#include "sched_private.h"
#include "unit.h"

#define S US_PER_S

static const struct sched_limits limits = {
    .message_active_limit = 100,
    .message_recipient_limit = 1000,
    .message_recipient_minimum = 10,
    .destination_share = 100,
    .failing_share = 50,
    .minimal_backoff_us = 300 * S,
    .transport_retry_us = 60 * S,
};

static const struct sched_transport_policy usual = {
    .window = {.rule = WINDOW_DOCUMENTED, .initial = 1, .max = 1, .failed_cohort_limit = 1},
    .process_limit = 10,
    .dest_recipient_limit = 1,
    .recipient_limit = 1000,
};

struct bench {
    struct sched *s;
    struct mono now;
    struct sched_entry running[16];
    size_t running_count;
    struct sched_fault found[8];
    size_t found_count;
};

/* Pull decisions until there are none; reads are answered with two recipients of `dest` each. */
static void decide(struct bench *b, const char *dest)
{
    struct sched_action a;

    while (sched_next(b->s, b->now, &a) != SCHED_NONE) {
        if (a.type == SCHED_READ) {
            struct sched_rcpt rcpts[] = {{.n = 0, .dest = slice_string(dest)},
                                         {.n = 1, .dest = slice_string(dest)}};
            sched_recipients(b->s, b->now, a.msg, rcpts, 2, 0, true);
        } else if (a.type == SCHED_DELIVER) {
            CHECK(b->running_count < 16);
            b->running[b->running_count++] = a.entry;
        }
    }
}

static void open_msg(struct bench *b, uint64_t msg, const char *dest)
{
    sched_open(b->s, b->now, (struct sched_msg){msg}, 2, false);
    decide(b, dest);
}

/* Message 1: one recipient for "a" is being delivered, the other waits. */
static void bench_start(struct bench *b)
{
    *b = (struct bench){.now = {1000 * S}};
    b->s = sched_new(&limits);
    (void)sched_transport(b->s, b->now, "smtp", &usual);
    open_msg(b, 1, "a");
    assert_int_equal(b->running_count, 1);
}

static void bench_end(struct bench *b)
{
    sched_audit(b->s); /* what was broken is whole again */
    sched_free(b->s);
}

/* All faults of one round, with so much looked at per call. */
static void search(struct bench *b, uint32_t budget)
{
    static const struct sched_timeouts timeouts = {.answer_us = 60 * S, .delivery_us = 3600 * S};
    struct sched_search at = {0};

    b->found_count = 0;
    for (int calls = 0; at.rounds == 0; calls++) {
        assert_true(calls < 10000);
        b->found_count += sched_search_faults(b->s, b->now, &timeouts, &at, budget,
                                              b->found + b->found_count, 8 - b->found_count);
        assert_true(b->found_count < 8);
    }
}

/* This one fault is found, however much is looked at per call. */
static const struct sched_fault *finds(struct bench *b, enum sched_fault_type type,
                                       const char *words)
{
    for (uint32_t budget = 4; budget < 1000; budget *= 5) {
        search(b, budget);
        assert_int_equal(b->found_count, 1);
        assert_string_equal(b->found[0].words, words);
        assert_int_equal(b->found[0].type, type);
    }
    return &b->found[0];
}

static struct dest *dest_a(const struct bench *b)
{
    return dest_find(b->s->transports[0], SLICE("a"));
}

static struct message *message_1(const struct bench *b)
{
    return message_find(b->s, (struct sched_msg){1});
}

static void a_sound_scheduler_has_none(void **state)
{
    struct bench b;

    (void)state;
    bench_start(&b);
    for (uint64_t msg = 2; msg < 20; msg++) {
        open_msg(&b, msg, msg % 2 == 0 ? "a" : "b");
        search(&b, 1);
        assert_int_equal(b.found_count, 0);
    }
    while (b.running_count > 0) {
        enum sched_outcome outcome = b.running_count == 2 ? SCHED_DEST_FAIL : SCHED_OK;

        b.running_count--;
        assert_true(
            sched_finished(b.s, b.now, b.running[b.running_count], outcome, SLICE("4.4.1 no")));
        search(&b, 3);
        assert_int_equal(b.found_count, 0);
        decide(&b, "");
        search(&b, 1000);
        assert_int_equal(b.found_count, 0);
    }
    bench_end(&b);
}

static void unused_room_is_found(void **state)
{
    const struct sched_fault *fault;
    struct bench b;
    struct dest *d;

    (void)state;
    bench_start(&b);
    d = dest_a(&b);
    d->window.size = 2; /* as if dest_refresh had been forgotten */
    fault = finds(&b, SCHED_FAULT_STUCK,
                  "mail waits, the destination has room and is not up for selection");
    assert_true(slice_equal(fault->dest, SLICE("a")));
    d->window.size = 1;
    bench_end(&b);
}

static void a_full_window_without_deliveries_is_found(void **state)
{
    struct bench b;
    struct dest *d;
    struct entry *e;

    (void)state;
    bench_start(&b);
    d = dest_a(&b);
    e = TAILQ_FIRST(&d->busy);
    TAILQ_REMOVE(&d->busy, e, link);
    search(&b, 1000);
    assert_in_range(b.found_count, 2, 7); /* counts disagree, too */
    assert_int_equal(b.found[0].type, SCHED_FAULT_STUCK);
    assert_string_equal(b.found[0].words,
                        "mail waits, the window is full and nothing is being delivered");
    TAILQ_INSERT_TAIL(&d->busy, e, link);
    bench_end(&b);
}

static void a_lost_timer_is_found(void **state)
{
    struct bench b;
    struct dest *d;

    (void)state;
    bench_start(&b);
    d = dest_a(&b);
    assert_true(sched_finished(b.s, b.now, b.running[0], SCHED_DEST_FAIL, SLICE("4.4.1 no")));
    decide(&b, "");
    assert_true(sched_finished(b.s, b.now, b.running[1], SCHED_DEST_FAIL, SLICE("4.4.1 no")));
    d = dest_a(&b);
    assert_int_equal(d->state, DEST_DEAD);
    timer_cancel(b.s, &d->timer);
    (void)finds(&b, SCHED_FAULT_TIMER, "the destination is dead and no timer is armed");
    timer_set(b.s, &d->timer, mono_after(b.now, 300 * S));
    b.now.us += 400 * S; /* and the scheduler is not asked */
    (void)finds(&b, SCHED_FAULT_TIMER, "a timer has ended long ago and nothing was decided since");
    bench_end(&b);
}

static void a_lost_timer_of_a_transport_is_found(void **state)
{
    struct bench b;
    struct transport *t;

    (void)state;
    bench_start(&b);
    t = b.s->transports[0];
    sched_transport_failed(b.s, b.now, 0, SLICE("4.3.0 no"));
    timer_cancel(b.s, &t->dead);
    (void)finds(&b, SCHED_FAULT_TIMER, "the transport is dead and no timer is armed");
    timer_set(b.s, &t->dead, b.now);
    bench_end(&b);
}

static void a_wrong_count_is_found(void **state)
{
    const struct sched_fault *fault;
    struct bench b;

    (void)state;
    bench_start(&b);
    dest_a(&b)->waiting_count++;
    fault = finds(&b, SCHED_FAULT_COUNT, "entries that wait");
    assert_int_equal(fault->value, 2);
    assert_int_equal(fault->expected, 1);
    dest_a(&b)->waiting_count--;

    message_1(&b)->rcpt_count += 3;
    fault = finds(&b, SCHED_FAULT_COUNT, "recipients in entries");
    assert_int_equal(fault->msg.n, 1);
    assert_int_equal(fault->value, 5);
    assert_int_equal(fault->expected, 2);
    message_1(&b)->rcpt_count -= 3;

    b.s->busy_count--;
    (void)finds(&b, SCHED_FAULT_COUNT, "entries that are being delivered, in all");
    b.s->busy_count++;
    bench_end(&b);
}

static void recipients_outside_of_their_queue_are_found(void **state)
{
    const struct sched_fault *fault;
    struct tree_node *root;
    struct bench b;
    struct dest *d;

    (void)state;
    bench_start(&b);
    d = dest_a(&b);
    root = d->queue.waiting;
    d->queue.waiting = NULL;
    d->waiting_count = 0;
    b.s->transports[0]->waiting--;
    b.s->waiting_count--;
    fault =
        finds(&b, SCHED_FAULT_STUCK, "recipients wait and are not in their destination's queue");
    assert_int_equal(fault->msg.n, 1);
    assert_true(slice_equal(fault->dest, SLICE("a")));
    d->queue.waiting = root;
    d->waiting_count = 1;
    b.s->transports[0]->waiting++;
    b.s->waiting_count++;
    bench_end(&b);
}

static void recipients_of_a_dropped_message_are_found(void **state)
{
    struct bench b;

    (void)state;
    bench_start(&b);
    message_1(&b)->dropped = true; /* and the chore has forgotten them */
    (void)finds(&b, SCHED_FAULT_STUCK, "the message was dropped and recipients wait");
    message_1(&b)->dropped = false;
    bench_end(&b);
}

static void a_message_that_does_not_end_is_found(void **state)
{
    struct bench b;
    struct message *m;

    (void)state;
    bench_start(&b);
    assert_true(sched_drop(b.s, b.now, (struct sched_msg){1}));
    assert_true(sched_finished(b.s, b.now, b.running[0], SCHED_OK, SLICE("")));
    m = message_1(&b);
    assert_int_equal(m->list, LIST_DONE);
    TAILQ_REMOVE(&b.s->done, m, link);
    m->list = LIST_NONE;
    (void)finds(&b, SCHED_FAULT_STUCK, "nothing of the message is left to do and it does not end");
    message_check(b.s, m);
    bench_end(&b);
}

static void answers_that_do_not_come_are_found(void **state)
{
    struct sched_action a;
    struct bench b;

    (void)state;
    bench_start(&b);
    sched_open(b.s, b.now, (struct sched_msg){2}, 1, false);
    assert_int_equal(sched_next(b.s, b.now, &a), SCHED_READ);
    b.now.us += 59 * S;
    search(&b, 1000);
    assert_int_equal(b.found_count, 0);
    b.now.us += 2 * S;
    (void)finds(&b, SCHED_FAULT_UNANSWERED, "recipients were asked for and did not come");
    sched_recipients(b.s, b.now, (struct sched_msg){2}, NULL, 0, 1, true);

    sched_parked(b.s, b.now, 0, SLICE("b"), SLICE(""));
    do {
        (void)sched_next(b.s, b.now, &a);
    } while (a.type != SCHED_ADMIT);
    b.now.us += 61 * S;
    (void)finds(&b, SCHED_FAULT_UNANSWERED, "parked mail was asked for and did not come");
    sched_admitted(b.s, b.now, 0, SLICE("b"), SLICE(""), 0, false);

    b.now.us += 3600 * S;
    (void)finds(&b, SCHED_FAULT_UNANSWERED, "a delivery has not ended");
    bench_end(&b);
}

static void parked_mail_that_is_never_asked_for_is_found(void **state)
{
    struct parking *parking;
    struct bench b;

    (void)state;
    bench_start(&b);
    sched_parked(b.s, b.now, 0, SLICE("b"), SLICE(""));
    parking = dest_find(b.s->transports[0], SLICE("b"))->parking;
    heap_remove(&b.s->transports[0]->wanting, &parking->wanting);
    (void)finds(&b, SCHED_FAULT_STUCK, "mail is parked and will not be asked for");
    heap_add(&b.s->transports[0]->wanting, &parking->wanting);
    parking->messages++;
    (void)finds(&b, SCHED_FAULT_COUNT, "messages of a class of which mail is parked");
    parking->messages--;
    bench_end(&b);
}

static void mail_held_for_no_reason_is_found(void **state)
{
    struct transport *t;
    struct bench b;

    (void)state;
    bench_start(&b);
    t = b.s->transports[0];
    assert_true(sched_finished(b.s, b.now, b.running[0], SCHED_DEST_FAIL, SLICE("4.4.1 no")));
    t->busy_by[STANDING_FAILING] = 5;
    assert_true(dest_hold_back(dest_a(&b)));
    t->busy_by[STANDING_FAILING] = 0;
    b.now.us += 61 * S;
    (void)finds(&b, SCHED_FAULT_STUCK, "mail waits, and nothing fails that it waits for");
    transport_release_held_back(t);
    bench_end(&b);
}

/* Two destinations of a ring with one agent: "b" waits in line. */
static struct ring *ring_start(struct bench *b)
{
    struct sched_ring_policy ring = {.ring_limit = 1};
    struct sched_dest_policy policy = {.window = usual.window, .ring = 1, .depth = 1};

    bench_start(b);
    sched_ring(b->s, b->now, 0, 1, &ring);
    sched_dest_policy(b->s, b->now, 0, SLICE("a"), &policy);
    open_msg(b, 2, "b"); /* one of them begins, as it is in no ring yet */
    sched_dest_policy(b->s, b->now, 0, SLICE("b"), &policy);
    assert_int_equal(b->running_count, 2);
    assert_true(sched_finished(b->s, b->now, b->running[1], SCHED_OK, SLICE("")));
    decide(b, "");
    search(b, 1000);
    assert_int_equal(b->found_count, 0);
    return b->s->rings[0];
}

static void a_line_that_does_not_move_is_found(void **state)
{
    const struct sched_fault *fault;
    struct bench b;
    struct ring *r;

    (void)state;
    r = ring_start(&b);
    r->listed = false;
    fault = finds(&b, SCHED_FAULT_STUCK, "mail waits in a line that does not move");
    assert_true(slice_equal(fault->dest, SLICE("b")));
    r->listed = true;
    bench_end(&b);
}

static void a_free_agent_that_mail_waits_for_is_found(void **state)
{
    struct bench b;
    struct ring *r;

    (void)state;
    r = ring_start(&b);
    r->policy.ring_limit = 2; /* and nothing is told */
    search(&b, 1000);
    assert_int_equal(b.found_count, 0); /* that takes a while at times */
    b.now.us += 61 * S;
    (void)finds(&b, SCHED_FAULT_STUCK, "mail waits for an agent that is free");
    r->policy.ring_limit = 1;
    bench_end(&b);
}

static void an_agent_that_is_lost_is_found(void **state)
{
    const struct sched_fault *fault;
    struct bench b;
    struct ring *r;

    (void)state;
    r = ring_start(&b);
    r->agents++;
    fault = finds(&b, SCHED_FAULT_COUNT, "agents of a ring in use");
    assert_int_equal(fault->value, 2);
    assert_int_equal(fault->expected, 1);
    r->agents--;
    b.s->extra++;
    (void)finds(&b, SCHED_FAULT_COUNT, "entries that share an agent with another, in all");
    b.s->extra--;
    bench_end(&b);
}

UNIT_MAIN(cmocka_unit_test(a_sound_scheduler_has_none), cmocka_unit_test(unused_room_is_found),
          cmocka_unit_test(a_full_window_without_deliveries_is_found),
          cmocka_unit_test(a_lost_timer_is_found),
          cmocka_unit_test(a_lost_timer_of_a_transport_is_found),
          cmocka_unit_test(a_wrong_count_is_found),
          cmocka_unit_test(recipients_outside_of_their_queue_are_found),
          cmocka_unit_test(recipients_of_a_dropped_message_are_found),
          cmocka_unit_test(a_message_that_does_not_end_is_found),
          cmocka_unit_test(answers_that_do_not_come_are_found),
          cmocka_unit_test(parked_mail_that_is_never_asked_for_is_found),
          cmocka_unit_test(mail_held_for_no_reason_is_found),
          cmocka_unit_test(a_line_that_does_not_move_is_found),
          cmocka_unit_test(a_free_agent_that_mail_waits_for_is_found),
          cmocka_unit_test(an_agent_that_is_lost_is_found))
