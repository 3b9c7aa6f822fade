#include "unit.h"

#include <string.h>

#include "buf.h"
#include "printable.h"
#include "slice.h"

static void utf8_is_told_from_other_bytes(void **state)
{
    static const struct {
        const char *in;
        size_t want;
    } table[] = {
        {"a", 1},
        {"\xc3\xbc", 2},
        {"\xe2\x82\xac", 3},
        {"\xf0\x9f\x92\xa9", 4},
        {"\xc3", 0},             /* cut */
        {"\xc3\x28", 0},         /* no continuation */
        {"\xc0\x80", 0},         /* overlong */
        {"\xe0\x80\x80", 0},     /* overlong */
        {"\xf0\x80\x80\x80", 0}, /* overlong */
        {"\xed\xa0\x80", 0},     /* surrogate */
        {"\xf4\x90\x80\x80", 0}, /* past the end */
        {"\xf5\x80\x80\x80", 0},
        {"\x80", 0},
        {"\xff", 0},
        {"\xe2\x82\x28", 0},
    };
    (void)state;

    assert_int_equal(utf8_length(slice_of("", 0)), 0);
    for (size_t i = 0; i < COUNT(table); i++) {
        assert_int_equal(utf8_length(slice_string(table[i].in)), table[i].want);
    }
}

static void printable_text_is_cut_between_characters(void **state)
{
    static const struct {
        const char *in;
        size_t max;
        const char *want;
    } table[] = {
        {"short", 5, "short"},
        {"longer", 5, "longe..."},
        {"a\xc3\xbc", 2, "a..."},
        {"a\xc3\xbc", 3, "a\xc3\xbc"},
        {"\xe2\x82\xac\xe2\x82\xac", 5, "\xe2\x82\xac..."},
        {"a\r\nb", 9, "a??b"},
        {"", 0, ""},
    };
    struct buf out;
    (void)state;

    buf_init(&out, 100);
    for (size_t i = 0; i < COUNT(table); i++) {
        buf_clear(&out);
        assert_true(printable_add(&out, slice_string(table[i].in), table[i].max));
        assert_string_equal(buf_cstr(&out), table[i].want);
    }
    buf_fini(&out);
}

static void nothing_invisible_is_left(void **state)
{
    static const struct {
        const char *in, *want;
    } table[] = {
        {"plain text, with (brackets) and 100%", "plain text, with (brackets) and 100%"},
        {"a\tb\rc\nd", "a b?c?d"},
        {"\x1b[31mred\x07\x7f", "?[31mred??"},
        {"\xc2\x9b"
         "31m",
         "??31m"},          /* C1: CSI */
        {"\xc2\x85", "??"}, /* C1: next line */
        {"\xe2\x80\xae"
         "evil",
         "???evil"},                            /* U+202E right-to-left override */
        {"\xe2\x81\xa6\xe2\x81\xa9", "??????"}, /* U+2066, U+2069 isolates */
        {"a\xe2\x80\xa8"
         "b\xe2\x80\xa9"
         "c",
         "a???b???c"},                               /* line, paragraph separator */
        {"pay\xe2\x80\x8bpal", "pay???pal"},         /* U+200B zero width space */
        {"\xef\xbb\xbf", "???"},                     /* U+FEFF */
        {"\xc2\xad", "??"},                          /* U+00AD soft hyphen */
        {"\xf3\xa0\x81\x81", "????"},                /* U+E0041, a tag */
        {"\xef\xbf\xbe\xf4\x8f\xbf\xbf", "???????"}, /* U+FFFE, U+10FFFF */
        {"\xed\xa0\x80", "???"},                     /* half of a surrogate pair */
        {"M\xc3\xbcller", "M\xc3\xbcller"},
        {"\xc2\xa0\xe2\x80\x93 \xe2\x80\x9cso\xe2\x80\x9d \xe2\x82\xac 5",
         "\xc2\xa0\xe2\x80\x93 \xe2\x80\x9cso\xe2\x80\x9d \xe2\x82\xac 5"},
        {"\xd9\x85\xd8\xb1\xd8\xad\xd8\xa8\xd8\xa7", "\xd9\x85\xd8\xb1\xd8\xad\xd8\xa8\xd8\xa7"},
        {"\xe4\xbe\x8b\xe3\x81\x88", "\xe4\xbe\x8b\xe3\x81\x88"},
        {"\xf0\x9f\x93\xa7", "\xf0\x9f\x93\xa7"}, /* U+1F4E7 */
    };
    struct buf out;
    (void)state;

    buf_init(&out, 1000);
    for (size_t i = 0; i < COUNT(table); i++) {
        buf_clear(&out);
        assert_true(printable_add(&out, slice_string(table[i].in), 900));
        assert_string_equal(buf_cstr(&out), table[i].want);
    }
    buf_fini(&out);
}

static void lines_of_a_text_become_one(void **state)
{
    char text[] = "\rexpired after 40 secs, problem was:\rtry\nlater \xe2\x80\xa8";
    (void)state;

    printable_line(text, sizeof text - 1);
    assert_string_equal(text, " expired after 40 secs, problem was: try?later ???");
}

UNIT_MAIN(cmocka_unit_test(utf8_is_told_from_other_bytes),
          cmocka_unit_test(printable_text_is_cut_between_characters),
          cmocka_unit_test(nothing_invisible_is_left), cmocka_unit_test(lines_of_a_text_become_one))
