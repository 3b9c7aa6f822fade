/* The desk without a database: what a batch has changed is claimed when it has ended. */
#include "unit.h"

#include <errno.h>
#include <string.h>

#include "desk.h"
#include "partition.h"

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
    assert_int_equal(desk_next_due(&desk, &due), 0);
    assert_true(due.us == WALL_NEVER.us);
    end_oldest(); /* it waits in the database now */
    assert_null(desk_any(&desk, 1));
    assert_true(finder_next(&finder) <= 1);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(new_mail_is_claimed_when_it_is_durable, start, stop),
        cmocka_unit_test_setup_teardown(parked_mail_is_claimed_when_it_is_durable, start, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
