#include "thread.h"

#include "unit.h"

#include <stdio.h>
#include <string.h>

#define S US_PER_S

struct fixture {
    struct threads threads;
    struct thread_rules rules;
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
    thread_rules_init(&f->rules, &f->policy);
    threads_init(&f->threads);
    rng_init(&f->rng, 1);
}

static void end(struct fixture *f)
{
    threads_fini(&f->threads);
    thread_rules_fini(&f->rules);
}

static struct thread *thread_of(struct fixture *f, const char *dest)
{
    return threads_need(&f->threads, 3, slice_string(dest), (struct wall){1000 * S});
}

static int64_t ran(struct fixture *f, struct thread *thread, enum thread_end how, int64_t until_s,
                   int64_t now_s)
{
    return thread_ran(&f->threads, thread, &f->rules, how, (struct wall){until_s * S},
                      (struct wall){now_s * S}, 0, &f->rng)
               .us /
           S;
}

static void rules_come_from_the_clause(void **state)
{
    struct fixture f;

    (void)state;
    begin(&f, 10, "1", "2", "30");
    assert_true(thread_rules_apply(&f.rules));
    assert_int_equal(f.rules.sequence.count, 3);
    assert_int_equal(f.rules.sequence.factors[2], 30);
    end(&f);
    begin(&f, 0, "1", NULL, NULL);
    assert_false(thread_rules_apply(&f.rules));
    end(&f);
}

static void threads_of_one_name_and_different_transports_differ(void **state)
{
    struct fixture f;
    struct thread *a, *b;

    (void)state;
    begin(&f, 10, "1", NULL, NULL);
    assert_null(threads_find(&f.threads, 3, SLICE("x")));
    a = thread_of(&f, "x");
    b = threads_need(&f.threads, 4, SLICE("x"), (struct wall){0});
    assert_ptr_not_equal(a, b);
    assert_ptr_equal(threads_find(&f.threads, 3, SLICE("x")), a);
    assert_ptr_equal(thread_of(&f, "x"), a);
    assert_null(threads_find(&f.threads, 3, SLICE("xy")));
    threads_drop(&f.threads, a);
    assert_null(threads_find(&f.threads, 3, SLICE("x")));
    end(&f);
}

static void only_the_first_deferral_of_a_run_moves_the_time(void **state)
{
    struct fixture f;
    struct thread *t;

    (void)state;
    begin(&f, 10, "1", "2", "3");
    t = thread_of(&f, "x");
    assert_int_equal(ran(&f, t, THREAD_DEFERRED, 0, 1002), 1020); /* boundary and ten seconds */
    assert_int_equal(ran(&f, t, THREAD_DEFERRED, 0, 1003), 1020);
    assert_int_equal(ran(&f, t, THREAD_SILENT, 0, 1019), 1020);
    assert_true(thread_waits(t, (struct wall){1019 * S}));
    assert_false(thread_waits(t, (struct wall){1020 * S}));
    assert_int_equal(ran(&f, t, THREAD_DEFERRED, 0, 1020), 1040); /* the second factor */
    end(&f);
}

static void a_run_without_a_word_waits_too(void **state)
{
    struct fixture f;
    struct thread *t;

    (void)state;
    begin(&f, 10, "1", "2", "3");
    t = thread_of(&f, "x");
    assert_int_equal(ran(&f, t, THREAD_SILENT, 0, 1002), 1010); /* the next boundary */
    assert_int_equal(t->retry.index, 1);                        /* one step, not two */
    end(&f);
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
        struct thread *t;

        begin(&f, 10, "1", "3", "2");
        t = thread_of(&f, "x");
        assert_int_equal(ran(&f, t, THREAD_STOPPED, cases[i].until, 1002), cases[i].want);
        assert_true(t->stopped);
        (void)ran(&f, t, THREAD_DEFERRED, 0, 1003); /* given out before */
        assert_true(t->stopped);
        (void)ran(&f, t, THREAD_DEFERRED, 0, 9000); /* another run */
        assert_false(t->stopped);
        end(&f);
    }
}

static void a_stop_holds_for_new_mail_for_a_moment(void **state)
{
    struct fixture f;
    struct thread *t;

    (void)state;
    begin(&f, 100, "1", "2", "3");
    t = thread_of(&f, "x");
    (void)ran(&f, t, THREAD_DEFERRED, 0, 1002);
    assert_false(thread_is_fresh_stop(t, (struct wall){1002 * S})); /* the others go on */
    (void)ran(&f, t, THREAD_STOPPED, 0, 1003);
    assert_true(thread_is_fresh_stop(t, (struct wall){1003 * S + THREAD_WAKE_US - 1}));
    assert_false(thread_is_fresh_stop(t, (struct wall){1003 * S + THREAD_WAKE_US}));
    (void)ran(&f, t, THREAD_STOPPED, 0, 1050);
    assert_true(thread_is_fresh_stop(t, (struct wall){1051 * S}));
    thread_woken(t, false, (struct wall){1051 * S});
    assert_false(thread_is_fresh_stop(t, (struct wall){1051 * S}));
    end(&f);
}

static void no_factors_mean_always_but_not_in_a_busy_loop(void **state)
{
    struct fixture f;
    struct thread *t;

    (void)state;
    begin(&f, 10, "0", NULL, NULL);
    assert_int_equal(f.rules.sequence.count, 0);
    t = thread_of(&f, "x");
    assert_int_equal(ran(&f, t, THREAD_DEFERRED, 0, 1002), 1003);
    assert_int_equal(ran(&f, t, THREAD_DEFERRED, 0, 1002), 1003);
    assert_int_equal(ran(&f, t, THREAD_SILENT, 0, 1010), 1011);
    end(&f);
}

static void new_mail_leaves_the_time_and_asking_ends_it(void **state)
{
    struct fixture f;
    struct thread *t;

    (void)state;
    begin(&f, 10, "1", "2", "3");
    t = thread_of(&f, "x");
    (void)ran(&f, t, THREAD_STOPPED, 0, 1002);
    assert_false(thread_may_be_woken(t, (struct wall){1003 * S})); /* nothing was put off */
    thread_slept(t);
    assert_true(thread_may_be_woken(t, (struct wall){1003 * S}));
    thread_woken(t, false, (struct wall){1003 * S});
    assert_false(t->asleep);
    thread_slept(t);
    assert_false(thread_may_be_woken(t, (struct wall){1004 * S})); /* a stream of mail */
    assert_true(thread_may_be_woken(t, (struct wall){1003 * S + THREAD_WAKE_US}));
    assert_false(t->stopped);
    assert_true(thread_waits(t, (struct wall){1009 * S}));
    thread_woken(t, true, (struct wall){1004 * S});
    assert_false(thread_waits(t, (struct wall){1002 * S}));
    end(&f);
}

static void a_thread_that_nothing_came_of_is_told_now_and_then(void **state)
{
    struct fixture f;
    struct thread *x, *y;
    int64_t check = THREAD_CHECK_US / S;

    (void)state;
    begin(&f, 10, "1", "2", "3");
    assert_int_equal(threads_check_at(&f.threads).us, US_FOREVER);
    x = thread_of(&f, "x");
    y = thread_of(&f, "y");
    (void)ran(&f, x, THREAD_DEFERRED, 0, 1002); /* until 1020 */
    (void)ran(&f, y, THREAD_SILENT, 0, 1002);   /* until 1010 */
    assert_int_equal(threads_check_at(&f.threads).us, (1010 + check) * S);
    assert_null(threads_check(&f.threads, (struct wall){(1010 + check) * S - 1}));
    assert_ptr_equal(threads_check(&f.threads, (struct wall){(1010 + check) * S}), y);
    assert_null(threads_check(&f.threads, (struct wall){(1010 + check) * S}));
    assert_ptr_equal(threads_check(&f.threads, (struct wall){(1020 + check) * S}), x);
    assert_ptr_equal(threads_check(&f.threads, (struct wall){(1010 + 2 * check) * S}), y);
    end(&f);
}

static void the_number_of_threads_is_bounded(void **state)
{
    struct fixture f;
    char name[32];

    (void)state;
    begin(&f, 10, "1", NULL, NULL);
    for (int i = 0; i <= THREADS_KEPT_MAX; i++) {
        (void)snprintf(name, sizeof name, "h%d", i);
        (void)threads_need(&f.threads, 0, slice_string(name), (struct wall){i});
    }
    assert_int_equal(HASH_COUNT(f.threads.table), THREADS_KEPT_MAX);
    assert_null(threads_find(&f.threads, 0, SLICE("h0"))); /* the one whose time comes first */
    assert_non_null(threads_find(&f.threads, 0, SLICE("h1")));
    heap_audit(&f.threads.by_check);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_come_from_the_clause),
        cmocka_unit_test(threads_of_one_name_and_different_transports_differ),
        cmocka_unit_test(only_the_first_deferral_of_a_run_moves_the_time),
        cmocka_unit_test(a_run_without_a_word_waits_too),
        cmocka_unit_test(an_agent_may_ask_for_more_time_within_bounds),
        cmocka_unit_test(a_stop_holds_for_new_mail_for_a_moment),
        cmocka_unit_test(no_factors_mean_always_but_not_in_a_busy_loop),
        cmocka_unit_test(new_mail_leaves_the_time_and_asking_ends_it),
        cmocka_unit_test(a_thread_that_nothing_came_of_is_told_now_and_then),
        cmocka_unit_test(the_number_of_threads_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
