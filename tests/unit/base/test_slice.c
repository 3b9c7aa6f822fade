#include "unit.h"

#include "slice.h"

static void comparisons(void **state)
{
    (void)state;
    assert_true(slice_equal(SLICE("a"), SLICE("a")));
    assert_false(slice_equal(SLICE("a"), SLICE("A")));
    assert_true(slice_equal_nocase(SLICE("aB-1"), SLICE("Ab-1")));
    assert_false(slice_equal_nocase(SLICE("ab"), SLICE("abc")));
    assert_true(slice_equal(slice_of(NULL, 0), SLICE("")));
    assert_true(slice_compare(SLICE("a"), SLICE("ab")) < 0);
    assert_true(slice_compare(SLICE("b"), SLICE("ab")) > 0);
    assert_int_equal(slice_compare(SLICE("x"), SLICE("x")), 0);
    assert_true(slice_starts(SLICE("abc"), SLICE("ab")));
    assert_true(slice_ends_nocase(SLICE("a.EXAMPLE"), SLICE(".example")));
    assert_false(slice_ends_nocase(SLICE("e"), SLICE("example")));
}

static void cutting_ends_with_a_null_rest(void **state)
{
    struct slice rest = SLICE("a,,b");
    const char *wants[] = {"a", "", "b"};

    (void)state;
    for (size_t i = 0; i < COUNT(wants); i++) {
        assert_non_null(rest.ptr);
        assert_true(slice_equal(slice_cut(&rest, ','), slice_string(wants[i])));
    }
    assert_null(rest.ptr);
}

static void finding_trimming_skipping(void **state)
{
    (void)state;
    assert_int_equal(slice_find(SLICE("a@b@c"), '@'), 1);
    assert_int_equal(slice_find_last(SLICE("a@b@c"), '@'), 3);
    assert_int_equal(slice_find(SLICE("abc"), '@'), 3);
    assert_true(slice_equal(slice_trim(SLICE(" \t x y\r\n")), SLICE("x y")));
    assert_int_equal(slice_trim(SLICE(" \r\n")).len, 0);
    assert_int_equal(slice_skip(SLICE("abc"), 7).len, 0);
}

static void numbers_are_digits_within_a_limit(void **state)
{
    static const struct {
        const char *in;
        unsigned long long max;
        bool ok;
        unsigned long long want;
    } cases[] = {
        {"0", 10, true, 0},
        {"10", 10, true, 10},
        {"11", 10, false, 0},
        {"", 10, false, 0},
        {"+1", 10, false, 0},
        {"1 ", 10, false, 0},
        {"-1", 10, false, 0},
        {"18446744073709551615", ~0ULL, true, ~0ULL},
        {"18446744073709551616", ~0ULL, false, 0},
        {"007", 10, true, 7},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        unsigned long long value = 99;
        assert_int_equal(slice_number(slice_string(cases[i].in), cases[i].max, &value),
                         cases[i].ok);
        assert_int_equal(value, cases[i].ok ? cases[i].want : 99);
    }
}

static void words_are_cut_off_with_their_blanks(void **state)
{
    static const struct {
        const char *in, *word, *rest;
    } cases[] = {
        {"", "", ""},
        {" \t ", "", ""},
        {"one", "one", ""},
        {"  one\t two  three ", "one", "two  three"},
        {"one,two three", "one,two", "three"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct slice rest = slice_string(cases[i].in), word = slice_cut_word(&rest);

        assert_true(slice_equal(word, slice_string(cases[i].word)));
        assert_true(slice_equal(rest, slice_string(cases[i].rest)));
    }
}

UNIT_MAIN(cmocka_unit_test(comparisons), cmocka_unit_test(cutting_ends_with_a_null_rest),
          cmocka_unit_test(words_are_cut_off_with_their_blanks),
          cmocka_unit_test(finding_trimming_skipping),
          cmocka_unit_test(numbers_are_digits_within_a_limit))
