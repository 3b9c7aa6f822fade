#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "sts.h"

static void one_record_has_the_id(void **unused)
{
    static const struct {
        const char *records[3];
        const char *want; /* NULL: no policy */
    } cases[] = {
        {{"v=STSv1; id=20160831085700Z;"}, "20160831085700Z"},
        {{"v=STSv1;id=1"}, "1"},
        {{"v=spf1 -all", "v=STSv1 ; x=y ; id=a1 ;"}, "a1"},
        {{NULL}, NULL},
        {{"v=STSv1"}, NULL},
        {{"v=STSv1;"}, NULL},
        {{"v=STSv12; id=1"}, NULL},
        {{"v=stsv1; id=1"}, NULL},
        {{"id=1; v=STSv1"}, NULL},
        {{"v=STSv1; id="}, NULL},
        {{"v=STSv1; id=a-b"}, NULL},
        {{"v=STSv1; id=123456789012345678901234567890123"}, NULL},
        {{"v=STSv1; id=1; id=2"}, NULL},
        {{"v=STSv1; id=1", "v=STSv1; id=2"}, NULL},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct slice records[3], id;
        size_t count = 0;
        char text[100];

        while (count < 3 && cases[i].records[count] != NULL) {
            records[count] = slice_string(cases[i].records[count]);
            count++;
        }
        if (!sts_record_find(records, count, &id)) {
            id = SLICE("none");
        }
        snprintf(text, sizeof text, "%.*s", SLICE_ARGS(id));
        assert_string_equal(text, cases[i].want == NULL ? "none" : cases[i].want);
    }
}

#define GOOD                                                                                       \
    "version: STSv1\r\nmode: enforce\r\nmx: mail.example.com\r\nmx: *.example.net\r\nmax_age: "    \
    "604800\r\n"

static void policies_are_read(void **unused)
{
    static char much[STS_POLICY_MAX + 2];
    const struct {
        const char *text, *want;
    } cases[] = {
        {GOOD, NULL},
        {"version:STSv1\nmode:testing\nmx:a\nmax_age:0", NULL},
        {"mode: none\nmax_age: 31557600\nversion: STSv1\n", NULL},
        {GOOD "mode: rubbish\nmax_age: x\nversion: 2\nnew_field: yes\n", NULL}, /* first counts */
        {"", "it has no version"},
        {"version: STSv1\nmx: a\nmax_age: 1\n", "it has no mode"},
        {"version: STSv1\nmode: enforce\nmx: a\n", "it has no max_age"},
        {"version: STSv1\nmode: enforce\nmax_age: 1\n", "it has no mx"},
        {"version: STSv2\n" GOOD, "its version is not STSv1"},
        {"version: STSv1\nmode: Enforce\n", "its mode is none of enforce, testing and none"},
        {"version: STSv1\nmax_age: 31557601\n", "its max_age is no number of 0 to 31557600"},
        {"version: STSv1\nmax_age: -1\n", "its max_age is no number of 0 to 31557600"},
        {"version: STSv1\nmax_age: 1 day\n", "its max_age is no number of 0 to 31557600"},
        {"mx: a..b\n", "an mx is no host name, and none after `*.'"},
        {"mx: *\n", "an mx is no host name, and none after `*.'"},
        {"mx: a.*.b\n", "an mx is no host name, and none after `*.'"},
        {"mx: .example.com\n", "an mx is no host name, and none after `*.'"},
        {"<html>\n", "a line has no colon"},
        {much, "it is longer than 64 KiB"},
    };

    (void)unused;
    memset(much, '\n', sizeof much - 1);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct sts_policy policy;
        const char *why;
        bool good = sts_policy_parse(slice_string(cases[i].text), &policy, &why);

        assert_int_equal(good, cases[i].want == NULL);
        if (!good) {
            assert_string_equal(why, cases[i].want);
        }
    }
}

static void hosts_match_one_label(void **unused)
{
    static const struct {
        const char *host;
        bool want;
    } cases[] = {
        {"mail.example.com", true},
        {"MAIL.example.com.", true},
        {"a.mail.example.com", false},
        {"example.net", false},
        {"a.example.net", true},
        {"a.b.example.net", false},
        {".example.net", false},
        {"example.com", false},
        {"", false},
        {"mail.example.com.evil", false},
    };
    struct sts_policy policy;
    const char *why;

    (void)unused;
    assert_true(sts_policy_parse(SLICE(GOOD), &policy, &why));
    assert_int_equal(policy.mode, STS_ENFORCE);
    assert_int_equal(policy.max_age, 604800);
    for (size_t i = 0; i < COUNT(cases); i++) {
        if (sts_policy_allows(&policy, slice_string(cases[i].host)) != cases[i].want) {
            fail_msg("%s", cases[i].host);
        }
    }
}

static void what_was_read_is_written_without_the_rest(void **unused)
{
    struct sts_policy policy;
    struct buf text;
    const char *why;

    (void)unused;
    buf_init(&text, STS_POLICY_MAX);
    assert_true(sts_policy_parse(SLICE("x: y\n" GOOD "max_age: 1\n"), &policy, &why));
    assert_true(sts_policy_put(&policy, &text));
    assert_string_equal(buf_cstr(&text), "version: STSv1\nmode: enforce\nmax_age: 604800\n"
                                         "mx: mail.example.com\nmx: *.example.net\n");
    buf_fini(&text);
    buf_init(&text, 20);
    assert_false(sts_policy_put(&policy, &text));
    buf_fini(&text);
}

static void domains_have_room_for_the_prefix(void **unused)
{
    char name[254];

    (void)unused;
    for (size_t i = 0; i < sizeof name; i++) {
        name[i] = i % 2 == 0 ? 'a' : '.';
    }
    assert_true(sts_domain_valid(slice_of(name, 243)));
    assert_false(sts_domain_valid(slice_of(name, 245)));
    assert_false(sts_domain_valid(SLICE("")));
    assert_false(sts_domain_valid(SLICE("a..b")));
    assert_false(sts_domain_valid(SLICE(".a")));
    assert_false(sts_domain_valid(SLICE("a.")));
    assert_false(sts_domain_valid(SLICE("../a")));
    assert_false(sts_domain_valid(SLICE("a b")));
    assert_true(sts_domain_valid(SLICE("xn--a_b.TEST")));
}

UNIT_MAIN(cmocka_unit_test(one_record_has_the_id), cmocka_unit_test(policies_are_read),
          cmocka_unit_test(hosts_match_one_label),
          cmocka_unit_test(what_was_read_is_written_without_the_rest),
          cmocka_unit_test(domains_have_room_for_the_prefix))
