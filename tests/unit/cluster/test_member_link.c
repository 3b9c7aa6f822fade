/*
 * Members of a cluster over a real database, all in one process. Their clocks are real, and four
 * times as fast as the program's; no test depends on how long something takes.
 */
#include "unit.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <libpq-fe.h>

#include "boot_clock.h"
#include "committer.h"
#include "member_config.h"
#include "member_link.h"
#include "postgres_server.h"
#include "schema.h"

static const struct membership_times times = {
    .renew_us = 250 * US_PER_MS,
    .look_us = 125 * US_PER_MS,
    .hold_us = 1000 * US_PER_MS,
    .dead_us = 1250 * US_PER_MS,
    .watch_us = 1250 * US_PER_MS,
    .drain_us = 1000 * US_PER_MS,
    .wish_us = 500 * US_PER_MS,
    .wake_us = 10 * US_PER_MS,
};

#define MEMBERS 3

static struct postgres_server server;
static struct link_target target;

static struct member {
    struct membership_config config;
    int epoll_fd;
    struct member_link *link; /* NULL: not running */
    bool paused;
    unsigned given_up, woken;
} members[MEMBERS];

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

static void on_woken(void *arg)
{
    struct member *m = arg;

    m->woken++;
}

static struct membership *of(int i)
{
    return member_link_membership(members[i].link);
}

static void begin(int i)
{
    static const struct member_link_owner owner = {.woken = on_woken};
    struct member *m = &members[i];

    m->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    assert_return_code(m->epoll_fd, errno);
    m->link = member_link_new(m->epoll_fd, &target, &m->config, &owner, m);
    m->paused = false;
}

static void end(int i)
{
    struct member *m = &members[i];

    member_link_free(m->link);
    m->link = NULL;
    (void)close(m->epoll_fd);
    m->epoll_fd = -1;
}

static int start(void **state)
{
    static const char *const names[MEMBERS] = {"first", "second", "third"};

    (void)state;
    (void)postgres_server_ask(&server,
                              "DROP SCHEMA IF EXISTS sluice CASCADE; CREATE SCHEMA sluice");
    (void)postgres_server_ask(&server, schema_sql);
    target = server.target;
    for (int i = 0; i < MEMBERS; i++) {
        members[i] = (struct member){.epoll_fd = -1};
        members[i].config = (struct membership_config){
            .times = &times, .name = names[i], .format_min = 1, .format_max = SCHEMA_FORMAT};
    }
    return 0;
}

static int stop(void **state)
{
    (void)state;
    for (int i = 0; i < MEMBERS; i++) {
        if (members[i].link != NULL) {
            end(i);
        }
    }
    return 0;
}

/* What a program does that has nothing open anywhere. */
static void take_events(struct member *m)
{
    struct membership *ms = member_link_membership(m->link);
    struct membership_event e;

    while (membership_event(ms, boot_now(), &e)) {
        if (e.type == MEMBERSHIP_GIVEN_UP) {
            m->given_up++;
            membership_ready(ms);
        }
        for (int p = 0; p < PARTITIONS && e.type == MEMBERSHIP_DRAIN; p++) {
            if (partition_set_has(&e.partitions, p)) {
                membership_drained(ms, p);
            }
        }
    }
}

static void turn(void)
{
    struct pollfd ready[MEMBERS];
    nfds_t count = 0;

    for (int i = 0; i < MEMBERS; i++) {
        if (members[i].link != NULL && !members[i].paused) {
            ready[count++] = (struct pollfd){.fd = members[i].epoll_fd, .events = POLLIN};
        }
    }
    (void)poll(ready, count, 100);
    for (int i = 0; i < MEMBERS; i++) {
        if (members[i].link != NULL && !members[i].paused) {
            member_link_turn(members[i].link);
            take_events(&members[i]);
            member_link_turn(members[i].link);
        }
    }
}

static int owned(int i)
{
    int count = 0;

    for (int p = 0; p < PARTITIONS; p++) {
        count += membership_is_mine(of(i), p);
    }
    return count;
}

#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        turn();                                                                                    \
    } while (!(condition))

static long ask_number(const char *sql)
{
    return atol(postgres_server_ask(&server, sql));
}

static void the_first_takes_all_and_the_others_get_their_share(void **state)
{
    (void)state;
    begin(0);
    UNTIL(owned(0) == PARTITIONS);
    assert_int_equal(membership_number(of(0)), 0);
    begin(1);
    UNTIL(owned(0) == 128 && owned(1) == 128);
    begin(2);
    UNTIL(owned(0) <= 86 && owned(1) <= 86 && owned(0) + owned(1) + owned(2) == PARTITIONS);
    assert_int_equal(ask_number("SELECT count(*) FROM lease WHERE node IS NULL"), 0);
    assert_int_equal(ask_number("SELECT count(*) FROM lease WHERE wanted IS NOT NULL"), 0);
    assert_int_equal(membership_owner(of(0), 255), membership_owner(of(1), 255));
    assert_string_equal(member_link_error(members[0].link), "");
}

static void one_that_is_killed_is_taken_over(void **state)
{
    (void)state;
    begin(0);
    begin(1);
    UNTIL(owned(0) == 128 && owned(1) == 128);
    end(0);
    UNTIL(owned(1) == PARTITIONS);
    assert_int_equal(ask_number("SELECT incarnation FROM fence WHERE no = "
                                "(SELECT no FROM node WHERE name = 'first')"),
                     2);
    begin(0);
    UNTIL(owned(0) == 128 && owned(1) == 128);
    assert_true(membership_incarnation(of(0)) >= 3);
}

static int ended(struct committer *c, int epoll_fd)
{
    int rc;

    while (!committer_end(c, &rc)) {
        struct pollfd ready = {.fd = epoll_fd, .events = POLLIN};

        (void)poll(&ready, 1, 100);
        committer_turn(c);
    }
    return rc;
}

static void one_that_was_paused_learns_it_and_has_stored_nothing(void **state)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);
    struct committer *c;
    struct committer_batch *b;

    (void)state;
    begin(0);
    begin(1);
    UNTIL(owned(0) == 128 && owned(1) == 128);
    c = committer_new(fd, &target, membership_number(of(0)), membership_incarnation(of(0)), NULL);
    committer_begin(c, committer_batch_new());
    assert_int_equal(ended(c, fd), 0);
    members[0].paused = true;
    UNTIL(owned(1) == PARTITIONS);
    assert_true(mono_reached(membership_deadline(of(0)), boot_now()));
    b = committer_batch_new();
    committer_batch_add(b, "CREATE TABLE what_it_did (n int)", NULL, 0);
    committer_begin(c, b);
    assert_int_equal(ended(c, fd), -ESTALE);
    assert_int_equal(ask_number("SELECT count(*) FROM pg_class WHERE relname = 'what_it_did'"), 0);
    committer_free(c);
    (void)close(fd);
    members[0].paused = false;
    UNTIL(members[0].given_up == 1 && owned(0) == 128 && owned(1) == 128);
}

/* The row lock of a transaction that has checked the fence holds those up who take over. */
static void who_takes_over_waits_for_what_the_other_has_under_way(void **state)
{
    PGconn *conn = postgres_server_connect(&server);
    int64_t beat;

    (void)state;
    begin(0);
    begin(1);
    UNTIL(owned(0) == 128 && owned(1) == 128);
    PQclear(PQexec(conn, "BEGIN; SELECT * FROM fence FOR SHARE"));
    assert_int_equal(PQtransactionStatus(conn), PQTRANS_INTRANS);
    end(0);
    beat = ask_number("SELECT beat FROM node WHERE name = 'second'");
    /* It renews often enough that it would have taken over long ago. */
    UNTIL(ask_number("SELECT beat FROM node WHERE name = 'second'") > beat + 12);
    assert_int_equal(owned(1), 128);
    PQclear(PQexec(conn, "COMMIT"));
    PQfinish(conn);
    UNTIL(owned(1) == PARTITIONS);
}

/* But not for what is left there by one that stands still, or has no network, amid a batch: the
 * server waits for the rest of it. */
static void who_takes_over_ends_what_was_left_amid_a_transaction(void **state)
{
    PGconn *conn = postgres_server_connect(&server);

    (void)state;
    begin(0);
    begin(1);
    UNTIL(owned(0) == 128 && owned(1) == 128);
    PQclear(PQexec(conn, "SET application_name = sluice"));
    assert_int_equal(PQenterPipelineMode(conn), 1);
    for (const char *const *sql =
             (const char *const[]){"BEGIN", "SELECT 1 FROM fence FOR SHARE", NULL};
         *sql != NULL; sql++) {
        assert_int_equal(PQsendQueryParams(conn, *sql, 0, NULL, NULL, NULL, NULL, 0), 1);
    }
    assert_int_equal(PQsendFlushRequest(conn), 1); /* no sync */
    assert_int_equal(PQflush(conn), 0);
    PQclear(PQgetResult(conn));
    assert_null(PQgetResult(conn));
    PQclear(PQgetResult(conn)); /* it has the lock */
    end(0);
    UNTIL(owned(1) == PARTITIONS);
    PQfinish(conn);
}

static void one_that_leaves_is_followed_at_once(void **state)
{
    (void)state;
    begin(0);
    begin(1);
    UNTIL(owned(0) == 128 && owned(1) == 128);
    membership_leave(of(0), boot_now());
    UNTIL(membership_left(of(0)));
    assert_int_equal(ask_number("SELECT state FROM node WHERE name = 'first'"), NODE_STOPPED);
    assert_int_equal(ask_number("SELECT count(*) FROM lease WHERE node = (SELECT no FROM node "
                                "WHERE name = 'first')"),
                     0);
    end(0);
    UNTIL(owned(1) == PARTITIONS);
}

static void an_operator_drains_one(void **state)
{
    (void)state;
    begin(0);
    begin(1);
    UNTIL(owned(0) == 128 && owned(1) == 128);
    (void)postgres_server_ask(&server, "UPDATE node SET state = 2 WHERE name = 'first'");
    UNTIL(owned(1) == PARTITIONS);
    (void)postgres_server_ask(&server, "UPDATE node SET state = 1 WHERE name = 'first'");
    UNTIL(owned(0) == 128 && owned(1) == 128);
}

static void a_second_one_of_the_same_name_is_refused(void **state)
{
    (void)state;
    begin(0);
    UNTIL(owned(0) == PARTITIONS);
    members[1].config.name = "first";
    begin(1);
    UNTIL(membership_health(of(1)) == MEMBERSHIP_UNWELCOME);
    assert_non_null(strstr(membership_words(of(1)), "another daemon"));
}

static void mail_for_another_node_wakes_it(void **state)
{
    (void)state;
    begin(0);
    begin(1);
    UNTIL(owned(0) == 128 && owned(1) == 128);
    for (unsigned i = 1; i <= 20; i++) {
        unsigned before = members[1].woken;

        member_link_notify(members[0].link, membership_number(of(1)));
        UNTIL(members[1].woken > before);
    }
    assert_int_equal(members[0].woken, 0);
}

static void ids_are_reserved_with_renewals(void **state)
{
    uint64_t wanted;

    (void)state;
    begin(0);
    UNTIL(owned(0) == PARTITIONS);
    member_link_status(members[0].link, "{\"behind\": 7}");
    member_link_reserve(members[0].link, 123456);
    UNTIL(member_link_renewal(members[0].link)->id_reserved == 123456);
    assert_int_equal(ask_number("SELECT status->>'behind' FROM node"), 7);
    UNTIL(member_link_words(members[0].link, 0)->behind == 7);
    member_link_status(members[0].link, "{\"interventions\": 12}");
    wanted = member_link_renew(members[0].link);
    UNTIL(member_link_renewals(members[0].link) >= wanted);
    assert_int_equal(member_link_words(members[0].link, 0)->interventions, 12);
    for (size_t i = 0; i < 4; i++) { /* another program may write anything there */
        static const char *const statuses[] = {"{\"behind\": \"many\"}", "{\"behind\": -1}", "[1]",
                                               "{\"behind\": [9]}"};

        member_link_status(members[0].link, statuses[i]);
        UNTIL(member_link_words(members[0].link, 0)->behind == 0);
        UNTIL(member_link_words(members[0].link, 0)->interventions == MEMBER_LINK_UNSAID);
        member_link_status(members[0].link, "{\"behind\": 1e300}");
        UNTIL(member_link_words(members[0].link, 0)->behind == UINT64_C(1000000000000000));
    }
    end(0);
    begin(0);
    UNTIL(owned(0) == PARTITIONS);
    assert_int_equal(member_link_renewal(members[0].link)->id_reserved, 123456);
}

/* A node that was removed has left its number, with an id that no node has reserved. */
static void ids_of_a_removed_node_that_can_not_be_are_passed_over(void **state)
{
    (void)state;
    (void)postgres_server_ask(
        &server, "INSERT INTO node (no, name, incarnation, beat, state, id_reserved, program) "
                 "VALUES (0, 'gone', 1, 1, 5, 9223372036854775807, ''); INSERT INTO fence VALUES "
                 "(0, 1); INSERT INTO message (id, flags, rcpt_total, size, arrived, class_source, "
                 "envid, client, chunks) VALUES (777, 0, 1, 0, 0, 0, '', '', 0); SELECT 1");
    begin(0);
    UNTIL(owned(0) == PARTITIONS);
    assert_int_equal(membership_number(of(0)), 0);
    assert_int_equal(member_link_renewal(members[0].link)->id_reserved, 777);
}

static void a_server_without_a_standby_is_refused_unless_told_so(void **state)
{
    (void)state;
    members[0].config.needs_standby = true;
    begin(0);
    UNTIL(membership_health(of(0)) == MEMBERSHIP_UNFIT);
    assert_int_equal(membership_number(of(0)), MEMBERSHIP_NOBODY);
    assert_true(membership_words(of(0))[0] != '\0');
    assert_int_equal(ask_number("SELECT count(*) FROM node"), 0);
}

static void what_was_changed_by_hand_is_an_error_with_words(void **state)
{
    static const struct {
        const char *change, *back, *want;
    } cases[] = {
        {"UPDATE node SET state = 77", "UPDATE node SET state = 1", "table node"},
        {"UPDATE node SET beat = -5", "UPDATE node SET beat = 5", "table node"},
        {"DELETE FROM lease WHERE p = 9", "INSERT INTO lease (p, node, epoch) VALUES (9, 0, 1)",
         "no row for partition 9"},
        {"UPDATE lease SET wanted = 30000 WHERE p = 9", "UPDATE lease SET wanted = NULL",
         "partition 9"},
    };

    (void)state;
    begin(0);
    UNTIL(owned(0) == PARTITIONS);
    for (size_t i = 0; i < COUNT(cases); i++) {
        (void)postgres_server_ask(&server, cases[i].change);
        UNTIL(membership_health(of(0)) == MEMBERSHIP_UNFIT);
        assert_non_null(strstr(membership_words(of(0)), cases[i].want));
        assert_true(mono_reached(membership_deadline(of(0)), boot_now()));
        (void)postgres_server_ask(&server, cases[i].back);
        UNTIL(membership_health(of(0)) == MEMBERSHIP_FIT && owned(0) == PARTITIONS);
    }
}

static void a_server_that_is_killed_is_found_again(void **state)
{
    (void)state;
    postgres_server_need_own(&server);
    begin(0);
    begin(1);
    UNTIL(owned(0) == 128 && owned(1) == 128);
    postgres_server_kill(&server);
    UNTIL(strlen(member_link_error(members[0].link)) > 0 &&
          strlen(member_link_error(members[1].link)) > 0 &&
          mono_reached(membership_deadline(of(0)), boot_now()));
    postgres_server_start(&server);
    UNTIL(!mono_reached(membership_deadline(of(0)), boot_now()) &&
          !mono_reached(membership_deadline(of(1)), boot_now()) && owned(0) == 128 &&
          owned(1) == 128);
}

static void a_server_that_is_stopped_stops_no_turn(void **state)
{
    (void)state;
    postgres_server_need_own(&server);
    begin(0);
    UNTIL(owned(0) == PARTITIONS);
    postgres_server_pause(&server, true);
    UNTIL(mono_reached(membership_deadline(of(0)), boot_now()));
    postgres_server_pause(&server, false);
    UNTIL(!mono_reached(membership_deadline(of(0)), boot_now()));
    assert_int_equal(members[0].given_up, 0);
    assert_int_equal(owned(0), PARTITIONS);
}

static void the_configuration_names_the_node(void **state)
{
    static const struct {
        const char *text, *want_name;
        bool want_standby;
    } cases[] = {
        {"", "mail.example.org", true},
        {"cluster_node = a.example\ncluster_standby = none\n", "a.example", false},
        {"cluster_standby = required\n", "mail.example.org", true},
    };
    static const struct conf_world world = {.hostname = "mail.example.org"};

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct conf_problems problems;
        struct conf *conf =
            conf_load_text(slice_string(cases[i].text), "test", "/", &world, &problems);
        struct membership_config config;

        assert_int_equal(problems.count, 0);
        config = member_config(conf);
        assert_string_equal(config.name, cases[i].want_name);
        assert_int_equal(config.needs_standby, cases[i].want_standby);
        assert_int_equal(config.format_max, SCHEMA_FORMAT);
        conf_problems_fini(&problems);
        conf_free(conf);
    }
}

#define MEMBER_TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

POSTGRES_MAIN(start_server, stop_server,
              MEMBER_TEST(the_first_takes_all_and_the_others_get_their_share),
              MEMBER_TEST(one_that_is_killed_is_taken_over),
              MEMBER_TEST(one_that_was_paused_learns_it_and_has_stored_nothing),
              MEMBER_TEST(who_takes_over_waits_for_what_the_other_has_under_way),
              MEMBER_TEST(who_takes_over_ends_what_was_left_amid_a_transaction),
              MEMBER_TEST(one_that_leaves_is_followed_at_once), MEMBER_TEST(an_operator_drains_one),
              MEMBER_TEST(a_second_one_of_the_same_name_is_refused),
              MEMBER_TEST(mail_for_another_node_wakes_it),
              MEMBER_TEST(ids_are_reserved_with_renewals),
              MEMBER_TEST(ids_of_a_removed_node_that_can_not_be_are_passed_over),
              MEMBER_TEST(a_server_without_a_standby_is_refused_unless_told_so),
              MEMBER_TEST(what_was_changed_by_hand_is_an_error_with_words),
              MEMBER_TEST(a_server_that_is_killed_is_found_again),
              MEMBER_TEST(a_server_that_is_stopped_stops_no_turn),
              cmocka_unit_test(the_configuration_names_the_node))
