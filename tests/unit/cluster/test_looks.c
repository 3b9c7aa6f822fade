/*
 * What is looked at while it moves, in a real database: it is found, whole. The loader's answers
 * are held back by a lock of the test's, in whose transaction the mail moves.
 */
#include "unit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "buf.h"
#include "cluster_spool.h"
#include "postgres_server.h"
#include "spool_commits.h"
#include "spool_fixture.h"
#include "spool_lease.h"
#include "spool_others.h"
#include "spool_parts.h"

static struct postgres_server server;
static struct spool *sp;
static PGconn *mover;
static struct msg_id single, whole, parts[2];

static void open_spool(void)
{
    struct spool_options options = {.inline_limit = 1000};
    struct buf error;

    buf_init(&error, 1000);
    if (spool_open(postgres_server_url(&server), SPOOL_OPEN_WRITE, &options, &error, &sp) != 0) {
        fail_msg("%s", buf_cstr(&error));
    }
    buf_fini(&error);
}

/* Mail on hold, with a recipient for each of the next hops. */
static struct msg_id submit(const char *const *nexthops, uint32_t count)
{
    const struct spool_content content = {.bytes = SLICE("x\r\n"), .fd = -1};
    const struct spool_message m = {.sender = SLICE("s@from.test"), .arrived = {1}, .due = {1}};
    struct spool_rcpt to[2] = {{.address = SLICE("a@to.test"), .transport = SLICE("smtp")},
                               {.address = SLICE("b@to.test"), .transport = SLICE("smtp")}};
    struct msg_id id;

    for (uint32_t i = 0; i < count; i++) {
        to[i].nexthop = slice_string(nexthops[i]);
    }
    fixture_ok(sp,
               spool_submit(sp, &m, to, count, SLICE(""), &content, false, SLICE("a test"), &id));
    return id;
}

static struct msg_id id_of(const char *sql)
{
    return (struct msg_id){strtoull(postgres_server_ask(&server, sql), NULL, 10)};
}

static void run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *format, ...)
{
    char sql[2000];
    PGresult *r;
    va_list args;

    va_start(args, format);
    (void)vsnprintf(sql, sizeof sql, format, args);
    va_end(args);
    r = PQexec(mover, sql);
    if (PQresultStatus(r) != PGRES_COMMAND_OK && PQresultStatus(r) != PGRES_TUPLES_OK) {
        fail_msg("%s", PQerrorMessage(mover));
    }
    PQclear(r);
}

/* A message in one partition, and one in two; nothing of them is in memory. */
static int start(void **state)
{
    static const char *const nexthops[] = {"mx1.test", "mx2.test"};

    (void)state;
    postgres_server_init(&server);
    postgres_server_make_tables(&server);
    open_spool();
    single = submit(nexthops, 1);
    whole = submit(nexthops, 2);
    fixture_ok(sp, spool_commit(sp));
    spool_close(sp);
    open_spool();
    mover = postgres_server_connect(&server);
    parts[0] = id_of("SELECT min(id) FROM sluice.part WHERE id <> message");
    parts[1] = id_of("SELECT max(id) FROM sluice.part WHERE id <> message");
    assert_true(parts[0].n > 0 && parts[0].n < parts[1].n);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    PQfinish(mover);
    spool_close(sp);
    postgres_server_fini(&server);
    return 0;
}

static void turn(void)
{
    struct spool_event event;

    spool_commits_turn(sp);
    (void)spool_commits_wait(sp, 10 * US_PER_MS);
    spool_commits_turn(sp);
    while (spool_next_event(sp, &event)) {
        assert_true(event.type == SPOOL_EVENT_READY || event.type == SPOOL_EVENT_LOG ||
                    event.type == SPOOL_EVENT_GAINED);
    }
}

/* As an operation does with a new question. */
static void look(void)
{
    spool_look_within(sp, spool_look_begin(sp));
}

static int want(struct msg_id id)
{
    int rc;

    while ((rc = spool_want(sp, id, SPOOL_WANT_ROWS)) == -EAGAIN) {
        turn();
    }
    return rc;
}

static size_t want_parts(void)
{
    struct msg_id ids[8];
    size_t count;

    while (spool_parts_want(sp, whole) == -EAGAIN) {
        turn();
    }
    fixture_ok(sp, spool_parts_of(sp, whole, (struct msg_id){0}, 8, ids, &count));
    for (size_t i = 0; i < count; i++) {
        fixture_ok(sp, want(ids[i]));
    }
    return count;
}

/* What is listed can be listed, and not be read, until release(). */
static void hold_back(void)
{
    run("BEGIN");
    run("LOCK TABLE sluice.message IN ACCESS EXCLUSIVE MODE");
}

static void wait_until_held_back(void)
{
    do {
        turn();
    } while (
        atoi(postgres_server_ask(&server, "SELECT count(*) FROM pg_locks WHERE NOT granted")) == 0);
}

static void move(struct msg_id id)
{
    run("UPDATE sluice.part SET p = (p + 7) %% 256 WHERE id = %" PRIu64, id.n);
    run("UPDATE sluice.recipient SET p = (p + 7) %% 256 WHERE id = %" PRIu64, id.n);
}

static void release(void)
{
    run("COMMIT");
}

static void a_message_that_moves_is_found(void **state)
{
    (void)state;
    look();
    hold_back();
    assert_int_equal(spool_want(sp, single, SPOOL_WANT_ROWS), -EAGAIN);
    wait_until_held_back();
    move(single);
    release();
    assert_int_equal(want(single), 0);
}

static void parts_that_are_being_read_are_waited_for(void **state)
{
    (void)state;
    look();
    fixture_ok(sp, want(whole));
    fixture_ok(sp, want(parts[1]));
    hold_back();
    assert_int_equal(spool_want(sp, parts[0], SPOOL_WANT_ROWS), -EAGAIN);
    assert_int_equal(spool_parts_want(sp, whole), -EAGAIN);
    wait_until_held_back();
    assert_int_equal(spool_parts_want(sp, whole), -EAGAIN);
    release();
    assert_int_equal(want_parts(), 2);
}

/* From here on each begins with nothing of the message in memory. */
static void begin_anew(void)
{
    spool_close(sp);
    open_spool();
    look();
    fixture_ok(sp, want(whole));
    hold_back();
    assert_int_equal(spool_parts_want(sp, whole), -EAGAIN);
    wait_until_held_back();
}

static void a_part_that_moves_when_it_was_listed_is_found(void **state)
{
    (void)state;
    begin_anew();
    move(parts[0]);
    release();
    assert_int_equal(want_parts(), 2);
}

static void a_part_that_ends_is_not_waited_for(void **state)
{
    (void)state;
    begin_anew();
    run("DELETE FROM sluice.part WHERE id = %" PRIu64, parts[0].n);
    run("DELETE FROM sluice.recipient WHERE id = %" PRIu64, parts[0].n);
    release();
    assert_int_equal(want_parts(), 2); /* with that of the test before */
}

/* Its recipient goes to a part of its own, of which the list says nothing. */
static void what_leaves_a_part_when_it_was_listed_is_found(void **state)
{
    struct msg_id other = {parts[1].n + 64};

    (void)state;
    begin_anew();
    run("INSERT INTO sluice.part SELECT (p + 9) %% 256, %" PRIu64 ", message, kind, state, due, "
        "arrived, created, size, pending, to_report, rcpts, warnings, force_expire, gen, "
        "parts_left, sender, sender_domain, class, parked, reason FROM sluice.part WHERE "
        "id = %" PRIu64,
        other.n, parts[1].n);
    run("UPDATE sluice.recipient SET p = (p + 9) %% 256, id = %" PRIu64 " WHERE id = %" PRIu64,
        other.n, parts[1].n);
    run("UPDATE sluice.part SET pending = 0 WHERE id = %" PRIu64, parts[1].n);
    release();
    assert_int_equal(want_parts(), 3); /* one of them has nothing left */
    assert_int_equal(want(other), 0);
}

/* A row that can be found and not be read: an answer comes all the same. */
static void harmed_rows_are_not_looked_for_for_ever(void **state)
{
    (void)state;
    run("DELETE FROM sluice.message WHERE id = %" PRIu64, single.n);
    spool_close(sp);
    open_spool();
    look();
    assert_int_equal(want(single), -ENOENT);
}

static void what_was_not_there_is_looked_for_in_the_next_look(void **state)
{
    struct msg_id id = {parts[1].n + 128};

    (void)state;
    look();
    assert_int_equal(want(id), -ENOENT);
    run("INSERT INTO sluice.message SELECT %" PRIu64 ", flags, rcpt_total, parts, home, report, "
        "size, arrived, class_source, envid, client, chunks, bytes FROM sluice.message WHERE "
        "id = %" PRIu64,
        id.n, single.n);
    run("INSERT INTO sluice.part SELECT p, %" PRIu64 ", %" PRIu64 ", kind, state, due, arrived, "
        "created, size, pending, to_report, rcpts, warnings, force_expire, gen, parts_left, "
        "sender, sender_domain, class, parked, reason FROM sluice.part WHERE id = %" PRIu64,
        id.n, id.n, single.n);
    run("INSERT INTO sluice.recipient SELECT p, %" PRIu64 ", n, state, notify, attempts, "
        "last_attempt, route_generation, address, domain, transport, nexthop, orcpt, status, "
        "diagnostic, reply, remote, tls FROM sluice.recipient WHERE id = %" PRIu64,
        id.n, single.n);
    assert_int_equal(want(id), -ENOENT); /* as the look has found it */
    look();
    assert_int_equal(want(id), 0);
}

/* As turn(), for a node that loses its lease and gets another. */
static void turn_of_two_leases(void)
{
    struct spool_event event;

    spool_commits_turn(sp);
    (void)spool_commits_wait(sp, 10 * US_PER_MS);
    spool_commits_turn(sp);
    while (spool_next_event(sp, &event)) {
        if (event.type == SPOOL_EVENT_LOST && event.id.n == 0) {
            spool_lease_ended(sp);
        }
    }
}

/* A caller that finds no mail under a key does not try again, so it must wait for the count. */
static void parked_mail_is_not_missed_while_it_is_counted(void **state)
{
    static const char waiting[] = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    static const char *const nexthops[] = {"mx1.test", "mx2.test"};
    struct msg_id ids[4], part;
    size_t count = 0;
    bool more = false;
    int rc;

    (void)state;
    (void)submit(nexthops, 2);
    fixture_ok(sp, spool_commit(sp));
    part = id_of("SELECT max(id) FROM sluice.part");
    spool_close(sp);
    run("UPDATE sluice.part SET state = 2, due = 4000000000000000, parked = 'pause:x' WHERE id = "
        "%" PRIu64,
        part.n);
    do { /* until the lock came before the count */
        open_spool();
        run("BEGIN");
        run("LOCK TABLE sluice.part IN ACCESS EXCLUSIVE MODE");
        (void)postgres_server_ask(&server, "UPDATE sluice.fence SET incarnation = incarnation + 1 "
                                           "RETURNING 1");
        while (atoi(postgres_server_ask(&server, waiting)) == 0) {
            turn_of_two_leases();
        }
        rc = spool_claim_parked(sp, SLICE("pause:x"), (struct wall){1}, 4, ids, &count, &more);
        run("ROLLBACK");
        if (rc == 0) {
            spool_close(sp);
        }
    } while (rc == 0);
    assert_int_equal(rc, -EAGAIN);
    while (rc == -EAGAIN) {
        turn_of_two_leases();
        rc = spool_claim_parked(sp, SLICE("pause:x"), (struct wall){1}, 4, ids, &count, &more);
    }
    fixture_ok(sp, rc);
    assert_int_equal(count, 1);
    assert_int_equal(ids[0].n, part.n);
}

POSTGRES_MAIN(start, stop, cmocka_unit_test(a_message_that_moves_is_found),
              cmocka_unit_test(what_was_not_there_is_looked_for_in_the_next_look),
              cmocka_unit_test(parts_that_are_being_read_are_waited_for),
              cmocka_unit_test(a_part_that_moves_when_it_was_listed_is_found),
              cmocka_unit_test(what_leaves_a_part_when_it_was_listed_is_found),
              cmocka_unit_test(a_part_that_ends_is_not_waited_for),
              cmocka_unit_test(harmed_rows_are_not_looked_for_for_ever),
              cmocka_unit_test(parked_mail_is_not_missed_while_it_is_counted))
