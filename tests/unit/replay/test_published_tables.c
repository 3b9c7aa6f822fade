/* The published measurements come out of the simulated server. */
#include "published_tables.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

#define SEEDS 4 /* of each row, with 20 the figures are those of docs/replays.md */

static struct published_tables *load(const char *path)
{
    FILE *in = fopen(path, "re");
    struct published_tables *t;
    struct buf text, error;
    size_t got;

    assert_non_null(in);
    buf_init(&text, 1 << 20);
    buf_init(&error, 1 << 16);
    do {
        char *room = buf_room(&text, 4096);

        assert_non_null(room);
        got = fread(room, 1, 4096, in);
        buf_grew(&text, got);
    } while (got > 0);
    assert_int_equal(fclose(in), 0);
    t = published_tables_new(buf_slice(&text), path, &error);
    assert_non_null(t);
    buf_fini(&error);
    buf_fini(&text);
    return t;
}

static double number(const json_t *object, const char *member)
{
    const json_t *value = json_object_get(object, member);

    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* docs/replays.md explains the row that stays 0.16 above what was published. */
static bool is_explained(const json_t *table, const json_t *row)
{
    return strcmp(json_string_value(json_object_get(table, "name")), "connect-timeout") == 0 &&
           strcmp(json_string_value(json_object_get(row, "feedback")), "1") == 0 &&
           json_is_true(json_object_get(row, "cached"));
}

static void check_row(const json_t *table, const json_t *row)
{
    bool explained = is_explained(table, row);
    double allowed = number(table, "concurrency_tolerance") + (explained ? 0.05 : 0);

    if (fabs(number(row, "deferred_deviation")) > number(table, "deferred_tolerance") ||
        fabs(number(row, "concurrency_deviation")) > allowed) {
        fail_msg("%s", json_dumps(row, JSON_COMPACT));
    }
}

static void published_tables_come_out(void **state)
{
    struct published_tables *t = load(PUBLISHED_TABLES);
    const json_t *table, *row;
    json_t *result;
    size_t i, k, rows = 0;

    (void)state;
    (void)published_tables_simulate(t, SEEDS); /* check_row looks closer */
    result = published_tables_json(t);
    json_array_foreach(json_object_get(result, "tables"), i, table)
    {
        json_array_foreach(json_object_get(table, "rows"), k, row)
        {
            check_row(table, row);
            rows++;
        }
    }
    assert_int_equal(rows, 18);
    json_decref(result);
    published_tables_free(t);
}

static const char small[] =
    "{\"common\": {\"recipients_per_delivery\": 2, \"server_latency_s_per_recipient\": 1,"
    " \"client_concurrency_limit\": 20, \"server_concurrency_limit\": 5}, \"tables\": [{\"name\":"
    " \"t\", \"what\": \"w\", \"recipients\": 2000, \"initial_concurrency\": 5,"
    " \"server_process_limit\": 10, \"rows\": [{\"feedback\": \"%s\", \"cached\": false,"
    " \"deferred_percent\": %s, \"concurrency_average\": 5.17}]}]}";

static struct published_tables *make(const char *feedback, const char *deferred, struct buf *error)
{
    char text[1024];

    (void)snprintf(text, sizeof text, small, feedback, deferred);
    return published_tables_new(slice_string(text), "FILE", error);
}

static void a_row_that_does_not_come_out_is_told(void **state)
{
    static const struct {
        const char *deferred;
        bool ok;
    } cases[] = {{"16.5", true}, {"20", false}};

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct published_tables *t;
        struct buf text;

        buf_init(&text, 1 << 16);
        t = make("1/N", cases[i].deferred, &text);
        assert_non_null(t);
        assert_int_equal(published_tables_simulate(t, 1), cases[i].ok);
        published_tables_print(t, &text);
        assert_int_equal(strstr(buf_cstr(&text), "OFF") == NULL, cases[i].ok);
        published_tables_free(t);
        buf_fini(&text);
    }
}

static void the_same_seeds_give_the_same_figures(void **state)
{
    json_t *results[2];
    struct buf error;

    (void)state;
    buf_init(&error, 1 << 16);
    for (size_t i = 0; i < COUNT(results); i++) {
        struct published_tables *t = make("1", "16.5", &error);

        assert_non_null(t);
        (void)published_tables_simulate(t, 2);
        results[i] = published_tables_json(t);
        published_tables_free(t);
    }
    assert_true(json_equal(results[0], results[1]));
    json_decref(results[0]);
    json_decref(results[1]);
    buf_fini(&error);
}

static void what_makes_no_sense_is_placed(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"{", "FILE:1:1: "},
        {"{}", "FILE: table common: recipients_per_delivery: a whole number is expected"},
        {"{\"common\": {\"recipients_per_delivery\": 0}}",
         "FILE: table common: recipients_per_delivery: a whole number from 1 to 1000 is expected"},
        {"{\"common\": {\"recipients_per_delivery\": 2, \"server_latency_s_per_recipient\": 1,"
         " \"client_concurrency_limit\": 20, \"server_concurrency_limit\": 5}, \"tables\": 1}",
         "FILE: tables: an array of 1 to 100 tables is expected"},
    };
    struct buf error;

    (void)state;
    buf_init(&error, 1 << 16);
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_null(published_tables_new(slice_string(cases[i].text), "FILE", &error));
        assert_int_equal(strncmp(buf_cstr(&error), cases[i].want, strlen(cases[i].want)), 0);
        buf_clear(&error);
    }
    assert_null(make("1/M", "16.5", &error));
    assert_non_null(strstr(buf_cstr(&error), "FILE: params: destination_concurrency_"));
    buf_clear(&error);
    assert_null(make("1/N", "\"x\"", &error));
    assert_string_equal(buf_cstr(&error),
                        "FILE: table t: row 1: deferred_percent: a number is expected");
    buf_fini(&error);
}

UNIT_MAIN(cmocka_unit_test(published_tables_come_out),
          cmocka_unit_test(a_row_that_does_not_come_out_is_told),
          cmocka_unit_test(the_same_seeds_give_the_same_figures),
          cmocka_unit_test(what_makes_no_sense_is_placed))
