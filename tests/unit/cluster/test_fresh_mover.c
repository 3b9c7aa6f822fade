/*
 * Mail that has been passing for long, in a real database: it comes to wait, what is on the desk
 * and what is not, and for the queue nothing has changed. And such mail is read again, unless the
 * tables are not as they should be.
 */
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "buf.h"
#include "cluster_spool.h"
#include "postgres_server.h"
#include "spool_commits.h"
#include "spool_fixture.h"

#define MANY 600 /* more than are moved, or brought, at a time */

static struct postgres_server server;

static int start_server(void **state)
{
    (void)state;
    postgres_server_init(&server);
    postgres_server_make_tables(&server);
    return 0;
}

static int stop_server(void **state)
{
    (void)state;
    postgres_server_fini(&server);
    return 0;
}

static struct spool *open_spool(void)
{
    struct spool_options options = {.inline_limit = 1000};
    struct spool *sp = NULL;
    struct buf error;

    buf_init(&error, 1000);
    if (spool_open(postgres_server_url(&server), SPOOL_OPEN_WRITE, &options, &error, &sp) != 0) {
        fail_msg("%s", buf_cstr(&error));
    }
    buf_fini(&error);
    return sp;
}

static int count(const char *table)
{
    char sql[100];

    (void)snprintf(sql, sizeof sql, "SELECT count(*) FROM sluice.%s", table);
    return atoi(postgres_server_ask(&server, sql));
}

static void in_the_way(struct msg_id id)
{
    char sql[600];

    (void)snprintf(sql, sizeof sql,
                   "INSERT INTO sluice.part (p, id, message, kind, state, due, arrived, created, "
                   "size, pending, to_report, rcpts, warnings, force_expire, sender, "
                   "sender_domain, class, reason) SELECT p, id, id, 0, 1, 0, 0, 0, 1, 1, 0, 1, 0, "
                   "false, 'away', '', '', '' FROM sluice.fresh_0 WHERE id = %lld",
                   (long long)id.n);
    (void)postgres_server_ask(&server, sql);
}

static void turn(struct spool *sp)
{
    struct spool_event event;

    spool_commits_turn(sp); /* sends what is asked for */
    (void)spool_commits_wait(sp, US_PER_S);
    spool_commits_turn(sp);
    while (spool_next_event(sp, &event)) {
        assert_true(event.type == SPOOL_EVENT_READY || event.type == SPOOL_EVENT_LOG ||
                    event.type == SPOOL_EVENT_GAINED || event.type == SPOOL_EVENT_CHANGED);
    }
}

static void bring(struct spool *sp, struct msg_id id)
{
    while (spool_want(sp, id, SPOOL_WANT_ROWS | SPOOL_WANT_CONTENT) == -EAGAIN) {
        turn(sp);
    }
}

/* As the queue does when nothing else is to be committed, until table 0 is empty. */
static void let_it_move(struct spool *sp)
{
    int rc;

    (void)postgres_server_ask(&server, "UPDATE sluice.cluster SET fresh_now = 1");
    while (count("fresh_0") > 0) {
        turn(sp);
        if (!spool_commit_is_wanted(sp)) {
            continue;
        }
        spool_commit_begin(sp);
        while (!spool_commit_end(sp, &rc)) {
            turn(sp);
        }
        fixture_ok(sp, rc);
        assert_false(spool_dirty(sp));
    }
}

static void finish(struct spool *sp, struct msg_id id)
{
    struct spool_message m;

    bring(sp, id);
    fixture_ok(sp, spool_read(sp, id, &m));
    assert_int_equal(m.state, SPOOL_INCOMING);
    assert_int_equal(m.rcpt_pending, 1);
    assert_true(fixture_content_ok(sp, &m));
    fixture_ok(sp, spool_finish_all_done(sp, id));
}

static void what_passes_for_long_comes_to_wait_and_goes_on(void **state)
{
    struct spool *sp = open_spool();
    struct msg_id ids[MANY];
    struct spool_totals before, after;

    (void)state;
    for (int i = 0; i < MANY; i++) {
        fixture_ok(sp, fixture_submit(sp, "s@example.org", "a@one.example", 1000 + i, 1000, true,
                                      &ids[i]));
    }
    fixture_ok(sp, spool_commit(sp));
    for (int i = 0; i < MANY; i += 2) {
        spool_unclaim(sp, ids[i]); /* half of them are not on the desk any more */
    }
    assert_int_equal(count("fresh_0"), MANY);
    fixture_ok(sp, spool_totals(sp, &before));

    cluster_spool_move_at_once(sp);
    let_it_move(sp);

    assert_int_equal(count("part"), MANY);
    assert_int_equal(count("message"), MANY);
    assert_int_equal(count("recipient"), MANY);
    assert_int_equal(count("fresh_0") + count("fresh_1") + count("fresh_2"), 0);
    fixture_ok(sp, spool_totals(sp, &after));
    assert_int_equal(after.incoming, before.incoming);
    assert_int_equal(after.bytes, before.bytes);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(spool_is_claimed(sp, ids[i]), i % 2);
        finish(sp, ids[i]);
    }
    fixture_ok(sp, spool_commit(sp));
    assert_int_equal(count("part") + count("message") + count("recipient"), 0);
    spool_close(sp);
}

static void a_message_of_a_table_in_use_is_left_alone(void **state)
{
    struct spool *sp;
    struct msg_id old, new;

    (void)state;
    (void)postgres_server_ask(&server, "UPDATE sluice.cluster SET fresh_now = 0");
    sp = open_spool();
    fixture_ok(sp, fixture_submit(sp, "s@example.org", "a@one.example", 1, 1000, true, &old));
    fixture_ok(sp, spool_commit(sp));
    cluster_spool_move_at_once(sp);
    (void)postgres_server_ask(&server, "UPDATE sluice.cluster SET fresh_now = 1");
    while (!spool_commit_is_wanted(sp)) {
        turn(sp);
    }
    fixture_ok(sp, fixture_submit(sp, "s@example.org", "b@one.example", 1, 1000, true, &new));
    fixture_ok(sp, spool_commit(sp));
    assert_int_equal(count("fresh_0"), 0);
    assert_int_equal(count("fresh_1"), 1);
    assert_int_equal(count("part"), 1);
    finish(sp, old);
    finish(sp, new);
    fixture_ok(sp, spool_commit(sp));
    assert_int_equal(count("fresh_1") + count("part"), 0);
    spool_close(sp);
}

/* One that is being delivered when its row moves; the result comes while that is under way. */
static void a_result_that_meets_the_move_counts(void **state)
{
    struct spool *sp;
    struct msg_id id;
    int rc;

    (void)state;
    (void)postgres_server_ask(&server, "UPDATE sluice.cluster SET fresh_now = 0");
    sp = open_spool();
    fixture_ok(sp, fixture_submit(sp, "s@example.org", "a@one.example", 1, 1000, true, &id));
    fixture_ok(sp, spool_commit(sp));
    cluster_spool_move_at_once(sp);
    (void)postgres_server_ask(&server, "UPDATE sluice.cluster SET fresh_now = 1");
    while (!spool_commit_is_wanted(sp)) {
        turn(sp);
    }
    spool_commit_begin(sp);
    fixture_ok(sp, spool_finish_all_done(sp, id));
    spool_commit_begin(sp);
    for (int ended = 0; ended < 2; turn(sp)) {
        while (spool_commit_end(sp, &rc)) {
            fixture_ok(sp, rc);
            ended++;
        }
    }
    assert_int_equal(count("fresh_0") + count("part") + count("message") + count("recipient"), 0);
    spool_close(sp);
}

/* It is brought without its content, which is wanted while the commit that moves it is under way:
 * for the desk it is in the new table, for all others still in the old one. */
static void content_that_is_wanted_while_it_moves_is_read_when_it_has(void **state)
{
    PGconn *other = postgres_server_connect(&server);
    struct spool *sp;
    struct msg_id id;
    int rc;

    (void)state;
    (void)postgres_server_ask(&server, "UPDATE sluice.cluster SET fresh_now = 0");
    sp = open_spool();
    fixture_ok(sp, fixture_submit(sp, "s@example.org", "a@one.example", 1, 1000, true, &id));
    fixture_ok(sp, spool_commit(sp));
    spool_unclaim(sp, id); /* it leaves the desk */
    cluster_spool_move_at_once(sp);
    (void)postgres_server_ask(&server, "UPDATE sluice.cluster SET fresh_now = 1");
    while (!spool_commit_is_wanted(sp)) {
        turn(sp);
    }
    PQclear(PQexec(other, "BEGIN"));
    PQclear(PQexec(other, "LOCK TABLE sluice.message IN SHARE MODE")); /* it can be read */
    spool_commit_begin(sp);
    for (int i = 0; i < 3; i++) { /* it is asked for, and answered, before the move is done */
        assert_int_equal(spool_want(sp, id, SPOOL_WANT_ROWS | SPOOL_WANT_CONTENT), -EAGAIN);
        turn(sp);
    }
    PQclear(PQexec(other, "COMMIT"));
    while (!spool_commit_end(sp, &rc)) {
        turn(sp);
    }
    fixture_ok(sp, rc);
    finish(sp, id);
    fixture_ok(sp, spool_commit(sp));
    assert_int_equal(count("fresh_0") + count("part") + count("message"), 0);
    spool_close(sp);
    PQfinish(other);
}

/* Rows that no node has made, with the keys of two messages: one commit fails for each, and all
 * else moves. */
static void what_has_a_row_in_its_way_stays(void **state)
{
    struct spool *sp;
    struct msg_id ids[20];
    int rc, failures = 0;

    (void)state;
    (void)postgres_server_ask(&server, "UPDATE sluice.cluster SET fresh_now = 0");
    sp = open_spool();
    for (int i = 0; i < 20; i++) {
        fixture_ok(sp, fixture_submit(sp, "s@example.org", "a@one.example", 1000 + i, 1000, true,
                                      &ids[i]));
    }
    fixture_ok(sp, spool_commit(sp));
    in_the_way(ids[3]);
    in_the_way(ids[11]);
    cluster_spool_move_at_once(sp);
    (void)postgres_server_ask(&server, "UPDATE sluice.cluster SET fresh_now = 1");
    while (count("fresh_0") > 2) {
        turn(sp);
        if (!spool_commit_is_wanted(sp)) {
            continue;
        }
        spool_commit_begin(sp);
        while (!spool_commit_end(sp, &rc)) {
            turn(sp);
        }
        assert_true(rc == 0 || rc == -EUCLEAN);
        failures += rc != 0;
    }
    assert_int_equal(failures, 2);
    assert_int_equal(count("part"), 20);
    assert_false(spool_commit_is_wanted(sp));
    (void)postgres_server_ask(&server, "DELETE FROM sluice.part WHERE sender = 'away'");
    for (int i = 0; i < 20; i++) {
        finish(sp, ids[i]);
    }
    fixture_ok(sp, spool_commit(sp));
    assert_int_equal(count("fresh_0") + count("part") + count("message") + count("recipient"), 0);
    spool_close(sp);
}

/* The first is seen by a node that begins then, too. */
static const struct {
    const char *alter, *said, *undo;
} forms[] = {
    {"ALTER TABLE sluice.part ALTER due TYPE text",
     "column due (of part, message) has another type",
     "ALTER TABLE sluice.part ALTER due TYPE bigint USING due::bigint"},
    {"ALTER TABLE sluice.part ALTER created TYPE numeric",
     "column created (of part, message) has another type",
     "ALTER TABLE sluice.part ALTER created TYPE bigint"},
    {"ALTER TABLE sluice.recipient ALTER orcpt TYPE text USING encode(orcpt, 'escape')",
     "column orcpt (of recipient) has another type",
     "ALTER TABLE sluice.recipient ALTER orcpt TYPE bytea USING orcpt::bytea"},
    {"ALTER TABLE sluice.content ALTER bytes TYPE text USING encode(bytes, 'hex')",
     "column bytes (of content, message, fresh_0 to fresh_2) has another type",
     "ALTER TABLE sluice.content ALTER bytes TYPE bytea USING decode(bytes, 'hex')"},
    {"ALTER TABLE sluice.message RENAME envid TO away", "column m.envid does not exist",
     "ALTER TABLE sluice.message RENAME away TO envid"},
    {"ALTER TABLE sluice.part DROP reason", "column x.reason does not exist",
     "ALTER TABLE sluice.part ADD reason bytea NOT NULL DEFAULT ''"},
    {"ALTER TABLE sluice.recipient RENAME TO away", "relation \"recipient\" does not exist",
     "ALTER TABLE sluice.away RENAME TO recipient"},
};

/* Ask for the message until it is said why it does not come. */
static void wait_for_words(struct spool *sp, struct msg_id id, const char *words)
{
    struct spool_event event;
    bool is_said = false;

    while (!is_said) {
        assert_int_equal(spool_want(sp, id, SPOOL_WANT_ROWS | SPOOL_WANT_CONTENT), -EAGAIN);
        (void)spool_commits_wait(sp, US_PER_S);
        spool_commits_turn(sp);
        while (spool_next_event(sp, &event)) {
            if (event.type == SPOOL_EVENT_WARNING) {
                is_said |= memmem(event.text.ptr, event.text.len, words, strlen(words)) != NULL;
            }
        }
    }
}

static void while_a_table_has_another_form_no_mail_is_set_aside(void **state)
{
    struct spool *sp = NULL;
    struct spool_message m;
    struct msg_id id;

    (void)state;
    (void)postgres_server_ask(&server, "UPDATE sluice.cluster SET fresh_now = 0");
    sp = open_spool();
    fixture_ok(sp, fixture_submit(sp, "s@example.org", "a@one.example", 1, 300000, true, &id));
    fixture_ok(sp, spool_commit(sp));
    spool_unclaim(sp, id);
    spool_close(sp);
    for (size_t i = 0; i <= sizeof forms / sizeof forms[0]; i++) {
        size_t n = i > 0 ? i - 1 : 0;

        if (i > 0) {
            sp = open_spool();
        }
        (void)postgres_server_ask(&server, forms[n].alter);
        if (i == 0) {
            sp = open_spool();
        }
        wait_for_words(sp, id, forms[n].said);
        (void)postgres_server_ask(&server, forms[n].undo);
        bring(sp, id);
        fixture_ok(sp, spool_read(sp, id, &m));
        assert_int_equal(m.state, SPOOL_INCOMING);
        assert_true(fixture_content_ok(sp, &m));
        spool_close(sp);
    }
}

POSTGRES_MAIN(start_server, stop_server,
              cmocka_unit_test(what_passes_for_long_comes_to_wait_and_goes_on),
              cmocka_unit_test(a_message_of_a_table_in_use_is_left_alone),
              cmocka_unit_test(a_result_that_meets_the_move_counts),
              cmocka_unit_test(content_that_is_wanted_while_it_moves_is_read_when_it_has),
              cmocka_unit_test(what_has_a_row_in_its_way_stays),
              cmocka_unit_test(while_a_table_has_another_form_no_mail_is_set_aside))
