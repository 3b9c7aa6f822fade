/* The rules that the queue process and the simulator share. */
#include "owner.h"

#include <inttypes.h>
#include <stdio.h>

#include "unit.h"

#define S US_PER_S

static struct conf *load(const char *text)
{
    static const struct conf_world world = {.hostname = "mail.example.org"};
    struct conf_problems problems;
    struct conf *conf = conf_load_text(slice_string(text), "test", "/", &world, &problems);

    assert_non_null(conf);
    conf_problems_fini(&problems);
    return conf;
}

/* ---- which message waits on disk ------------------------------------------------------------ */

static void recipients_of_one_destination_are_told_from_others(void **state)
{
    struct owner_target t = {.several = false};

    (void)state;
    assert_false(owner_target_is_one(&t)); /* there is none */
    owner_target_add(&t, 1, SLICE("a.example"));
    owner_target_add(&t, 1, SLICE("a.example"));
    assert_true(owner_target_is_one(&t));
    assert_int_equal(t.transport, 1);
    assert_string_equal(t.dest, "a.example");
    owner_target_add(&t, 2, SLICE("a.example"));
    assert_false(owner_target_is_one(&t));
    owner_target_fini(&t);
    owner_target_add(&t, 1, SLICE("a.example"));
    owner_target_add(&t, 1, SLICE("a.exampl"));
    assert_false(owner_target_is_one(&t));
    owner_target_fini(&t);
    assert_false(owner_target_is_one(&t));
}

static void mail_for_a_dead_destination_waits_there_alone(void **state)
{
    struct sched_action dest = {.type = SCHED_DEFER, .transport = 1, .dest = SLICE("a.example")};
    struct sched_action transport = {.type = SCHED_DEFER, .transport = 1};
    struct owner_target t = {.several = false};

    (void)state;
    owner_target_deferred(&t, &dest);
    owner_target_deferred(&t, &dest);
    assert_true(owner_target_is_one(&t));
    owner_target_deferred(&t, &transport);
    assert_false(owner_target_is_one(&t));
    owner_target_fini(&t);
}

/* A scheduler in which destination "a" has its share: one message of four places. */
static struct sched *with_a_full_share(void)
{
    struct sched_limits limits = {.message_active_limit = 4,
                                  .message_recipient_limit = 4,
                                  .message_recipient_minimum = 1,
                                  .destination_share = 50};
    struct sched_transport_policy policy = {.window = {.initial = 1, .max = 1}, .slot_cost = 5};
    struct sched_rcpt rcpt = {.n = 1, .dest = SLICE("a")};
    struct sched *s = sched_new(&limits);
    struct sched_action action;
    struct mono now = {0};

    (void)sched_transport(s, now, "smtp", &policy);
    sched_open(s, now, (struct sched_msg){1}, 1, false);
    assert_int_equal(sched_next(s, now, &action), SCHED_READ);
    sched_recipients(s, now, action.msg, &rcpt, 1, 0, true);
    return s;
}

static void a_message_for_a_full_share_is_parked(void **state)
{
    struct sched *s = with_a_full_share();
    struct owner_target t = {.several = false};

    (void)state;
    assert_false(owner_target_full(s, &t, SLICE("")));
    owner_target_add(&t, 0, SLICE("a"));
    assert_true(owner_target_full(s, &t, SLICE("")));
    assert_false(owner_target_full(s, &t, SLICE("bulk"))); /* a class without mail there */
    owner_target_add(&t, 0, SLICE("b"));
    assert_false(owner_target_full(s, &t, SLICE(""))); /* some of it can go */
    owner_target_fini(&t);
    owner_target_add(&t, 0, SLICE("b"));
    assert_false(owner_target_full(s, &t, SLICE("")));
    owner_target_fini(&t);
    sched_free(s);
}

/* ---- when it goes on ------------------------------------------------------------------------ */

static void a_parked_message_is_looked_at_in_time(void **state)
{
    static const struct {
        int64_t age_s, lifetime_s;
        const char *conf;
        bool to_warn;
        int64_t want_s;
    } cases[] = {
        {0, 86400, "", false, 300},     /* minimal_backoff_time */
        {1000, 86400, "", false, 1000}, /* as old as it is */
        {9000, 86400, "", false, 4000}, /* maximal_backoff_time */
        {9000, 10000, "", false, 1000}, /* the end of its lifetime */
        {9000, 8000, "", false, -1000}, /* which is over */
        {500, 86400, "delay_warning_time = 600s\n", true, 100},
        {500, 86400, "delay_warning_time = 600s\n", false, 500}, /* it was sent */
        {700, 86400, "delay_warning_time = 600s\n", true, 700},  /* it is late for it */
        {500, 86400, "delay_warning_time = 0\n", true, 500},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[200];
        struct conf *conf;
        struct rng rng;
        int64_t got;

        (void)snprintf(text, sizeof text,
                       "retry_jitter = 0\nminimal_backoff_time = 300s\n"
                       "maximal_backoff_time = 4000s\n%s",
                       cases[i].conf);
        conf = load(text);
        rng_init(&rng, 1);
        got = owner_parked_us(conf, cases[i].age_s * S, cases[i].lifetime_s * S, cases[i].to_warn,
                              &rng);
        if (got != cases[i].want_s * S) {
            fail_msg("case %zu: %" PRId64 " s", i, got / S);
        }
        conf_free(conf);
    }
}

static void a_back_off_is_spread_by_the_configured_jitter(void **state)
{
    struct conf *conf = load("retry_jitter = 50\nminimal_backoff_time = 100s\n"
                             "maximal_backoff_time = 4000s\n");
    int64_t least = INT64_MAX, most = 0;
    struct rng rng;

    (void)state;
    rng_init(&rng, 1);
    for (int i = 0; i < 1000; i++) {
        int64_t wait_us = owner_backoff_us(conf, 1000 * S, &rng);

        least = wait_us < least ? wait_us : least;
        most = wait_us > most ? wait_us : most;
    }
    assert_in_range(least, 1000 * S, 1010 * S);
    assert_in_range(most, 1490 * S, 1500 * S);
    conf_free(conf);
}

/* ---- what comes into memory next ------------------------------------------------------------ */

/* One turn of an owner that has so many new and deferred messages and free places; what it took,
 * "n" or "d" each. */
static enum owner_feed_end turn(struct owner_feed *f, struct sched *s, bool new_first,
                                unsigned *new, unsigned *deferred, unsigned places,
                                char took[OWNER_FEED_MAX + 1])
{
    size_t len = 0;

    owner_feed_begin(f);
    while (owner_feed_goes_on(f, places > 0)) {
        unsigned *from = f->turns.deferred ? deferred : new;
        bool found = *from > 0;

        if (found) {
            took[len++] = f->turns.deferred ? 'd' : 'n';
            places--;
            --*from;
        }
        owner_feed_took(f, found);
    }
    took[len] = '\0';
    return owner_feed_end(f, s, places > 0, new_first);
}

static void new_and_deferred_mail_enter_alternately(void **state)
{
    struct sched *s = with_a_full_share();
    struct owner_feed f = {.full = false};
    unsigned new = 3, deferred = 5;
    char took[OWNER_FEED_MAX + 1];

    (void)state;
    assert_int_equal(turn(&f, s, false, &new, &deferred, 4, took), OWNER_FEED_FULL);
    assert_string_equal(took, "ndnd");
    new = 4;
    for (int i = 0; i < 3; i++) { /* one place at a time */
        assert_int_equal(turn(&f, s, false, &new, &deferred, 0, took), OWNER_FEED_FULL);
        assert_int_equal(turn(&f, s, false, &new, &deferred, 1, took), OWNER_FEED_FULL);
        assert_string_equal(took, i % 2 == 0 ? "n" : "d");
    }
    assert_int_equal(turn(&f, s, false, &new, &deferred, 10, took), OWNER_FEED_EMPTY);
    assert_string_equal(took, "dndn");
    assert_int_equal(turn(&f, s, false, &new, &deferred, 10, took), OWNER_FEED_EMPTY);
    assert_string_equal(took, "");
    assert_int_equal(turn(&f, s, false, &new, &deferred, 0, took), OWNER_FEED_FULL); /* not known */
    sched_free(s);
}

/* As in Postfix's queue manager. */
static void where_new_mail_is_first_it_gets_each_place_of_a_full_queue(void **state)
{
    struct sched *s = with_a_full_share();
    struct owner_feed f = {.full = false};
    unsigned new = 5, deferred = 5;
    char took[OWNER_FEED_MAX + 1];

    (void)state;
    assert_int_equal(turn(&f, s, true, &new, &deferred, 3, took), OWNER_FEED_FULL);
    assert_string_equal(took, "ndn");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(turn(&f, s, true, &new, &deferred, 1, took), OWNER_FEED_FULL);
        assert_string_equal(took, "n");
    }
    assert_int_equal(turn(&f, s, true, &new, &deferred, 10, took), OWNER_FEED_EMPTY);
    assert_string_equal(took, "dddd");
    sched_free(s);
}

/* A message that comes while places are scarce takes one in the turn of new mail only. */
static void mail_that_comes_takes_turns_with_deferred_mail(void **state)
{
    struct sched *s = with_a_full_share();
    struct owner_feed f = {.full = false};
    unsigned new = 0, deferred = 5;
    char took[OWNER_FEED_MAX + 1];

    (void)state;
    assert_true(owner_feed_lets_in(&f));
    owner_feed_let_in(&f);
    assert_true(owner_feed_lets_in(&f)); /* there is room for all */
    assert_int_equal(turn(&f, s, false, &new, &deferred, 1, took), OWNER_FEED_FULL);
    assert_string_equal(took, "d");
    assert_true(owner_feed_lets_in(&f));
    owner_feed_let_in(&f);
    assert_false(owner_feed_lets_in(&f));
    assert_int_equal(turn(&f, s, false, &new, &deferred, 1, took), OWNER_FEED_FULL);
    assert_string_equal(took, "d");
    assert_true(owner_feed_lets_in(&f));
    assert_int_equal(turn(&f, s, false, &new, &deferred, 9, took), OWNER_FEED_EMPTY);
    assert_true(owner_feed_lets_in(&f));
    sched_free(s);
}

/* While mail waits for places, those for parked mail alternate with them. */
static void parked_mail_gets_every_other_place_of_a_full_queue(void **state)
{
    const struct sched_limits limits = {
        .message_active_limit = 10, .message_recipient_limit = 10, .message_recipient_minimum = 1};
    struct mono now = {.us = S};
    struct sched *s = sched_new(&limits);
    struct owner_feed f = {.full = false};
    struct sched_action a;
    const struct sched_transport_policy policy = {.window = {.initial = 1, .max = 1}};

    (void)state;
    (void)sched_transport(s, now, "smtp", &policy);
    owner_feed_begin(&f);
    assert_int_equal(owner_feed_end(&f, s, false, false), OWNER_FEED_FULL);
    sched_parked(s, now, 0, SLICE("a"), SLICE(""));
    assert_int_equal(sched_next(s, now, &a), SCHED_ADMIT);
    assert_int_equal(a.max, 1); /* of 10 */
    assert_false(a.deferred_first);
    sched_open(s, now, (struct sched_msg){1}, 1, false);
    sched_admitted(s, now, 0, SLICE("a"), SLICE(""), 1, true);
    assert_int_equal(sched_next(s, now, &a), SCHED_READ);
    sched_recipients(s, now, a.msg, &(struct sched_rcpt){1, 0, SLICE("a")}, 1, 0, true);
    assert_int_equal(sched_next(s, now, &a), SCHED_DELIVER);
    assert_int_equal(sched_next(s, now, &a), SCHED_NONE); /* until another has entered: */
    owner_feed_opened(&f, s);
    assert_int_equal(sched_next(s, now, &a), SCHED_ADMIT);
    assert_int_equal(a.max, 1);
    assert_true(a.deferred_first);
    sched_admitted(s, now, 0, SLICE("a"), SLICE(""), 0, false); /* the place is for others */
    sched_parked(s, now, 0, SLICE("b"), SLICE(""));
    assert_int_equal(sched_next(s, now, &a), SCHED_ADMIT);
    assert_int_equal(a.max, 1);
    sched_admitted(s, now, 0, SLICE("b"), SLICE(""), 0, false);
    owner_feed_begin(&f);
    owner_feed_took(&f, false);
    owner_feed_took(&f, false);
    assert_int_equal(owner_feed_end(&f, s, true, false), OWNER_FEED_EMPTY);
    sched_parked(s, now, 0, SLICE("c"), SLICE(""));
    assert_int_equal(sched_next(s, now, &a), SCHED_ADMIT);
    assert_int_equal(a.max, 9);
    sched_free(s);
}

static void mail_for_a_dead_destination_is_not_parked_as_new(void **state)
{
    struct mono now = {.us = S};
    struct sched *s = with_a_full_share();

    (void)state;
    assert_true(owner_parks_as_new(s, 0, SLICE("a"), true));
    assert_true(owner_parks_as_new(s, 0, SLICE("unknown"), true));
    assert_false(owner_parks_as_new(s, 0, SLICE("a"), false));
    sched_postpone(s, now, 0, SLICE("a"), mono_after(now, S), SLICE("dead"));
    assert_false(owner_parks_as_new(s, 0, SLICE("a"), true));
    sched_free(s);
}

static void a_turn_takes_no_more_than_its_limit(void **state)
{
    struct sched *s = with_a_full_share();
    struct owner_feed f = {.full = false};
    unsigned new = 1000, deferred = 0;
    char took[OWNER_FEED_MAX + 1];

    (void)state;
    assert_int_equal(turn(&f, s, false, &new, &deferred, 2000, took), OWNER_FEED_MORE);
    assert_int_equal(new, 1000 - OWNER_FEED_MAX);
    sched_free(s);
}

UNIT_MAIN(cmocka_unit_test(recipients_of_one_destination_are_told_from_others),
          cmocka_unit_test(mail_for_a_dead_destination_waits_there_alone),
          cmocka_unit_test(a_message_for_a_full_share_is_parked),
          cmocka_unit_test(a_parked_message_is_looked_at_in_time),
          cmocka_unit_test(a_back_off_is_spread_by_the_configured_jitter),
          cmocka_unit_test(new_and_deferred_mail_enter_alternately),
          cmocka_unit_test(where_new_mail_is_first_it_gets_each_place_of_a_full_queue),
          cmocka_unit_test(mail_that_comes_takes_turns_with_deferred_mail),
          cmocka_unit_test(parked_mail_gets_every_other_place_of_a_full_queue),
          cmocka_unit_test(mail_for_a_dead_destination_is_not_parked_as_new),
          cmocka_unit_test(a_turn_takes_no_more_than_its_limit))
