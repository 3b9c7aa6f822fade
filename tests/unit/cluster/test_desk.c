/* The desk without a database: what a batch has changed is claimed when it has ended. */
#include "unit.h"

#include <errno.h>
#include <string.h>

#include "desk.h"
#include "partition.h"
#include "parts.h"
#include "rows.h"

#define KEY SLICE("smtp/mx.example.org")

static struct spool base;
static struct finder finder;
static struct desk desk;

static int start(void **state)
{
    (void)state;
    base = (struct spool){.dirty = false};
    finder_init(&finder);
    for (uint16_t p = 0; p < PARTITIONS; p++) {
        finder_own(&finder, p, true);
    }
    desk_init(&desk, &base, &finder);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    desk_fini(&desk);
    finder_fini(&finder);
    return 0;
}

/* A message in the open batch, not claimed; parked under `key`, or due at once. */
static void submit(uint64_t id, struct slice key)
{
    const struct spool_content content = {.bytes = SLICE("hello\r\n"), .fd = -1};
    const struct spool_message m = {.state = key.len > 0 ? SPOOL_DEFERRED : SPOOL_INCOMING,
                                    .parked = key,
                                    .due = {key.len > 0 ? 1000 : 1},
                                    .sender = SLICE("a@example.org"),
                                    .size = 7,
                                    .rcpt_total = 1,
                                    .rcpt_pending = 1};
    const struct spool_rcpt to = {.address = SLICE("b@example.net"),
                                  .transport = SLICE("smtp"),
                                  .nexthop = SLICE("mx.example.org")};
    const struct spool_new n = {
        .m = &m, .rcpts = &to, .rcpt_count = 1, .content = &content, .size = 7};

    desk_begin(&desk);
    assert_int_equal(desk_submit(&desk, (struct msg_id){id}, &n), 0);
}

static size_t claimed(void)
{
    struct msg_id ids[4];
    size_t count;

    assert_int_equal(desk_claim(&desk, SPOOL_INCOMING, (struct wall){10}, 4, ids, &count), 0);
    return count;
}

static size_t claimed_by_key(bool *ret_more)
{
    struct msg_id ids[4];
    size_t count;

    assert_int_equal(desk_claim_parked(&desk, KEY, (struct wall){10}, 4, ids, &count, ret_more), 0);
    return count;
}

static void end_oldest(void)
{
    struct partition_set told;

    desk_keep_oldest(&desk, &told);
}

static void new_mail_is_claimed_when_it_is_durable(void **state)
{
    struct wall due;

    (void)state;
    submit(1, SLICE(""));
    assert_int_equal(claimed(),
                     0); /* two batches may be under way: this one stays open meanwhile */
    (void)desk_begin_commit(&desk);
    assert_int_equal(claimed(), 0);
    assert_int_equal(desk_next_due(&desk, WALL_NEVER, &due), 0);
    assert_true(due.us == WALL_NEVER.us);
    end_oldest(); /* it waits in the database now */
    assert_null(desk_any(&desk, 1));
    assert_true(finder_next(&finder) <= 1);
}

/* Its owner may change it from then on, and would not be asked. */
static void mail_of_another_node_leaves_when_it_is_durable(void **state)
{
    struct msg_id id = {1};
    uint16_t p;

    (void)state;
    submit(2, SLICE(""));
    p = desk_any(&desk, 2)->f.p;
    desk_rollback(&desk);
    finder_own(&finder, p, false);
    submit(id.n, SLICE(""));
    committer_batch_free(rows_write(&desk, desk_begin_commit(&desk)));
    assert_int_equal(desk_want(&desk, id, false), 0); /* it is looked at */
    end_oldest();
    assert_null(desk_any(&desk, id.n));
}

static void parked_mail_is_claimed_when_it_is_durable(void **state)
{
    bool more = false;

    (void)state;
    submit(1, KEY);
    assert_int_equal(claimed_by_key(&more), 0);
    assert_true(more);
    assert_false(desk_is_there_now(&desk));
    (void)desk_begin_commit(&desk);
    assert_int_equal(claimed_by_key(&more), 0);
    assert_true(more);
    end_oldest();
    assert_true(desk_is_there_now(&desk));
    assert_false(desk_is_there_now(&desk));
    assert_true(desk_key_waits_elsewhere(desk_key(&desk, KEY)));
}

/* Two recipients for one place, claimed; returns its partition. */
static uint16_t claim_two(uint64_t id)
{
    const struct spool_content content = {.bytes = SLICE("hello\r\n"), .fd = -1};
    const struct spool_message m = {.id = {id},
                                    .state = SPOOL_INCOMING,
                                    .due = {1},
                                    .sender = SLICE("a@example.org"),
                                    .size = 7,
                                    .rcpt_total = 2,
                                    .rcpt_pending = 2};
    const struct spool_rcpt to[2] = {{.address = SLICE("b@example.net"),
                                      .transport = SLICE("smtp"),
                                      .nexthop = SLICE("mx.example.org")},
                                     {.address = SLICE("c@example.net"),
                                      .transport = SLICE("smtp"),
                                      .nexthop = SLICE("mx.example.org")}};
    const struct spool_new n = {
        .m = &m, .rcpts = to, .rcpt_count = 2, .content = &content, .size = 7, .claim = true};

    desk_begin(&desk);
    assert_int_equal(desk_submit(&desk, (struct msg_id){id}, &n), 0);
    (void)desk_begin_commit(&desk);
    end_oldest();
    return partition_of(&to[0], SLICE(""));
}

static void expect_whole(uint64_t id, uint16_t p)
{
    const struct desk_message *msg = desk_find(&desk, (struct msg_id){id});

    assert_non_null(msg);
    assert_int_equal(msg->f.p, p);
    assert_true(msg->f.claimed && !msg->f.m.gathers && msg->f.m.rcpt_pending == 2);
    assert_int_equal(msg->f.parts_left, 0);
    assert_non_null(desk_rcpt(msg, 1));
    assert_non_null(desk_rcpt(msg, 2));
    assert_int_equal(desk.by_p[p].incoming, 1);
}

/* One of the two goes to another partition, in the open batch: the message is divided. */
static void divide_it(uint16_t p)
{
    static const uint32_t stays[] = {1}, goes[] = {2};
    const unsigned other = p == 255 ? 254 : p + 1u;
    const struct spool_share shares[] = {{{100}, p, stays, 1}, {{200}, other, goes, 1}};
    const struct spool_relocation to = {shares, 2, {5}, {1000}};
    struct partition_set open;
    struct msg_id whole = {1};
    bool gone;

    desk_begin(&desk);
    assert_int_equal(desk_finish(&desk, whole, (struct wall){77}, &gone), 0);
    assert_false(gone);
    assert_int_equal(desk_move(&desk, whole, &to), 0);
    assert_true(desk_find(&desk, whole)->f.m.gathers);
    assert_int_equal(desk_find(&desk, whole)->f.parts_left, 2);
    assert_int_equal(desk_partition(&desk, whole), parts_home(whole));
    assert_int_equal(desk_partition(&desk, (struct msg_id){100}), p);
    assert_true(desk_find(&desk, (struct msg_id){100})->f.m.due.us == 77);
    assert_int_equal(desk_partition(&desk, (struct msg_id){200}), other);
    assert_true(desk_find(&desk, (struct msg_id){200})->f.m.due.us == 5);
    assert_int_equal(spool_whole(&desk_find(&desk, (struct msg_id){200})->f.m).n, 1);
    desk_open_in(&desk, &open);
    assert_true(partition_set_has(&open, p) && partition_set_has(&open, (int)other) &&
                partition_set_has(&open, parts_home(whole)));
    /* Neither is tried before it is durable. */
    assert_int_equal(claimed(), 0);
}

static void what_moves_is_as_it_was_when_its_batch_fails(void **state)
{
    uint16_t p = claim_two(1);

    (void)state;
    expect_whole(1, p);
    divide_it(p);
    desk_rollback(&desk);
    expect_whole(1, p);
    assert_null(desk_find(&desk, (struct msg_id){100}));
    divide_it(p);
    (void)desk_begin_commit(&desk);
    desk_undo_all(&desk); /* its commit was lost */
    expect_whole(1, p);
    assert_null(desk_find(&desk, (struct msg_id){200}));
    divide_it(p);
    (void)desk_begin_commit(&desk);
    end_oldest();
    assert_null(desk_any(&desk, 1)); /* all of it waits in the database now */
    assert_null(desk_any(&desk, 100));
}

static void only_what_is_pending_moves(void **state)
{
    static const uint32_t none[] = {3};
    const struct spool_share share = {{1}, 7, none, 1};
    const struct spool_relocation to = {&share, 1, {5}, {1000}};
    uint16_t p = claim_two(1);

    (void)state;
    desk_begin(&desk);
    assert_int_equal(desk_move(&desk, (struct msg_id){1}, &to), -EINVAL);
    expect_whole(1, p);
    desk_rollback(&desk);
}

/* A part that another node has, as it was read just now; `whole` 0: it is gone. */
static void read_part(uint64_t id, uint64_t whole)
{
    const struct spool_message m = {
        .id = {id}, .whole = {whole}, .state = SPOOL_DEFERRED, .due = {1000}};
    struct desk_message *msg = desk_expect(&desk, id, DESK_LOOKED);

    assert_non_null(msg);
    if (whole != 0) {
        desk_fill(&desk, msg, 7, ROW_WAITING, &m);
    }
    desk_loaded(&desk, msg);
}

static size_t parts_of(uint64_t whole)
{
    struct msg_id ids[4];
    size_t count;

    assert_int_equal(
        desk_parts_of(&desk, (struct msg_id){whole}, (struct msg_id){0}, 4, ids, &count), 0);
    return count;
}

static void parts_of_others_are_listed_as_they_were_read_last(void **state)
{
    (void)state;
    finder_own(&finder, 7, false);
    read_part(200, 1);
    read_part(100, 1);
    assert_int_equal(parts_of(1), 2);
    desk.look = ++desk.looks; /* of which what was read before is no part */
    assert_int_equal(parts_of(1), 0);
    read_part(200, 1);
    assert_int_equal(parts_of(1), 1);
    read_part(100, 2);
    assert_int_equal(parts_of(1), 1);
    assert_int_equal(parts_of(2), 1);
    read_part(200, 0);
    assert_non_null(desk_expect(&desk, 100, DESK_LOOKED));
    assert_int_equal(parts_of(1), 0);
    assert_int_equal(parts_of(2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(new_mail_is_claimed_when_it_is_durable, start, stop),
        cmocka_unit_test_setup_teardown(mail_of_another_node_leaves_when_it_is_durable, start,
                                        stop),
        cmocka_unit_test_setup_teardown(parked_mail_is_claimed_when_it_is_durable, start, stop),
        cmocka_unit_test_setup_teardown(what_moves_is_as_it_was_when_its_batch_fails, start, stop),
        cmocka_unit_test_setup_teardown(only_what_is_pending_moves, start, stop),
        cmocka_unit_test_setup_teardown(parts_of_others_are_listed_as_they_were_read_last, start,
                                        stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
