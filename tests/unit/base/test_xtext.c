#include "unit.h"

#include <string.h>

#include "xtext.h"

static void encoding_leaves_only_xchars(void **unused)
{
    const struct {
        struct slice in;
        const char *want;
    } cases[] = {
        {SLICE(""), ""},
        {SLICE("QQ314159"), "QQ314159"},
        {SLICE("a+b=c@example.org"), "a+2Bb+3Dc@example.org"},
        {SLICE("two words"), "two+20words"},
        {SLICE("\0\r\n\x7f\xff"), "+00+0D+0A+7F+FF"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct buf out;

        buf_init(&out, 100);
        assert_true(xtext_encode(cases[i].in, &out));
        assert_string_equal(buf_cstr(&out), cases[i].want);
        assert_true(xtext_valid(buf_slice(&out)));
        buf_fini(&out);
    }
}

static void decoding_is_strict(void **unused)
{
    const struct {
        struct slice in;
        bool want;
        struct slice want_bytes;
    } cases[] = {
        {SLICE(""), true, SLICE("")},     {SLICE("+2B+00x"), true, SLICE("+\0x")},
        {SLICE("+2b"), false, SLICE("")}, /* lower case */
        {SLICE("+2"), false, SLICE("")},  {SLICE("a+"), false, SLICE("")},
        {SLICE("a=b"), false, SLICE("")}, {SLICE("a b"), false, SLICE("")},
        {SLICE("a\0"), false, SLICE("")}, {SLICE("\xc3\xa4"), false, SLICE("")},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct buf out;

        buf_init(&out, 100);
        assert_int_equal(xtext_valid(cases[i].in), cases[i].want);
        assert_int_equal(xtext_decode(cases[i].in, &out), cases[i].want);
        assert_true(slice_equal(buf_slice(&out), cases[i].want_bytes));
        buf_fini(&out);
    }
}

static void every_byte_survives_the_round_trip(void **unused)
{
    char bytes[256];
    struct buf encoded, decoded;

    (void)unused;
    buf_init(&encoded, 1000);
    buf_init(&decoded, 1000);
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
    }
    assert_true(xtext_encode(slice_of(bytes, sizeof bytes), &encoded));
    assert_true(xtext_decode(buf_slice(&encoded), &decoded));
    assert_true(slice_equal(buf_slice(&decoded), slice_of(bytes, sizeof bytes)));
    buf_fini(&encoded);
    buf_fini(&decoded);
}

static void a_full_buffer_is_told(void **unused)
{
    struct buf out;

    (void)unused;
    buf_init(&out, 4);
    assert_false(xtext_encode(SLICE("a b c"), &out));
    buf_clear(&out);
    assert_false(xtext_decode(SLICE("abcde"), &out));
    buf_fini(&out);
}

UNIT_MAIN(cmocka_unit_test(encoding_leaves_only_xchars), cmocka_unit_test(decoding_is_strict),
          cmocka_unit_test(every_byte_survives_the_round_trip),
          cmocka_unit_test(a_full_buffer_is_told))
