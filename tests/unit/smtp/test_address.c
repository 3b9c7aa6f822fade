#include "unit.h"

#include <string.h>

#include "address.h"

static void paths_are_parsed_and_printed(void **unused)
{
#define L60 "123456789012345678901234567890123456789012345678901234567890"
#define L64 "1234567890123456789012345678901234567890123456789012345678901234"
    static const struct {
        const char *in;
        unsigned options;
        enum address_error want;
        const char *want_stored;
        size_t want_used;
    } cases[] = {
        {"<a@b.example>", 0, ADDRESS_OK, "a@b.example", 13},
        {"<a@b.example> SIZE=1", 0, ADDRESS_OK, "a@b.example", 13},
        {"<a.b+c@X-1.example>", 0, ADDRESS_OK, "a.b+c@X-1.example", 19},
        {"<@r.example,@s.example:a@b.example>", 0, ADDRESS_OK, "a@b.example", 35},
        {"<\"a b\"@c.example>", 0, ADDRESS_OK, "\"a b\"@c.example", 17},
        {"<\"ab\"@c.example>", 0, ADDRESS_OK, "ab@c.example", 16},
        {"<\"a\\b\\\"\\\\\"@c.example>", 0, ADDRESS_OK, "\"ab\\\"\\\\\"@c.example", 21},
        {"<\"a@b\"@c.example>", 0, ADDRESS_OK, "\"a@b\"@c.example", 17},
        {"<\">\"@c.example>", 0, ADDRESS_OK, "\">\"@c.example", 15},
        {"<a@[192.0.2.1]>", 0, ADDRESS_OK, "a@[192.0.2.1]", 15},
        {"<a@[IPv6:2001:db8::1]>", 0, ADDRESS_OK, "a@[IPv6:2001:db8::1]", 22},
        {"<" L64 "@b.example>", 0, ADDRESS_OK, L64 "@b.example", 76},
        {"<>", ADDRESS_NULL, ADDRESS_OK, "", 2},
        {"< >", ADDRESS_NULL, ADDRESS_OK, "", 3},
        {"< \t>", 0, ADDRESS_EMPTY, "", 0},
        {"<PostMaster>", ADDRESS_POSTMASTER, ADDRESS_OK, "PostMaster", 12},
        {"<a>", ADDRESS_NO_DOMAIN, ADDRESS_OK, "a", 3},
        {"a@b.example x", ADDRESS_NO_BRACKETS, ADDRESS_OK, "a@b.example", 11},
        {"<\xc3\xa4@\xc3\xb6.example>", ADDRESS_UTF8, ADDRESS_OK, "\xc3\xa4@\xc3\xb6.example", 15},
        {"", 0, ADDRESS_NOT_A_PATH, "", 0},
        {"a@b.example", 0, ADDRESS_NOT_A_PATH, "", 0},
        {"<a@b.example", 0, ADDRESS_UNCLOSED, "", 0},
        {"<>", 0, ADDRESS_EMPTY, "", 0},
        {"<a>", 0, ADDRESS_NO_DOMAIN_GIVEN, "", 0},
        {"<@r:a>", 0, ADDRESS_NO_DOMAIN_GIVEN, "", 0},
        {"<@r.example a@b.example>", 0, ADDRESS_BAD_ROUTE, "", 0},
        {"<@:a@b.example>", 0, ADDRESS_BAD_ROUTE, "", 0},
        {"<postmaster>", 0, ADDRESS_NO_DOMAIN_GIVEN, "", 0},
        {"<a b@c.example>", 0, ADDRESS_BAD_LOCAL, "", 0},
        {"<.a@b.example>", 0, ADDRESS_OK, "\".a\"@b.example", 14},
        {"<a.@b.example>", 0, ADDRESS_OK, "\"a.\"@b.example", 14},
        {"<a..b@c.example>", 0, ADDRESS_OK, "\"a..b\"@c.example", 16},
        {"< a@b.example\t>", 0, ADDRESS_OK, "a@b.example", 15},
        {"<a@b.example>; x", 0, ADDRESS_OK, "a@b.example", 14},
        {"<a@b.example>;; x", 0, ADDRESS_OK, "a@b.example", 14}, /* the rest is the caller's */
        {"<a@b.example.>", 0, ADDRESS_OK, "a@b.example", 14},
        {"<a@b.example..>", 0, ADDRESS_BAD_DOMAIN, "", 0},
        {"<a@.>", 0, ADDRESS_BAD_DOMAIN, "", 0},
        {"<a@[192.0.2.1].>", 0, ADDRESS_OK, "a@[192.0.2.1]", 16},
        {"<a(b)@c.example>", 0, ADDRESS_BAD_LOCAL, "", 0},
        {"<\"\"@c.example>", 0, ADDRESS_OK, "\"\"@c.example", 14},
        {"<@c.example>", 0, ADDRESS_BAD_ROUTE, "", 0},
        {"<\"a\r\nb\"@c.example>", 0, ADDRESS_BAD_LOCAL, "", 0},
        {"<\"a\\\tb\"@c.example>", 0, ADDRESS_BAD_LOCAL, "", 0},
        {"<\"a@c.example>", 0, ADDRESS_BAD_LOCAL, "", 0},
        {"<x" L64 "@b.example>", 0, ADDRESS_OK, "x" L64 "@b.example", 77},
        {"<x" L64 L64 L64 L64 "@b.example>", 0, ADDRESS_OK, "x" L64 L64 L64 L64 "@b.example", 269},
        {"<" L64 L64 L64 L64 L64 "@b.example>", 0, ADDRESS_TOO_LONG, "", 0},
        {"<" L64 L64 L64 L64 "@" L60 ".b.example>", 0, ADDRESS_TOO_LONG, "", 0},
        {"<\"" L64 L64 L64 L64 " " L60 "\"@b.example>", 0, ADDRESS_TOO_LONG, "", 0},
        {"<a@>", 0, ADDRESS_BAD_DOMAIN, "", 0},
        {"<a@b..c>", 0, ADDRESS_BAD_DOMAIN, "", 0},
        {"<a@-b.example>", 0, ADDRESS_BAD_DOMAIN, "", 0},
        {"<a@b@c.example>", 0, ADDRESS_BAD_DOMAIN, "", 0},
        {"<a@192.0.2.1>", 0, ADDRESS_BAD_DOMAIN, "", 0},
        {"<a@[192.0.2.256]>", 0, ADDRESS_BAD_DOMAIN, "", 0},
        {"<a@[IPv6:x]>", 0, ADDRESS_BAD_DOMAIN, "", 0},
        {"<a@x" L64 ".example>", 0, ADDRESS_BAD_DOMAIN, "", 0},
        {"<a@" L64 L64 L64 L64 ">", 0, ADDRESS_DOMAIN_TOO_LONG, "", 0},
        {"<\xc3\xa4@b.example>", 0, ADDRESS_NEEDS_UTF8, "", 0},
        {"<\xc3@b.example>", ADDRESS_UTF8, ADDRESS_BAD_UTF8, "", 0},
        {"<\xc2\x85@b.example>", ADDRESS_UTF8, ADDRESS_BAD_UTF8, "", 0}, /* a C1 control */
        {"<\xed\xa0\x80@b.example>", ADDRESS_UTF8, ADDRESS_BAD_UTF8, "", 0},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct address address, again;
        struct buf out;
        size_t used = 0;
        unsigned anything = ADDRESS_UTF8 | ADDRESS_NULL | ADDRESS_NO_DOMAIN;
        enum address_error error =
            address_parse_path(slice_string(cases[i].in), cases[i].options, &address, &used);

        if (error != cases[i].want) {
            print_error("%s: %s\n", cases[i].in, address_error_text(error));
        }
        assert_int_equal(error, cases[i].want);
        assert_int_equal(used, cases[i].want_used);
        if (error != ADDRESS_OK) {
            continue;
        }
        buf_init(&out, ADDRESS_MAX);
        assert_true(address_print(&address, &out));
        assert_string_equal(buf_cstr(&out), cases[i].want_stored);
        assert_true(address_is_stored(buf_slice(&out), anything));
        assert_int_equal(address_parse(buf_slice(&out), anything, &again), ADDRESS_OK);
        again = address_split(buf_slice(&out));
        assert_true(slice_equal(again.domain, address.domain));
        buf_fini(&out);
    }
}

static void needless_quotes_are_not_stored(void **unused)
{
    (void)unused;
    assert_true(address_is_stored(SLICE("\"a b\"@c.example"), 0));
    assert_false(address_is_stored(SLICE("\"ab\"@c.example"), 0));
    assert_false(address_is_stored(SLICE("\"a\\ b\"@c.example"), 0));
    assert_false(address_is_stored(SLICE("<a@c.example>"), 0));
    assert_false(address_is_stored(SLICE("a@c.example x"), 0));
    assert_false(address_is_stored(SLICE("a@c.example."), 0));
    assert_false(address_is_stored(SLICE("a..b@c.example"), 0));
    assert_true(address_is_stored(SLICE("\"a..b\"@c.example"), 0));
    assert_false(address_is_stored(SLICE(""), 0));
}

static void quoting_comes_off_and_on(void **unused)
{
    struct buf out;

    (void)unused;
    buf_init(&out, 100);
    assert_true(address_unquote_local(SLICE("\"a\\\"b c\""), &out));
    assert_string_equal(buf_cstr(&out), "a\"b c");
    buf_clear(&out);
    assert_true(address_quote_local(SLICE("a\"b c"), &out));
    assert_string_equal(buf_cstr(&out), "\"a\\\"b c\"");
    buf_clear(&out);
    assert_false(address_quote_local(SLICE("a\nb"), &out));
    buf_clear(&out);
    assert_true(address_quote_local(SLICE(""), &out));
    assert_string_equal(buf_cstr(&out), "\"\"");
    buf_clear(&out);
    address_put_external(SLICE("@x.test"), &out);
    assert_string_equal(buf_cstr(&out), "\"\"@x.test");
    buf_clear(&out);
    address_put_external(SLICE(""), &out);
    assert_string_equal(buf_cstr(&out), "");
    assert_int_equal(buf_len(&out), 0);
    buf_fini(&out);
}

static void header_values_give_their_addresses(void **unused)
{
    static const struct {
        const char *in;
        unsigned options;
        const char *want; /* bad ones in brackets */
    } cases[] = {
        {"", 0, ""},
        {" a@b.example", 0, "a@b.example;"},
        {"a@b.example,, c@d.example ,", 0, "a@b.example;c@d.example;"},
        {"\"Doe, John\" <j@d.example>, Jane Q. Doe <q@d.example>", 0, "j@d.example;q@d.example;"},
        {"=?utf-8?q?J=C3=B6?= <j@d.example>", 0, "j@d.example;"},
        {"j@x.example <j@d.example>", 0, "j@d.example;"},
        {"(c (nested \\) ) x) a (y) @ (z) b . example", 0, "a@b.example;"},
        {"A group: a@b.example, C <c@d.example>; e@f.example", 0,
         "a@b.example;c@d.example;e@f.example;"},
        {"undisclosed-recipients:;", 0, ""},
        {"<@r.example,@s.example:a@b.example>", 0, "a@b.example;"},
        {"a@b.example,\r\n\tc@d.example", 0, "a@b.example;c@d.example;"},
        {"\"a\".\"b c\"@d.example", 0, "\"a.b c\"@d.example;"},
        {"a@[192.0.2.1]", 0, "a@[192.0.2.1];"},
        {"a b@c.example, d@e.example", 0, "[a b@c.example];d@e.example;"},
        {"a, b@c.example", 0, "[a];b@c.example;"},
        {"a, b@c.example", ADDRESS_NO_DOMAIN, "a;b@c.example;"},
        {"a@b@c.example", 0, "[a@b@c.example];"},
        {"<a@b.example> x", 0, "[<a@b.example> x];"},
        {"<a@b.example, c@d.example", 0, "[<a@b.example];c@d.example;"},
        {"(never ends a@b.example", 0, "[(never ends a@b.example];"},
        {"\"never ends a@b.example", 0, "[\"never ends a@b.example];"},
        {"a@b.example\x01", 0, "[a@b.example?];"},
        {"\xc3\xa4@b.example", 0, "[\xc3\xa4@b.example];"},
        {"\xc3\xa4@b.example", ADDRESS_UTF8, "\xc3\xa4@b.example;"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct address_list list;
        enum address_list_event event;
        struct buf out, story;

        buf_init(&out, ADDRESS_MAX);
        buf_init(&story, 1000);
        address_list_init(&list, slice_string(cases[i].in), cases[i].options);
        while ((event = address_list_next(&list, &out)) != ADDRESS_LIST_END) {
            bool bad = event == ADDRESS_LIST_BAD;
            buf_addf(&story, bad ? "[%s];" : "%s;", buf_cstr(&out));
        }
        assert_string_equal(buf_cstr(&story), cases[i].want);
        buf_fini(&out);
        buf_fini(&story);
    }
}

static void nesting_is_bounded(void **unused)
{
    struct address_list list;
    struct buf out;
    char value[200];

    (void)unused;
    memset(value, '(', 100);
    memset(value + 100, ')', 100);
    buf_init(&out, ADDRESS_MAX);
    address_list_init(&list, slice_of(value, sizeof value), 0);
    assert_int_equal(address_list_next(&list, &out), ADDRESS_LIST_BAD);
    assert_int_equal(address_list_next(&list, &out), ADDRESS_LIST_END);
    buf_fini(&out);
}

UNIT_MAIN(cmocka_unit_test(paths_are_parsed_and_printed),
          cmocka_unit_test(needless_quotes_are_not_stored),
          cmocka_unit_test(quoting_comes_off_and_on),
          cmocka_unit_test(header_values_give_their_addresses),
          cmocka_unit_test(nesting_is_bounded))
