/* When the policies of domains are looked up, how long they hold, and what waits for them. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "buf.h"
#include "mem.h"
#include "sts_cache.h"

#define DOMAIN "example.org"
#define POLICY "version: STSv1\nmode: enforce\nmax_age: 86400\nmx: mx.example.org\n"
#define OTHER  "version: STSv1\nmode: testing\nmax_age: 864000\nmx: *.example.org\n"
#define DAY    (86400 * US_PER_S)

struct fixture {
    struct sts_cache *cache;
    struct mono now;
    uint64_t token;
};

static int set_up(void **state)
{
    struct fixture *f = mem_new(sizeof *f);

    f->now.us = 1000 * US_PER_S;
    f->cache = sts_cache_new(f->now);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    sts_cache_free(f->cache);
    mem_free(f);
    return 0;
}

/* The mode that the next answer has, "none" without a policy, "-" without an answer. */
static const char *answered(struct fixture *f)
{
    struct sts_cache_answer a;

    sts_cache_audit(f->cache);
    if (!sts_cache_next_answer(f->cache, &a)) {
        return "-";
    }
    return a.domain == NULL || sts_domain_policy(a.domain, f->now) == NULL
               ? "none"
               : sts_mode_name(a.domain->mode);
}

static const char *ask(struct fixture *f)
{
    sts_cache_ask(f->cache, f->now, SLICE(DOMAIN), 1, ++f->token);
    return answered(f);
}

/* What is to be looked up: "DOMAIN ID", with an exclamation mark when in any case; "-" for nothing.
 */
static const char *wanted(struct fixture *f)
{
    static char text[400];
    const struct sts_domain *d = sts_cache_next_check(f->cache);

    sts_cache_audit(f->cache);
    if (d == NULL) {
        return "-";
    }
    snprintf(text, sizeof text, "%s %s%s", d->name, sts_domain_known_id(d, f->now),
             d->always ? "!" : "");
    return text;
}

static enum sts_effect result(struct fixture *f, enum wire_fetch_outcome outcome, const char *id,
                              const char *policy)
{
    const struct wire_fetched m = {.domain = SLICE(DOMAIN),
                                   .outcome = outcome,
                                   .id = slice_string(id),
                                   .policy = slice_string(policy),
                                   .why = SLICE("why")};
    enum sts_effect effect = sts_cache_result(f->cache, f->now, &m);

    sts_cache_audit(f->cache);
    return effect;
}

static void pass(struct fixture *f, int64_t us)
{
    f->now = mono_after(f->now, us);
    sts_cache_tick(f->cache, f->now);
    sts_cache_audit(f->cache);
}

/* The domain has a policy from now on. */
static void learn(struct fixture *f, const char *id, const char *policy)
{
    assert_string_equal(ask(f), "-");
    assert_string_not_equal(wanted(f), "-");
    assert_int_equal(result(f, FETCH_POLICY, id, policy), STS_CHANGED);
    assert_string_not_equal(answered(f), "-");
    assert_non_null(sts_cache_next_change(f->cache));
}

static void mail_waits_for_the_first_policy(void **state)
{
    struct fixture *f = *state;

    assert_string_equal(ask(f), "-");
    assert_string_equal(ask(f), "-");
    assert_string_equal(wanted(f), DOMAIN " ");
    assert_string_equal(wanted(f), "-");
    assert_string_equal(ask(f), "-");
    assert_int_equal(result(f, FETCH_POLICY, "1", POLICY), STS_CHANGED);
    assert_string_equal(answered(f), "enforce");
    assert_string_equal(answered(f), "enforce");
    assert_string_equal(answered(f), "enforce");
    assert_string_equal(answered(f), "-");
    assert_string_equal(ask(f), "enforce"); /* at once */
    assert_string_equal(wanted(f), "-");
}

static void mail_waits_no_longer_than_its_limit(void **state)
{
    struct fixture *f = *state;

    assert_string_equal(ask(f), "-");
    assert_string_equal(wanted(f), DOMAIN " ");
    pass(f, STS_WAIT_US - 1);
    assert_string_equal(answered(f), "-");
    assert_int_equal(sts_cache_wake_at(f->cache).us, f->now.us + 1);
    pass(f, 1);
    assert_string_equal(answered(f), "none");
    assert_string_equal(ask(f), "none"); /* the look-up is still under way */
    assert_int_equal(result(f, FETCH_POLICY, "1", POLICY), STS_CHANGED);
    assert_string_equal(ask(f), "enforce");
}

static void the_record_is_looked_at_again(void **state)
{
    struct fixture *f = *state;

    learn(f, "1", POLICY);
    pass(f, STS_CHECK_US - 1);
    assert_string_equal(ask(f), "enforce");
    pass(f, 1);
    assert_string_equal(ask(f), "-");
    assert_string_equal(wanted(f), DOMAIN " 1");
    assert_int_equal(result(f, FETCH_SAME, "1", ""), STS_UNCHANGED);
    assert_string_equal(answered(f), "enforce");
    pass(f, STS_CHECK_US);
    assert_string_equal(ask(f), "-");
    assert_string_equal(wanted(f), DOMAIN " 1");
    assert_int_equal(result(f, FETCH_POLICY, "2", OTHER), STS_CHANGED);
    assert_string_equal(answered(f), "testing");
}

static void a_policy_holds_without_record_and_host_until_its_end(void **state)
{
    static const enum wire_fetch_outcome bad[] = {FETCH_NO_RECORD, FETCH_NO_DNS, FETCH_FAILED};
    struct fixture *f = *state;

    learn(f, "1", POLICY);
    for (size_t i = 0; i < COUNT(bad); i++) {
        pass(f, STS_RETRY_MAX_US);
        assert_string_equal(ask(f), "-");
        assert_string_equal(wanted(f), DOMAIN " 1");
        assert_int_equal(result(f, bad[i], "2", ""),
                         bad[i] == FETCH_FAILED ? STS_FAILED : STS_UNCHANGED);
        assert_string_equal(answered(f), "enforce");
    }
    while (strcmp(wanted(f), "-") == 0) { /* when it is half over it is looked up by itself */
        pass(f, STS_SCAN_US);
    }
    pass(f, DAY);
    assert_string_equal(ask(f), "none");
}

static void a_failure_is_not_asked_again_soon(void **state)
{
    static const int64_t wants[] = {300, 600, 1200, 2400, 3600, 3600};
    struct fixture *f = *state;

    for (size_t i = 0; i < COUNT(wants); i++) {
        assert_string_equal(ask(f), "-");
        assert_string_equal(wanted(f), DOMAIN " ");
        assert_int_equal(result(f, FETCH_FAILED, "1", ""), STS_FAILED);
        assert_string_equal(answered(f), "none");
        pass(f, wants[i] * US_PER_S - 1);
        assert_string_equal(ask(f), "none");
        assert_string_equal(wanted(f), "-");
        pass(f, 1);
    }
    assert_string_equal(ask(f), "-");
    assert_string_equal(wanted(f), DOMAIN " ");
    assert_int_equal(result(f, FETCH_POLICY, "1", POLICY), STS_CHANGED);
    assert_int_equal(sts_cache_find(f->cache, SLICE(DOMAIN))->failures, 0);
    assert_null(sts_cache_find(f->cache, SLICE(DOMAIN))->why);
}

static void a_policy_is_refreshed_daily_while_it_is_used(void **state)
{
    struct fixture *f = *state;

    learn(f, "1", OTHER); /* ten days */
    pass(f, DAY - 1);
    assert_string_equal(wanted(f), "-");
    pass(f, STS_SCAN_US);
    assert_string_equal(wanted(f), DOMAIN " 1!");
    assert_string_equal(ask(f), "testing"); /* nothing waits for it */
    assert_int_equal(result(f, FETCH_POLICY, "1", OTHER), STS_UNCHANGED);
    assert_non_null(sts_cache_next_change(f->cache)); /* the new time of its end */
    for (int day = 0; day < 28; day++) {
        pass(f, DAY + STS_SCAN_US);
        assert_string_equal(wanted(f), DOMAIN " 1!");
        assert_int_equal(result(f, FETCH_POLICY, "1", OTHER), STS_UNCHANGED);
    }
    pass(f, 2 * DAY);
    assert_string_equal(wanted(f), "-"); /* no mail for thirty days */
    assert_string_equal(ask(f), "-");    /* the first after that */
    assert_string_equal(wanted(f), DOMAIN " 1!");
}

static void a_refresh_that_fails_is_tried_again(void **state)
{
    struct fixture *f = *state;

    learn(f, "1", OTHER);
    pass(f, DAY);
    assert_string_equal(wanted(f), DOMAIN " 1!");
    assert_int_equal(result(f, FETCH_FAILED, "1", ""), STS_FAILED);
    assert_string_equal(ask(f), "testing");
    pass(f, STS_RETRY_US + STS_SCAN_US);
    assert_string_equal(wanted(f), DOMAIN " 1!");
    assert_int_equal(result(f, FETCH_NO_RECORD, "", ""), STS_UNCHANGED);
    pass(f, STS_RETRY_MAX_US + STS_SCAN_US);
    assert_string_equal(wanted(f), DOMAIN " 1!");
}

static void a_policy_without_an_age_holds_not(void **state)
{
    struct fixture *f = *state;

    learn(f, "1", POLICY);
    pass(f, STS_CHECK_US);
    assert_string_equal(ask(f), "-");
    assert_string_equal(wanted(f), DOMAIN " 1");
    assert_int_equal(
        result(f, FETCH_POLICY, "2", "version: STSv1\nmode: enforce\nmax_age: 0\nmx: a.test\n"),
        STS_CHANGED);
    assert_string_equal(answered(f), "none");
    assert_null(sts_cache_next_change(f->cache)->policy);
}

static void a_policy_of_mode_none_is_known(void **state)
{
    struct fixture *f = *state;

    learn(f, "1", "version: STSv1\nmode: none\nmax_age: 86400\n");
    pass(f, STS_CHECK_US);
    assert_string_equal(ask(f), "-");
    assert_string_equal(wanted(f), DOMAIN " 1");
}

static void a_fetcher_that_ends_is_replaced_once(void **state)
{
    struct fixture *f = *state;

    assert_string_equal(ask(f), "-");
    assert_string_equal(wanted(f), DOMAIN " ");
    sts_cache_lost(f->cache, f->now);
    assert_string_equal(answered(f), "-");
    assert_string_equal(wanted(f), DOMAIN " ");
    sts_cache_lost(f->cache, f->now);
    assert_string_equal(answered(f), "none");
    assert_string_equal(wanted(f), "-");
    assert_string_equal(ask(f), "none");
    pass(f, STS_RETRY_US);
    assert_string_equal(ask(f), "-");
}

static void an_asker_that_is_gone_gets_no_answer(void **state)
{
    struct fixture *f = *state;

    assert_string_equal(ask(f), "-");
    sts_cache_ask(f->cache, f->now, SLICE(DOMAIN), 2, 7);
    sts_cache_asker_lost(f->cache, 1);
    assert_string_equal(wanted(f), DOMAIN " ");
    assert_int_equal(result(f, FETCH_NO_RECORD, "", ""), STS_UNCHANGED);
    assert_string_equal(answered(f), "none");
    assert_string_equal(answered(f), "-");
}

static void malformed_results_change_nothing(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(result(f, FETCH_NO_RECORD, "", ""), STS_REFUSED); /* it is not asked for */
    assert_string_equal(ask(f), "-");
    assert_int_equal(result(f, FETCH_NO_RECORD, "", ""), STS_REFUSED);
    assert_string_equal(wanted(f), DOMAIN " ");
    assert_int_equal(result(f, FETCH_POLICY, "", POLICY), STS_REFUSED);
    assert_int_equal(result(f, FETCH_POLICY, "a b", POLICY), STS_REFUSED);
    assert_int_equal(result(f, FETCH_POLICY, "1", "rubbish"), STS_REFUSED);
    assert_int_equal(result(f, FETCH_SAME, "9", ""), STS_REFUSED); /* none is known */
    assert_string_equal(answered(f), "-");
    assert_int_equal(result(f, FETCH_NO_RECORD, "", ""), STS_UNCHANGED);
    assert_string_equal(answered(f), "none");
}

static void a_policy_can_be_forgotten(void **state)
{
    struct fixture *f = *state;

    learn(f, "1", POLICY);
    assert_false(sts_cache_flush(f->cache, f->now, SLICE("other.test")));
    assert_true(sts_cache_flush(f->cache, f->now, SLICE("Example.ORG")));
    sts_cache_audit(f->cache);
    assert_null(sts_cache_next_change(f->cache)->policy);
    assert_string_equal(ask(f), "-");
    assert_string_equal(wanted(f), DOMAIN " ");
    /* and while it is looked up */
    assert_int_equal(result(f, FETCH_POLICY, "1", POLICY), STS_CHANGED);
    assert_string_equal(answered(f), "enforce");
    pass(f, STS_CHECK_US);
    assert_string_equal(ask(f), "-");
    assert_string_equal(wanted(f), DOMAIN " 1");
    assert_true(sts_cache_flush(f->cache, f->now, SLICE(DOMAIN)));
    assert_int_equal(result(f, FETCH_SAME, "1", ""), STS_UNCHANGED);
    assert_string_equal(answered(f), "none");
    assert_string_equal(ask(f), "-");
    assert_string_equal(wanted(f), DOMAIN " ");
}

static void a_question_of_an_operator_gets_it_anew(void **state)
{
    struct fixture *f = *state;

    learn(f, "1", POLICY);
    sts_cache_renew(f->cache, f->now, SLICE("other.test"));
    sts_cache_renew(f->cache, f->now, SLICE(DOMAIN));
    assert_string_equal(ask(f), "-");
    assert_string_equal(wanted(f), DOMAIN " 1!");
    assert_int_equal(result(f, FETCH_FAILED, "1", ""), STS_FAILED);
    assert_string_equal(answered(f), "enforce");
    sts_cache_renew(f->cache, f->now, SLICE(DOMAIN)); /* also soon after a failure */
    assert_string_equal(ask(f), "-");
    assert_string_equal(wanted(f), DOMAIN " 1!");
}

static void a_stored_policy_comes_back_with_its_times(void **state)
{
    struct fixture *f = *state;
    struct mono day_ago = {f->now.us - DAY + US_PER_S}, future = {f->now.us + DAY};

    assert_true(sts_cache_restore(f->cache, f->now, SLICE(DOMAIN), SLICE("1"), SLICE(POLICY),
                                  day_ago, day_ago));
    sts_cache_audit(f->cache);
    assert_null(sts_cache_next_change(f->cache)); /* it is stored already */
    assert_false(sts_cache_restore(f->cache, f->now, SLICE(DOMAIN), SLICE("1"), SLICE(POLICY),
                                   day_ago, day_ago));
    assert_false(sts_cache_restore(f->cache, f->now, SLICE("a..b"), SLICE("1"), SLICE(POLICY),
                                   day_ago, day_ago));
    assert_false(sts_cache_restore(f->cache, f->now, SLICE("a.b"), SLICE("?"), SLICE(POLICY),
                                   day_ago, day_ago));
    assert_false(sts_cache_restore(f->cache, f->now, SLICE("a.b"), SLICE("1"), SLICE("mode"),
                                   day_ago, day_ago));
    assert_false(sts_cache_restore(f->cache, f->now, SLICE("a.b"), SLICE("1"), SLICE(POLICY),
                                   (struct mono){f->now.us - DAY}, day_ago)); /* it is over */
    assert_true(sts_cache_restore(f->cache, f->now, SLICE("a.b"), SLICE("1"), SLICE(POLICY), future,
                                  future)); /* the clock was set back: as if fetched now */
    assert_int_equal(sts_cache_find(f->cache, SLICE("a.b"))->until.us, f->now.us + DAY);
    assert_string_equal(ask(f), "-"); /* its record is looked at, and it is time to refresh it */
    assert_string_equal(wanted(f), DOMAIN " 1!");
    pass(f, US_PER_S);
    assert_int_equal(result(f, FETCH_NO_DNS, "", ""), STS_UNCHANGED);
    assert_string_equal(answered(f), "none"); /* it has come to its end */
}

static void the_domains_asked_for_least_lately_make_room(void **state)
{
    struct fixture *f = *state;
    struct sts_cache_answer a;
    char name[32];

    for (unsigned i = 0; i < STS_DOMAINS_MAX + 5; i++) {
        int len = snprintf(name, sizeof name, "d%u.test", i);

        sts_cache_ask(f->cache, f->now, slice_of(name, (size_t)len), 1, i);
        if (i < STS_DOMAINS_MAX - 1) {
            struct wire_fetched m = {.domain = slice_of(name, (size_t)len),
                                     .outcome = FETCH_NO_RECORD};

            assert_non_null(sts_cache_next_check(f->cache));
            assert_int_equal(sts_cache_result(f->cache, f->now, &m), STS_UNCHANGED);
        }
        while (sts_cache_next_answer(f->cache, &a)) {
            assert_non_null(a.domain);
        }
    }
    sts_cache_audit(f->cache);
    assert_null(sts_cache_find(f->cache, SLICE("d0.test")));
    assert_null(sts_cache_find(f->cache, SLICE("d4.test")));
    assert_non_null(sts_cache_find(f->cache, SLICE("d5.test")));
}

static void no_more_look_ups_than_the_limit_are_under_way(void **state)
{
    struct fixture *f = *state;
    char name[32];

    for (unsigned i = 0; i < WIRE_FETCHES_MAX + 1; i++) {
        int len = snprintf(name, sizeof name, "d%u.test", i);

        sts_cache_ask(f->cache, f->now, slice_of(name, (size_t)len), 1, i);
    }
    for (unsigned i = 0; i < WIRE_FETCHES_MAX; i++) {
        assert_non_null(sts_cache_next_check(f->cache));
    }
    assert_null(sts_cache_next_check(f->cache));
    assert_int_equal(sts_cache_result(f->cache, f->now,
                                      &(struct wire_fetched){.domain = SLICE("d0.test"),
                                                             .outcome = FETCH_NO_RECORD}),
                     STS_UNCHANGED);
    assert_non_null(sts_cache_next_check(f->cache));
    sts_cache_audit(f->cache);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

UNIT_MAIN(TEST(mail_waits_for_the_first_policy), TEST(mail_waits_no_longer_than_its_limit),
          TEST(the_record_is_looked_at_again),
          TEST(a_policy_holds_without_record_and_host_until_its_end),
          TEST(a_failure_is_not_asked_again_soon),
          TEST(a_policy_is_refreshed_daily_while_it_is_used),
          TEST(a_refresh_that_fails_is_tried_again), TEST(a_policy_without_an_age_holds_not),
          TEST(a_policy_of_mode_none_is_known), TEST(a_fetcher_that_ends_is_replaced_once),
          TEST(an_asker_that_is_gone_gets_no_answer), TEST(malformed_results_change_nothing),
          TEST(a_policy_can_be_forgotten), TEST(a_question_of_an_operator_gets_it_anew),
          TEST(a_stored_policy_comes_back_with_its_times),
          TEST(the_domains_asked_for_least_lately_make_room),
          TEST(no_more_look_ups_than_the_limit_are_under_way))
