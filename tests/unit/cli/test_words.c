#include "unit.h"

#include "words.h"

static void intervals_have_their_two_largest_units(void **state)
{
    static const struct {
        double seconds;
        const char *want;
    } rows[] = {
        {0, "0s"},
        {0.9, "0s"},
        {-5, "0s"},
        {59, "59s"},
        {60, "1m"},
        {192, "3m 12s"},
        {3600, "1h"},
        {3659, "1h"},
        {3660, "1h 1m"},
        {86400, "1d"},
        {187200, "2d 4h"},
        {86400 * 400.0, "400d"},
        {1e300, "11574074d 1h"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_string_equal(words_interval(rows[i].seconds).text, rows[i].want);
    }
}

static void sizes_have_one_unit(void **state)
{
    static const struct {
        double bytes;
        const char *want;
    } rows[] = {
        {0, "0 bytes"},    {1023, "1023 bytes"},         {1024, "1.0 KiB"},
        {1536, "1.5 KiB"}, {5.0 * (1 << 20), "5.0 MiB"}, {1e18, "888.2 PiB"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_string_equal(words_size(rows[i].bytes).text, rows[i].want);
    }
}

static void times_are_absolute_and_relative(void **state)
{
    (void)state;
    assert_string_equal(words_when(1763643724, 1763643724 + 192).text,
                        "2025-11-20 13:02:04 (3m 12s ago)");
    assert_string_equal(words_when(1763643724, 1763643724 - 300).text,
                        "2025-11-20 13:02:04 (in 5m)");
    assert_string_equal(words_date(1763643724.9).text, "Thu Nov 20 13:02:04");
    assert_string_equal(words_time(1e300).text, "1970-01-01 00:00:00");
}

static void members_that_are_missing_are_empty(void **state)
{
    json_t *object = json_pack("{s:i, s:f, s:n}", "i", 3, "f", 2.5, "n");

    (void)state;
    assert_string_equal(member_text(object, "i"), "");
    assert_string_equal(member_text(NULL, "i"), "");
    assert_int_equal(member_integer(object, "i"), 3);
    assert_int_equal(member_integer(object, "missing"), 0);
    assert_true(member_number(object, "f") > 2.4);
    assert_true(member_number(object, "i") > 2.9);
    json_decref(object);
}

UNIT_MAIN(cmocka_unit_test(intervals_have_their_two_largest_units),
          cmocka_unit_test(sizes_have_one_unit), cmocka_unit_test(times_are_absolute_and_relative),
          cmocka_unit_test(members_that_are_missing_are_empty))
