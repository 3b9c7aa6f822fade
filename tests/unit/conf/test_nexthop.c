#include "unit.h"

#include "nexthop.h"

static void next_hops_have_one_of_four_forms(void **state)
{
    static const struct {
        const char *text, *want_host; /* NULL: refused */
        unsigned want_port;
        bool want_mx, want_address, want_unix;
    } cases[] = {
        {"example.org", "example.org", 0, true, false, false},
        {"example.org:2525", "example.org", 2525, true, false, false},
        {"[mx.example.org]", "mx.example.org", 0, false, false, false},
        {"[192.0.2.1]:25", "192.0.2.1", 25, false, true, false},
        {"[2001:db8::1]:25", "2001:db8::1", 25, false, true, false},
        {"[IPv6:2001:db8::1]", "2001:db8::1", 0, false, true, false},
        {"unix:/run/lmtp", "/run/lmtp", 0, false, false, true},
        {"[smtp.example.net]:submission", "smtp.example.net", 587, false, false, false},
        {"smtp.example.net:smtp", "smtp.example.net", 25, true, false, false},
        {"[192.0.2.1]:smtps", "192.0.2.1", 465, false, true, false},
        {"[::1]:submissions", "::1", 465, false, true, false},
        {"[a]:lmtp", "a", 24, false, false, false},
        {"[a]:Submission", NULL, 0, false, false, false},
        {"[a]:http", NULL, 0, false, false, false},
        {"[a]:smtp25", NULL, 0, false, false, false},
        {"", NULL, 0, false, false, false},
        {"[]", NULL, 0, false, false, false},
        {"[a", NULL, 0, false, false, false},
        {"[a]b", NULL, 0, false, false, false},
        {"a:", NULL, 0, false, false, false},
        {"a:0", NULL, 0, false, false, false},
        {"a:65536", NULL, 0, false, false, false},
        {"a b", NULL, 0, false, false, false},
        {"-a", NULL, 0, false, false, false},
        {"unix:", NULL, 0, false, false, false},
        {"unix:/a-path-of-108-bytes/"
         "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
         "bbbbbbbbbbbbbbbbbb",
         NULL, 0, false, false, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct nexthop n;
        bool ok = nexthop_parse(slice_string(cases[i].text), &n);

        assert_int_equal(ok, cases[i].want_host != NULL);
        if (ok) {
            assert_true(slice_equal(n.host, slice_string(cases[i].want_host)));
            assert_int_equal(n.port, cases[i].want_port);
            assert_int_equal(n.use_mx, cases[i].want_mx);
            assert_int_equal(n.is_address, cases[i].want_address);
            assert_int_equal(n.is_unix, cases[i].want_unix);
        }
    }
}

static void listeners_are_urls(void **state)
{
    static const struct {
        const char *text, *want_host; /* NULL: refused */
        unsigned want_port;
        bool want_lmtp, want_unix;
    } cases[] = {
        {"smtp://127.0.0.1:25", "127.0.0.1", 25, false, false},
        {"smtp://[::1]:25", "::1", 25, false, false},
        {"smtp://*:25", "", 25, false, false},
        {"smtp://:0", "", 0, false, false},
        {"lmtp://localhost:24", "localhost", 24, true, false},
        {"lmtp:unix:/run/x", "/run/x", 0, true, true},
        {"submission://127.0.0.1", "127.0.0.1", 587, false, false},
        {"submissions://*", "", 465, false, false},
        {"Submissions://[::1]", "::1", 465, false, false},
        {"submission://mx.test:2587", "mx.test", 2587, false, false},
        {"submission:mx.test", NULL, 0, false, false},
        {"submissionx://mx.test", NULL, 0, false, false},
        {"submission://mx.test:", NULL, 0, false, false},
        {"smtp://127.0.0.1", NULL, 0, false, false},
        {"smtp:127.0.0.1:25", NULL, 0, false, false},
        {"smtp:unix:/run/x", NULL, 0, false, false},
        {"http://localhost:8025", "localhost", 8025, false, false},
        {"HTTPS://[::1]:8025", "::1", 8025, false, false},
        {"http://localhost", NULL, 0, false, false},
        {"httpx://localhost:80", NULL, 0, false, false},
        {"ftp://localhost:80", NULL, 0, false, false},
        {"", NULL, 0, false, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct listen_address l;
        bool ok = listen_parse(slice_string(cases[i].text), &l);

        assert_int_equal(ok, cases[i].want_host != NULL);
        if (ok) {
            assert_true(slice_equal(l.host, slice_string(cases[i].want_host)));
            assert_int_equal(l.port, cases[i].want_port);
            assert_int_equal(l.lmtp, cases[i].want_lmtp);
            assert_int_equal(l.is_unix, cases[i].want_unix);
        }
    }
}

static void options_belong_to_the_listener_before_them(void **state)
{
    const char *items[] = {"smtp://a:1",        "smtp://b:2",     "class=Bulk", "AUTH=yes",
                           "lmtp:unix:class=x", "submission://c", "proxy=yes"};
    static const struct {
        const char *url, *class_name;
        bool login, proxy;
    } wants[] = {{"smtp://a:1", "", false, false},
                 {"smtp://b:2", "Bulk", true, false},
                 {"lmtp:unix:class=x", "", false, false},
                 {"submission://c", "", true, true}};
    struct conf_list list = {items, COUNT(items)};
    size_t at = 0;
    const char *url;
    struct listen_options options;

    (void)state;
    for (size_t i = 0; i < COUNT(wants); i++) {
        assert_true(listen_next(&list, &at, &url, &options));
        assert_string_equal(url, wants[i].url);
        assert_true(slice_equal(options.class_name, slice_string(wants[i].class_name)));
        assert_int_equal(options.login, wants[i].login);
        assert_int_equal(options.proxy, wants[i].proxy);
        assert_int_equal(listen_options_of(&list, url).login, wants[i].login);
    }
    assert_false(listen_options_of(&list, "smtp://c:3").login);
    assert_false(listen_next(&list, &at, &url, &options));
}

#define UE "\xc3\xbc"

static void a_next_hop_has_one_canonical_form(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"b" UE "cher.test", "xn--bcher-kva.test"},
        {"[b" UE "cher.test]", "[xn--bcher-kva.test]"},
        {"[mx.b" UE "cher.test.]:587", "[mx.xn--bcher-kva.test]:587"},
        {"smtp/b" UE "cher.test:26", "smtp/xn--bcher-kva.test:26"},
        {"*.b" UE "cher.test", "*.xn--bcher-kva.test"},
        {"b" UE "cher.test, [a.test.], c.test", "xn--bcher-kva.test, [a.test], c.test"},
        {"A.example.", "A.example"},
        {"a.example.:26", "a.example:26"},
        {"a..", "a.."},
        {"*.", "*."},
        {".", "."},
        {"[IPv6:2001:db8::1]:25", "[IPv6:2001:db8::1]:25"},
        {"unix:/run/b" UE "cher.", "unix:/run/b" UE "cher."},
        {"lmtp/unix:/run/b" UE "cher.", "lmtp/unix:/run/b" UE "cher."},
        {"", ""},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct slice text = slice_string(cases[i].text), got;
        size_t len = strlen(cases[i].want);
        char room[100];

        got = nexthop_canonical(text, room, sizeof room);
        assert_true(slice_equal(got, slice_string(cases[i].want)));
        assert_true(slice_equal(nexthop_canonical(got, room + 50, 50), got));
        if (!slice_equal(got, text)) {
            assert_ptr_equal(nexthop_canonical(text, room, len).ptr, room);
            assert_ptr_equal(nexthop_canonical(text, room, len - 1).ptr, text.ptr);
        }
    }
}

UNIT_MAIN(cmocka_unit_test(a_next_hop_has_one_canonical_form),
          cmocka_unit_test(options_belong_to_the_listener_before_them),
          cmocka_unit_test(next_hops_have_one_of_four_forms), cmocka_unit_test(listeners_are_urls))
