/* Answers of the DNS: records, texts, times, aliases. */
#include "unit.h"

#include <string.h>

#include "dns_answer.h"

/* A packet with the question `a.test. A`, and so many records in answer and authority. */
static struct slice packet(char room[600], unsigned answers, unsigned authority,
                           const char *records, size_t len)
{
    static const char question[] = "\1a\4test\0\0\1\0\1";
    const char header[] = {0, 1, (char)0x81, (char)0x80, 0, 1, 0, (char)answers, 0, (char)authority,
                           0, 0};

    memcpy(room, header, sizeof header);
    memcpy(room + sizeof header, question, sizeof question - 1);
    memcpy(room + sizeof header + sizeof question - 1, records, len);
    return slice_of(room, sizeof header + sizeof question - 1 + len);
}

#define PACKET(room, answers, authority, records)                                                  \
    packet(room, answers, authority, records, sizeof records - 1)
#define NAME           "\xc0\x0c"
#define CNAME(ttl, to) NAME "\0\5\0\1\0\0" ttl to
#define A(owner, ttl)  owner "\0\1\0\1\0\0" ttl "\0\4\177\0\0\1"
#define B_TEST         "\1b\xc0\x0e"

static void an_answer_holds_as_long_as_its_first_record_to_end(void **unused)
{
    char room[600];

    (void)unused;
    assert_int_equal(dns_answer_ttl(PACKET(room, 1, 0, A(NAME, "\1\0"))), 256);
    assert_int_equal(
        dns_answer_ttl(PACKET(room, 2, 0, CNAME("\0\12", "\0\4" B_TEST) A(B_TEST, "\1\0"))), 10);
    assert_int_equal(dns_answer_ttl(PACKET(room, 1, 1, A(NAME, "\1\0") A(NAME, "\0\7"))), 7);
    assert_int_equal(dns_answer_ttl(PACKET(room, 0, 0, "")), 0);
    assert_int_equal(dns_answer_ttl(PACKET(room, 1, 0, NAME "\0\1\0\1")), 0); /* cut short */
    assert_int_equal(dns_answer_ttl(slice_of("", 0)), 0);
}

static void the_owner_of_the_records_is_what_a_name_leads_to(void **unused)
{
    char room[600], alias[DNS_NAME_MAX] = "";

    (void)unused;
    assert_true(
        dns_answer_alias(PACKET(room, 2, 0, CNAME("\0\12", "\0\4" B_TEST) A(B_TEST, "\1\0")),
                         ns_t_a, SLICE("a.test"), alias));
    assert_string_equal(alias, "b.test");
    assert_false(
        dns_answer_alias(PACKET(room, 1, 0, A(NAME, "\1\0")), ns_t_a, SLICE("A.test"), alias));
    /* An alias without records leads to nothing. */
    assert_false(dns_answer_alias(PACKET(room, 1, 0, CNAME("\0\12", "\0\4" B_TEST)), ns_t_a,
                                  SLICE("a.test"), alias));
    /* A name that no host has. */
    assert_false(dns_answer_alias(PACKET(room, 1, 0, A("\3b c\xc0\x0e", "\1\0")), ns_t_a,
                                  SLICE("a.test"), alias));
    assert_false(dns_answer_alias(slice_of("", 0), ns_t_a, SLICE("a.test"), alias));
}

#define TXT NAME "\0\20\0\1\0\0\0\0"

static void records_of_a_type_are_found(void **unused)
{
    char room[600];
    struct slice data[2];
    size_t count;

    (void)unused;
    assert_true(dns_answer_records(
        PACKET(room, 4, 0, CNAME("\0\0", "\0\3\1b\0") TXT "\0\3\2xy" TXT "\0\1\0" TXT "\0\2\1z"),
        RESOLVER_TXT, data, 2, &count));
    assert_int_equal(count, 3);
    assert_true(slice_equal(data[0], SLICE("\2xy")));
    assert_true(slice_equal(data[1], SLICE("\0")));
    assert_true(dns_answer_records(PACKET(room, 1, 0, CNAME("\0\0", "\0\3\1b\0")), RESOLVER_A, data,
                                   2, &count));
    assert_int_equal(count, 0);
}

static void what_is_cut_short_is_no_answer(void **unused)
{
    char room[600];
    struct slice data[2], whole = PACKET(room, 2, 0, TXT "\0\3\2xy" TXT "\0\2\1z");
    size_t count = 0;

    (void)unused;
    for (size_t len = 0; len < whole.len; len++) {
        assert_false(dns_answer_records(slice_of(whole.ptr, len), RESOLVER_TXT, data, 2, &count));
    }
    assert_true(dns_answer_records(whole, RESOLVER_TXT, data, 2, &count));
    assert_int_equal(count, 2);
}

static void the_strings_of_a_text_are_joined(void **unused)
{
    struct buf text;

    (void)unused;
    buf_init(&text, 10);
    assert_true(dns_answer_text(SLICE("\2v=\0\3STS"), &text));
    assert_string_equal(buf_cstr(&text), "v=STS");
    assert_false(dns_answer_text(SLICE("\2v"), &text));
    assert_false(dns_answer_text(SLICE("\6abcdef"), &text)); /* there is room for five */
    buf_fini(&text);
}

UNIT_MAIN(cmocka_unit_test(an_answer_holds_as_long_as_its_first_record_to_end),
          cmocka_unit_test(the_owner_of_the_records_is_what_a_name_leads_to),
          cmocka_unit_test(records_of_a_type_are_found),
          cmocka_unit_test(what_is_cut_short_is_no_answer),
          cmocka_unit_test(the_strings_of_a_text_are_joined))
