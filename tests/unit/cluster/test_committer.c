/*
 * Batches of one node in a real database, which the test starts: their order, the fence, what is
 * undone, and what becomes of them when the server is killed, stopped, or comes back.
 */
#include "unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "committer.h"
#include "pg_proxy.h"
#include "postgres_server.h"
#include "reader.h"
#include "schema.h"

static struct postgres_server server;
static struct link_target target;
static int epoll_fd = -1;
static struct committer *c;

static const char insert_thing[] = "INSERT INTO thing VALUES ($1)";
static const char count_prepared[] =
    "INSERT INTO thing SELECT count(*) FROM pg_prepared_statements "
    "WHERE statement = 'INSERT INTO thing VALUES ($1)'";

static const char *statement(unsigned n)
{
    return n == 0 ? insert_thing : NULL;
}

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

static int start(void **state)
{
    (void)state;
    (void)postgres_server_ask(&server,
                              "DROP SCHEMA IF EXISTS sluice CASCADE; CREATE SCHEMA sluice");
    (void)postgres_server_ask(&server, schema_sql);
    (void)postgres_server_ask(&server, "CREATE TABLE thing (n int PRIMARY KEY);"
                                       "INSERT INTO fence VALUES (3, 7)");
    target = server.target;
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    assert_return_code(epoll_fd, errno);
    c = committer_new(epoll_fd, &target, 3, 7, statement);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    committer_free(c);
    c = NULL;
    (void)close(epoll_fd);
    return 0;
}

/* A turn of the loop: what is ready is done. The longest one is no matter of the server's. */
static void turn(int wait_ms)
{
    struct pollfd ready = {.fd = epoll_fd, .events = POLLIN};

    (void)poll(&ready, 1, wait_ms);
    committer_turn(c);
}

static struct committer_batch *things(int from, int count)
{
    struct committer_batch *b = committer_batch_new();

    for (int n = from; n < from + count; n++) {
        char text[12];
        int len = snprintf(text, sizeof text, "%d", n);

        committer_batch_add(b, insert_thing,
                            &(struct link_param){.bytes = text, .len = (size_t)len}, 1);
    }
    return b;
}

/* Wait for the end of the oldest. */
static int end(void)
{
    int rc;

    while (!committer_end(c, &rc)) {
        turn(1000);
    }
    return rc;
}

static int count(void)
{
    return atoi(postgres_server_ask(&server, "SELECT count(*) FROM thing"));
}

static void batches_end_in_their_order_and_are_there(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i += 2) {
        committer_begin(c, things(10 * i, 10));
        committer_begin(c, things(10 * i + 10, 10));
        assert_int_equal(end(), 0);
        assert_int_equal(end(), 0);
    }
    assert_int_equal(count(), 200);
}

static void statements_of_batches_are_prepared_once_for_a_connection(void **state)
{
    struct committer_batch *b = committer_batch_new();

    (void)state;
    committer_begin(c, things(20, 2));
    assert_int_equal(end(), 0);
    committer_batch_add(b, count_prepared, NULL, 0);
    committer_begin(c, b);
    assert_int_equal(end(), 0);
    assert_string_equal(postgres_server_ask(&server, "SELECT min(n) FROM thing"), "1");
}

static void one_that_fails_takes_the_younger_one_with_it(void **state)
{
    (void)state;
    committer_begin(c, things(1, 5));
    assert_int_equal(end(), 0);
    committer_begin(c, things(5, 5)); /* 5 is there */
    committer_begin(c, things(20, 5));
    assert_int_equal(end(), -EUCLEAN);
    assert_non_null(strstr(committer_error(c), "duplicate key"));
    assert_non_null(strstr(committer_error(c), "(n)=(5) already exists")); /* no message's */
    assert_int_equal(committer_in_the_way(c), 0);
    assert_int_equal(end(), -ECANCELED);
    assert_int_equal(count(), 5);
    committer_begin(c, things(30, 5)); /* and it goes on */
    assert_int_equal(end(), 0);
    assert_int_equal(count(), 10);
}

/* It may have failed already, and its maker does not know that before it is told. */
/* What was prepared goes by the types that the table had then. */
static void after_a_table_was_altered_all_is_prepared_anew(void **state)
{
    (void)state;
    (void)postgres_server_ask(&server, "ALTER TABLE thing ALTER n TYPE text");
    committer_begin(c, things(1, 5));
    assert_int_equal(end(), 0);
    (void)postgres_server_ask(&server, "ALTER TABLE thing ALTER n TYPE int USING n::int");
    committer_begin(c, things(20, 5));
    assert_int_equal(end(), -EIO);
    assert_non_null(
        strstr(committer_error(c), "is of type integer but expression is of type text"));
    committer_begin(c, things(30, 5));
    assert_int_equal(end(), 0);
    assert_int_equal(count(), 10);
}

static void one_begun_before_a_failure_is_told_is_cancelled(void **state)
{
    (void)state;
    committer_begin(c, things(5, 5));
    assert_int_equal(end(), 0);
    committer_begin(c, things(5, 5));
    for (int looks = 0; looks < 20; looks++) {
        turn(looks < 5 ? 100 : 0); /* its answers are taken in, and its end is not asked for */
    }
    committer_begin(c, things(20, 5));
    assert_int_equal(end(), -EUCLEAN);
    assert_int_equal(end(), -ECANCELED);
    assert_int_equal(count(), 5);
}

static void nothing_is_committed_once_the_incarnation_is_another(void **state)
{
    (void)state;
    committer_begin(c, things(1, 5));
    assert_int_equal(end(), 0);
    (void)postgres_server_ask(&server, "UPDATE fence SET incarnation = 8 WHERE no = 3");
    committer_begin(c, things(6, 5));
    committer_begin(c, things(11, 5));
    assert_int_equal(end(), -ESTALE);
    assert_int_equal(end(), -ECANCELED);
    assert_int_equal(count(), 5);
}

/* Lives are on machines that were booted at other times. */
static void numbers_of_a_life_are_above_those_of_lives_before(void **state)
{
    (void)state;
    committer_begin(c, things(1, 1));
    assert_int_equal(end(), 0);
    (void)postgres_server_ask(&server,
                              "UPDATE fence SET incarnation = 8 WHERE no = 3;"
                              "CREATE TABLE older AS SELECT max(n) + 1000000 AS n FROM batch;"
                              "INSERT INTO batch SELECT 3, n FROM older"); /* its last one */
    committer_enter(c, 3, 8);
    committer_begin(c, things(2, 1));
    assert_int_equal(end(), 0);
    assert_string_equal(
        postgres_server_ask(&server, "SELECT max(batch.n) > max(older.n) FROM batch, older"), "t");
}

/* Of the session that waits for a standby. */
static void cancel_waiting_commit(void)
{
    const char *sql = "SELECT bool_or(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE "
                      "application_name = 'sluice' AND wait_event = 'SyncRep'";

    while (strcmp(postgres_server_ask(&server, sql), "t") != 0) {
        turn(20);
    }
}

static void set_standbys(const char *names)
{
    char sql[100];

    (void)snprintf(sql, sizeof sql, "ALTER SYSTEM SET synchronous_standby_names = '%s'", names);
    (void)postgres_server_ask(&server, sql);
    (void)postgres_server_ask(&server, "SELECT pg_reload_conf()");
    while (strcmp(postgres_server_ask(&server, "SHOW synchronous_standby_names"), names) != 0) {
        turn(20);
    }
}

/* "The transaction has already committed locally": it may be on one machine alone. */
static void a_commit_that_did_not_wait_for_the_standby_is_in_doubt(void **state)
{
    int rc;

    (void)state;
    postgres_server_need_own(&server);
    committer_begin(c, things(1, 1));
    assert_int_equal(end(), 0);
    set_standbys("nobody");
    committer_begin(c, things(10, 5));
    cancel_waiting_commit();
    for (int i = 0; i < 20; i++) {
        turn(50);
        assert_false(committer_end(c, &rc));
    }
    set_standbys("");
    assert_int_equal(end(), 0);
    assert_int_equal(count(), 6);
}

/* As engines do that commit by consensus: the transaction ends with it, and the next one does not
 * fail for its sake. */
static void of_a_commit_that_is_refused_each_batch_happens_once(void **state)
{
    (void)state;
    (void)postgres_server_ask(
        &server,
        "CREATE SEQUENCE refusals;"
        "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN IF NEW.n = 13 AND "
        "nextval('refusals') < 3 THEN RAISE SQLSTATE '40001'; END IF; RETURN NEW; END $$ LANGUAGE "
        "plpgsql;"
        "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON thing DEFERRABLE INITIALLY DEFERRED FOR "
        "EACH ROW EXECUTE FUNCTION refuse()");
    committer_begin(c, things(1, 1));
    assert_int_equal(end(), 0);
    committer_begin(c, things(10, 5));
    committer_begin(c, things(20, 5));
    assert_int_equal(end(), 0);
    assert_int_equal(end(), 0);
    assert_int_equal(count(), 11);
}

/* It was told to be a standby, or its operator has stopped writes: somebody will take them. */
static void a_server_that_takes_no_writes_is_as_one_that_is_away(void **state)
{
    (void)state;
    committer_begin(c, things(1, 1));
    assert_int_equal(end(), 0);
    (void)postgres_server_ask(
        &server, "CREATE SEQUENCE refusals;"
                 "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN IF nextval('refusals') < 3 "
                 "THEN RAISE SQLSTATE '25006'; END IF; RETURN NEW; END $$ LANGUAGE plpgsql;"
                 "CREATE TRIGGER refuse BEFORE INSERT ON thing EXECUTE FUNCTION refuse()");
    committer_begin(c, things(10, 5));
    committer_begin(c, things(20, 5));
    assert_int_equal(end(), 0);
    assert_int_equal(end(), 0);
    assert_int_equal(count(), 11);
}

/* Counted at the server: each batch once, whatever the moment its connection was lost in. */
static void a_lost_connection_loses_and_doubles_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 40; i++) {
        committer_begin(c, things(10 * i, 5));
        committer_begin(c, things(10 * i + 5, 5));
        for (int turns = 0; turns < i % 8; turns++) {
            turn(0);
        }
        (void)postgres_server_ask(&server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                                           "WHERE application_name = 'sluice'");
        assert_int_equal(end(), 0);
        assert_int_equal(end(), 0);
    }
    assert_int_equal(count(), 400);
}

static void a_server_that_was_killed_finds_its_batches_again(void **state)
{
    (void)state;
    postgres_server_need_own(&server);
    for (int i = 0; i < 4; i++) {
        committer_begin(c, things(10 * i, 5));
        committer_begin(c, things(10 * i + 5, 5));
        for (int turns = 0; turns < i; turns++) {
            turn(1);
        }
        postgres_server_kill(&server);
        turn(0);
        turn(0);
        postgres_server_start(&server);
        assert_int_equal(end(), 0);
        assert_int_equal(end(), 0);
    }
    assert_int_equal(count(), 40);
}

/* The engine is called between the ends of two batches. */
static void a_new_life_begins_before_all_ends_of_the_old_one_are_told(void **state)
{
    (void)state;
    committer_begin(c, things(1, 5));
    assert_int_equal(end(), 0);
    (void)postgres_server_ask(&server, "UPDATE fence SET incarnation = 8 WHERE no = 3");
    committer_leave(c);
    committer_begin(c, things(6, 5));
    committer_begin(c, things(11, 5));
    assert_int_equal(end(), -ESTALE);
    committer_enter(c, 3, 8);
    assert_int_equal(end(), -ECANCELED);
    committer_begin(c, things(16, 5));
    assert_int_equal(end(), 0);
    assert_int_equal(count(), 10);
}

static void what_is_held_fails_when_its_node_is_given_up(void **state)
{
    (void)state;
    committer_begin(c, things(1, 5));
    assert_int_equal(end(), 0);
    committer_hold(c, true);
    committer_begin(c, things(6, 5));
    committer_leave(c);
    assert_int_equal(end(), -ESTALE);
    committer_begin(c, things(11, 5)); /* before it registers anew */
    committer_enter(c, 3, 7);
    committer_hold(c, false);
    assert_int_equal(end(), -ESTALE);
    assert_int_equal(count(), 5);
}

static void a_server_that_is_taken_over_meanwhile_gets_nothing(void **state)
{
    (void)state;
    postgres_server_need_own(&server);
    committer_begin(c, things(1, 5));
    assert_int_equal(end(), 0);
    postgres_server_kill(&server);
    committer_begin(c, things(6, 5));
    turn(0);
    postgres_server_start(&server);
    (void)postgres_server_ask(&server, "UPDATE fence SET incarnation = 8 WHERE no = 3");
    assert_int_equal(end(), -ESTALE);
    assert_int_equal(count(), 5);
}

/* 64 MiB do not fit into any socket: what does not is kept, and the call returns. */
static void a_server_that_is_stopped_stops_nobody(void **state)
{
    struct committer_batch *b;
    static char much[1 << 20];
    int rc;

    (void)state;
    postgres_server_need_own(&server);
    b = committer_batch_new();
    (void)postgres_server_ask(&server, "CREATE TABLE large (n int, bytes bytea)");
    committer_begin(c, things(1, 5));
    assert_int_equal(end(), 0);
    for (int i = 0; i < 64; i++) {
        committer_batch_add(b, "INSERT INTO large VALUES (1, $1)",
                            &(struct link_param){much, sizeof much, true}, 1);
    }
    postgres_server_pause(&server, true);
    committer_begin(c, b);
    for (int i = 0; i < 20; i++) {
        turn(0);
        assert_false(committer_end(c, &rc));
    }
    postgres_server_pause(&server, false);
    assert_int_equal(end(), 0);
    assert_string_equal(postgres_server_ask(&server, "SELECT count(*) FROM large"), "64");
}

/* It takes what is sent, and no timeout of TCP ends that. */
static void a_server_that_never_answers_is_left(void **state)
{
    int rc;

    (void)state;
    postgres_server_need_own(&server);
    committer_free(c);
    target.silence_us = 100000;
    c = committer_new(epoll_fd, &target, 3, 7, statement);
    committer_begin(c, things(1, 5));
    assert_int_equal(end(), 0);
    postgres_server_pause(&server, true);
    committer_begin(c, things(6, 5));
    while (committer_is_up(c)) {
        turn(1000);
        assert_false(committer_end(c, &rc));
    }
    assert_string_equal(committer_error(c), "the server has not answered for too long");
    postgres_server_pause(&server, false);
    assert_int_equal(end(), 0);
    assert_int_equal(count(), 10);
}

/* A question that takes long is cut, and asked again with more patience, until it is answered. */
static void on_answer(void *arg, void *question, unsigned n, const PGresult *result)
{
    (void)arg;
    (void)question;
    (void)n;
    (void)result;
}

static void on_end(void *arg, void *question, bool is_answered)
{
    (void)question;
    *(bool *)arg = is_answered;
}

static void what_takes_long_without_fault_is_answered_at_last(void **state)
{
    static const struct reader_owner owner = {.answer = on_answer, .end = on_end};
    struct committer_batch *b = committer_batch_new();
    struct pollfd ready = {.fd = epoll_fd, .events = POLLIN};
    bool is_answered = false, was_cut = false;
    struct reader *r;

    (void)state;
    target.silence_us = 50000;
    r = reader_new(epoll_fd, &target, &owner, &is_answered);
    committer_batch_add(b, "SELECT pg_sleep(1)", NULL, 0);
    reader_ask(r, b, NULL);
    while (!is_answered) {
        (void)poll(&ready, 1, 1000);
        reader_turn(r);
        committer_turn(c);
        was_cut = was_cut || strstr(reader_error(r), "not answered for too long") != NULL;
    }
    assert_true(was_cut);
    reader_free(r);
}

static void what_is_no_message_of_the_protocol_is_a_lost_connection(void **state)
{
    static const struct reader_owner owner = {.answer = on_answer, .end = on_end};
    struct pollfd ready = {.fd = epoll_fd, .events = POLLIN};
    struct committer_batch *b = committer_batch_new();
    bool is_answered = false;
    struct pg_proxy proxy;
    struct reader *r;

    (void)state;
    postgres_server_need_own(&server);
    pg_proxy_init(&proxy, server.dir);
    committer_free(c);
    target.host = proxy.dir;
    c = committer_new(epoll_fd, &target, 3, 7, statement);
    r = reader_new(epoll_fd, &target, &owner, &is_answered);
    while (!committer_is_up(c) || !reader_is_up(r)) {
        turn(1000);
        reader_turn(r);
    }
    (void)pg_proxy_tell(&proxy, "noise"); /* nothing is asked */
    while (committer_is_up(c) || reader_is_up(r)) {
        turn(1000);
        reader_turn(r);
    }
    assert_non_null(strstr(committer_error(c), "synchronization"));
    committer_begin(c, things(1, 5));
    assert_int_equal(end(), 0);
    committer_begin(c, things(6, 5));
    (void)pg_proxy_tell(&proxy, "noise"); /* before or behind the answer */
    assert_int_equal(end(), 0);
    assert_int_equal(count(), 10);
    committer_batch_add(b, "SELECT 1", NULL, 0);
    reader_ask(r, b, NULL);
    while (!is_answered) {
        (void)poll(&ready, 1, 1000);
        reader_turn(r);
        committer_turn(c);
    }
    reader_free(r);
    committer_free(c);
    c = NULL;
    pg_proxy_fini(&proxy);
}

/* The connection is cut amid a batch, and only the client knows it: the server waits for the rest,
 * with the fence locked. */
static void what_the_server_goes_on_waiting_for_is_ended(void **state)
{
    struct pg_proxy proxy;

    (void)state;
    postgres_server_need_own(&server);
    pg_proxy_init(&proxy, server.dir);
    (void)pg_proxy_tell(&proxy, "late 3600000");
    committer_free(c);
    target.host = proxy.dir;
    target.settings = server.url.target.settings; /* what nodes say first */
    c = committer_new(epoll_fd, &target, 3, 7, statement);
    committer_begin(c, things(1, 5));
    assert_int_equal(end(), 0);
    (void)pg_proxy_tell(&proxy, "arm statements 4 half W"); /* begin, marker, and one more */
    committer_begin(c, things(6, 5));
    assert_int_equal(end(), 0);
    assert_int_equal(pg_proxy_tell(&proxy, "fired"), 1);
    assert_int_equal(count(), 10);
    committer_free(c);
    c = NULL;
    pg_proxy_fini(&proxy);
}

static void a_server_that_is_not_there_is_named(void **state)
{
    (void)state;
    committer_free(c);
    target.host = "/nonexistent";
    c = committer_new(epoll_fd, &target, 3, 7, statement);
    for (int i = 0; i < 5; i++) {
        turn(50);
    }
    assert_false(committer_is_up(c));
    assert_non_null(strstr(committer_error(c), "/nonexistent"));
}

static void of_two_hosts_the_one_that_is_silent_is_passed_over(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof address;
    int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* nothing accepts on it */
    char hosts[100], ports[20];

    (void)state;
    postgres_server_need_own(&server);
    assert_return_code(bind(silent, (struct sockaddr *)&address, len), errno);
    assert_return_code(listen(silent, 10), errno);
    assert_return_code(getsockname(silent, (struct sockaddr *)&address, &len), errno);
    (void)snprintf(hosts, sizeof hosts, "127.0.0.1,%s", server.dir);
    (void)snprintf(ports, sizeof ports, "%u,", ntohs(address.sin_port));
    committer_free(c);
    target.host = hosts;
    target.port = ports;
    target.hostaddr = "127.0.0.1,";
    c = committer_new(epoll_fd, &target, 3, 7, statement);
    committer_begin(c, things(900, 1));
    assert_int_equal(end(), 0);
    committer_free(c);
    c = NULL;
    (void)close(silent);
}

/* As another engine does, or a pool of connections that knows few. */
static void settings_that_are_refused_are_missed_alone(void **state)
{
    struct committer_batch *b;
    static const char *const settings[] = {"SET no_such_setting = 1", "SET lock_timeout = 1234",
                                           "SET jit = sometimes", NULL};

    (void)state;
    committer_free(c);
    target.settings = settings;
    c = committer_new(epoll_fd, &target, 3, 7, statement);
    committer_begin(c, things(950, 1));
    assert_int_equal(end(), 0);
    b = committer_batch_new();
    committer_batch_add(b, "SELECT 1 / (current_setting('lock_timeout') = '1234ms')::int", NULL, 0);
    committer_begin(c, b);
    assert_int_equal(end(), 0);
}

#define COMMITTER_TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

POSTGRES_MAIN(start_server, stop_server, COMMITTER_TEST(batches_end_in_their_order_and_are_there),
              COMMITTER_TEST(statements_of_batches_are_prepared_once_for_a_connection),
              COMMITTER_TEST(one_that_fails_takes_the_younger_one_with_it),
              COMMITTER_TEST(after_a_table_was_altered_all_is_prepared_anew),
              COMMITTER_TEST(one_begun_before_a_failure_is_told_is_cancelled),
              COMMITTER_TEST(nothing_is_committed_once_the_incarnation_is_another),
              COMMITTER_TEST(numbers_of_a_life_are_above_those_of_lives_before),
              COMMITTER_TEST(a_commit_that_did_not_wait_for_the_standby_is_in_doubt),
              COMMITTER_TEST(of_a_commit_that_is_refused_each_batch_happens_once),
              COMMITTER_TEST(a_server_that_takes_no_writes_is_as_one_that_is_away),
              COMMITTER_TEST(a_lost_connection_loses_and_doubles_nothing),
              COMMITTER_TEST(a_server_that_was_killed_finds_its_batches_again),
              COMMITTER_TEST(a_new_life_begins_before_all_ends_of_the_old_one_are_told),
              COMMITTER_TEST(what_is_held_fails_when_its_node_is_given_up),
              COMMITTER_TEST(a_server_that_is_taken_over_meanwhile_gets_nothing),
              COMMITTER_TEST(a_server_that_is_stopped_stops_nobody),
              COMMITTER_TEST(a_server_that_never_answers_is_left),
              COMMITTER_TEST(what_takes_long_without_fault_is_answered_at_last),
              COMMITTER_TEST(what_is_no_message_of_the_protocol_is_a_lost_connection),
              COMMITTER_TEST(what_the_server_goes_on_waiting_for_is_ended),
              COMMITTER_TEST(a_server_that_is_not_there_is_named),
              COMMITTER_TEST(of_two_hosts_the_one_that_is_silent_is_passed_over),
              COMMITTER_TEST(settings_that_are_refused_are_missed_alone))
