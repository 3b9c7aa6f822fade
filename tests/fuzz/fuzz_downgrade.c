/*
 * Content converted for a peer without 8BITMIME, and folded.
 *
 * Input: two bytes that say how the rest is split, then content. Wanted, as well as no crash: the
 * same output as without splits, within the promised bounds, without long lines, and unchanged when
 * it is converted again.
 */
#include <stdint.h>

#include "check.h"
#include "downgrade.h"
#include "long_lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define IN_MAX  65536
#define OUT_MAX (DOWNGRADE_SIZE(DOWNGRADE_SIZE(IN_MAX)) + IN_MAX)

/* Converts content in pieces that `seed` and `most` choose. */
static void convert(struct slice in, size_t seed, size_t most, struct buf *out)
{
    struct downgrade *d = downgrade_new();

    while (in.len > 0) {
        size_t before = buf_len(out);

        seed = seed * 31 % 257 % most + 1;
        seed = seed < in.len ? seed : in.len;
        downgrade_add(d, slice_of(in.ptr, seed), out);
        CHECK(buf_len(out) - before <= DOWNGRADE_SIZE(seed));
        in = slice_skip(in, seed);
    }
    downgrade_finish(d, out);
    downgrade_free(d);
}

static void fold(struct slice in, size_t step, struct buf *out)
{
    struct long_lines l = {0};
    struct buf room;

    buf_init(&room, OUT_MAX);
    while (in.len > 0) {
        struct slice piece = slice_of(in.ptr, step < in.len ? step : in.len), part;

        in = slice_skip(in, piece.len);
        while (long_lines_next(&l, &piece, &room, &part)) {
            CHECK(buf_add(out, part));
        }
    }
    long_lines_finish(&l, out);
    buf_fini(&room);
}

static void check_lines(struct slice text)
{
    while (text.len > 0) {
        CHECK(slice_cut(&text, '\n').len <= LONG_LINES_MAX + 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf whole, split, again;
    struct slice content;

    if (size < 2 || size - 2 > IN_MAX) {
        return 0;
    }
    content = slice_of(data + 2, size - 2);
    buf_init(&whole, OUT_MAX);
    buf_init(&split, OUT_MAX);
    buf_init(&again, OUT_MAX);
    convert(content, 256, 256, &whole);
    convert(content, data[0], data[1] + 1u, &split);
    CHECK(slice_equal(buf_slice(&whole), buf_slice(&split)));
    convert(buf_slice(&whole), data[0], 256, &again);
    CHECK(slice_equal(buf_slice(&whole), buf_slice(&again)));
    buf_clear(&split);
    buf_clear(&again);
    fold(buf_slice(&whole), OUT_MAX, &split);
    fold(buf_slice(&whole), data[1] + 1u, &again);
    CHECK(slice_equal(buf_slice(&split), buf_slice(&again)));
    check_lines(buf_slice(&split));
    buf_fini(&whole);
    buf_fini(&split);
    buf_fini(&again);
    return 0;
}
