/*
 * The clean-up of incoming mail.
 *
 * Input: four bytes that say how the rest is split, who sends it, and the limit of a field; then
 * content. Wanted, besides no crash: every split gives the same result, a second clean-up changes
 * nothing, and the result is at most CLEANUP_GROWTH_MAX bytes longer.
 */
#include <stdint.h>

#include "check.h"
#include "cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_MAX (1u << 20)

static void add(void *arg, struct slice bytes)
{
    CHECK(bytes.len > 0);
    CHECK(buf_add(arg, bytes));
}

static void values(void *arg, struct header_missing *ret)
{
    (void)arg;
    *ret = (struct header_missing){
        .from = SLICE("\"A, B\" <s@a.test>"), .hostname = SLICE("h.test"), .random = 7};
}

static void clean(const uint8_t *mode, struct slice in, bool whole, struct buf *out)
{
    bool own = (mode[2] & 1) != 0, adds = (mode[2] & 2) != 0;
    /* Added fields must not be cut by the second clean-up. */
    const struct cleanup_rules rules = {.field_bytes = mode[3] * 16u + (adds ? 100 : 1),
                                        .origin = own ? SLICE("o.test") : SLICE(""),
                                        .values = adds ? values : NULL,
                                        .put = add,
                                        .arg = out};
    struct cleanup c = {.field_len = 0};
    size_t step = mode[0];

    cleanup_begin(&c, &rules);
    while (in.len > 0) {
        step = step * 31 % 257 % (mode[1] + 1u) + 1;
        step = whole || step > in.len ? in.len : step;
        cleanup_feed(&c, slice_of(in.ptr, step));
        in = slice_skip(in, step);
    }
    cleanup_end(&c);
    CHECK(cleanup_held(&c) == 0);
    cleanup_fini(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf out, other;
    struct slice in;

    if (size < 4 || size - 4 > INPUT_MAX) {
        return 0;
    }
    in = slice_of(data + 4, size - 4);
    buf_init(&out, INPUT_MAX + CLEANUP_GROWTH_MAX);
    buf_init(&other, INPUT_MAX + 2 * CLEANUP_GROWTH_MAX);
    clean(data, in, true, &out);
    CHECK(buf_len(&out) <= in.len + CLEANUP_GROWTH_MAX);
    clean(data, in, false, &other);
    CHECK(slice_equal(buf_slice(&out), buf_slice(&other)));
    buf_clear(&other);
    clean(data, buf_slice(&out), false, &other);
    CHECK(slice_equal(buf_slice(&out), buf_slice(&other)));
    buf_fini(&out);
    buf_fini(&other);
    return 0;
}
