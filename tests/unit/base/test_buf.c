#include "unit.h"

#include <string.h>

#include "buf.h"
#include "mem.h"
#include "rng.h"
#include "sanitized.h"

#if SANITIZED
#include <sanitizer/asan_interface.h>
#endif

static void what_is_appended_is_what_is_read(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 100);
    assert_true(buf_add(&b, SLICE("one ")));
    assert_true(buf_add_string(&b, "two "));
    assert_true(buf_add_byte(&b, '3'));
    assert_true(buf_addf(&b, " %s %d", "four", 5));
    assert_string_equal(buf_cstr(&b), "one two 3 four 5");
    buf_consume(&b, 4);
    assert_string_equal(buf_cstr(&b), "two 3 four 5");
    buf_truncate(&b, 5);
    assert_true(slice_equal(buf_slice(&b), SLICE("two 3")));
    buf_fini(&b);
}

static void passing_the_limit_fails_for_good_and_changes_nothing(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 10);
    assert_true(buf_add(&b, SLICE("12345678")));
    assert_false(buf_add(&b, SLICE("abc")));
    assert_true(b.failed);
    assert_false(buf_add_byte(&b, 'x')); /* although it would fit: the error is sticky */
    assert_int_equal(buf_len(&b), 8);
    buf_clear(&b);
    assert_false(b.failed);
    assert_false(buf_addf(&b, "%s", "longer than ten"));
    buf_clear(&b);
    assert_true(buf_addf(&b, "%s", "exactly10!"));
    assert_string_equal(buf_cstr(&b), "exactly10!");
    buf_fini(&b);
}

static void taking_the_bytes_leaves_an_empty_buffer(void **state)
{
    struct buf b;
    char *bytes;

    (void)state;
    buf_init(&b, 100);
    (void)buf_add(&b, SLICE("drop keep"));
    buf_consume(&b, 5);
    bytes = buf_take(&b);
    assert_string_equal(bytes, "keep");
    assert_int_equal(buf_len(&b), 0);
    assert_true(buf_add(&b, SLICE("again")));
    mem_free(bytes);
    buf_fini(&b);
}

/* As a queue of bytes between a socket and an engine: any mixture of appends and consumption gives
 * the bytes back in order, and the memory stays near what is held. */
static void a_queue_of_bytes_keeps_their_order(void **state)
{
    struct buf b;
    struct rng rng;
    unsigned char in = 0, out = 0;

    (void)state;
    rng_init(&rng, 1);
    buf_init(&b, 5000);
    for (int i = 0; i < 20000; i++) {
        size_t n = (size_t)rng_below(&rng, 300);
        if (rng_below(&rng, 2) == 0 && buf_len(&b) + n <= 5000) {
            char *room = buf_room(&b, n);
            assert_non_null(room);
            for (size_t j = 0; j < n; j++) {
                room[j] = (char)in++;
            }
            buf_grew(&b, n);
        } else {
            n = n < buf_len(&b) ? n : buf_len(&b);
            struct slice s = buf_slice(&b);
            for (size_t j = 0; j < n; j++) {
                assert_int_equal((unsigned char)s.ptr[j], out++);
            }
            buf_consume(&b, n);
        }
    }
    assert_true(b.size <= 16384);
    buf_fini(&b);
}

/* Whatever is done with it: of what it has given up nothing is in its memory. */
static void a_secret_leaves_nothing_behind(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b, 100000);
    buf_keep_secret(&b);
    for (int i = 0; i < 200; i++) {
        assert_true(buf_add(&b, SLICE("secret")));
        buf_consume(&b, 3);
        assert_true(buf_add(&b, SLICE("filler")));
        buf_truncate(&b, buf_len(&b) - 4);
        buf_consume(&b, i % 5 == 0 ? buf_len(&b) : 5);
        for (size_t k = 0; k < b.size; k++) {
            assert_true((k >= b.start && k < b.end) || b.ptr[k] == '\0');
        }
    }
    assert_true(buf_add(&b, SLICE("secret")));
    buf_clear(&b);
    for (size_t k = 0; k < b.size; k++) {
        assert_int_equal(b.ptr[k], 0);
    }
    buf_fini(&b);
    assert_true(b.secret);
}

static void a_slice_that_is_kept_across_a_change_is_reported(void **state)
{
#if SANITIZED
    struct buf b;
    struct slice kept;

    (void)state;
    buf_init(&b, 100);
    assert_true(buf_addf(&b, "%s", "one"));
    kept = buf_slice(&b);
    assert_true(buf_addf(&b, "%s", "two"));
    assert_true(__asan_address_is_poisoned(kept.ptr));
    kept = buf_slice(&b);
    assert_true(buf_add(&b, SLICE("three")));
    assert_true(__asan_address_is_poisoned(kept.ptr));
    kept = buf_slice(&b);
    buf_clear(&b);
    assert_true(__asan_address_is_poisoned(kept.ptr));
    buf_fini(&b);
#else
    (void)state;
    skip();
#endif
}

UNIT_MAIN(cmocka_unit_test(a_secret_leaves_nothing_behind),
          cmocka_unit_test(what_is_appended_is_what_is_read),
          cmocka_unit_test(passing_the_limit_fails_for_good_and_changes_nothing),
          cmocka_unit_test(taking_the_bytes_leaves_an_empty_buffer),
          cmocka_unit_test(a_slice_that_is_kept_across_a_change_is_reported),
          cmocka_unit_test(a_queue_of_bytes_keeps_their_order))
