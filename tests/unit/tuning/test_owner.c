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
static enum owner_feed_end turn(struct owner_feed *f, unsigned *new, unsigned *deferred,
                                unsigned places, char took[OWNER_FEED_MAX + 1])
{
    size_t len = 0;

    owner_feed_begin(f);
    while (owner_feed_goes_on(f, places > 0)) {
        unsigned *from = f->deferred ? deferred : new;
        bool found = *from > 0;

        if (found) {
            took[len++] = f->deferred ? 'd' : 'n';
            places--;
            --*from;
        }
        owner_feed_took(f, found);
    }
    took[len] = '\0';
    return owner_feed_end(f, places > 0);
}

static void new_and_deferred_mail_come_in_turn(void **state)
{
    struct owner_feed f = {.deferred = false};
    unsigned new = 3, deferred = 5;
    char took[OWNER_FEED_MAX + 1];

    (void)state;
    assert_int_equal(turn(&f, &new, &deferred, 4, took), OWNER_FEED_FULL);
    assert_string_equal(took, "ndnd");
    new = 2;
    assert_int_equal(turn(&f, &new, &deferred, 1, took), OWNER_FEED_FULL);
    assert_string_equal(took, "n"); /* the free place goes to new mail */
    assert_int_equal(turn(&f, &new, &deferred, 1, took), OWNER_FEED_FULL);
    assert_string_equal(took, "n");
    assert_int_equal(turn(&f, &new, &deferred, 10, took), OWNER_FEED_EMPTY);
    assert_string_equal(took, "ddd");
    assert_int_equal(turn(&f, &new, &deferred, 10, took), OWNER_FEED_EMPTY);
    assert_string_equal(took, "");
    assert_int_equal(turn(&f, &new, &deferred, 0, took), OWNER_FEED_FULL); /* not known */
}

static void a_turn_takes_no_more_than_its_limit(void **state)
{
    struct owner_feed f = {.deferred = false};
    unsigned new = 1000, deferred = 0;
    char took[OWNER_FEED_MAX + 1];

    (void)state;
    assert_int_equal(turn(&f, &new, &deferred, 2000, took), OWNER_FEED_MORE);
    assert_int_equal(new, 1000 - OWNER_FEED_MAX);
}

UNIT_MAIN(cmocka_unit_test(recipients_of_one_destination_are_told_from_others),
          cmocka_unit_test(mail_for_a_dead_destination_waits_there_alone),
          cmocka_unit_test(a_message_for_a_full_share_is_parked),
          cmocka_unit_test(a_parked_message_is_looked_at_in_time),
          cmocka_unit_test(a_back_off_is_spread_by_the_configured_jitter),
          cmocka_unit_test(new_and_deferred_mail_come_in_turn),
          cmocka_unit_test(a_turn_takes_no_more_than_its_limit))
