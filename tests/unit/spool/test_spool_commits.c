/*
 * Commits that end at once, and commits that end later: what the callers of spool_commits.h rely
 * on.
 */
#include "unit.h"

#include <errno.h>

#include "memory_spool.h"
#include "spool_engine.h"
#include "spool_fixture.h"

static struct memory_later later;

static struct spool *open_later(void)
{
    later = (struct memory_later){.holds = false};
    return memory_spool_open_later(&(struct spool_options){.inline_limit = INLINE_LIMIT}, &later);
}

static void close_later(struct spool *sp)
{
    spool_close(sp);
    memory_later_free(&later);
}

static struct msg_id submit(struct spool *sp)
{
    struct msg_id id;

    fixture_ok(sp, fixture_submit(sp, "a@example.org", "b@example.com", 1, 10, false, &id));
    return id;
}

static uint64_t messages(struct spool *sp)
{
    struct spool_totals totals;

    fixture_ok(sp, spool_totals(sp, &totals));
    return totals.incoming + totals.deferred;
}

static void an_engine_whose_commits_end_at_once_tells_it_all_the_same(void **state)
{
    struct fixture fx;
    struct spool *sp;
    int rc = 1;

    (void)state;
    fixture_init(&fx);
    sp = fixture_open(&fx);
    assert_int_equal(spool_commits_max(sp), 1);
    assert_int_equal(spool_commits_fd(sp), -1);
    assert_false(spool_commit_end(sp, &rc));
    (void)submit(sp);
    spool_commit_begin(sp);
    assert_false(spool_dirty(sp));
    assert_int_equal(spool_commits_under_way(sp), 1);
    assert_true(spool_commits_wait(sp, 0));
    assert_true(spool_commit_end(sp, &rc));
    assert_int_equal(rc, 0);
    assert_int_equal(spool_commits_under_way(sp), 0);
    spool_commit_begin(sp); /* of nothing */
    assert_true(spool_commit_end(sp, &rc));
    assert_int_equal(rc, 0);
    spool_close(sp);
    fixture_fini(&fx);
}

static void commits_end_in_their_order(void **state)
{
    struct spool *sp = open_later();
    int rc = 1;

    (void)state;
    memory_later_hold(&later, true);
    (void)submit(sp);
    spool_commit_begin(sp);
    (void)submit(sp);
    spool_commit_begin(sp);
    (void)submit(sp);
    assert_int_equal(spool_commits_under_way(sp), spool_commits_max(sp));
    assert_false(spool_commit_end(sp, &rc));
    assert_false(spool_commits_wait(sp, 0));
    memory_later_hold(&later, false);
    assert_true(spool_commit_end(sp, &rc));
    assert_int_equal(rc, 0);
    assert_true(spool_commit_end(sp, &rc));
    assert_false(spool_commit_end(sp, &rc));
    assert_true(spool_dirty(sp));
    assert_int_equal(spool_commit(sp), 0); /* waits */
    assert_int_equal(messages(sp), 3);
    close_later(sp);
}

static void a_failure_undoes_all_that_came_later(void **state)
{
    struct spool *sp = open_later();
    struct msg_id ids[2];
    size_t count;
    int rc = 0;

    (void)state;
    (void)submit(sp);
    assert_int_equal(spool_commit(sp), 0);
    memory_later_hold(&later, true);
    (void)submit(sp);
    spool_commit_begin(sp);
    (void)submit(sp);
    spool_commit_begin(sp);
    (void)submit(sp);
    later.rc = -EIO;
    memory_later_hold(&later, false);
    assert_true(spool_commit_end(sp, &rc));
    assert_int_equal(rc, -EIO);
    assert_false(spool_dirty(sp));
    assert_true(spool_commit_end(sp, &rc));
    assert_int_equal(rc, -ECANCELED);
    assert_int_equal(spool_commits_under_way(sp), 0);
    assert_int_equal(messages(sp), 1);
    later.rc = 0;
    (void)submit(sp);
    assert_int_equal(spool_commit(sp), 0);
    fixture_ok(sp, spool_claim(sp, SPOOL_INCOMING, (struct wall){10}, 2, ids, &count));
    assert_int_equal(count, 2);
    close_later(sp);
}

static void a_batch_that_failed_before_its_commit_is_told_in_its_turn(void **state)
{
    struct spool *sp = open_later();
    int rc = 1;

    (void)state;
    memory_later_hold(&later, true);
    (void)submit(sp);
    spool_commit_begin(sp);
    (void)submit(sp);
    assert_int_equal(spool_batch_failed(sp, -ENOSPC), -ENOSPC);
    spool_commit_begin(sp);
    assert_int_equal(spool_commits_max(sp), 2); /* nothing follows on it before it is told */
    (void)submit(sp);
    assert_false(spool_commit_end(sp, &rc));
    memory_later_hold(&later, false);
    assert_true(spool_commit_end(sp, &rc));
    assert_int_equal(rc, 0);
    assert_true(spool_commit_end(sp, &rc));
    assert_int_equal(rc, -ENOSPC);
    assert_false(spool_dirty(sp));
    assert_int_equal(messages(sp), 1);
    (void)submit(sp);
    assert_int_equal(spool_commit(sp), 0);
    close_later(sp);
}

static void what_a_commit_under_way_has_changed_is_not_claimed(void **state)
{
    struct spool *sp = open_later();
    struct msg_id id = submit(sp), ids[2];
    size_t count;
    int rc = 0;

    (void)state;
    memory_later_hold(&later, true);
    spool_commit_begin(sp);
    fixture_ok(sp, spool_claim(sp, SPOOL_INCOMING, (struct wall){10}, 2, ids, &count));
    assert_int_equal(count, 0);
    memory_later_hold(&later, false);
    assert_true(spool_commit_end(sp, &rc));
    fixture_ok(sp, spool_claim(sp, SPOOL_INCOMING, (struct wall){10}, 2, ids, &count));
    assert_int_equal(count, 1);
    assert_int_equal(ids[0].n, id.n);
    close_later(sp);
}

UNIT_MAIN(cmocka_unit_test(an_engine_whose_commits_end_at_once_tells_it_all_the_same),
          cmocka_unit_test(commits_end_in_their_order),
          cmocka_unit_test(a_failure_undoes_all_that_came_later),
          cmocka_unit_test(a_batch_that_failed_before_its_commit_is_told_in_its_turn),
          cmocka_unit_test(what_a_commit_under_way_has_changed_is_not_claimed))
