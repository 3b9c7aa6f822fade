#include "unit.h"

#include <string.h>

#include "lines.h"

static void to_unix(const char *in, size_t piece, struct buf *out)
{
    struct slice rest = slice_string(in);
    struct unixlines u;

    unixlines_init(&u);
    while (rest.len > 0) {
        size_t len = rest.len < piece ? rest.len : piece;

        unixlines_add(&u, slice_of(rest.ptr, len), out);
        rest = slice_skip(rest, len);
    }
    unixlines_end(&u, out);
}

static void to_wire(const char *in, size_t piece, struct buf *out)
{
    struct slice rest = slice_string(in);
    struct wirelines w;

    wirelines_init(&w);
    while (rest.len > 0) {
        size_t len = rest.len < piece ? rest.len : piece;

        wirelines_add(&w, slice_of(rest.ptr, len), out);
        rest = slice_skip(rest, len);
    }
    wirelines_end(&w, out);
}

static void lines_end_as_they_should_at_any_split(void **state)
{
    static const struct {
        const char *in, *want_unix, *want_wire;
    } table[] = {
        {"", "", ""},
        {"a", "a\n", "a\r\n"},
        {"a\n", "a\n", "a\r\n"},
        {"a\r\n", "a\n", "a\r\n"},
        {"a\r", "a\r\n", "a\r\n"},
        {"\n\n", "\n\n", "\r\n\r\n"},
        {"\r\n\r\n", "\n\n", "\r\n\r\n"},
        {"a\rb\r\r\nc\n", "a\rb\r\nc\n", "a\rb\r\r\nc\r\n"},
        {"a\n\rb\n", "a\n\rb\n", "a\r\n\rb\r\n"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        for (size_t piece = 1; piece <= 9; piece++) {
            struct buf out;

            buf_init(&out, 100);
            to_unix(table[i].in, piece, &out);
            assert_string_equal(buf_cstr(&out), table[i].want_unix);
            buf_clear(&out);
            to_wire(table[i].in, piece, &out);
            assert_string_equal(buf_cstr(&out), table[i].want_wire);
            buf_fini(&out);
        }
    }
}

UNIT_MAIN(cmocka_unit_test(lines_end_as_they_should_at_any_split))
