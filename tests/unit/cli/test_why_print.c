#include "unit.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "why_print.h"

#define NOW 1763643724.0 /* 2025-11-20 13:02:04 UTC */

static json_t *gate(const char *name, bool closed, const char *text)
{
    return json_pack("{s:s, s:b, s:s}", "gate", name, "closed", (int)closed, "text", text);
}

/* A page of one group of `count` recipients whose addresses begin with `name`. */
static json_t *page(const char *dest, const char *name, int count, json_t *gates)
{
    json_t *rcpts = json_array();

    for (int i = 0; i < count; i++) {
        char address[40];

        (void)snprintf(address, sizeof address, "%s%d@x", name, i);
        json_array_append_new(rcpts, json_pack("{s:i, s:s, s:s, s:i}", "n", i + 1, "address",
                                               address, "state", "pending", "group", 0));
    }
    return json_pack("{s:s, s:s, s:i, s:o, s:[{s:s, s:s, s:s, s:i, s:s, s:s, s:o}]}", "queue_id",
                     "A", "queue_name", "active", "recipients_pending", count, "recipients", rcpts,
                     "groups", "transport", "smtp", "destination", dest, "nexthop", dest,
                     "recipients", count, "binds", "destination_dead", "advice",
                     "Nothing needs to be done.", "gates", gates);
}

static char *print(struct why_print *w)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    why_print_message(w, out, NOW);
    assert_int_equal(fclose(out), 0);
    why_print_fini(w);
    return text;
}

static void what_binds_comes_first_and_then_what_to_do(void **state)
{
    struct why_print w = {0};
    json_t *dead = gate("destination_dead", true, "x can't be reached: \033[31mrefused");
    json_t *limit = gate("transport_limit", false, "smtp has 3 of 100 deliveries in flight");
    json_t *one;
    char *text;

    (void)state;
    json_object_set_new(dead, "since", json_real(NOW - 60));
    json_object_set_new(dead, "until", json_real(NOW + 192));
    json_object_set_new(limit, "limit", json_integer(100));
    json_object_set_new(limit, "value", json_integer(3));
    one = page("x", "b", 1,
               json_pack("[o, o, o, o]", gate("transport_dead", false, "smtp is served"), limit,
                         dead, gate("behind", true, "7 deliveries come first")));
    json_object_set_new(json_array_get(json_object_get(one, "groups"), 0), "estimate",
                        json_pack("{s:f, s:s}", "at", NOW + 200, "assumption", "all is well"));
    why_print_add(&w, one);
    text = print(&w);
    assert_non_null(strstr(text, "\n"
                                 "  1 recipient by smtp/x: <b0@x>\n"
                                 "    waits for x can't be reached: ?[31mrefused\n"
                                 "              since 2025-11-20 13:01:04 (1m ago), until "
                                 "2025-11-20 13:05:16 (in 3m 12s)\n"
                                 "    then      7 deliveries come first\n"
                                 "    open      smtp has 3 of 100 deliveries in flight\n"
                                 "    expected  2025-11-20 13:05:24 (in 3m 20s), if all is well\n"
                                 "    to do     Nothing needs to be done.\n"));
    free(text);
}

static void groups_that_wait_for_the_same_are_one_over_all_pages(void **state)
{
    struct why_print w = {0};
    json_t *first = page("x", "b", 2, json_array());
    char *text;

    (void)state;
    json_object_set_new(first, "next_recipient", json_integer(2));
    why_print_add(&w, first);
    why_print_add(&w, page("y", "c", 1, json_array()));
    why_print_add(&w, page("x", "d", 5, json_array()));
    text = print(&w);
    assert_non_null(strstr(text, "  7 recipients by smtp/x: <b0@x>, <b1@x>, <d0@x> and 4 more\n"));
    assert_non_null(strstr(text, "  1 recipient by smtp/y: <c0@x>\n"));
    assert_null(strstr(text, "not looked at"));
    free(text);
}

static void many_groups_are_cut_and_say_so(void **state)
{
    struct why_print w = {0};
    char dest[20], *text;

    (void)state;
    for (int i = 0; i < WHY_GROUPS_SHOWN + 5; i++) {
        json_t *one;

        (void)snprintf(dest, sizeof dest, "d%d", i);
        one = page(dest, "b", i + 1, json_array());
        json_object_set_new(one, "next_recipient", json_integer(i));
        why_print_add(&w, one);
    }
    text = print(&w);
    assert_non_null(strstr(text, "  15 recipients by smtp/d14"));
    assert_null(strstr(text, "smtp/d4:"));
    assert_non_null(strstr(text, "... and 5 more groups"));
    assert_non_null(strstr(text, "recipients that were not looked at"));
    free(text);
}

static void agents_are_what_a_window_counts(void **state)
{
    json_t *site =
        json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i}", "transport", "smtp",
                  "nexthop", "x", "destination", "x", "state", "ready", "window", 2,
                  "window_initial", 1, "busy", 160, "agents", 2, "depth", 151, "waiting", 9);
    json_t *count = json_pack("{s:i}", "count", 500);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    why_print_site(out, site, count, NOW);
    assert_int_equal(fclose(out), 0);
    assert_non_null(strstr(text, "160 in flight, 2 agents of 2 allowed now (starts with 1), 9"));
    free(text);
    json_decref(site);
    json_decref(count);
}

static void a_destination_shows_its_window_history_and_replies(void **state)
{
    json_t *site = json_pack(
        "{s:s, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:i, s:f, s:f, s:{s:s}}",
        "transport", "smtp", "destination", "x", "nexthop", "X", "state", "ready", "window", 4,
        "window_max", 20, "window_initial", 5, "busy", 4, "waiting", 9, "messages", 12, "parked", 1,
        "share", 12, "mean_seconds", 2.0, "per_second", 2.5, "ceiling", "text", "more mail");
    json_t *count = json_pack("{s:i}", "count", 500);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    (void)state;
    json_object_set_new(site, "history",
                        json_pack("[{s:f, s:i, s:i, s:s}]", "at", NOW - 60, "before", 5, "after", 4,
                                  "why", "failure"));
    json_object_set_new(site, "replies",
                        json_pack("[{s:f, s:f, s:i, s:s, s:s, s:s}]", "first", NOW - 120, "last",
                                  NOW - 60, "count", 3, "status", "4.4.1", "host", "none", "text",
                                  "timed out"));
    json_object_set_new(site, "gates", json_array());
    why_print_site(out, site, count, NOW);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(
        text, "smtp/X: ready\n"
              "  messages    500 in the queue, 12 in memory, its share: the others "
              "wait on disk\n"
              "  window      4 in flight of 4 allowed now (starts with 5, at most 20), 9 waiting\n"
              "  failures    0 times as many in a row as the window is wide\n"
              "  pace        2.5 deliveries a second in the last minute or two, 2s each\n"
              "  for more    more mail\n"
              "\n"
              "  mail that comes now\n"
              "\n"
              "  the window lately\n"
              "    2025-11-20 13:01:04 (1m ago)    5 -> 4   failure\n"
              "\n"
              "  its last replies\n"
              "    2025-11-20 13:01:04 (1m ago), 3 times since 2025-11-20 13:00:04\n"
              "      4.4.1 timed out\n");
    free(text);
    json_decref(site);
    json_decref(count);
}

UNIT_MAIN(cmocka_unit_test(what_binds_comes_first_and_then_what_to_do),
          cmocka_unit_test(groups_that_wait_for_the_same_are_one_over_all_pages),
          cmocka_unit_test(many_groups_are_cut_and_say_so),
          cmocka_unit_test(agents_are_what_a_window_counts),
          cmocka_unit_test(a_destination_shows_its_window_history_and_replies))
