#include "unit.h"

#include <string.h>

#include "frame.h"

static void put_one_of_each(struct buf *b)
{
    frame_put_u8(b, 0xfe);
    frame_put_u32(b, 0x12345678);
    frame_put_u64(b, UINT64_MAX - 1);
    frame_put_i64(b, INT64_MIN);
    frame_put_bool(b, true);
    frame_put_bool(b, false);
    frame_put_bytes(b, slice_of("a\0b", 3));
    frame_put_bytes(b, slice_of("", 0));
}

/* Read them back, failed or not; true when everything is there and right. */
static bool get_one_of_each(struct slice body)
{
    struct frame_reader r;
    bool right;

    frame_reader_init(&r, body);
    right = frame_get_u8(&r) == 0xfe;
    right = frame_get_u32(&r) == 0x12345678 && right;
    right = frame_get_u64(&r) == UINT64_MAX - 1 && right;
    right = frame_get_i64(&r) == INT64_MIN && right;
    right = frame_get_bool(&r) && right;
    right = !frame_get_bool(&r) && right;
    right = slice_equal(frame_get_bytes(&r, 3), slice_of("a\0b", 3)) && right;
    right = frame_get_bytes(&r, 0).len == 0 && right;
    return frame_reader_end(&r) && right;
}

static void what_is_put_is_got(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 1000);
    put_one_of_each(&b);
    assert_true(get_one_of_each(buf_slice(&b)));
    buf_fini(&b);
}

static void numbers_are_little_endian(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 1000);
    frame_put_u32(&b, 1);
    frame_put_bytes(&b, SLICE("x"));
    assert_true(slice_equal(buf_slice(&b), slice_of("\1\0\0\0\1\0\0\0x", 9)));
    buf_fini(&b);
}

static void a_body_cut_anywhere_fails(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 1000);
    put_one_of_each(&b);
    for (size_t len = 0; len < buf_len(&b); len++) {
        /* A copy of exactly this length, so that reading past it is seen. */
        char *copy = test_malloc(len + 1);
        memcpy(copy, buf_slice(&b).ptr, len);
        copy = test_realloc(copy, len == 0 ? 1 : len);
        assert_false(get_one_of_each(slice_of(copy, len)));
        test_free(copy);
    }
    (void)buf_add_byte(&b, 'x');
    assert_false(get_one_of_each(buf_slice(&b))); /* nor may anything be left over */
    buf_fini(&b);
}

static void a_boolean_is_0_or_1(void **state)
{
    struct frame_reader r;

    (void)state;
    frame_reader_init(&r, SLICE("\2"));
    assert_false(frame_get_bool(&r));
    assert_false(frame_reader_end(&r));
}

static void lengths_that_lie_are_refused(void **state)
{
    static const struct {
        struct slice body;
        size_t max;
        bool want;
    } cases[] = {
        {{"\1\0\0\0x", 5}, 1, true},
        {{"\1\0\0\0x", 5}, 0, false},  /* above what the caller takes */
        {{"\2\0\0\0x", 5}, 10, false}, /* more than there is */
        {{"\377\377\377\377x", 5}, SIZE_MAX, false},
        {{"\0\0\0", 3}, 10, false}, /* no whole length */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct frame_reader r;

        frame_reader_init(&r, cases[i].body);
        assert_int_equal(frame_get_bytes(&r, cases[i].max).len, cases[i].want ? 1 : 0);
        assert_int_equal(frame_reader_end(&r), cases[i].want);
    }
}

static void counts_must_fit_in_the_body(void **state)
{
    static const struct {
        uint32_t count, max;
        size_t element_min, follow;
        uint32_t want;
        bool want_ok;
    } cases[] = {
        {3, 3, 4, 12, 3, true},
        {3, 2, 4, 12, 0, false},
        {3, 3, 4, 11, 0, false},
        {UINT32_MAX, UINT32_MAX, 1, 100, 0, false},
        {UINT32_MAX, UINT32_MAX, 8, 100, 0, false},
        {0, 0, 8, 0, 0, true},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct frame_reader r;
        struct buf b;

        buf_init(&b, 1000);
        frame_put_u32(&b, cases[i].count);
        for (size_t k = 0; k < cases[i].follow; k++) {
            frame_put_u8(&b, 0);
        }
        frame_reader_init(&r, buf_slice(&b));
        assert_int_equal(frame_get_count(&r, cases[i].element_min, cases[i].max), cases[i].want);
        assert_int_equal(!r.failed, cases[i].want_ok);
        buf_fini(&b);
    }
}

static void after_a_failure_everything_is_nothing(void **state)
{
    struct frame_reader r;

    (void)state;
    frame_reader_init(&r, SLICE("\1\1\1"));
    (void)frame_get_u32(&r);
    assert_int_equal(frame_get_u8(&r), 0);
    assert_int_equal(frame_get_u64(&r), 0);
    assert_int_equal(frame_get_bytes(&r, 100).len, 0);
    assert_int_equal(frame_get_count(&r, 1, 100), 0);
    assert_false(frame_get_bool(&r));
    assert_false(frame_reader_end(&r));
}

static void a_full_buffer_tells(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 10);
    frame_put_u64(&b, 1);
    frame_put_u32(&b, 1);
    assert_true(b.failed);
    buf_fini(&b);
}

UNIT_MAIN(cmocka_unit_test(what_is_put_is_got), cmocka_unit_test(numbers_are_little_endian),
          cmocka_unit_test(a_body_cut_anywhere_fails), cmocka_unit_test(a_boolean_is_0_or_1),
          cmocka_unit_test(lengths_that_lie_are_refused),
          cmocka_unit_test(counts_must_fit_in_the_body),
          cmocka_unit_test(after_a_failure_everything_is_nothing),
          cmocka_unit_test(a_full_buffer_tells))
