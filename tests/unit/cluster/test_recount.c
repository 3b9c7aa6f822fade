/*
 * Counts of what waits that are held against the database: when an answer counts, and what it
 * changes.
 */
#include "unit.h"

#include <string.h>

#include "recount.h"

#define P       7
#define OTHER_P 8

static struct spool base;
static struct finder finder;
static struct desk desk;
static struct arrivals arrivals;
static struct recount recount;

static int begin(void **state)
{
    (void)state;
    base = (struct spool){.dirty = false};
    finder_init(&finder);
    finder_own(&finder, P, true);
    finder_own(&finder, OTHER_P, true);
    desk_init(&desk, &base, &finder);
    arrivals_init(&arrivals);
    recount_init(&recount, &desk, &arrivals);
    desk_count_stored(&desk, P, SPOOL_DEFERRED, 3, 300);
    return 0;
}

static int end(void **state)
{
    (void)state;
    arrivals_fini(&arrivals);
    desk_fini(&desk);
    finder_fini(&finder);
    return 0;
}

static bool asks(int64_t now)
{
    struct committer_batch *b = recount_ask(&recount, 0, now);

    committer_batch_free(b);
    return b != NULL;
}

static void put(PGresult *r, int row, int column, int64_t n)
{
    char bytes[8];

    for (int i = 0; i < 8; i++) {
        bytes[i] = (char)((uint64_t)n >> (56 - 8 * i));
    }
    assert_int_equal(PQsetvalue(r, row, column, bytes, 8), 1);
}

/* The database has so much deferred mail there; `unread` rows of arrival were not read. */
static uint64_t answer(int64_t messages, int64_t bytes, int64_t unread)
{
    const int64_t rows[][4] = {{P, SPOOL_DEFERRED, messages, bytes}, {-1, 0, unread, 0}};
    char name[] = "n";
    PGresAttDesc columns[4];
    PGresult *r = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    uint64_t drift;

    for (int i = 0; i < 4; i++) {
        columns[i] = (PGresAttDesc){.name = name, .format = 1, .typid = 20, .typlen = 8};
    }
    assert_int_equal(PQsetResultAttrs(r, 4, columns), 1);
    for (int row = 0; row < 2; row++) {
        for (int i = 0; i < 4; i++) {
            put(r, row, i, rows[row][i]);
        }
    }
    drift = recount_answer(&recount, r);
    PQclear(r);
    return drift;
}

static void the_first_count_is_right_and_a_later_one_finds_errors(void **state)
{
    (void)state;
    assert_true(asks(RECOUNT_AFTER_US));
    assert_int_equal(answer(2, 250, 0), 0);
    assert_true(desk.totals.deferred == 2 && desk.totals.bytes == 250);
    assert_true(asks(RECOUNT_AFTER_US));
    assert_int_equal(answer(2, 250, 0), 0);
    desk_count_stored(&desk, P, SPOOL_DEFERRED, UINT64_MAX, 0); /* one that there was not */
    desk_count_stored(&desk, P, SPOOL_INCOMING, 2, 0);
    assert_true(asks(RECOUNT_AFTER_US));
    assert_int_equal(answer(2, 250, 0), 3);
    assert_true(desk.totals.deferred == 2 && desk.totals.incoming == 0);
    assert_int_equal(recount.drift, 3);
    assert_int_equal(answer(5, 0, 0), 0); /* nothing was asked */
    assert_int_equal(desk.totals.deferred, 2);
}

static void what_changes_meanwhile_does_not_count(void **state)
{
    (void)state;
    assert_true(asks(RECOUNT_AFTER_US));
    desk_count_stored(&desk, P, SPOOL_DEFERRED, 1, 10);
    assert_int_equal(answer(9, 9, 0), 0);
    assert_int_equal(desk.totals.deferred, 4);
    assert_true(asks(RECOUNT_AFTER_US));
    assert_int_equal(answer(9, 9, 1), 0); /* others have told of something that is not read */
    assert_int_equal(desk.totals.deferred, 4);
    assert_true(asks(RECOUNT_AFTER_US));
    finder_own(&finder, P, false); /* it leaves */
    assert_int_equal(answer(9, 9, 0), 0);
    assert_int_equal(desk.totals.deferred, 4);
}

static void what_is_in_a_batch_or_new_is_not_counted(void **state)
{
    const struct spool_message m = {.state = SPOOL_INCOMING, .size = 7, .rcpt_total = 1};
    const struct spool_content content = {.bytes = SLICE("hello\r\n"), .fd = -1};
    struct spool_rcpt to = {.address = SLICE("b@example.net"), .transport = SLICE("smtp")};
    const struct spool_new n = {
        .m = &m, .rcpts = &to, .rcpt_count = 1, .content = &content, .size = 7};
    char nexthop[16];

    (void)state;
    recount_gained(&recount, P, 1000);
    recount_gained(&recount, OTHER_P, 1000);
    assert_false(asks(999 + RECOUNT_AFTER_US));
    assert_true(asks(1000 + RECOUNT_AFTER_US));
    assert_int_equal(recount.asked, 2);
    for (unsigned i = 0; to.nexthop.len == 0 || partition_of(&to, SLICE("")) != P; i++) {
        (void)snprintf(nexthop, sizeof nexthop, "mx%u", i);
        to.nexthop = slice_string(nexthop);
    }
    desk_begin(&desk);
    assert_int_equal(desk_submit(&desk, (struct msg_id){64}, &n), 0);
    assert_true(asks(1000 + RECOUNT_AFTER_US));
    assert_int_equal(recount.asked, 1);
    assert_int_equal(recount.p[0], OTHER_P);
    (void)desk_begin_commit(&desk);
    assert_true(asks(1000 + RECOUNT_AFTER_US));
    assert_int_equal(recount.asked, 1);
    desk_undo_all(&desk);
    assert_true(asks(1000 + RECOUNT_AFTER_US));
    assert_int_equal(recount.asked, 2);
}

static void what_is_large_is_counted_alone(void **state)
{
    (void)state;
    desk_count_stored(&desk, OTHER_P, SPOOL_HOLD, RECOUNT_MESSAGES, 0);
    assert_true(asks(RECOUNT_AFTER_US));
    assert_true(recount.asked == 1 && recount.p[0] == P);
    assert_true(asks(RECOUNT_AFTER_US));
    assert_true(recount.asked == 1 && recount.p[0] == OTHER_P);
}

#define RECOUNT_TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

UNIT_MAIN(RECOUNT_TEST(the_first_count_is_right_and_a_later_one_finds_errors),
          RECOUNT_TEST(what_changes_meanwhile_does_not_count),
          RECOUNT_TEST(what_is_in_a_batch_or_new_is_not_counted),
          RECOUNT_TEST(what_is_large_is_counted_alone))
