/*
 * Limits on what clients and users send.
 */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "conf.h"
#include "rng.h"
#include "send_limit.h"

#define SECOND(n) ((struct mono){1000000 * US_PER_S + (n)*US_PER_S})

static struct conf *load(const char *text)
{
    static const struct conf_world world = {.hostname = "mx.example.test"};
    struct conf_problems problems;
    struct conf *conf =
        conf_load_text(slice_string(text), "sluice.conf", "/tmp", &world, &problems);

    conf_problems_fini(&problems);
    assert_non_null(conf);
    return conf;
}

static const struct send_origin app = {.client = {"192.0.2.1", 9}, .login = {"app", 3}};

static void no_limit_is_set_at_first(void **unused)
{
    struct conf *conf = load("");
    struct send_counts *c = send_counts_new();
    enum send_limit limit;

    (void)unused;
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(send_counts_room(c, conf, &app, SECOND(i), &limit), UINT32_MAX);
        assert_int_equal(limit, SEND_LIMITS);
        assert_true(send_counts_add(c, &app, 1000000, SECOND(i)));
    }
    send_counts_free(c);
    conf_free(conf);
}

static void the_limit_that_leaves_least_is_named(void **unused)
{
    struct conf *conf = load("smtpd_client_message_rate_limit = 3\n"
                             "smtpd_client_recipient_rate_limit = 20\n"
                             "smtpd_login_recipient_hour_limit = 25\n");
    struct send_counts *c = send_counts_new();
    const struct send_origin elsewhere = {.client = SLICE("192.0.2.2"), .login = app.login};
    enum send_limit limit;

    (void)unused;
    assert_int_equal(send_counts_room(c, conf, &app, SECOND(0), &limit), 20);
    assert_string_equal(send_limit_name(limit), "smtpd_client_recipient_rate_limit");
    send_counts_add(c, &app, 15, SECOND(0));
    assert_int_equal(send_counts_room(c, conf, &app, SECOND(1), &limit), 5);
    send_counts_add(c, &app, 1, SECOND(1));
    send_counts_add(c, &app, 1, SECOND(1));
    assert_int_equal(send_counts_room(c, conf, &app, SECOND(1), &limit), 0);
    assert_string_equal(send_limit_name(limit), "smtpd_client_message_rate_limit");
    /* From elsewhere the user has what the hour leaves. */
    assert_int_equal(send_counts_room(c, conf, &elsewhere, SECOND(1), &limit), 8);
    assert_string_equal(send_limit_name(limit), "smtpd_login_recipient_hour_limit");
    assert_int_equal(send_counts_room(c, conf, &app, SECOND(80), &limit), 8);
    assert_int_equal(send_counts_room(c, conf, &app, SECOND(3600 + 301), &limit), 20);
    send_counts_free(c);
    conf_free(conf);
}

static void a_refusal_is_worth_one_warning(void **unused)
{
    struct conf *conf = load("smtpd_login_message_rate_limit = 1\n");
    struct send_counts *c = send_counts_new();

    (void)unused;
    send_counts_add(c, &app, 1, SECOND(0));
    assert_true(send_counts_refused(c, &app, SEND_LOGIN_MESSAGES_MINUTE));
    assert_false(send_counts_refused(c, &app, SEND_LOGIN_MESSAGES_MINUTE));
    send_counts_add(c, &app, 1, SECOND(70));
    assert_true(send_counts_refused(c, &app, SEND_LOGIN_MESSAGES_MINUTE));
    assert_int_equal(send_counts_refusals(c, SEND_LOGIN_MESSAGES_MINUTE), 3);
    assert_int_equal(send_counts_refusals(c, SEND_CLIENT_RCPTS_HOUR), 0);
    send_counts_free(c);
    conf_free(conf);
}

/* Whatever a client does, no minute has more than the limit; and one that sends as it may is let in
 * again before the next period is over. */
static void no_minute_has_more_than_the_limit(void **unused)
{
    enum { LIMIT = 10, STEPS = 20000 };
    struct conf *conf = load("smtpd_client_message_rate_limit = 10\n");
    struct send_counts *c = send_counts_new();
    static int64_t accepted[STEPS];
    size_t count = 0;
    int64_t now = 0, last = 0;
    struct rng rng;
    enum send_limit limit;

    (void)unused;
    rng_init(&rng, 7);
    for (int i = 0; i < STEPS; i++) {
        now += (int64_t)rng_below(&rng, 8 * US_PER_S);
        if (send_counts_room(c, conf, &app, (struct mono){now}, &limit) == 0) {
            assert_in_range(now - last, 0, 66 * US_PER_S);
            continue;
        }
        send_counts_add(c, &app, 1, (struct mono){now});
        accepted[count++] = last = now;
        if (count > LIMIT) {
            assert_true(now - accepted[count - 1 - LIMIT] >= 60 * US_PER_S);
        }
    }
    assert_true(count > STEPS / 4);
    send_counts_free(c);
    conf_free(conf);
}

/* Whatever was sent before: there is room when the time is over that was told, and not a slot
 * before. */
static void the_wait_that_is_told_is_true(void **unused)
{
    struct conf *conf = load("smtpd_client_message_rate_limit = 10\n"
                             "smtpd_login_recipient_hour_limit = 400\n");
    struct rng rng = {0};
    int told = 0;

    (void)unused;
    rng_init(&rng, 7);
    for (int round = 0; round < 300; round++) {
        struct send_counts *c = send_counts_new();
        struct mono now = SECOND(0);
        enum send_limit limit;
        uint32_t wait;

        for (int i = 0; i < 25; i++) {
            now = mono_after(now, (int64_t)rng_below(&rng, 200 * US_PER_S));
            if (send_counts_room(c, conf, &app, now, &limit) >= 30) {
                send_counts_add(c, &app, 1 + (uint32_t)rng_below(&rng, 30), now);
            }
        }
        wait = send_counts_wait_s(c, conf, &app, 30, now);
        assert_int_equal(wait == 0, send_counts_room(c, conf, &app, now, &limit) >= 30);
        told += wait > 0;
        if (wait > 1) {
            struct mono before = mono_after(now, (int64_t)(wait - 1) * US_PER_S - 1);

            assert_true(send_counts_room(c, conf, &app, before, &limit) < 30);
        }
        now = mono_after(now, (int64_t)wait * US_PER_S);
        assert_true(send_counts_room(c, conf, &app, now, &limit) >= 30);
        send_counts_free(c);
    }
    assert_in_range(told, 30, 270);
    conf_free(conf);
}

static void what_is_remembered_is_bounded(void **unused)
{
    struct conf *conf = load("smtpd_client_message_hour_limit = 1\n");
    struct send_counts *c = send_counts_new();
    struct send_origin origin = {.login = SLICE("")};
    enum send_limit limit;
    char name[20];

    (void)unused;
    for (unsigned i = 0; i <= SEND_COUNTS_MAX; i++) {
        snprintf(name, sizeof name, "%u", i);
        origin.client = slice_string(name);
        assert_int_equal(send_counts_add(c, &origin, 1, SECOND(i / 100)), i < SEND_COUNTS_MAX);
    }
    assert_int_equal(send_counts_room(c, conf, &origin, SECOND(300), &limit), 0);
    origin.client = SLICE("0");
    assert_int_equal(send_counts_room(c, conf, &origin, SECOND(300), &limit), UINT32_MAX);
    assert_true(send_counts_add(c, &origin, 1, SECOND(9000))); /* the oldest no longer counts */
    send_counts_free(c);
    conf_free(conf);
}

UNIT_MAIN(cmocka_unit_test(no_limit_is_set_at_first),
          cmocka_unit_test(the_wait_that_is_told_is_true),
          cmocka_unit_test(the_limit_that_leaves_least_is_named),
          cmocka_unit_test(a_refusal_is_worth_one_warning),
          cmocka_unit_test(no_minute_has_more_than_the_limit),
          cmocka_unit_test(what_is_remembered_is_bounded))
