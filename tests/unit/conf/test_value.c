#include "unit.h"

#include "times.h"
#include "value.h"

static void intervals_are_sums_of_numbers_with_units(void **state)
{
    static const struct {
        const char *text;
        int64_t default_unit_us, want_us; /* -1: refused */
    } cases[] = {
        {"300s", US_PER_S, 300 * US_PER_S},
        {"300", US_PER_S, 300 * US_PER_S},
        {"5", US_PER_DAY, 5 * US_PER_DAY},
        {"0h", US_PER_HOUR, 0},
        {"1h5m20s", US_PER_S, 3920 * US_PER_S},
        {"1h5", US_PER_S, 3605 * US_PER_S},
        {"2W1D", US_PER_S, 15 * US_PER_DAY},
        {"0.5s", US_PER_S, US_PER_S / 2},
        {".5s", US_PER_S, US_PER_S / 2},
        {"1.5h", US_PER_S, 5400 * US_PER_S},
        {"100ms", US_PER_S, 100 * US_PER_MS},
        {"7us", US_PER_S, 7},
        {"0.0000001s", US_PER_S, 0}, /* below a microsecond */
        {"", US_PER_S, -1},
        {"s", US_PER_S, -1},
        {".", US_PER_S, -1},
        {"-1", US_PER_S, -1},
        {"5y", US_PER_S, -1},
        {"5 m", US_PER_S, -1},
        {"1.2.3s", US_PER_S, -1},
        {"0.0000000001s", US_PER_S, -1}, /* more digits than anybody means */
        {"99999999999999999999", US_PER_S, -1},
        {"9223372036854775807w", US_PER_S, -1},
        {"9223372036854775807us1us", US_PER_S, -1},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        int64_t us = -1;

        assert_int_equal(interval_parse(slice_string(cases[i].text), cases[i].default_unit_us, &us),
                         cases[i].want_us >= 0);
        assert_int_equal(us, cases[i].want_us);
    }
}

static void what_is_printed_reads_back(void **state)
{
    static const int64_t values[] = {
        0, 1, 999, 1000, 1000000, 3920 * US_PER_S, 4000 * US_PER_S, 432000 * US_PER_S, INT64_MAX};
    struct buf out;
    int64_t back;

    (void)state;
    buf_init(&out, 200);
    for (size_t i = 0; i < COUNT(values); i++) {
        buf_clear(&out);
        interval_print(&out, values[i]);
        assert_true(interval_parse(buf_slice(&out), 1, &back));
        assert_int_equal(back, values[i]);
        buf_clear(&out);
        size_print(&out, values[i]);
        assert_true(size_parse(buf_slice(&out), &back));
        assert_int_equal(back, values[i]);
    }
    buf_clear(&out);
    interval_print(&out, 3920 * US_PER_S);
    assert_string_equal(buf_cstr(&out), "1h5m20s");
    buf_fini(&out);
}

static void sizes_take_k_m_and_g(void **state)
{
    static const struct {
        const char *text;
        int64_t want; /* -1: refused */
    } cases[] = {
        {"0", 0},  {"128k", 131072}, {"10M", 10 << 20}, {"1g", 1 << 30}, {"", -1},
        {"k", -1}, {"1kk", -1},      {"-1", -1},        {"1.5k", -1},    {"99999999999G", -1},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        int64_t bytes = -1;

        assert_int_equal(size_parse(slice_string(cases[i].text), &bytes), cases[i].want >= 0);
        assert_int_equal(bytes, cases[i].want);
    }
}

static void feedback_is_accepted_as_by_postfix(void **state)
{
    static const struct {
        const char *text;
        int want_form; /* -1: refused */
        double want_base;
        const char *want_text;
    } cases[] = {
        {"0.5", CONF_FEEDBACK_CONSTANT, 0.5, "0.5"},
        {"1/8", CONF_FEEDBACK_CONSTANT, 0.125, "0.125"},
        {"5/10", CONF_FEEDBACK_CONSTANT, 0.5, "0.5"},
        {"1e-1", CONF_FEEDBACK_CONSTANT, 0.1, "0.1"},
        {"1/3", CONF_FEEDBACK_CONSTANT, 1.0 / 3, "0.3333333333333333"},
        {"0", CONF_FEEDBACK_CONSTANT, 0, "0"},
        {"1 / concurrency", CONF_FEEDBACK_PER_WINDOW, 1, "1/concurrency"},
        {"1/CONCURRENCY", CONF_FEEDBACK_PER_WINDOW, 1, "1/concurrency"},
        {"0/concurrency", CONF_FEEDBACK_PER_WINDOW, 0, "0/concurrency"},
        {"1/sqrt_concurrency", CONF_FEEDBACK_PER_SQRT_WINDOW, 1, "1/sqrt_concurrency"},
        {"0.5x", CONF_FEEDBACK_CONSTANT, 0.5, "0.5"},
        {"2", -1, 0, ""},
        {"-1", -1, 0, ""},
        {"2/concurrency", -1, 0, ""},
        {"1/0", -1, 0, ""},
        {"1/0.5", -1, 0, ""},
        {"1/", -1, 0, ""},
        {"1/8x", -1, 0, ""},
        {"1/8 x", -1, 0, ""},
        {"abc", -1, 0, ""},
        {"nan", -1, 0, ""},
        {"inf", -1, 0, ""},
        {"", -1, 0, ""},
    };
    struct buf out;

    (void)state;
    buf_init(&out, 200);
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct conf_feedback f = {CONF_FEEDBACK_CONSTANT, 0}, back;
        bool ok = feedback_parse(slice_string(cases[i].text), &f);

        assert_int_equal(ok, cases[i].want_form >= 0);
        if (ok) {
            assert_int_equal(f.form, cases[i].want_form);
            assert_true(f.base == cases[i].want_base);
            buf_clear(&out);
            feedback_print(&out, &f);
            assert_string_equal(buf_cstr(&out), cases[i].want_text);
            assert_true(feedback_parse(buf_slice(&out), &back));
            assert_true(back.base == f.base && back.form == f.form);
        }
    }
    buf_fini(&out);
}

UNIT_MAIN(cmocka_unit_test(intervals_are_sums_of_numbers_with_units),
          cmocka_unit_test(what_is_printed_reads_back), cmocka_unit_test(sizes_take_k_m_and_g),
          cmocka_unit_test(feedback_is_accepted_as_by_postfix))
