/* Records of DNS packets. */
#include "unit.h"

#include <string.h>

#include "dns_records.h"

/* A packet with the question `a. TXT` and these records behind it. */
static struct slice packet(char room[600], unsigned count, const char *records, size_t len)
{
    static const char question[] = "\1a\0\0\20\0\1";
    const char header[] = {0, 1, (char)0x81, (char)0x80, 0, 1, 0, (char)count, 0, 0, 0, 0};

    memcpy(room, header, sizeof header);
    memcpy(room + sizeof header, question, sizeof question - 1);
    memcpy(room + sizeof header + sizeof question - 1, records, len);
    return slice_of(room, sizeof header + sizeof question - 1 + len);
}

#define PACKET(room, count, records) packet(room, count, records, sizeof records - 1)
#define TXT                          "\xc0\x0c\0\20\0\1\0\0\0\0"
#define CNAME                        "\xc0\x0c\0\5\0\1\0\0\0\0"

static void records_of_a_type_are_found(void **unused)
{
    char room[600];
    struct slice data[2];
    size_t count;

    (void)unused;
    assert_true(
        dns_records(PACKET(room, 4, CNAME "\0\3\1b\0" TXT "\0\3\2xy" TXT "\0\1\0" TXT "\0\2\1z"),
                    RESOLVER_TXT, data, 2, &count));
    assert_int_equal(count, 3);
    assert_true(slice_equal(data[0], SLICE("\2xy")));
    assert_true(slice_equal(data[1], SLICE("\0")));
    assert_true(dns_records(PACKET(room, 1, CNAME "\0\3\1b\0"), RESOLVER_A, data, 2, &count));
    assert_int_equal(count, 0);
}

static void what_is_cut_short_is_no_answer(void **unused)
{
    char room[600];
    struct slice data[2], whole = PACKET(room, 2, TXT "\0\3\2xy" TXT "\0\2\1z");
    size_t count = 0;

    (void)unused;
    for (size_t len = 0; len < whole.len; len++) {
        assert_false(dns_records(slice_of(whole.ptr, len), RESOLVER_TXT, data, 2, &count));
    }
    assert_true(dns_records(whole, RESOLVER_TXT, data, 2, &count));
    assert_int_equal(count, 2);
}

static void the_strings_of_a_text_are_joined(void **unused)
{
    struct buf text;

    (void)unused;
    buf_init(&text, 10);
    assert_true(dns_text_add(SLICE("\2v=\0\3STS"), &text));
    assert_string_equal(buf_cstr(&text), "v=STS");
    assert_false(dns_text_add(SLICE("\2v"), &text));
    assert_false(dns_text_add(SLICE("\6abcdef"), &text)); /* there is room for five */
    buf_fini(&text);
}

UNIT_MAIN(cmocka_unit_test(records_of_a_type_are_found),
          cmocka_unit_test(what_is_cut_short_is_no_answer),
          cmocka_unit_test(the_strings_of_a_text_are_joined))
