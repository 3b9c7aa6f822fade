#include "unit.h"

#include <string.h>

#include "base64.h"

/* The vectors of RFC 4648, section 10. */
static const struct {
    const char *bytes, *text;
} vectors[] = {
    {"", ""},
    {"f", "Zg=="},
    {"fo", "Zm8="},
    {"foo", "Zm9v"},
    {"foob", "Zm9vYg=="},
    {"fooba", "Zm9vYmE="},
    {"foobar", "Zm9vYmFy"},
};

static void it_goes_both_ways(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < COUNT(vectors); i++) {
        struct buf out;

        buf_init(&out, 100);
        base64_put(&out, slice_string(vectors[i].bytes));
        assert_string_equal(buf_cstr(&out), vectors[i].text);
        buf_clear(&out);
        assert_true(base64_get(slice_string(vectors[i].text), &out));
        assert_string_equal(buf_cstr(&out), vectors[i].bytes);
        buf_fini(&out);
    }
}

/* Every length around the size of a piece that is coded at once. */
static void length_does_not_matter(void **unused)
{
    char bytes[3000];

    (void)unused;
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (char)(i * 7 + i / 256);
    }
    for (size_t len = 0; len<sizeof bytes; len += len> 700 && len < 800 ? 1 : 13) {
        struct buf text, back;

        buf_init(&text, 5000);
        buf_init(&back, len);
        base64_put(&text, slice_of(bytes, len));
        assert_int_equal(buf_len(&text), (len + 2) / 3 * 4);
        assert_true(base64_get(buf_slice(&text), &back));
        assert_int_equal(buf_len(&back), len);
        assert_memory_equal(buf_slice(&back).ptr, bytes, len);
        buf_fini(&text);
        buf_fini(&back);
    }
}

static void what_is_none_is_refused(void **unused)
{
    static const char *const texts[] = {"Z",     "Zg",   "Zg=",      "Zg===", "=Zg=",
                                        "Z===",  "====", "Zg= =",    "Zm9v ", " Zm9v",
                                        "Zm9\n", "Zm9-", "Zg==Zm9v", "Zm=v"};

    (void)unused;
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct buf out;

        buf_init(&out, 100);
        if (base64_get(slice_string(texts[i]), &out)) {
            fail_msg("taken: %s", texts[i]);
        }
        buf_fini(&out);
    }
}

static void a_buffer_limits_it(void **unused)
{
    struct buf small;

    (void)unused;
    buf_init(&small, 5);
    assert_false(base64_get(SLICE("Zm9vYmFy"), &small));
    buf_fini(&small);
    buf_init(&small, 7);
    base64_put(&small, SLICE("foobar"));
    assert_true(small.failed);
    buf_fini(&small);
}

UNIT_MAIN(cmocka_unit_test(it_goes_both_ways), cmocka_unit_test(length_does_not_matter),
          cmocka_unit_test(what_is_none_is_refused), cmocka_unit_test(a_buffer_limits_it))
