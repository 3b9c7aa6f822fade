/*
 * Fields of a header section, found in a stream.
 *
 * Input: two bytes that say how the rest is split, then content. Wanted, beside no crash: the same
 * fields with the same values as header_find and header_unfold read in the whole content.
 */
#include <stdint.h>

#include "check.h"
#include "header.h"
#include "header_scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define VALUE_MAX 64

static void compare(const struct header_scan *s, size_t number, struct slice content,
                    struct slice name)
{
    struct header_field field;
    struct buf whole;
    struct slice want;

    if (!header_find(content, name, &field)) {
        CHECK(!header_scan_found(s, number));
        return;
    }
    CHECK(header_scan_found(s, number));
    buf_init(&whole, content.len);
    CHECK(header_unfold(field.value, &whole));
    want = buf_slice(&whole);
    want.len = want.len < VALUE_MAX ? want.len : VALUE_MAX;
    CHECK(slice_equal(header_scan_value(s, number), slice_trim(want)));
    buf_fini(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"List-Unsubscribe", "List-Id", "Precedence", "X"};
    struct header_scan s;
    struct slice content, rest;
    size_t step;

    if (size < 2 || size - 2 > HEADER_SCAN_BYTES_MAX) {
        return 0;
    }
    content = rest = slice_of(data + 2, size - 2);
    header_scan_init(&s);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)header_scan_want(&s, slice_string(names[i]), VALUE_MAX);
    }
    step = data[0];
    while (rest.len > 0) {
        step = step * 31 % 257 % (data[1] + 1u) + 1;
        step = step < rest.len ? step : rest.len;
        header_scan_feed(&s, slice_of(rest.ptr, step));
        rest = slice_skip(rest, step);
    }
    CHECK(!header_scan_was_cut(&s));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        compare(&s, i, content, slice_string(names[i]));
    }
    header_scan_fini(&s);
    return 0;
}
