/*
 * The copy of what all nodes have in common, over a real database whose rows may say anything.
 */
#include "unit.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "postgres_server.h"
#include "schema.h"
#include "shared_texts.h"

#define NODE        3
#define INCARNATION 7
#define TOKEN(n)    "30064771072 + " #n /* 7 << 32 */

static struct postgres_server server;
static int epoll_fd;
static struct shared_texts *texts;
static int64_t now; /* us; it stands still unless a test moves it */

static int start_server(void **state)
{
    (void)state;
    postgres_server_init(&server);
    return 0;
}

static int stop_server(void **state)
{
    (void)state;
    postgres_server_fini(&server);
    return 0;
}

static void ask(const char *sql)
{
    (void)postgres_server_ask(&server, sql);
}

static int start(void **state)
{
    (void)state;
    ask("DROP SCHEMA IF EXISTS sluice CASCADE; CREATE SCHEMA sluice");
    ask(schema_sql);
    now = 1000000;
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    assert_return_code(epoll_fd, errno);
    texts = shared_texts_new(epoll_fd, &server.target);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    shared_texts_free(texts);
    (void)close(epoll_fd);
    return 0;
}

/* Until the copy is as new as `look`; renewals tell `count`. */
static void follow(uint64_t look, int64_t count)
{
    while (shared_texts_looks(texts) < look) {
        struct pollfd ready = {.fd = epoll_fd, .events = POLLIN};

        shared_texts_turn(texts, SHARED_TEXTS_FORMAT, count, now);
        (void)poll(&ready, 1, 10);
    }
}

static void look(void)
{
    follow(shared_texts_look(texts), 0);
}

static void enter(void)
{
    shared_texts_turn(texts, SHARED_TEXTS_FORMAT, 0, now);
    shared_texts_enter(texts, NODE, INCARNATION);
    look();
}

static size_t count(void)
{
    struct spool_shared shared = {.number = 0};
    size_t n = 0;

    while (shared_texts_next(texts, shared.number, &shared)) {
        n++;
    }
    return n;
}

/* The numbers that are there, with blanks between them; and the texts. */
static const char *all(void)
{
    static char room[1000];
    struct spool_shared shared = {.number = 0};
    size_t len = 0;

    room[0] = '\0';
    while (shared_texts_next(texts, shared.number, &shared)) {
        len += (size_t)snprintf(room + len, sizeof room - len, "%s%llu:%.*s", len > 0 ? " " : "",
                                (unsigned long long)shared.number, SLICE_ARGS(shared.text));
        assert_true(len < sizeof room);
    }
    return room;
}

static void nothing_is_known_before_the_first_look(void **state)
{
    (void)state;
    assert_false(shared_texts_is_there(texts));
    assert_true(shared_texts_is_current(texts)); /* tables of format 1 have none */
    shared_texts_turn(texts, 1, 0, now);
    assert_false(shared_texts_is_there(texts));
    shared_texts_turn(texts, SHARED_TEXTS_FORMAT, 0, now);
    assert_true(shared_texts_is_there(texts));
    assert_true(shared_texts_is_late(texts, now));
    enter();
    assert_false(shared_texts_is_late(texts, now));
    shared_texts_enter(texts, NODE, INCARNATION + 1);
    assert_true(shared_texts_is_late(texts, now)); /* a new life has to look anew */
}

static void what_comes_and_goes_is_followed(void **state)
{
    (void)state;
    ask("INSERT INTO intervention VALUES (1, 0, 1, 'one'), (2, 0, 2, 'two'), (5, 0, 3, 'five');"
        "UPDATE cluster SET interventions = 5, redirects = 2");
    enter();
    assert_string_equal(all(), "1:one 2:two 5:five");
    assert_int_equal(shared_texts_reroutes(texts), 2);
    ask("DELETE FROM intervention WHERE number IN (1, 5);"
        "INSERT INTO intervention VALUES (8, 0, 4, 'eight'); UPDATE cluster SET interventions = 8");
    follow(shared_texts_looks(texts) + 1, 8); /* a renewal has told */
    assert_string_equal(all(), "2:two 8:eight");
    ask("DELETE FROM intervention; UPDATE cluster SET interventions = 9");
    follow(shared_texts_looks(texts) + 1, 9);
    assert_string_equal(all(), "");
}

static void a_count_that_was_read_is_not_looked_for_again(void **state)
{
    uint64_t before;

    (void)state;
    ask("UPDATE cluster SET interventions = 5");
    enter();
    before = shared_texts_looks(texts);
    for (int i = 0; i < 20; i++) {
        shared_texts_turn(texts, SHARED_TEXTS_FORMAT, 5, now);
    }
    assert_false(shared_texts_is_late(texts, now + 2 * SHARED_TEXTS_LATE_US));
    look();
    assert_int_equal(shared_texts_looks(texts), before + 1);
}

static void who_knows_of_something_newer_is_late_after_a_while(void **state)
{
    (void)state;
    enter();
    shared_texts_woken(texts);
    shared_texts_turn(texts, SHARED_TEXTS_FORMAT, 0, now);
    assert_false(shared_texts_is_late(texts, now + SHARED_TEXTS_LATE_US));
    assert_true(shared_texts_is_late(texts, now + SHARED_TEXTS_LATE_US + 1));
    look();
    shared_texts_turn(texts, SHARED_TEXTS_FORMAT, 0, now);
    assert_false(shared_texts_is_late(texts, now + SHARED_TEXTS_LATE_US + 1));
}

static void more_than_one_look_reads_is_read_by_several(void **state)
{
    (void)state;
    ask("INSERT INTO intervention SELECT i, 0, i, 'text' FROM generate_series(1, 1234) i");
    enter();
    assert_int_equal(count(), 1234);
    ask("DELETE FROM intervention WHERE number % 2 = 0;"
        "INSERT INTO intervention SELECT i, 0, i, 'text' FROM generate_series(2001, 3000) i");
    look();
    assert_int_equal(count(), 617 + 1000);
}

static void more_than_there_may_be_is_cut(void **state)
{
    (void)state;
    ask("INSERT INTO intervention SELECT i, 0, i, 'text' FROM generate_series(1, 10000) i");
    enter();
    assert_int_equal(count(), SPOOL_SHARED_MAX);
    assert_false(shared_texts_is_cut(texts));
    ask("INSERT INTO intervention SELECT i, 0, i, 'text' FROM generate_series(20001, 29999) i");
    look();
    assert_int_equal(count(), SPOOL_SHARED_MAX);
    assert_true(shared_texts_is_cut(texts));
    ask("DELETE FROM intervention WHERE number BETWEEN 2 AND 29998");
    look();
    assert_string_equal(all(), "1:text 29999:text");
    assert_false(shared_texts_is_cut(texts));
}

static void numbers_below_ours_that_are_new_are_found(void **state)
{
    (void)state;
    ask("INSERT INTO intervention VALUES (9223372036854775807, 0, 1, 'last')");
    enter();
    assert_string_equal(all(), "9223372036854775807:last");
    ask("INSERT INTO intervention VALUES (7, 0, 1, 'seven'), (3, 0, 1, 'three')");
    look();
    assert_string_equal(all(), "3:three 7:seven 9223372036854775807:last");
}

static void rows_that_make_no_sense_are_passed_over(void **state)
{
    (void)state;
    ask("INSERT INTO intervention VALUES (0, 0, 1, 'zero'), (-7, 0, 1, 'less'), "
        "(4, -9, -9, convert_to(repeat('x', 8193), 'UTF8')), (5, 99, 1, ''), "
        "(6, 0, 1, convert_to(repeat('y', 9000000), 'UTF8')), (8, 0, 1, 'eight');"
        "ALTER TABLE intervention ALTER node DROP NOT NULL; UPDATE intervention SET node = NULL "
        "WHERE number = 8; INSERT INTO intervention VALUES (9, 0, 1, 'nine');"
        "UPDATE cluster SET interventions = -1, redirects = -1");
    enter();
    assert_string_equal(all(), "4: 5: 6: 9:nine");
    assert_int_equal(shared_texts_reroutes(texts), 0);
    look();
    assert_string_equal(all(), "4: 5: 6: 9:nine");
}

static void tokens_are_those_of_this_life_alone(void **state)
{
    struct spool_shared shared;

    (void)state;
    ask("INSERT INTO intervention VALUES (1, 3, " TOKEN(5) ", 'ours'), (2, 4, " TOKEN(
        5) ", 'of another'), (3, 3, 5, 'of a former life'), (4, 3, -" TOKEN(5) ", 'of none')");
    enter();
    assert_true(shared_texts_next(texts, 0, &shared));
    assert_int_equal(shared.token, 5);
    for (uint64_t n = 1; n < 4; n++) {
        assert_true(shared_texts_next(texts, n, &shared));
        assert_int_equal(shared.token, 0);
    }
    assert_false(shared_texts_next(texts, 4, &shared));
}

static void after_a_lease_was_over_all_is_read_first(void **state)
{
    (void)state;
    enter();
    assert_false(shared_texts_is_late(texts, now));
    ask("INSERT INTO intervention VALUES (1, 0, 1, 'one'); UPDATE cluster SET interventions = 1");
    shared_texts_doubt(texts);
    assert_true(shared_texts_is_late(texts, now));
    follow(shared_texts_looks(texts) + 1, 1);
    assert_false(shared_texts_is_late(texts, now));
    assert_string_equal(all(), "1:one");
    assert_int_equal(shared_texts_changes(texts), 1);
}

/* Nothing tells of it, and nobody is late for it. */
static void what_was_changed_by_hand_is_seen_after_a_while(void **state)
{
    (void)state;
    ask("INSERT INTO intervention VALUES (1, 0, 1, 'one'), (2, 0, 1, 'two')");
    enter();
    ask("DELETE FROM intervention WHERE number = 1");
    shared_texts_turn(texts, SHARED_TEXTS_FORMAT, 0, now + SHARED_TEXTS_SWEEP_US - 1);
    now += SHARED_TEXTS_SWEEP_US;
    shared_texts_turn(texts, SHARED_TEXTS_FORMAT, 0, now);
    assert_false(shared_texts_is_late(texts, now + 2 * SHARED_TEXTS_LATE_US));
    follow(shared_texts_looks(texts) + 1, 0);
    assert_string_equal(all(), "2:two");
}

#define SHARED_TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

POSTGRES_MAIN(start_server, stop_server, SHARED_TEST(nothing_is_known_before_the_first_look),
              SHARED_TEST(what_comes_and_goes_is_followed),
              SHARED_TEST(a_count_that_was_read_is_not_looked_for_again),
              SHARED_TEST(who_knows_of_something_newer_is_late_after_a_while),
              SHARED_TEST(more_than_one_look_reads_is_read_by_several),
              SHARED_TEST(more_than_there_may_be_is_cut),
              SHARED_TEST(numbers_below_ours_that_are_new_are_found),
              SHARED_TEST(rows_that_make_no_sense_are_passed_over),
              SHARED_TEST(tokens_are_those_of_this_life_alone),
              SHARED_TEST(after_a_lease_was_over_all_is_read_first),
              SHARED_TEST(what_was_changed_by_hand_is_seen_after_a_while))
