/*
 * Counts of what waits that are held against the database: when an answer counts, and what it
 * changes.
 */
#include "unit.h"

#include <string.h>

#include "recount.h"
#include "rng.h"
#include "seeds.h"

#define P       7
#define OTHER_P 8
#define NODE    3

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
    recount_fini(&recount);
    arrivals_fini(&arrivals);
    desk_fini(&desk);
    finder_fini(&finder);
    return 0;
}

static int64_t last; /* number of a batch */

static bool asks(int64_t now)
{
    struct committer_batch *b = recount_ask(&recount, NODE, last, now);

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

/* An answer, row by row. */
static PGresult *new_answer(void)
{
    char name[] = "n";
    PGresAttDesc columns[4];
    PGresult *r = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);

    for (int i = 0; i < 4; i++) {
        columns[i] = (PGresAttDesc){.name = name, .format = 1, .typid = 20, .typlen = 8};
    }
    assert_int_equal(PQsetResultAttrs(r, 4, columns), 1);
    return r;
}

static void add_row(PGresult *r, int64_t p, int64_t state, int64_t count, int64_t bytes)
{
    int row = PQntuples(r);

    put(r, row, 0, p);
    put(r, row, 1, state);
    put(r, row, 2, count);
    put(r, row, 3, bytes);
}

static uint64_t take(PGresult *r)
{
    uint64_t drift = recount_answer(&recount, r);

    PQclear(r);
    return drift;
}

/* The database has so much deferred mail there. */
static uint64_t answer(int64_t messages, int64_t bytes)
{
    PGresult *r = new_answer();

    add_row(r, P, SPOOL_DEFERRED, messages, bytes);
    return take(r);
}

static void the_first_count_is_right_and_a_later_one_finds_errors(void **state)
{
    (void)state;
    assert_true(asks(RECOUNT_AFTER_US));
    assert_int_equal(answer(2, 250), 0);
    assert_true(desk.totals.deferred == 2 && desk.totals.bytes == 250);
    assert_true(asks(RECOUNT_AFTER_US));
    assert_int_equal(answer(2, 250), 0);
    desk_count_stored(&desk, P, SPOOL_DEFERRED, UINT64_MAX, 0); /* one that there was not */
    desk_count_stored(&desk, P, SPOOL_INCOMING, 2, 0);
    assert_true(asks(RECOUNT_AFTER_US));
    assert_int_equal(answer(2, 250), 3);
    assert_true(desk.totals.deferred == 2 && desk.totals.incoming == 0);
    assert_int_equal(recount.drift, 3);
    assert_int_equal(answer(5, 0), 0); /* nothing was asked */
    assert_int_equal(desk.totals.deferred, 2);
}

/* A new message in partition `p`, in the open batch, claimed. */
static void submit(uint64_t id, unsigned p)
{
    const struct spool_message m = {
        .id = {id}, .state = SPOOL_INCOMING, .size = 7, .rcpt_total = 1, .rcpt_pending = 1};
    const struct spool_content content = {.bytes = SLICE("hello\r\n"), .fd = -1};
    struct spool_rcpt to = {.address = SLICE("b@example.net"), .transport = SLICE("smtp")};
    const struct spool_new n = {
        .m = &m, .rcpts = &to, .rcpt_count = 1, .content = &content, .size = 7, .claim = true};
    char nexthop[16];

    for (unsigned i = 0; to.nexthop.len == 0 || partition_of(&to, SLICE("")) != p; i++) {
        (void)snprintf(nexthop, sizeof nexthop, "mx%u", i);
        to.nexthop = slice_string(nexthop);
    }
    assert_int_equal(desk_submit(&desk, (struct msg_id){id}, &n), 0);
}

static void begin_commit(void)
{
    desk_begin_commit(&desk)->number = ++last;
}

static void end_commit(void)
{
    struct partition_set told;

    recount_kept(&recount);
    desk_keep_oldest(&desk, &told);
}

static void what_can_not_be_compared_does_not_count(void **state)
{
    (void)state;
    assert_true(asks(RECOUNT_AFTER_US));
    desk_undo_all(&desk); /* a commit has failed */
    assert_int_equal(answer(9, 9), 0);
    assert_int_equal(desk.totals.deferred, 3);
    assert_true(asks(RECOUNT_AFTER_US));
    desk_arrivals_deleted(&desk);
    assert_int_equal(answer(9, 9), 0);
    assert_int_equal(desk.totals.deferred, 3);
    assert_true(asks(RECOUNT_AFTER_US));
    finder_own(&finder, P, false); /* it leaves */
    assert_int_equal(answer(9, 9), 0);
    assert_int_equal(desk.totals.deferred, 3);
}

static void what_is_always_in_a_batch_is_counted_now_and_then(void **state)
{
    int64_t now = 1000 + RECOUNT_AFTER_US;

    (void)state;
    recount_gained(&recount, P, 1000);
    recount_gained(&recount, OTHER_P, 1000);
    assert_false(asks(now - 1));
    assert_true(asks(now));
    assert_int_equal(recount.asked, 2);
    desk_begin(&desk);
    submit(64, P);
    assert_true(asks(now));
    assert_int_equal(recount.asked, 1);
    assert_int_equal(recount.p[0], OTHER_P);
    begin_commit();
    assert_true(asks(now));
    assert_int_equal(recount.asked, 1);
    assert_true(asks(now + RECOUNT_BUSY_US));
    assert_int_equal(recount.asked, 2);
    desk_undo_all(&desk);
    assert_true(asks(now));
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
    assert_false(asks(RECOUNT_AFTER_US)); /* the database rests */
    assert_true(asks(RECOUNT_AFTER_US));
    assert_true(recount.asked == 1 && recount.p[0] == P);
}

/* ---- traffic that never ends ----------------------------------------------------------------- */

#define HISTORY  3000
#define MAIL_MAX 64

/* Of P: messages, as the database has them. */
struct batch {
    int64_t adds;
    unsigned unread; /* rows of arrival that it deletes */
    int64_t number;
    bool is_there;
};

static struct {
    struct rng rng;
    int64_t messages;
    unsigned rows,
        read; /* of arrival, one message each; those that are in no batch and were read */
    struct batch open, under_way[DESK_UNDER_WAY_MAX];
    unsigned under_way_count;
    uint64_t mail[MAIL_MAX]; /* claimed, and durable */
    uint64_t made[DESK_UNDER_WAY_MAX + 1][MAIL_MAX];
    unsigned mail_count, made_count[DESK_UNDER_WAY_MAX + 1];
    uint64_t last_id;
    PGresult *answer; /* of the snapshot */
    bool is_asked;
    int64_t harm; /* messages that went by hand since the last question that was answered */
    int64_t now;
} world;

static void change_mail(void)
{
    if (!desk.is_open) {
        desk_begin(&desk);
    }
    if (world.mail_count > 0 && rng_below(&world.rng, 2) == 0) {
        assert_int_equal(
            desk_finish_all_done(&desk, (struct msg_id){world.mail[--world.mail_count]}), 0);
        world.open.adds--;
    } else if (world.mail_count + world.made_count[0] + world.made_count[1] + world.made_count[2] <
               MAIL_MAX) {
        submit(world.last_id += 64, P);
        world.made[2][world.made_count[2]++] = world.last_id;
        world.open.adds++;
    }
}

static void begin_world_commit(void)
{
    unsigned at = world.under_way_count;

    if (!desk.is_open || at == DESK_UNDER_WAY_MAX) {
        return;
    }
    begin_commit();
    world.open.number = last;
    world.open.unread = world.read;
    world.under_way[at] = world.open;
    memcpy(world.made[at], world.made[2], sizeof world.made[2]);
    world.made_count[at] = world.made_count[2];
    world.made_count[2] = world.read = 0;
    world.open = (struct batch){0};
    world.under_way_count++;
}

/* The oldest that is not there yet happens. */
static void happen(void)
{
    for (unsigned i = 0; i < world.under_way_count; i++) {
        if (!world.under_way[i].is_there) {
            world.under_way[i].is_there = true;
            world.messages += world.under_way[i].adds;
            world.rows -= world.under_way[i].unread;
            return;
        }
    }
}

static void end_world_commit(void)
{
    if (world.under_way_count == 0 || !world.under_way[0].is_there) {
        return;
    }
    end_commit();
    for (unsigned i = 0; i < world.made_count[0]; i++) {
        world.mail[world.mail_count++] = world.made[0][i];
    }
    memcpy(world.made[0], world.made[1], sizeof world.made[1]);
    world.made_count[0] = world.made_count[1];
    world.made_count[1] = 0;
    world.under_way[0] = world.under_way[1];
    world.under_way_count--;
}

static unsigned in_batches(void)
{
    unsigned rows = 0;

    for (unsigned i = 0; i < world.under_way_count; i++) {
        rows += world.under_way[i].is_there ? 0 : world.under_way[i].unread;
    }
    return rows;
}

/* All rows of arrival that were not read. */
static void read_arrivals(void)
{
    unsigned unread = world.rows - world.read - in_batches();

    for (unsigned i = 0; i < unread; i++) {
        desk_count_arrived(&desk, P, SPOOL_INCOMING, 7);
    }
    world.read += unread;
}

static void take_snapshot(void)
{
    PGresult *r;

    if (!world.is_asked || world.answer != NULL) {
        return;
    }
    world.answer = r = new_answer();
    add_row(r, P, SPOOL_INCOMING, world.messages, 7 * world.messages);
    add_row(r, P, SPOOL_INCOMING, -(int64_t)world.rows, -7 * (int64_t)world.rows);
    for (int64_t n = last > 20 ? last - 20 : 1; n <= last; n++) {
        bool is_there = true;

        for (unsigned i = 0; i < world.under_way_count; i++) {
            is_there = is_there && (world.under_way[i].number != n || world.under_way[i].is_there);
        }
        if (is_there) {
            add_row(r, -1, n, 0, 0);
        }
    }
}

/* What it should be, if the harm were known. */
static void expect_right(void)
{
    int64_t right = world.messages + world.harm + world.open.adds -
                    (int64_t)(world.rows - world.read - in_batches());

    for (unsigned i = 0; i < world.under_way_count; i++) {
        right += world.under_way[i].is_there ? 0 : world.under_way[i].adds;
    }
    assert_true(desk.by_p[P].incoming == (uint64_t)right);
    assert_true(desk.by_p[P].bytes == 7 * (uint64_t)right);
    assert_true(desk.totals.incoming == (uint64_t)right);
}

static void live(uint64_t seed, bool is_harmed)
{
    int64_t asked_harm = 0;
    unsigned answers = 0;

    rng_init(&world.rng, seed);
    for (int i = 0; i < HISTORY; i++) {
        switch (rng_below(&world.rng, 9)) {
        case 0:
        case 1:
            change_mail();
            break;
        case 2:
            begin_world_commit();
            break;
        case 3:
            happen();
            break;
        case 4:
            end_world_commit();
            break;
        case 5: /* another node stores a message */
            world.messages++;
            world.rows++;
            break;
        case 6:
            read_arrivals();
            break;
        case 7:
            if (!world.is_asked && desk.is_open) {
                world.is_asked = asks(world.now += RECOUNT_BUSY_US);
            } else if (rng_below(&world.rng, 4) == 0 && world.answer == NULL) {
                asked_harm = world.harm;
                take_snapshot();
            } else if (rng_below(&world.rng, 4) == 0 && world.answer != NULL) {
                bool was_sure = recount.is_sure[P];

                assert_int_equal(take(world.answer), was_sure ? asked_harm : 0);
                world.harm -= asked_harm;
                asked_harm = 0;
                world.answer = NULL;
                world.is_asked = false;
                answers++;
            }
            break;
        case 8:
            if (is_harmed && rng_below(&world.rng, 50) == 0 && world.messages > 5) {
                world.messages -= 5; /* rows were deleted by hand */
                world.harm += 5;
            }
            break;
        }
        expect_right();
    }
    assert_true(answers > 5);
    PQclear(world.answer);
}

static void history(uint64_t seed)
{
    for (int is_harmed = 0; is_harmed < 2; is_harmed++) {
        memset(&world, 0, sizeof world);
        assert_int_equal(begin(NULL), 0);
        finder_own(&finder, OTHER_P, false);
        desk_count_stored(&desk, P, SPOOL_DEFERRED, UINT64_MAX - 2, (uint64_t)-300);
        live(seed, is_harmed != 0);
        assert_int_equal(end(NULL), 0);
    }
}

static void a_partition_that_is_never_quiet_is_counted_right(void **state)
{
    (void)state;
    for_each_seed(1, 20, history);
}

#define RECOUNT_TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

UNIT_MAIN(RECOUNT_TEST(the_first_count_is_right_and_a_later_one_finds_errors),
          RECOUNT_TEST(what_can_not_be_compared_does_not_count),
          RECOUNT_TEST(what_is_always_in_a_batch_is_counted_now_and_then),
          RECOUNT_TEST(what_is_large_is_counted_alone),
          cmocka_unit_test(a_partition_that_is_never_quiet_is_counted_right))
