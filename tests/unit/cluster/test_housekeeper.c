/*
 * What keeps the tables of a cluster small, in a real database: beside a snapshot that is held, a
 * lock that is held, and rows that are left.
 */
#include "unit.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "housekeeper.h"
#include "postgres_server.h"
#include "schema.h"

static struct postgres_server server;
static struct link_target target;
static int epoll_fd = -1;
static struct housekeeper *h;
static unsigned told; /* how often */
static unsigned fresh_now;
static bool asked_to_count;
static unsigned counted; /* how often */
static PGconn *other;    /* somebody else's session */

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

static void on_fresh(void *arg, unsigned now)
{
    assert_ptr_equal(arg, &told);
    told++;
    fresh_now = now;
}

static struct committer_batch *ask_recount(void *arg)
{
    struct committer_batch *b = asked_to_count ? committer_batch_new() : NULL;

    assert_ptr_equal(arg, &told);
    if (b != NULL) {
        committer_batch_add(b, "SELECT 42::bigint", NULL, 0);
    }
    return b;
}

static void on_counted(void *arg, const PGresult *r)
{
    assert_ptr_equal(arg, &told);
    assert_true(PQntuples(r) == 1 && PQgetlength(r, 0, 0) == 8 && PQgetvalue(r, 0, 0)[7] == 42);
    counted++;
}

static const struct housekeeper_owner owner = {
    .fresh = on_fresh, .recount = ask_recount, .counted = on_counted};

static int start(void **state)
{
    (void)state;
    asked_to_count = false;
    counted = 0;
    (void)postgres_server_ask(&server,
                              "DROP SCHEMA IF EXISTS sluice CASCADE; CREATE SCHEMA sluice");
    (void)postgres_server_ask(&server, schema_sql);
    target = server.target;
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    assert_return_code(epoll_fd, errno);
    other = postgres_server_connect(&server);
    assert_int_equal(PQstatus(other), CONNECTION_OK);
    told = 0;
    return 0;
}

static int stop(void **state)
{
    (void)state;
    housekeeper_free(h);
    h = NULL;
    PQfinish(other);
    (void)close(epoll_fd);
    return 0;
}

static void by_other(const char *sql)
{
    PGresult *result = PQexec(other, sql);

    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK) {
        fail_msg("%s: %s", sql, PQerrorMessage(other));
    }
    PQclear(result);
}

static void begin(void)
{
    h = housekeeper_new(epoll_fd, &target, &owner, &told);
}

/* Until `rounds` more have ended. */
static void run(unsigned rounds)
{
    unsigned until = told + rounds;

    while (told < until) {
        struct pollfd ready = {.fd = epoll_fd, .events = POLLIN};

        assert_int_equal(poll(&ready, 1, 60000), 1); /* a round is a second behind the last */
        housekeeper_turn(h);
    }
}

/* Mail that has passed through table `k`, which was in use for long. */
static void pass_mail(unsigned k)
{
    char sql[1000];

    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO fresh_%u SELECT i %% 256, i, 1, 1, 1, 4096, 0, 0, 0, 0, 's', '', "
                   "'', 'r', '', '', '', '', '', decode(repeat('78', 4096), 'hex') "
                   "FROM generate_series(1, 1000) i",
                   k);
    (void)postgres_server_ask(&server, sql);
    (void)snprintf(sql, sizeof sql, "DELETE FROM fresh_%u", k);
    (void)postgres_server_ask(&server, sql);
    (void)snprintf(sql, sizeof sql, "UPDATE cluster SET fresh_now = %u, fresh_since = 0", k);
    (void)postgres_server_ask(&server, sql);
}

static int bytes_of(unsigned k)
{
    char sql[100];

    (void)snprintf(sql, sizeof sql, "SELECT pg_total_relation_size('fresh_%u')", k);
    return atoi(postgres_server_ask(&server, sql));
}

static int vacuums_of(unsigned k)
{
    char sql[100];

    (void)snprintf(sql, sizeof sql,
                   "SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = 'fresh_%u'", k);
    return atoi(postgres_server_ask(&server, sql));
}

static void tables_are_used_in_turn_and_emptied(void **state)
{
    int empty = bytes_of(0);

    (void)state;
    for (unsigned k = 0; k < 4; k++) {
        pass_mail(k % 3);
        assert_true(bytes_of(k % 3) > 1000000);
        if (k == 0) {
            begin();
        }
        run(k == 0 ? 1 : 2); /* one may have been under way */
        assert_int_equal(fresh_now, (k + 1) % 3);
        assert_int_equal(bytes_of((k + 1) % 3), empty);
    }
    assert_int_equal(vacuums_of(0), 0); /* which would read all of it */
}

static void a_table_that_is_small_or_new_stays_in_use(void **state)
{
    (void)state;
    (void)postgres_server_ask(&server, "UPDATE cluster SET fresh_since = 0");
    begin();
    run(1);
    assert_int_equal(fresh_now, 0);
    pass_mail(0);
    (void)postgres_server_ask(&server, "UPDATE cluster SET fresh_since = "
                                       "(extract(epoch FROM now()) * 1000000)::bigint");
    run(2);
    assert_int_equal(fresh_now, 0);
}

static void a_snapshot_that_is_held_keeps_no_rows(void **state)
{
    (void)state;
    by_other("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM node");
    pass_mail(1);
    pass_mail(0);
    begin();
    run(1);
    assert_int_equal(fresh_now, 1);
    assert_true(bytes_of(1) < 100000);
    by_other("COMMIT");
}

static void one_that_is_read_is_passed_over(void **state)
{
    (void)state;
    pass_mail(1);
    pass_mail(0);
    by_other("BEGIN; LOCK TABLE fresh_1 IN ACCESS SHARE MODE"); /* as pg_dump */
    begin();
    run(1);
    assert_int_equal(fresh_now, 2);
    assert_true(bytes_of(1) > 1000000);
    by_other("COMMIT");
    pass_mail(2); /* next time it is its turn */
    (void)postgres_server_ask(&server, "INSERT INTO fresh_0 VALUES (1, 1, 1, 1, 1, 1, 0, 0, 0, 0, "
                                       "'', '', '', '', '', '', '', '', '', '')");
    run(2);
    assert_int_equal(fresh_now, 1);
    assert_true(bytes_of(1) < 100000);
    assert_string_equal(postgres_server_ask(&server, "SELECT count(*) FROM fresh_0"), "1");
}

static void when_none_can_be_emptied_the_one_in_use_stays(void **state)
{
    (void)state;
    for (int k = 1; k < 3; k++) {
        char sql[200];

        (void)snprintf(sql, sizeof sql,
                       "INSERT INTO fresh_%d VALUES (1, 1, 1, 1, 1, 1, 0, 0, 0, 0, '', '', '', '', "
                       "'', '', '', '', '', '')",
                       k);
        (void)postgres_server_ask(&server, sql);
    }
    pass_mail(0);
    begin();
    run(3);
    assert_int_equal(fresh_now, 0);
    assert_string_equal(postgres_server_ask(&server,
                                            "SELECT count(*) FROM (SELECT FROM fresh_1 UNION ALL "
                                            "SELECT FROM fresh_2) f"),
                        "2");
    while (vacuums_of(0) == 0) { /* until one can */
        run(1);
    }
}

static void what_is_of_no_use_is_deleted(void **state)
{
    (void)state;
    (void)postgres_server_ask(
        &server,
        "INSERT INTO batch SELECT 3, i FROM generate_series(1, 3000) i;"
        "INSERT INTO batch SELECT 4, i FROM generate_series(1, 10) i;"
        "INSERT INTO content VALUES (64, 0, 'orphan'), (128, 0, 'has one'), "
        "((extract(epoch FROM now()) * 1000000)::bigint, 0, 'young');"
        "INSERT INTO message VALUES (128, 0, 1, 1, 0, NULL, 1, 1, 0, '', '', 1, NULL);"
        "INSERT INTO ask (from_node, n, to_node, question, at) VALUES (0, 1, 1, '{}', 1);");
    begin();
    run(1);
    assert_string_equal(postgres_server_ask(&server, "SELECT min(n) || ',' || max(n) FROM batch "
                                                     "WHERE node = 3"),
                        "2000,3000");
    assert_string_equal(postgres_server_ask(&server, "SELECT count(*) FROM batch WHERE node = 4"),
                        "10");
    assert_string_equal(
        postgres_server_ask(&server, "SELECT string_agg(encode(bytes, 'escape'), ',' ORDER BY id) "
                                     "FROM content"),
        "has one,young");
    assert_string_equal(postgres_server_ask(&server, "SELECT count(*) FROM ask"), "0");
}

static void who_has_not_the_duty_only_asks(void **state)
{
    (void)state;
    pass_mail(2);
    begin();
    housekeeper_set_duty(h, false);
    run(2);
    assert_int_equal(fresh_now, 2);
    housekeeper_set_duty(h, true);
    run(2);
    assert_int_equal(fresh_now, 0);
}

static void what_is_counted_comes_with_each_round(void **state)
{
    (void)state;
    asked_to_count = true;
    begin();
    run(3);
    assert_true(counted >= 2);
    assert_int_equal(fresh_now, 0);
}

static void sizes_and_the_oldest_snapshot_are_measured(void **state)
{
    int64_t empty;

    (void)state;
    begin();
    run(2);
    empty = housekeeper_measures(h)->fresh_bytes;
    assert_true(empty > 0);
    assert_int_equal(housekeeper_measures(h)->oldest_snapshot_us, 0);
    by_other("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM node");
    pass_mail(2);
    run(HOUSEKEEPER_MEASURE + 1);
    assert_true(housekeeper_measures(h)->fresh_bytes > empty + 1000000);
    assert_true(housekeeper_measures(h)->oldest_snapshot_us > 0);
}

static void follow(const char *standby)
{
    char sql[100];

    (void)snprintf(sql, sizeof sql, "ALTER SYSTEM SET synchronous_standby_names = '%s'", standby);
    (void)postgres_server_ask(&server, sql);
    (void)postgres_server_ask(&server, "SELECT pg_reload_conf()");
    do {
        (void)poll(NULL, 0, 10);
    } while (strcmp(postgres_server_ask(&server, "SHOW synchronous_standby_names"), standby) != 0);
}

static int stop_following(void **state)
{
    if (server.pid != 0) {
        follow("");
    }
    return stop(state);
}

static void the_turn_waits_for_no_standby(void **state)
{
    (void)state;
    postgres_server_need_own(&server);
    pass_mail(0);
    follow("nobody");
    begin();
    run(1);
    assert_int_equal(fresh_now, 1);
    assert_string_equal(postgres_server_ask(&server, "SELECT count(*) FROM fresh_1"), "0");
}

static void a_server_that_comes_back_is_kept_on(void **state)
{
    (void)state;
    postgres_server_need_own(&server);
    begin();
    run(1);
    PQfinish(other);
    other = NULL;
    postgres_server_kill(&server);
    postgres_server_start(&server);
    pass_mail(0);
    run(2);
    assert_int_equal(fresh_now, 1);
}

#define HOUSEKEEPER_TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

POSTGRES_MAIN(start_server, stop_server, HOUSEKEEPER_TEST(tables_are_used_in_turn_and_emptied),
              HOUSEKEEPER_TEST(a_table_that_is_small_or_new_stays_in_use),
              HOUSEKEEPER_TEST(a_snapshot_that_is_held_keeps_no_rows),
              HOUSEKEEPER_TEST(one_that_is_read_is_passed_over),
              HOUSEKEEPER_TEST(when_none_can_be_emptied_the_one_in_use_stays),
              HOUSEKEEPER_TEST(what_is_of_no_use_is_deleted),
              HOUSEKEEPER_TEST(who_has_not_the_duty_only_asks),
              HOUSEKEEPER_TEST(what_is_counted_comes_with_each_round),
              HOUSEKEEPER_TEST(sizes_and_the_oldest_snapshot_are_measured),
              cmocka_unit_test_setup_teardown(the_turn_waits_for_no_standby, start, stop_following),
              HOUSEKEEPER_TEST(a_server_that_comes_back_is_kept_on))
