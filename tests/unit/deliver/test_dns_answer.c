/* Times and aliases of DNS answers. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_holds_as_long_as_its_first_record_to_end),
        cmocka_unit_test(the_owner_of_the_records_is_what_a_name_leads_to),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
