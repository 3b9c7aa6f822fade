#include "unit.h"

#include <string.h>

#include "line_ends.h"

static void each_line_ends_in_crlf_however_the_text_is_cut(void **unused)
{
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"a\nb\n", "a\r\nb\r\n"},
        {"a\r\nb\r\n", "a\r\nb\r\n"},
        {"a\rb\n", "a b\r\n"},
        {"a\r\r\nb", "a\r\nb\r\n"},
        {"a\r\r\n\r\r\r\nb\r\rc\r\r", "a\r\n\r\nb c\r\n"},
        {"a\r", "a\r\n"},
        {"", ""},
        {"\n", "\r\n"},
        {"\r", "\r\n"},
        {"a\n.\r\n", "a\r\n.\r\n"},
        {"a\n.\rb", "a\r\n. b\r\n"},
        {"x", "x\r\n"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t len = strlen(cases[i].in);

        for (size_t cut = 0; cut <= len; cut++) {
            struct line_ends l = {0};
            struct buf out;

            buf_init(&out, 100);
            (void)line_ends_add(&l, slice_of(cases[i].in, cut), &out);
            (void)line_ends_add(&l, slice_of(cases[i].in + cut, len - cut), &out);
            (void)line_ends_finish(&l, &out);
            assert_string_equal(buf_cstr(&out), cases[i].want);
            buf_fini(&out);
        }
    }
}

/* Whatever of the text was known to be in wire form. */
static void what_is_right_already_is_not_copied(void **unused)
{
    static const char in[] = "a\r\n\r\nb\r\nc";
    size_t len = sizeof in - 1;

    (void)unused;
    for (size_t cut = 0; cut <= len; cut++) {
        struct line_ends l = {0};
        struct slice same;
        struct buf out;

        buf_init(&out, 100);
        same = line_ends_pass(&l, slice_of(in, cut));
        assert_ptr_equal(same.ptr, in);
        (void)buf_add(&out, same);
        (void)line_ends_add(&l, slice_of(in + cut, len - cut), &out);
        (void)line_ends_finish(&l, &out);
        assert_string_equal(buf_cstr(&out), "a\r\n\r\nb\r\nc\r\n");
        buf_fini(&out);
    }
}

static void a_full_buffer_is_told_of(void **unused)
{
    struct line_ends l = {0};
    struct buf out;

    (void)unused;
    buf_init(&out, 4);
    assert_null(line_ends_add(&l, SLICE("abc"), &out).ptr);
    assert_int_equal(buf_len(&out), 0);
    buf_fini(&out);
}

UNIT_MAIN(cmocka_unit_test(each_line_ends_in_crlf_however_the_text_is_cut),
          cmocka_unit_test(what_is_right_already_is_not_copied),
          cmocka_unit_test(a_full_buffer_is_told_of))
