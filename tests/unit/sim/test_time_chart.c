#include "time_chart.h"

#include <string.h>

#include "times.h"
#include "unit.h"

#define HOUR_US (3600 * US_PER_S)

static void ticks_are_where_people_expect_them(void **state)
{
    static const struct {
        double max;
        double step, nice;
    } counts[] = {{0.3, 1, 1},
                  {1, 1, 1},
                  {5, 1, 5},
                  {6, 2, 6},
                  {7, 2, 8},
                  {20, 5, 20},
                  {26, 10, 30},
                  {745, 200, 800},
                  {1928, 500, 2000},
                  {60000, 20000, 60000},
                  {4294967295.0, 1e9, 5e9}};
    static const struct {
        int64_t until_us, step_us;
    } times[] = {
        {1, US_PER_S},
        {12 * US_PER_S, US_PER_S},
        {13 * US_PER_S, 2 * US_PER_S},
        {HOUR_US, 300 * US_PER_S},
        {10 * HOUR_US, HOUR_US},
        {24 * HOUR_US, 2 * HOUR_US},
        {7 * 24 * HOUR_US, 24 * HOUR_US},
        {INT64_C(365) * 24 * HOUR_US * 10, INT64_C(480) * 24 * HOUR_US},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(counts); i++) {
        assert_true(time_chart_nice_max(counts[i].max) == counts[i].nice);
        if (counts[i].max >= 1) {
            assert_true(time_chart_count_step(counts[i].max, 5) == counts[i].step);
        }
    }
    for (size_t i = 0; i < COUNT(times); i++) {
        assert_int_equal(time_chart_time_step(times[i].until_us, 12), times[i].step_us);
    }
}

static const struct time_chart chart = {
    .width = 100, .height = 10, .until_us = 10 * US_PER_S, .step_us = 2 * US_PER_S, .max = 10};

static void lines_are_steps_and_end_with_the_chart(void **state)
{
    static const double values[] = {0, 5, 5, 10, 20, 7, 7};
    struct buf out;

    (void)state;
    buf_init(&out, 10000);
    time_chart_line(&out, &chart, values, COUNT(values), "x");
    assert_string_equal(buf_cstr(&out),
                        "<path class=\"x\" d=\"M0.0 10.0H20.0V5.0H60.0V0.0H100.0\"/>\n");
    buf_fini(&out);
}

static void areas_lie_upon_each_other(void **state)
{
    static const double lower[] = {1, 2, 2, 2, 2}, upper[] = {5, 5, 5, 5, 6};
    struct buf out;

    (void)state;
    buf_init(&out, 10000);
    time_chart_area(&out, &chart, lower, upper, COUNT(lower), "x");
    assert_string_equal(buf_cstr(&out), "<path class=\"x\" d=\"M0.0 5.0H80.0V4.0H100.0"
                                        "V8.0H20.0V9.0H0.0Z\"/>\n");
    buf_clear(&out);
    time_chart_area(&out, &chart, NULL, upper, COUNT(upper), "x");
    assert_string_equal(buf_cstr(&out),
                        "<path class=\"x\" d=\"M0.0 5.0H80.0V4.0H100.0V10.0H0.0Z\"/>\n");
    buf_fini(&out);
}

static void periods_are_cut_to_the_chart(void **state)
{
    struct buf out;

    (void)state;
    buf_init(&out, 10000);
    time_chart_period(&out, &chart, 5 * US_PER_S, 500 * US_PER_S, "a < b");
    assert_string_equal(buf_cstr(&out), "<rect x=\"50.0\" y=\"0.0\" width=\"50.0\" height=\"10.0\" "
                                        "class=\"out\"><title>a &#60; b</title></rect>\n");
    buf_clear(&out);
    time_chart_period(&out, &chart, 10 * US_PER_S, 500 * US_PER_S, "later");
    assert_int_equal(buf_len(&out), 0);
    buf_fini(&out);
}

static void labels_have_no_part_that_is_nothing(void **state)
{
    struct time_chart c = chart;
    struct buf out;

    (void)state;
    buf_init(&out, 100000);
    c.until_us = 3 * HOUR_US;
    c.max = 20000;
    time_chart_open(&out, &c);
    assert_non_null(strstr(buf_cstr(&out), ">1h<"));
    assert_non_null(strstr(buf_cstr(&out), ">1h15m<"));
    assert_non_null(strstr(buf_cstr(&out), ">45m<"));
    assert_non_null(strstr(buf_cstr(&out), ">5000<"));
    assert_non_null(strstr(buf_cstr(&out), ">20k<"));
    buf_fini(&out);
}

UNIT_MAIN(cmocka_unit_test(ticks_are_where_people_expect_them),
          cmocka_unit_test(lines_are_steps_and_end_with_the_chart),
          cmocka_unit_test(areas_lie_upon_each_other),
          cmocka_unit_test(periods_are_cut_to_the_chart),
          cmocka_unit_test(labels_have_no_part_that_is_nothing))
