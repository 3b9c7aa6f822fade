#include "unit.h"

#include <netinet/in.h>
#include <string.h>

#include "match.h"

static void patterns_match_as_in_a_shell(void **state)
{
    static const struct {
        const char *pattern, *text;
        bool want;
    } cases[] = {
        {"*", "", true},
        {"*", "a/b.c", true},
        {"smtp", "smtp", true},
        {"smtp", "smtpx", false},
        {"?mtp", "smtp", true},
        {"?", "", false},
        {"*.gmail.com", "mx.gmail.com", true},
        {"*.gmail.com", "gmail.com", false},
        {"a*b*c", "a-b-b-c", true},
        {"a*b*c", "a-b-b-", false},
        {"[abc]x", "bx", true},
        {"[a-c]x", "bx", true},
        {"[a-c]x", "dx", false},
        {"[^a-c]x", "dx", true},
        {"[!a]x", "ax", false},
        {"[]]", "]", true},
        {"[a-]", "-", true},
        {"\\*", "*", true},
        {"\\*", "x", false},
        {"mx{1,2}", "mx2", true},
        {"*{.de,.at}", "a.de.at", true},
        {"mx{1,2}", "mx3", false},
        {"{a,}", "", true},
        {"[a", "a", false},
        {"{a", "a", false},
        {"{a}b", "ab", false},
        {"a\\", "a", false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(glob_match(slice_string(cases[i].pattern), slice_string(cases[i].text)),
                         cases[i].want);
    }
}

static void brackets_of_a_next_hop_stand_for_themselves(void **state)
{
    static const struct {
        const char *pattern, *text;
        bool want;
    } cases[] = {
        {"[192.0.2.7]:25", "[192.0.2.7]:25", true},
        {"[192.0.2.7]:25", "1:25", false},
        {"[192.0.2.7]", "[192.0.2.7]", true},
        {"[ipv6:2001:db8::1]:25", "[ipv6:2001:db8::1]:25", true},
        {"[::1]", "[::1]", true},
        {"[localhost]", "[localhost]", true},
        {"[localhost]:25", "[localhost]:25", true},
        {"[localhost]:25", "l:25", false},
        {"[192.0.2.*]:*", "[192.0.2.9]:587", true},
        {"[192.0.2.*]:*", "[192.0.3.9]:587", false},
        {"[192.0.2.7]*", "[192.0.2.7]:587", true},
        {"[mx?.example.com]:{25,587}", "[mx1.example.com]:587", true},
        {"\\[192.0.2.7\\]:25", "[192.0.2.7]:25", true},
        {"[a-m]*", "example.com", true}, /* a set: no dot, and something else follows */
        {"[a-m]*", "[a-m]:25", false},
        {"[!a.]*", "example.com", true},
        {"[^a]:25", "b:25", true},
        {"*[12].example", "mx2.example", true},
        {"[]]x", "]x", true},
        {"[192.0.2.7", "[192.0.2.7", false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(nexthop_match(slice_string(cases[i].pattern), slice_string(cases[i].text)),
                         cases[i].want);
    }
}

static void each_next_hop_has_a_pattern_of_its_own(void **state)
{
    static const char *const odd[] = {
        "example.com", "[192.0.2.7]:25", "[ipv6:::1]:25", "[localhost]", "[a]b", "a[bc]d",
        "[^a]:25",     "[!x.y]",         "a{b,c}",        "{a}",         "a\\b", "]",
        "[",           "unix:/run/a[1]", "a,b",           "[a.b",        "[]",   "[.]",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(odd); i++) {
        struct buf pattern;

        buf_init(&pattern, 100);
        nexthop_put_pattern(&pattern, slice_string(odd[i]));
        assert_null(nexthop_pattern_error(buf_slice(&pattern)));
        for (size_t j = 0; j < COUNT(odd); j++) {
            assert_int_equal(nexthop_match(buf_slice(&pattern), slice_string(odd[j])), i == j);
        }
        buf_fini(&pattern);
    }
}

static void a_pattern_of_stars_costs_no_exponential_time(void **state)
{
    char pattern[200], text[2000];

    (void)state;
    for (size_t i = 0; i < sizeof pattern; i++) {
        pattern[i] = i % 2 == 0 ? '*' : 'a';
    }
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 'b';
    pattern[sizeof pattern - 1] = 'c';
    assert_false(glob_match(slice_of(pattern, sizeof pattern), slice_of(text, sizeof text)));
}

static void networks_match_by_their_bits(void **state)
{
    static const struct {
        const char *network, *address;
        bool want_ok, want;
    } cases[] = {
        {"127.0.0.0/8", "127.1.2.3", true, true},
        {"127.0.0.0/8", "128.0.0.1", true, false},
        {"10.0.0.0/9", "10.127.0.1", true, true},
        {"10.0.0.0/9", "10.128.0.1", true, false},
        {"192.0.2.1", "192.0.2.1", true, true},
        {"0.0.0.0/0", "8.8.8.8", true, true},
        {"0.0.0.0/0", "2001:db8::1", true, false},
        {"::/0", "2001:db8::1", true, true},
        {"[::1]/128", "::1", true, true},
        {"2001:db8::/33", "2001:db8:7fff::1", true, true},
        {"2001:db8::/33", "2001:db8:8000::1", true, false},
        {"127.0.0.1/8", "127.0.0.1", false, false},
        {"127.0.0.0/33", "127.0.0.1", false, false},
        {"[127.0.0.0]/8", "127.0.0.1", false, false},
        {"127/8", "127.0.0.1", false, false},
        {"::1/", "::1", false, false},
        {"", "::1", false, false},
        {"example.org", "::1", false, false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        unsigned char ip[16];
        struct cidr c;

        assert_true(ip_parse(slice_string(cases[i].address), ip));
        assert_int_equal(cidr_parse(slice_string(cases[i].network), &c), cases[i].want_ok);
        if (cases[i].want_ok) {
            assert_int_equal(cidr_match(&c, ip), cases[i].want);
        }
    }
}

static void a_mapped_client_address_is_an_ipv4_address(void **state)
{
    const char *items[] = {"192.0.2.0/24"};
    struct conf_list list = {items, 1};
    struct sockaddr_in6 mapped = {.sin6_family = AF_INET6};
    struct sockaddr other = {.sa_family = AF_UNIX};

    (void)state;
    mapped.sin6_addr = (struct in6_addr){{{[10] = 0xff, 0xff, 192, 0, 2, 7}}};
    assert_true(network_list_match(&list, (struct sockaddr *)&mapped));
    assert_false(network_list_match(&list, &other));
}

static void domains_match_exactly_below_or_by_pattern(void **state)
{
    static const struct {
        const char *element, *domain;
        bool want;
    } cases[] = {
        {"example.org", "EXAMPLE.org", true},
        {"example.org", "a.example.org", false},
        {".example.org", "a.b.Example.org", true},
        {".example.org", "example.org", false},
        {"*.TEST", "a.test", true},
        {"*.test", "test", false},
        {"local*", "localhost", true},
        {"example.org", "", false},
        {"b\xc3\xbc"
         "cher.test",
         "B\xc3\x9c"
         "CHER.test",
         true},
        {"b\xc3\xbc"
         "cher.test",
         "XN--bcher-kva.TEST", true},
        {".b\xc3\xbc"
         "cher.test",
         "a.xn--bcher-kva.test", true},
        {"xn--bcher-kva.test",
         "b\xc3\xbc"
         "cher.test",
         true},
        {"b\xc3\xbc"
         "cher.test",
         "bcher.test", false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct conf_list list = {&cases[i].element, 1};

        assert_int_equal(domain_list_match(&list, slice_string(cases[i].domain)), cases[i].want);
    }
}

UNIT_MAIN(cmocka_unit_test(brackets_of_a_next_hop_stand_for_themselves),
          cmocka_unit_test(each_next_hop_has_a_pattern_of_its_own),
          cmocka_unit_test(patterns_match_as_in_a_shell),
          cmocka_unit_test(a_pattern_of_stars_costs_no_exponential_time),
          cmocka_unit_test(networks_match_by_their_bits),
          cmocka_unit_test(a_mapped_client_address_is_an_ipv4_address),
          cmocka_unit_test(domains_match_exactly_below_or_by_pattern))
