#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "conf.h"
#include "rng.h"
#include "sender_group.h"
#include "tuning.h"

static void return_paths_of_a_list_have_one_name(void **unused)
{
    static const struct {
        const char *sender, *want;
    } cases[] = {
        /* kept */
        {"", ""},
        {"news@example.org", "news@example.org"},
        {"News.Letter@Example.ORG", "news.letter@example.org"},
        {"new-offers@example.org", "new-offers@example.org"},
        {"decade@example.org", "decade@example.org"},
        {"postmaster", "postmaster"},
        {"news@list7.example.org", "news@list7.example.org"},
        {"\"a b\"@example.org", "\"a b\"@example.org"},
        /* tags */
        {"news+tag@example.org", "news@example.org"},
        {"+news@example.org", "+news@example.org"},
        /* the recipient in the return path */
        {"news-john=example.com@lists.example", "news@lists.example"},
        {"news+john=example.com@lists.example", "news@lists.example"},
        {"news-return-17-mary-ann=x.example@lists.example", "news@lists.example"},
        {"john=example.com@bounces.example", "@bounces.example"},
        {"SRS0=hHhH=TT=example.org=alice@forward.example", "@forward.example"},
        {"prvs=1234abcdef=alice@example.org", "@example.org"},
        /* numbers, hexadecimal and other words with digits */
        {"bounce-4711@example.org", "bounce@example.org"},
        {"bounce-4711-b-x@example.org", "bounce@example.org"},
        {"bounces_2024.12.24@example.org", "bounces@example.org"},
        {"shop24@example.org", "shop@example.org"},
        {"b.5f3a99c1@example.org", "b@example.org"},
        {"b.0a1b@example.org", "b@example.org"},
        {"bounce-md_30112.6565d1e7.v1-0f2c@example.org", "bounce-md@example.org"},
        {"0100018c4d5e6f70-8a9b-4c0d-000000@mailer.example", "@mailer.example"},
        {"m-k3jdz8xqw-x@example.org", "m@example.org"},
        {"42@example.org", "@example.org"},
    };
    char room[SENDER_NAME_MAX], again[SENDER_NAME_MAX];

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct slice name = sender_name(slice_string(cases[i].sender), true, room);

        if (!slice_equal(name, slice_string(cases[i].want))) {
            fail_msg("%s: %.*s", cases[i].sender, SLICE_ARGS(name));
        }
        /* A name is its own name. */
        assert_true(slice_equal(sender_name(name, true, again), name));
    }
    assert_true(
        slice_equal(sender_name(SLICE("A+1@b.example"), false, room), SLICE("a+1@b.example")));
}

static void any_bytes_have_a_name(void **unused)
{
    char sender[400], room[SENDER_NAME_MAX];
    struct rng rng;

    (void)unused;
    rng_init(&rng, 5);
    for (int round = 0; round < 20000; round++) {
        size_t len = (size_t)rng_below(&rng, sizeof sender);
        struct slice name;

        for (size_t i = 0; i < len; i++) {
            sender[i] = rng_below(&rng, 2) == 0 ? "a1-+=@.f"[rng_below(&rng, 8)]
                                                : (char)rng_below(&rng, 256);
        }
        name = sender_name(slice_of(sender, len), true, room);
        assert_in_range(name.len, 0, len);
        assert_in_range(
            sender_group(CONF_CLASS_FAIRNESS_SENDER, true, slice_of(sender, len), SLICE("")), 1,
            SENDER_GROUPS);
    }
}

static void a_million_return_paths_are_one_group(void **unused)
{
    char sender[100];
    uint32_t want =
        sender_group(CONF_CLASS_FAIRNESS_SENDER, true, SLICE("news@example.org"), SLICE(""));

    (void)unused;
    for (unsigned i = 0; i < 1000000; i++) {
        int len = snprintf(sender, sizeof sender, "news-%u-user%u=site%u.example@example.org", i, i,
                           i % 1000);

        assert_int_equal(sender_group(CONF_CLASS_FAIRNESS_SENDER, true,
                                      slice_of(sender, (size_t)len), SLICE("")),
                         want);
    }
}

/* No group has many more senders than others; it is in spools which one a sender has. */
static void groups_are_evenly_used(void **unused)
{
    unsigned counts[SENDER_GROUPS + 1] = {0};
    char sender[100];

    (void)unused;
    for (unsigned i = 0; i < 64000; i++) {
        int len = snprintf(sender, sizeof sender, "news@site%u.example", i);

        counts[sender_group(CONF_CLASS_FAIRNESS_SENDER, true, slice_of(sender, (size_t)len),
                            SLICE(""))]++;
    }
    assert_int_equal(counts[0], 0);
    for (size_t i = 1; i <= SENDER_GROUPS; i++) {
        assert_in_range(counts[i], 850, 1150);
    }
    assert_int_equal(
        sender_group(CONF_CLASS_FAIRNESS_SENDER, true, SLICE("news@example.org"), SLICE("")), 37);
}

static void what_makes_a_group_is_a_choice(void **unused)
{
    static const struct slice one = {"a[192.0.2.1]", 12}, other = {"b[192.0.2.1]", 12},
                              far = {"a[192.0.2.9]", 12};

    (void)unused;
#define GROUP(by, sender, client)                                                                  \
    sender_group(CONF_CLASS_FAIRNESS_##by, true, SLICE(sender), client)
    assert_int_equal(GROUP(NONE, "a@b.example", one), 0);
    assert_int_equal(GROUP(CLIENT, "a@b.example", one), GROUP(CLIENT, "x@y.example", other));
    assert_int_not_equal(GROUP(CLIENT, "a@b.example", one), GROUP(CLIENT, "a@b.example", far));
    assert_int_equal(GROUP(SENDER_DOMAIN, "a@B.example", one),
                     GROUP(SENDER_DOMAIN, "x@b.example", far));
    assert_int_not_equal(GROUP(SENDER, "a@b.example", one), GROUP(SENDER, "xy@b.example", one));
#undef GROUP
}

static void expect_sched_class(const char *text, const char *class_name, const char *want)
{
    static const struct conf_world world = {.hostname = "mail.example.org"};
    struct conf_problems problems;
    struct conf *conf = conf_load_text(slice_string(text), "test", "/", &world, &problems);
    char room[SCHED_CLASS_NAME_MAX];
    struct slice sched_class;

    assert_non_null(conf);
    sched_class = tuning_sched_class(conf, slice_string(class_name), SLICE("news@example.org"),
                                     SLICE("a[192.0.2.1]"), room);
    if (!slice_equal(sched_class, slice_string(want))) {
        fail_msg("%s: %.*s", text, SLICE_ARGS(sched_class));
    }
    assert_true(sched_class.len == 0 || tuning_sched_class_valid(sched_class));
    assert_true(slice_equal(tuning_class_of(sched_class), slice_string(class_name)));
    conf_problems_fini(&problems);
    conf_free(conf);
}

static void only_bulk_has_groups_unless_a_clause_says_so(void **unused)
{
    (void)unused;
    expect_sched_class("", "bulk", "bulk/37");
    expect_sched_class("", "personal", "personal");
    expect_sched_class("", "", "");
    expect_sched_class("class_fairness = none\n", "bulk", "bulk");
    expect_sched_class("class/bulk fairness=none\n", "bulk", "bulk");
    expect_sched_class("class/bulk weight=2\n", "bulk", "bulk/37");
    expect_sched_class("class/news* fairness=sender\n", "newsletter", "newsletter/37");
    expect_sched_class("class/* fairness=sender\n", "", "");
}

UNIT_MAIN(cmocka_unit_test(return_paths_of_a_list_have_one_name),
          cmocka_unit_test(any_bytes_have_a_name),
          cmocka_unit_test(a_million_return_paths_are_one_group),
          cmocka_unit_test(groups_are_evenly_used),
          cmocka_unit_test(what_makes_a_group_is_a_choice),
          cmocka_unit_test(only_bulk_has_groups_unless_a_clause_says_so))
