#include "unit.h"

#include <string.h>

#include "long_lines.h"

#define OUT_MAX 16383

/* Folds the text in pieces of `step` bytes, as the client does. */
static void fold(const char *in, size_t len, size_t step, struct buf *out)
{
    struct long_lines l = {0};
    struct buf room;

    buf_init(&room, OUT_MAX);
    for (size_t from = 0; from < len; from += step) {
        struct slice piece = slice_of(in + from, from + step < len ? step : len - from), part;

        while (long_lines_next(&l, &piece, &room, &part)) {
            assert_true(buf_add(out, part));
        }
        assert_int_equal(piece.len, 0);
    }
    long_lines_finish(&l, out);
    buf_fini(&room);
}

/* Appends `count` times what `bytes` has. */
static void repeat(struct buf *b, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_true(buf_add_string(b, bytes));
    }
}

/* Builds a text of up to three runs. */
static void runs(struct buf *b, const char *one, size_t ones, const char *two, size_t twos,
                 const char *end)
{
    repeat(b, one, ones);
    repeat(b, two, twos);
    repeat(b, end, 1);
}

static void a_line_changes_only_if_it_is_too_long(void **unused)
{
    static const struct {
        const char *one;
        size_t ones;
        const char *two;
        size_t twos;
        const char *want_break; /* "": the text is unchanged */
        size_t want_at;
    } cases[] = {
        {"x", 899, "", 0, "", 0},
        {"x", 998, "", 0, "", 0},
        {"x", 900, " y", 49, "", 0},
        {"x", 999, "", 0, "\r\n ", 998},
        {"x", 1500, "", 0, "\r\n ", 998},
        {"x", 899, " y", 60, "\r\n", 901},
        {"x", 900, " y", 50, "\r\n", 900},
        {"x", 997, "\ty", 1, "\r\n", 997},
        {"x", 998, " y", 1, "\r\n", 998},
        {"x", 950, "\xc3\xa9", 30, "\r\n ", 998},
        {"x", 951, "\xc3\xa9", 30, "\r\n ", 997},
        {"x", 955, "\xf0\x9f\x98\x80", 30, "\r\n ", 995},
        {"\x80", 1100, "", 0, "\r\n ", 995},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        static const char *const ends[] = {"\r\n", "\n", ""};

        for (size_t e = 0; e < COUNT(ends); e++) {
            struct buf in, want;
            struct slice text;

            buf_init(&in, OUT_MAX);
            buf_init(&want, OUT_MAX);
            repeat(&in, "before\r\n", 1);
            runs(&in, cases[i].one, cases[i].ones, cases[i].two, cases[i].twos, ends[e]);
            repeat(&in, ends[e][0] != '\0' ? "behind\r\n" : "", 1);
            text = buf_slice(&in);
            if (cases[i].want_break[0] != '\0') {
                size_t at = strlen("before\r\n") + cases[i].want_at;

                assert_true(buf_add(&want, slice_of(text.ptr, at)));
                assert_true(buf_add_string(&want, cases[i].want_break));
                text = slice_skip(text, at);
            }
            assert_true(buf_add(&want, text));
            text = buf_slice(&in);
            for (size_t step = 1; step <= text.len; step = step < 5 ? step + 1 : step * 3) {
                struct buf out;

                buf_init(&out, OUT_MAX);
                fold(text.ptr, text.len, step, &out);
                assert_string_equal(buf_cstr(&out), buf_cstr(&want));
                buf_fini(&out);
            }
            buf_fini(&in);
            buf_fini(&want);
        }
    }
}

static void no_line_of_a_long_text_is_too_long(void **unused)
{
    static const char *const words[] = {"x", "word ", "\xe2\x82\xac", "a\tb", "x\r\n"};

    (void)unused;
    for (size_t i = 0; i < COUNT(words); i++) {
        struct buf in, out;
        struct slice rest, line;

        buf_init(&in, OUT_MAX);
        buf_init(&out, OUT_MAX);
        repeat(&in, words[i], 2500);
        fold(buf_slice(&in).ptr, buf_len(&in), 700, &out);
        rest = buf_slice(&out);
        while (rest.len > 0) {
            line = slice_cut(&rest, '\n');
            assert_true(line.len <= LONG_LINES_MAX + 1); /* a CR, too */
        }
        buf_fini(&in);
        buf_fini(&out);
    }
}

static void what_is_folded_stays_as_it_is(void **unused)
{
    struct buf in, once, twice;

    (void)unused;
    buf_init(&in, OUT_MAX);
    buf_init(&once, OUT_MAX);
    buf_init(&twice, OUT_MAX);
    runs(&in, "x", 3000, "some words ", 300, "\r\n");
    fold(buf_slice(&in).ptr, buf_len(&in), 100, &once);
    fold(buf_slice(&once).ptr, buf_len(&once), 100, &twice);
    assert_string_equal(buf_cstr(&once), buf_cstr(&twice));
    buf_fini(&in);
    buf_fini(&once);
    buf_fini(&twice);
}

UNIT_MAIN(cmocka_unit_test(a_line_changes_only_if_it_is_too_long),
          cmocka_unit_test(no_line_of_a_long_text_is_too_long),
          cmocka_unit_test(what_is_folded_stays_as_it_is))
