#include "destination.h"

#include "unit.h"

#include <string.h>

#include "mem.h"

#define S US_PER_S

struct fixture {
    struct dest_retries all;
    struct destination *x, *y; /* no others are needed */
    struct retry_rules rules;
    struct policy policy;
    const char *retries[8];
    struct rng rng;
};

static void begin(struct fixture *f, int64_t interval_s, const char *a, const char *b,
                  const char *c)
{
    const char *given[] = {a, b, c};
    size_t count = 0;

    *f = (struct fixture){.policy = {.interval_us = interval_s * S, .skew = 1}};
    while (count < 3 && given[count] != NULL) {
        f->retries[count] = given[count];
        count++;
    }
    f->policy.retries.items = f->retries;
    f->policy.retries.count = count;
    retry_rules_init(&f->rules, &f->policy);
    dest_retries_init(&f->all);
    f->x = mem_new(sizeof *f->x + 1);
    f->y = mem_new(sizeof *f->y + 1);
    rng_init(&f->rng, 1);
}

static void end(struct fixture *f)
{
    dest_retries_fini(&f->all);
    assert_null(f->x->retry);
    mem_free(f->x);
    mem_free(f->y);
    retry_rules_fini(&f->rules);
}

static struct dest_retry *retry_of(struct fixture *f, struct destination *d)
{
    return dest_retry_need(&f->all, d, (struct wall){1000 * S});
}

static int64_t ran(struct fixture *f, struct dest_retry *r, bool stops, int64_t until_s,
                   int64_t now_s)
{
    return dest_retry_ran(&f->all, r, &f->rules, stops, (struct wall){until_s * S},
                          (struct wall){now_s * S}, 0, &f->rng)
               .us /
           S;
}

static void rules_come_from_the_clause(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 10, "1", "2", "30");
    assert_true(retry_rules_apply(&f.rules));
    assert_int_equal(f.rules.sequence.count, 3);
    assert_int_equal(f.rules.sequence.factors[2], 30);
    end(&f);
    begin(&f, 0, "1", NULL, NULL);
    assert_false(retry_rules_apply(&f.rules));
    end(&f);
}

static void a_destination_has_one_time_of_retry_until_it_is_dropped(void **state)
{
    struct fixture f;
    struct dest_retry *x, *y;

    (void)state;
    begin(&f, 10, "1", NULL, NULL);
    x = retry_of(&f, f.x);
    y = retry_of(&f, f.y);
    assert_ptr_equal(f.x->retry, x);
    assert_ptr_not_equal(x, y);
    assert_ptr_equal(retry_of(&f, f.x), x);
    dest_retry_drop(&f.all, x);
    assert_null(f.x->retry);
    assert_ptr_equal(f.y->retry, y);
    end(&f);
}

/* A stop, as any other end of a run, follows the one rule. */
static void only_the_first_end_of_a_run_moves_the_time(void **state)
{
    (void)state;
    for (int stops = 0; stops <= 1; stops++) {
        struct fixture f;
        struct dest_retry *t;

        begin(&f, 10, "1", "2", "3");
        t = retry_of(&f, f.x);
        assert_int_equal(ran(&f, t, stops, 0, 1002), 1010); /* the nearest multiple */
        assert_int_equal(ran(&f, t, stops, 0, 1003), 1010);
        assert_int_equal(ran(&f, t, !stops, 0, 1009), 1010);
        assert_true(dest_retry_waits(t, (struct wall){1009 * S}));
        assert_false(dest_retry_waits(t, (struct wall){1010 * S}));
        assert_int_equal(ran(&f, t, stops, 0, 1010), 1030); /* the second factor */
        end(&f);
    }
}

static void an_agent_may_ask_for_more_time_within_bounds(void **state)
{
    static const struct {
        int64_t until, want;
    } cases[] = {
        {0, 1010},                  /* deferall: none was given */
        {900, 1010},                /* the past */
        {1005, 1010},               /* before the sequence's own time */
        {1025, 1025}, {5000, 1032}, /* no more than the longest step */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        struct dest_retry *t;

        begin(&f, 10, "1", "3", "2");
        t = retry_of(&f, f.x);
        assert_int_equal(ran(&f, t, true, cases[i].until, 1002), cases[i].want);
        assert_true(t->stopped);
        (void)ran(&f, t, false, 0, 1003); /* given out before */
        assert_true(t->stopped);
        (void)ran(&f, t, false, 0, 9000); /* another run */
        assert_false(t->stopped);
        end(&f);
    }
}

static void a_stop_holds_for_new_mail_for_a_moment(void **state)
{
    struct fixture f;
    struct dest_retry *t;

    (void)state;
    begin(&f, 100, "1", "2", "3");
    t = retry_of(&f, f.x);
    (void)ran(&f, t, false, 0, 1002);
    assert_false(dest_retry_is_fresh_stop(t, (struct wall){1002 * S})); /* the others go on */
    (void)ran(&f, t, true, 0, 1003);
    assert_true(dest_retry_is_fresh_stop(t, (struct wall){1003 * S + RETRY_WAKE_US - 1}));
    assert_false(dest_retry_is_fresh_stop(t, (struct wall){1003 * S + RETRY_WAKE_US}));
    (void)ran(&f, t, true, 0, 1050);
    assert_true(dest_retry_is_fresh_stop(t, (struct wall){1051 * S}));
    dest_retry_woken(t, false, (struct wall){1051 * S});
    assert_false(dest_retry_is_fresh_stop(t, (struct wall){1051 * S}));
    end(&f);
}

static void no_factors_mean_always_but_not_in_a_busy_loop(void **state)
{
    struct fixture f;
    struct dest_retry *t;

    (void)state;
    begin(&f, 10, "0", NULL, NULL);
    assert_int_equal(f.rules.sequence.count, 0);
    t = retry_of(&f, f.x);
    assert_int_equal(ran(&f, t, false, 0, 1002), 1003);
    assert_int_equal(ran(&f, t, false, 0, 1002), 1003);
    assert_int_equal(ran(&f, t, false, 0, 1010), 1011);
    end(&f);
}

static void new_mail_leaves_the_time_and_asking_ends_it(void **state)
{
    struct fixture f;
    struct dest_retry *t;

    (void)state;
    begin(&f, 10, "1", "2", "3");
    t = retry_of(&f, f.x);
    (void)ran(&f, t, true, 0, 1002);
    assert_false(dest_retry_may_be_woken(t, (struct wall){1003 * S})); /* nothing was put off */
    dest_retry_slept(t);
    assert_true(dest_retry_may_be_woken(t, (struct wall){1003 * S}));
    dest_retry_woken(t, false, (struct wall){1003 * S});
    assert_false(t->asleep);
    dest_retry_slept(t);
    assert_false(dest_retry_may_be_woken(t, (struct wall){1004 * S})); /* a stream of mail */
    assert_true(dest_retry_may_be_woken(t, (struct wall){1003 * S + RETRY_WAKE_US}));
    assert_false(t->stopped);
    assert_true(dest_retry_waits(t, (struct wall){1009 * S}));
    dest_retry_woken(t, true, (struct wall){1004 * S});
    assert_false(dest_retry_waits(t, (struct wall){1002 * S}));
    end(&f);
}

static void a_destination_that_nothing_came_of_is_told_now_and_then(void **state)
{
    struct fixture f;
    struct dest_retry *x, *y;
    int64_t check = RETRY_CHECK_US / S;

    (void)state;
    begin(&f, 10, "1", "2", "3");
    assert_int_equal(dest_retries_check_at(&f.all).us, US_FOREVER);
    x = retry_of(&f, f.x);
    y = retry_of(&f, f.y);
    (void)ran(&f, x, false, 0, 1012); /* until 1020 */
    (void)ran(&f, y, false, 0, 1002); /* until 1010 */
    assert_int_equal(dest_retries_check_at(&f.all).us, (1010 + check) * S);
    assert_null(dest_retries_check(&f.all, (struct wall){(1010 + check) * S - 1}));
    assert_ptr_equal(dest_retries_check(&f.all, (struct wall){(1010 + check) * S}), y);
    assert_null(dest_retries_check(&f.all, (struct wall){(1010 + check) * S}));
    assert_ptr_equal(dest_retries_check(&f.all, (struct wall){(1020 + check) * S}), x);
    assert_ptr_equal(dest_retries_check(&f.all, (struct wall){(1010 + 2 * check) * S}), y);
    end(&f);
}

static void the_number_of_times_of_retry_is_bounded(void **state)
{
    struct fixture f;
    struct destination **many = mem_array(DEST_RETRIES_MAX + 1, sizeof *many);

    (void)state;
    begin(&f, 10, "1", NULL, NULL);
    for (int64_t i = 0; i <= DEST_RETRIES_MAX; i++) {
        many[i] = mem_new(sizeof **many + 1);
        (void)dest_retry_need(&f.all, many[i], (struct wall){i});
    }
    assert_int_equal(f.all.count, DEST_RETRIES_MAX);
    assert_null(many[0]->retry); /* the one whose time comes first */
    assert_non_null(many[1]->retry);
    heap_audit(&f.all.by_check);
    end(&f);
    for (int64_t i = 0; i <= DEST_RETRIES_MAX; i++) {
        mem_free(many[i]);
    }
    mem_free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_come_from_the_clause),
        cmocka_unit_test(a_destination_has_one_time_of_retry_until_it_is_dropped),
        cmocka_unit_test(only_the_first_end_of_a_run_moves_the_time),
        cmocka_unit_test(an_agent_may_ask_for_more_time_within_bounds),
        cmocka_unit_test(a_stop_holds_for_new_mail_for_a_moment),
        cmocka_unit_test(no_factors_mean_always_but_not_in_a_busy_loop),
        cmocka_unit_test(new_mail_leaves_the_time_and_asking_ends_it),
        cmocka_unit_test(a_destination_that_nothing_came_of_is_told_now_and_then),
        cmocka_unit_test(the_number_of_times_of_retry_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
