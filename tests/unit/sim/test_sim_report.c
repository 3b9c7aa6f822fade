/*
 * Reports: intervals as people read them, and rows that sum up.
 */
#include "sim_report.h"

#include <string.h>

#include "unit.h"
#include "world.h"

static void intervals_are_short(void **unused)
{
    static const struct {
        int64_t us;
        const char *want;
    } cases[] = {
        {-1, "-"},
        {0, "0s"},
        {17, "17us"},
        {999, "999us"},
        {1234, "1.2ms"},
        {99999, "99.9ms"},
        {340000, "340ms"},
        {12500000, "12.5s"},
        {59999999, "59.9s"},
        {247000000, "4m07s"},
        {3 * INT64_C(3600000000) + 5 * INT64_C(60000000), "3h05m"},
        {52 * INT64_C(3600000000), "2d04h"},
        {INT64_MAX, "106751991d04h"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_string_equal(sim_interval_text(cases[i].us).text, cases[i].want);
    }
}

static const char workload[] = "site a.example fail=100%\nsite b.example latency=3s\n"
                               "arrivals x at=0s count=4 to=a.example\n"
                               "arrivals y at=0s count=3 to=b.example\n"
                               "arrivals z at=0s count=2 to=c.example\n"
                               "arrivals w at=0s count=2 class=z to=d.example\n";

static void what_has_no_row_of_its_own_is_summed(void **unused)
{
    struct sim_tally rest;
    struct test_world t;

    (void)unused;
    test_world(&t, "", workload, 1);
    assert_int_equal(t.result->dest_count, 4);
    assert_string_equal(t.result->dests[0]->name, "smtp/a.example");
    assert_string_equal(t.result->dests[2]->name, "smtp/c.example"); /* equal mail: by name */
    sim_report_sum_rest(t.result, 1, &rest);
    assert_int_equal(rest.recipients, 7);
    assert_int_equal(rest.sent, 7);
    assert_int_equal(rest.delay.max, 3000000);
    assert_int_equal(rest.busy_peak, 3);
    sim_tally_fini(&rest);
    sim_report_sum_rest(t.result, 4, &rest);
    assert_int_equal(rest.recipients, 0);
    sim_tally_fini(&rest);
    test_world_close(&t);
}

static char *printed(const struct test_world *t, const struct test_world *other, size_t rows)
{
    struct sim_report_options options = {.seed = 5, .rows = rows};
    struct buf text;

    buf_init(&text, 65536);
    if (other != NULL) {
        sim_report_print_diff(&text, t->result, other->result, &options);
    } else {
        sim_report_print(&text, t->result, &options);
    }
    return buf_take(&text);
}

static void the_table_has_a_line_for_each(void **unused)
{
    struct test_world t;
    char *text;

    (void)unused;
    test_world(&t, "", workload, 1);
    text = printed(&t, NULL, 2);
    assert_non_null(strstr(text, "seed 5: 11 messages, 11 recipients.\n"));
    assert_non_null(strstr(text, "\nz "));
    assert_non_null(strstr(text, "\nall "));
    assert_non_null(strstr(text, "\nsmtp/b.example "));
    assert_null(strstr(text, "smtp/c.example"));
    assert_non_null(strstr(text, "\n2 more "));
    assert_null(strstr(text, "Attempts that reached no host"));
    free(text);
    test_world_close(&t);
}

static void a_difference_shows_what_changed(void **unused)
{
    struct test_world a, b;
    char *text;

    (void)unused;
    test_world(&a, "", workload, 1);
    test_world(&b, "transport_maps =\nsmtp/b.example\n    destination_concurrency_limit=1\n",
               workload, 1);
    text = printed(&a, &b, 4);
    assert_non_null(strstr(text, "\nsmtp/a.example: no difference\n"));
    assert_non_null(strstr(text, "\nclass x: no difference\n"));
    assert_non_null(strstr(text, "\nsmtp/b.example "));
    assert_non_null(strstr(text, "delay max                        3.0s       9.0s       x3.0\n"));
    assert_non_null(strstr(text, "busy peak                           3          1     -66.7%\n"));
    free(text);
    test_world_close(&b);
    test_world(&b, "relayhost = a.example\n", workload, 1);
    text = printed(&a, &b, 4);
    assert_non_null(
        strstr(text, "\nsmtp/d.example: not a destination of the second configuration\n"));
    free(text);
    test_world_close(&b);
    test_world_close(&a);
}

UNIT_MAIN(cmocka_unit_test(intervals_are_short),
          cmocka_unit_test(what_has_no_row_of_its_own_is_summed),
          cmocka_unit_test(the_table_has_a_line_for_each),
          cmocka_unit_test(a_difference_shows_what_changed))
