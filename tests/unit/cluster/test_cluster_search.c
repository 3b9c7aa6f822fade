/*
 * Lists and destinations of a queue in a real database: of mail that waits and that passes, routed
 * or not.
 */
#include "unit.h"

#include <errno.h>
#include <string.h>

#include "buf.h"
#include "cluster_url.h"
#include "pg_proxy.h"
#include "postgres_server.h"
#include "spool.h"
#include "spool_search.h"

static struct postgres_server server;
static struct spool *sp;

/* Two messages for a.test, one of them with a recipient for b.test and one that was not routed; one
 * of three recipients was reported. Two pass, one of them not routed. */
static const char rows[] =
    "INSERT INTO part (p, id, message, kind, state, due, arrived, created, size, pending, "
    "to_report, rcpts, warnings, force_expire, sender, sender_domain, class, reason) SELECT 1, i, "
    "i, 0, 2, 1, 1000 * i, 1, 1, 1, 0, 1, 0, false, 's', '', '', '' FROM generate_series(64, 128, "
    "64) i;"
    "INSERT INTO recipient (p, id, n, state, notify, attempts, last_attempt, route_generation, "
    "address, domain, transport, nexthop, orcpt, status, diagnostic, reply, remote, tls) SELECT 1, "
    "id, n, state, 0, 0, 0, 0, 'x', domain, transport, nexthop, '', '', '', '', '', '' FROM "
    "(VALUES (64, 1, 1, 'a.test', 'smtp', 'a.test'), (64, 2, 1, 'a.test', 'smtp', 'a.test'), "
    "(64, 3, 2, 'a.test', 'smtp', 'a.test'), (128, 1, 1, 'a.test', 'smtp', 'a.test'), "
    "(128, 2, 1, 'b.test', 'smtp', 'b.test'), (128, 3, 1, 'c.test', '', '')) v (id, n, state, "
    "domain, transport, nexthop);"
    "INSERT INTO fresh_1 SELECT 1, id, 1, 500, 1, 1, 0, 0, 0, 0, 's', '', '', address, '', '', '', "
    "transport, nexthop, '' FROM (VALUES (192, 'y@a.test'::bytea, 'smtp', 'a.test'), (256, "
    "'Y@C.test', '', '')) v (id, address, transport, nexthop)";

static int start(void **state)
{
    struct spool_options options = {.inline_limit = 1000};
    struct buf error;

    (void)state;
    postgres_server_init(&server);
    postgres_server_make_tables(&server);
    (void)postgres_server_ask(&server, rows);
    buf_init(&error, 1000);
    if (spool_open(postgres_server_url(&server), SPOOL_OPEN_READ, &options, &error, &sp) != 0) {
        fail_msg("%s", buf_cstr(&error));
    }
    buf_fini(&error);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    spool_close(sp);
    postgres_server_fini(&server);
    return 0;
}

/* "TRANSPORT/NEXTHOP recipients messages; .." */
static const char *print(const struct spool_destination *list, size_t count)
{
    static char text[500];
    size_t len = 0;

    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        len += (size_t)snprintf(text + len, sizeof text - len, "%.*s/%.*s %d %d; ",
                                SLICE_ARGS(list[i].transport), SLICE_ARGS(list[i].nexthop),
                                (int)list[i].rcpts, (int)list[i].messages);
    }
    return text;
}

static void destinations_are_counted(void **state)
{
    struct spool_destination list[9];
    size_t count;

    (void)state;
    assert_int_equal(spool_destinations(sp, 9, list, &count), 0);
    assert_string_equal(print(list, count), "smtp/a.test 4 3; /c.test 2 2; smtp/b.test 1 1; ");
    assert_int_equal(spool_destinations(sp, 1, list, &count), 0);
    assert_string_equal(print(list, count), "smtp/a.test 4 3; ");
}

static void a_page_begins_where_it_is_told(void **state)
{
    static const struct {
        const char *nexthop, *transport, *want;
        size_t max;
    } cases[] = {
        {"", "", "smtp/a.test 4 3; smtp/b.test 1 1; ", 2},
        {"a.test", "smtp", "smtp/a.test 4 3; ", 1},
        {"a.test", "smtp0", "smtp/b.test 1 1; /c.test 2 2; ", 9},
        {"c.test", "", "/c.test 2 2; ", 9},
        {"c.test", "a", "", 9},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct spool_destination from = {.nexthop = slice_string(cases[i].nexthop),
                                         .transport = slice_string(cases[i].transport)};
        struct spool_destination list[9];
        size_t count;

        assert_int_equal(spool_destinations_from(sp, &from, cases[i].max, list, &count), 0);
        assert_string_equal(print(list, count), cases[i].want);
    }
}

static void the_oldest_of_a_destination_is_found(void **state)
{
    static const struct {
        const char *nexthop, *transport;
        int64_t want;
    } cases[] = {{"a.test", "smtp", 500},
                 {"b.test", "smtp", 128000},
                 {"c.test", "", 500},
                 {"d.test", "", 0}};

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct spool_destination of = {.nexthop = slice_string(cases[i].nexthop),
                                       .transport = slice_string(cases[i].transport)};
        struct wall arrived = {0};

        assert_int_equal(spool_oldest(sp, &of, &arrived), cases[i].want != 0 ? 0 : -ENOENT);
        assert_int_equal(arrived.us, cases[i].want);
    }
}

static void what_passes_can_be_left_out(void **state)
{
    struct spool_filter f = {.waits = false};
    struct msg_id ids[9];
    size_t count;

    (void)state;
    assert_int_equal(spool_scan(sp, &f, 9, ids, &count), 0);
    assert_int_equal(count, 4);
    f.waits = true;
    assert_int_equal(spool_scan(sp, &f, 9, ids, &count), 0);
    assert_int_equal(count, 2);
    assert_int_equal(ids[0].n, 64);
    assert_int_equal(ids[1].n, 128);
}

/* A connection on which a statement's answer is looked for after a second. */
struct waiting {
    struct cluster_url u;
    PGconn *conn;
    struct buf error;
};

static void begin(struct waiting *w, const char *host, enum cluster_url_use use)
{
    char url[200];

    buf_init(&w->error, 1000);
    (void)snprintf(url, sizeof url, "//tester@/postgres?host=%s", host != NULL ? host : "");
    assert_true(cluster_url_parse(&w->u, host != NULL ? url : postgres_server_url(&server), use,
                                  &w->error));
    assert_int_equal(w->u.silent_s, CLUSTER_URL_SILENT_S);
    assert_true(cluster_url_resolve(&w->u, &w->error));
    w->conn = cluster_url_connect(&w->u, &w->error);
    assert_non_null(w->conn);
    w->u.silent_s = 1;
}

static PGresult *ask(struct waiting *w, const char *sql)
{
    return cluster_url_exec(&w->u, w->conn, sql, 0, NULL);
}

/* It is not answered, with these words, and the connection is cut. */
static void assert_ends(struct waiting *w, const char *sql, const char *words)
{
    PGresult *r = ask(w, sql);

    assert_null(r);
    cluster_url_say_error(&w->u, w->conn, &w->error);
    if (strstr(buf_cstr(&w->error), words) == NULL) {
        fail_msg("%s: %s", sql, buf_cstr(&w->error));
    }
    r = ask(w, "SELECT 1");
    assert_int_not_equal(PQresultStatus(r), PGRES_TUPLES_OK);
    PQclear(r);
}

static void end(struct waiting *w)
{
    PQfinish(w->conn);
    cluster_url_fini(&w->u);
    buf_fini(&w->error);
}

/* As of a server that hangs after it has let a command in. */
static void a_statement_without_an_answer_ends(void **state)
{
    struct waiting w;

    (void)state;
    begin(&w, NULL, CLUSTER_URL_READING);
    PQclear(ask(&w, "SET statement_timeout = 0"));
    assert_ends(&w, "SELECT pg_sleep(3600)", "has not answered for 1 s");
    end(&w);
}

static void a_statement_that_the_server_works_on_is_waited_for(void **state)
{
    struct waiting w;
    PGresult *r;

    (void)state;
    begin(&w, NULL, CLUSTER_URL_LOOKING);
    r = ask(&w, "SELECT pg_sleep(1.3)");
    assert_int_equal(PQresultStatus(r), PGRES_TUPLES_OK);
    PQclear(r);
    r = ask(&w, "CREATE TABLE changed ()");
    assert_int_equal(PQresultStatus(r), PGRES_FATAL_ERROR);
    assert_non_null(strstr(PQresultErrorMessage(r), "read-only"));
    PQclear(r);
    end(&w);
}

/* The server is well, and what lies between swallows what is sent. What became of it is said as far
 * as it is known. */
static void what_was_swallowed_is_not_waited_for(void **state)
{
    static const struct {
        const char *before, *sql, *words;
    } cases[] = {
        {"SELECT 1", "SELECT 1", "has not answered for 1 s"},
        {"SELECT 1", "UPDATE node SET beat = 1", "for 1 s; what was asked may be done"},
        {"BEGIN", "UPDATE node SET beat = 1", "for 1 s; its transaction is not done"},
        {"BEGIN", "COMMIT", "for 1 s; what was asked may be done"},
        {"SELECT 1", "BEGIN; LOCK TABLE node", "for 1 s; its transaction is not done"},
        {"SELECT 1", "BEGIN; LOCK TABLE node; COMMIT", "for 1 s; what was asked may be done"},
    };
    struct pg_proxy proxy;

    (void)state;
    postgres_server_need_own(&server);
    pg_proxy_init(&proxy, server.dir);
    (void)pg_proxy_tell(&proxy, "late 3600000");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct waiting w;

        begin(&w, proxy.dir, CLUSTER_URL_OPERATOR);
        PQclear(ask(&w, cases[i].before));
        (void)pg_proxy_tell(&proxy, "arm front 1 swallow *");
        assert_ends(&w, cases[i].sql, cases[i].words);
        assert_true(i != 0 || buf_cstr(&w.error)[buf_len(&w.error) - 1] == 's'); /* no more */
        end(&w);
    }
    pg_proxy_fini(&proxy);
}

static void a_commit_that_waits_for_a_standby_is_told_from_silence(void **state)
{
    struct waiting w;

    (void)state;
    postgres_server_need_own(&server);
    (void)postgres_server_ask(&server, "ALTER SYSTEM SET synchronous_standby_names = 'gone'");
    (void)postgres_server_ask(&server, "SELECT pg_reload_conf()");
    begin(&w, NULL, CLUSTER_URL_OPERATOR);
    assert_ends(&w, "CREATE TABLE changed ()", "waits for a standby");
    end(&w);
    (void)postgres_server_ask(&server, "ALTER SYSTEM RESET synchronous_standby_names");
    (void)postgres_server_ask(&server, "SELECT pg_reload_conf()");
}

POSTGRES_MAIN(start, stop, cmocka_unit_test(destinations_are_counted),
              cmocka_unit_test(what_passes_can_be_left_out),
              cmocka_unit_test(a_page_begins_where_it_is_told),
              cmocka_unit_test(the_oldest_of_a_destination_is_found),
              cmocka_unit_test(a_statement_without_an_answer_ends),
              cmocka_unit_test(a_statement_that_the_server_works_on_is_waited_for),
              cmocka_unit_test(what_was_swallowed_is_not_waited_for),
              cmocka_unit_test(a_commit_that_waits_for_a_standby_is_told_from_silence))
