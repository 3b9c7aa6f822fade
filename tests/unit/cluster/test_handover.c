/*
 * What is handed over of destinations, in a real database: it is there for the next owner of their
 * partitions, within its bounds, and rows that make no sense do no harm.
 */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "cluster_spool.h"
#include "partition.h"
#include "postgres_server.h"
#include "spool_commits.h"
#include "spool_handover.h"

#define S INT64_C(1000000)

static struct postgres_server server;

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

static int make_tables(void **state)
{
    (void)state;
    postgres_server_make_tables(&server);
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

/* What the node knows: `count` destinations that are dead, the first for the longest. */
struct known {
    struct spool_suspension s;
    unsigned count;
};

static void tell(void *arg, void (*add)(void *to, const struct spool_suspension *s), void *to)
{
    const struct known *k = arg;
    struct spool_suspension s = k->s;
    char name[40];

    if (k->count == 1) {
        add(to, &s);
    }
    for (unsigned i = 0; i < k->count && k->count > 1; i++) {
        (void)snprintf(name, sizeof name, "%u.example", i);
        s.nexthop = s.destination = slice_string(name);
        s.left_us = (1000000 - (int64_t)i) * S;
        add(to, &s);
    }
}

static int rows(void)
{
    return atoi(postgres_server_ask(&server, "SELECT count(*) FROM sluice.lease_note"));
}

/* A life of the node that knows this and ends in order. */
static void live(struct known *k)
{
    struct spool *sp = open_spool();

    spool_hand_over_from(sp, tell, k);
    spool_close(sp);
}

/* What comes to the next life, in order of names; it has committed nothing before. */
static unsigned come(struct spool *sp, struct spool_suspension *ret, size_t max)
{
    struct spool_suspension s;
    struct spool_event event;
    unsigned count = 0;
    int rc = 0;

    spool_commit_begin(sp); /* held until all is known of the partitions */
    while (!spool_commit_end(sp, &rc)) {
        spool_commits_turn(sp);
        (void)spool_commits_wait(sp, S);
        while (spool_next_event(sp, &event)) {
        }
    }
    assert_int_equal(rc, 0);
    assert_true(spool_partitions_came(sp));
    assert_false(spool_partitions_came(sp));
    while (spool_next_suspension(sp, &s)) {
        if (count < max) {
            ret[count] = s;
        }
        count++;
    }
    return count;
}

static struct known dead(unsigned count)
{
    return (struct known){.s = {.transport = SLICE("smtp"),
                                .nexthop = SLICE("Example.com"),
                                .destination = SLICE("joe\xff@example.com"),
                                .is_dead = true,
                                .left_us = 500 * S,
                                .deaths = 300,
                                .reason = SLICE("4.4.1 \xfe refused")},
                          .count = count};
}

static void what_one_life_knew_comes_to_the_next(void **state)
{
    struct known k = dead(1);
    struct spool_suspension s;
    struct spool *sp;

    (void)state;
    live(&k);
    assert_int_equal(rows(), 1);
    sp = open_spool();
    spool_hand_over_from(sp, tell, &k);
    assert_int_equal(come(sp, &s, 1), 1);
    assert_true(s.is_dead);
    assert_int_equal(s.left_us, 500 * S);
    assert_int_equal(s.deaths, 255);
    spool_close(sp);
    k.s.is_dead = false;
    live(&k);
    sp = open_spool();
    assert_int_equal(come(sp, &s, 0), 1);
    spool_close(sp); /* which knows of nothing */
    assert_int_equal(rows(), 0);
}

static void texts_of_any_bytes_come_as_they_were(void **state)
{
    struct known k = dead(1);
    struct spool_suspension s;
    struct spool *sp;
    unsigned count = 0;

    (void)state;
    live(&k);
    sp = open_spool();
    while (count == 0) {
        spool_commits_turn(sp);
        (void)spool_commits_wait(sp, S);
        while (spool_next_suspension(sp, &s)) {
            count++;
            assert_true(slice_equal(s.transport, k.s.transport));
            assert_true(slice_equal(s.nexthop, k.s.nexthop));
            assert_true(slice_equal(s.destination, k.s.destination));
            assert_true(slice_equal(s.reason, k.s.reason));
        }
    }
    spool_close(sp);
}

static void without_anything_to_note_nothing_is_written(void **state)
{
    struct known k = dead(0);
    const char *const written = "SELECT n_tup_ins + n_tup_del FROM pg_stat_user_tables WHERE "
                                "relname = 'lease_note' AND schemaname = 'sluice'";
    struct spool *sp = open_spool();

    (void)state;
    spool_hand_over_from(sp, tell, &k);
    (void)come(sp, NULL, 0);
    assert_false(spool_commit_is_wanted(sp));
    spool_close(sp);
    assert_string_equal(postgres_server_ask(&server, written), "0");
}

static void a_life_that_is_killed_has_noted_it_before(void **state)
{
    struct known k = dead(3);
    struct spool *sp = open_spool();
    int rc = 0;

    (void)state;
    spool_hand_over_from(sp, tell, &k);
    while (!spool_commit_is_wanted(sp)) { /* the first look is made at once */
        spool_commits_turn(sp);
        (void)spool_commits_wait(sp, S);
    }
    spool_commit_begin(sp);
    assert_false(spool_commit_is_wanted(sp));
    while (!spool_commit_end(sp, &rc)) {
        spool_commits_turn(sp);
        (void)spool_commits_wait(sp, S);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(rows(), 3);
    spool_close(sp);
    assert_int_equal(rows(), 3);
}

static void those_that_end_latest_are_kept(void **state)
{
    struct known k = dead(12000);

    (void)state;
    live(&k);
    assert_int_equal(rows(), 10000);
    assert_string_equal(
        postgres_server_ask(&server, "SELECT max(left_us) / 1000000 || ' ' || min(left_us) / "
                                     "1000000 FROM sluice.lease_note"),
        "1000000 990001");
}

/* With p and a hundred years in the place of %d and %s. */
static const char *const hostile[] = {
    "(%d, 3, 'smtp/a.example', 'a.example', 1, %s, 0, '')",
    "(%d, 1, 'smtp', 'a.example', 1, %s, 0, '')",
    "(%d, 1, '/a.example', 'a.example', 1, %s, 0, '')",
    "(%d, 1, 'smtp/', 'a.example', 1, %s, 0, '')",
    "(%d, 1, 'smtp/a.example', 'a.example', 0, %s, 0, '')",
    "(%d, 1, 'smtp/a.example', 'a.example', -1, %s, 0, '')",
    "(%d, 1, 'smtp/a.example', 'a.example', 9223372036854775807, %s, 0, '')",
    "(%d, 1, 'smtp/a.example', 'a.example', 1, -%s, 0, '')",
    "(%d, 1, 'smtp/a.example', 'a.example', 1, %s, -1, '')",
    "(%d, 1, 'smtp/a.example', 'a.example', 1, %s, 256, '')",
    "(%d, 1, 'smtp/a.example', 'a.example', 1, %s, 0, repeat('x', 513)::bytea)",
    "(%d, 1, 'smtp/' || repeat('x', 1025), 'a.example', 1, %s, 0, '')",
    "(%d, 1, E'\\x02smtp/a.example', 'a.example', 1, %s, 0, '')",
    "(%d, 1, 'smtp/a.example', repeat('x', 1025), 1, %s, 0, '')",
    "(%d + 1, 1, 'smtp/a.example', 'a.example', 1, %s, 0, '')",
    "(-1 - %d, 1, 'smtp/a.example', 'a.example', 1, %s, 0, '')",
    "(256 + %d, 1, 'smtp/a.example', 'a.example', 1, %s, 0, '')",
};

static void rows_that_make_no_sense_are_passed_over(void **state)
{
    unsigned p = partition_of(
        &(struct spool_rcpt){.transport = SLICE("smtp"), .nexthop = SLICE("a.example")}, SLICE(""));
    struct spool_suspension s;
    struct spool *sp;
    char row[300], sql[600];

    (void)state;
    for (size_t i = 0; i < COUNT(hostile); i++) {
        (void)snprintf(row, sizeof row, hostile[i], (int)p, "3000000000000000");
        (void)snprintf(sql, sizeof sql,
                       "DELETE FROM sluice.lease_note; INSERT INTO sluice.lease_note (p, what, "
                       "destination, nexthop, left_us, until, deaths, reason) VALUES %s; SELECT 1",
                       row);
        assert_string_equal(postgres_server_ask(&server, sql), "1");
        sp = open_spool();
        if (come(sp, &s, 0) != 0) {
            fail_msg("it came: %s", row);
        }
        spool_close(sp);
    }
    (void)snprintf(sql, sizeof sql,
                   "DELETE FROM sluice.lease_note; INSERT INTO sluice.lease_note (p, what, "
                   "destination, nexthop, left_us, until) VALUES (%u, 2, 'smtp/a.example', "
                   "'a.example', 1, 3000000000000000); SELECT 1",
                   p);
    (void)postgres_server_ask(&server, sql);
    sp = open_spool();
    assert_int_equal(come(sp, &s, 0), 1); /* so the others did not for what they are */
    spool_close(sp);
}

static void tables_of_the_first_format_have_no_place_for_it(void **state)
{
    struct known k = dead(1);

    (void)state;
    (void)postgres_server_ask(&server,
                              "UPDATE sluice.cluster SET format = 1, min_format = 1; ALTER TABLE "
                              "sluice.lease_note DROP nexthop, DROP left_us, DROP deaths, DROP "
                              "reason; SELECT 1");
    live(&k);
    live(&k);
    assert_int_equal(rows(), 0);
}

POSTGRES_MAIN(start_server, stop_server,
              cmocka_unit_test_setup(what_one_life_knew_comes_to_the_next, make_tables),
              cmocka_unit_test_setup(texts_of_any_bytes_come_as_they_were, make_tables),
              cmocka_unit_test_setup(without_anything_to_note_nothing_is_written, make_tables),
              cmocka_unit_test_setup(a_life_that_is_killed_has_noted_it_before, make_tables),
              cmocka_unit_test_setup(those_that_end_latest_are_kept, make_tables),
              cmocka_unit_test_setup(rows_that_make_no_sense_are_passed_over, make_tables),
              cmocka_unit_test_setup(tables_of_the_first_format_have_no_place_for_it, make_tables))
