#include "unit.h"

#include <string.h>

#include "json.h"
#include "measures.h"
#include "metrics.h"

static void a_value_counts_in_the_first_bound_that_holds_it(void **unused)
{
    static const struct {
        int64_t value;
        size_t at;
    } cases[] = {{-5, 0}, {0, 0}, {1, 0}, {2, 1}, {3, 2}, {2048, 11}, {2049, 12}, {INT64_MAX, 12}};

    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct measure m = {.count = 0};

        measure_add(&m, &measure_sizes, cases[i].value);
        assert_int_equal(m.counts[cases[i].at], 1);
        assert_int_equal(m.count, 1);
        assert_int_equal(m.sum, cases[i].value < 0 ? 0 : cases[i].value);
    }
}

static void bounds_grow(void **unused)
{
    const struct measure_scale *const scales[] = {&measure_delays, &measure_commits,
                                                  &measure_sizes};

    (void)unused;
    for (size_t i = 0; i < 3; i++) {
        for (size_t j = 1; j < MEASURE_BOUNDS; j++) {
            assert_true(scales[i]->bounds[j - 1] < scales[i]->bounds[j]);
        }
    }
}

static void a_status_has_the_category_of_its_second_number(void **unused)
{
    static const struct {
        const char *status, *want;
    } cases[] = {{"4.7.1", "policy"},  {"5.1.1", "address"}, {"2.0.0", "other"},
                 {"5.2.2", "mailbox"}, {"4.4.1", "network"}, {"4.9.1", "other"},
                 {"5.12.1", "other"},  {"", "none"},         {"550", "none"},
                 {"5.1", "none"}};

    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(measure_category_name(measure_category(slice_string(cases[i].status))),
                            cases[i].want);
    }
}

/* Names come from strangers' mail: none of them may begin a line, or end a label. */
static void a_name_stays_within_its_label(void **unused)
{
    json_t *answer =
        json_pack("{s:s, s:[{s:s, s:i}], s:[{s:s, s:s, s:s, s:i}]}", "version", "1", "classes",
                  "class", "a\"b\\c\nd", "submitted", 3, "busiest", "transport", "smtp",
                  "destination", "x\"} 1\nevil 2", "state", "dead", "window", 5);
    json_t *own = json_object();
    struct buf text;

    (void)unused;
    assert_non_null(answer);
    buf_init(&text, METRICS_MAX);
    metrics_print(&text, answer, own, SLICE("queue 0 12 3 1500000 4096\ndeliver 1 0 9 0 0\n"),
                  (struct wall){US_PER_S});
    assert_non_null(
        strstr(buf_cstr(&text), "sluice_class_submitted_total{class=\"a\\\"b\\\\c d\"} 3\n"));
    assert_non_null(strstr(buf_cstr(&text),
                           "sluice_destination_dead{destination=\"smtp/x\\\"} 1 evil 2\"} 1\n"));
    assert_non_null(strstr(buf_cstr(&text),
                           "sluice_process_cpu_seconds_total{role=\"queue\",index=\"0\"} 1.5\n"));
    assert_non_null(strstr(buf_cstr(&text), "sluice_process_up{role=\"deliver\",index=\"1\"} 0\n"));
    assert_null(strstr(buf_cstr(&text), "\nevil"));
    buf_fini(&text);
    json_decref(own);
    json_decref(answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_counts_in_the_first_bound_that_holds_it),
        cmocka_unit_test(bounds_grow),
        cmocka_unit_test(a_status_has_the_category_of_its_second_number),
        cmocka_unit_test(a_name_stays_within_its_label),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
