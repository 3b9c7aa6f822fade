/*
 * The contract of spool.h, on each engine.
 */
#include "unit.h"

#include <errno.h>
#include <string.h>

#include "check.h"
#include "mem.h"
#include "spool_engine.h"
#include "spool_fixture.h"

static struct fixture fx;
static struct spool *sp;

static int set_up_sqlite(void **state)
{
    (void)state;
    fixture_init(&fx);
    sp = fixture_open(&fx);
    return 0;
}

static int set_up_memory(void **state)
{
    (void)state;
    fixture_init(&fx);
    sp = fixture_open_memory();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    spool_close(sp);
    fixture_fini(&fx);
    return 0;
}

static struct msg_id submit(bool claim)
{
    struct msg_id id;

    fixture_ok(sp, fixture_submit(sp, "me@example.com", "you@example.net her@example.org", 100, 10,
                                  claim, &id));
    fixture_ok(sp, spool_commit(sp));
    return id;
}

static enum spool_state state_of(struct msg_id id)
{
    struct spool_message m;

    fixture_ok(sp, spool_read(sp, id, &m));
    return m.state;
}

static bool claim_is(struct msg_id id, enum spool_state from, int64_t now)
{
    struct msg_id got[2];
    size_t count;

    fixture_ok(sp, spool_claim(sp, from, (struct wall){now}, 2, got, &count));
    return count == 1 && got[0].n == id.n && spool_is_claimed(sp, id);
}

static bool is_gone(struct msg_id id)
{
    struct spool_message m;

    return spool_read(sp, id, &m) == -ENOENT;
}

static void a_message_is_claimed_when_it_is_due(void **state)
{
    struct msg_id id = submit(false);
    struct wall due;
    bool gone;

    (void)state;
    assert_false(claim_is(id, SPOOL_INCOMING, 99));
    assert_true(claim_is(id, SPOOL_INCOMING, 100));
    assert_false(claim_is(id, SPOOL_INCOMING, 100));
    fixture_ok(sp, spool_next_due(sp, &due));
    assert_int_equal(due.us, WALL_NEVER.us);
    fixture_ok(sp, spool_finish(sp, id, (struct wall){700}, &gone));
    assert_false(gone);
    assert_int_equal(state_of(id), SPOOL_DEFERRED);
    fixture_ok(sp, spool_next_due(sp, &due));
    assert_int_equal(due.us, 700);
    assert_false(claim_is(id, SPOOL_INCOMING, 1000));
    assert_true(claim_is(id, SPOOL_DEFERRED, 1000));
    spool_unclaim(sp, id);
    assert_true(claim_is(id, SPOOL_DEFERRED, 1000));
}

static void it_goes_when_nobody_is_left(void **state)
{
    struct spool_verdict done = {.done = true};
    struct spool_verdict failed = {.state = SPOOL_RCPT_FAILED, .diagnostic = SLICE("550 no")};
    struct msg_id id = submit(true);
    struct spool_message m;
    bool gone;

    (void)state;
    fixture_ok(sp, spool_settle(sp, id, 1, &done));
    assert_int_equal(spool_settle(sp, id, 1, &done), -ENOENT);
    fixture_ok(sp, spool_settle(sp, id, 2, &failed));
    fixture_ok(sp, spool_read(sp, id, &m));
    assert_int_equal(m.rcpt_pending, 0);
    assert_int_equal(m.rcpt_to_report, 1);
    fixture_ok(sp, spool_reported(sp, id));
    fixture_ok(sp, spool_finish(sp, id, (struct wall){0}, &gone));
    assert_true(gone);
    fixture_ok(sp, spool_commit(sp));
    assert_true(is_gone(id));
    assert_false(spool_is_claimed(sp, id));
}

static void what_is_held_during_a_delivery_stays_held(void **state)
{
    struct spool_verdict done = {.done = true};
    struct msg_id id = submit(true);
    bool gone;

    (void)state;
    fixture_ok(sp, spool_hold(sp, id, SLICE("wait")));
    assert_false(spool_is_claimed(sp, id));
    fixture_ok(sp, spool_settle(sp, id, 1, &done));
    fixture_ok(sp, spool_finish(sp, id, (struct wall){5}, &gone));
    assert_false(gone);
    assert_int_equal(state_of(id), SPOOL_HOLD);
    fixture_ok(sp, spool_release(sp, id, (struct wall){200}));
    assert_int_equal(spool_release(sp, id, (struct wall){200}), -EINVAL);
    assert_true(claim_is(id, SPOOL_DEFERRED, 200));
    fixture_ok(sp, spool_hold(sp, id, SLICE("wait")));
    fixture_ok(sp, spool_settle(sp, id, 2, &done));
    fixture_ok(sp, spool_finish(sp, id, (struct wall){5}, &gone));
    assert_true(gone);
}

static void what_is_corrupt_is_only_removed(void **state)
{
    struct msg_id id = submit(true), got[2];
    size_t count;

    (void)state;
    fixture_ok(sp, spool_quarantine(sp, id, SLICE("odd")));
    assert_int_equal(spool_requeue(sp, id, (struct wall){0}), -EINVAL);
    assert_int_equal(spool_set_due(sp, id, (struct wall){0}), -EINVAL);
    assert_int_equal(spool_release(sp, id, (struct wall){0}), -EINVAL);
    assert_int_equal(spool_finish_all_done(sp, id), -EINVAL);
    for (int from = SPOOL_INCOMING; from <= SPOOL_DEFERRED; from++) {
        fixture_ok(sp, spool_claim(sp, (enum spool_state)from, (struct wall){INT64_MAX - 1}, 2, got,
                                   &count));
        assert_int_equal(count, 0);
    }
    fixture_ok(sp, spool_commit(sp)); /* none of these refusals harmed the batch */
    assert_int_equal(state_of(id), SPOOL_CORRUPT);
    fixture_ok(sp, spool_remove(sp, id));
    fixture_ok(sp, spool_commit(sp));
    assert_true(is_gone(id));
}

static void requeueing_begins_anew(void **state)
{
    struct spool_verdict later = {.state = SPOOL_RCPT_PENDING, .attempted = true};
    struct msg_id id = submit(true);
    struct spool_rcpt rcpts[2];
    struct spool_message m;
    size_t count;

    (void)state;
    fixture_ok(sp, spool_settle(sp, id, 1, &later));
    fixture_ok(sp, spool_set_route(sp, id, 1, SLICE("smtp"), SLICE("mx.example.net"), 3));
    fixture_ok(sp, spool_set_warned(sp, id));
    fixture_ok(sp, spool_requeue(sp, id, (struct wall){900}));
    fixture_ok(sp, spool_read(sp, id, &m));
    assert_int_equal(m.state, SPOOL_INCOMING);
    assert_int_equal(m.created.us, 900);
    assert_int_equal(m.arrived.us, 100);
    assert_int_equal(m.warnings, 0);
    fixture_ok(sp, spool_read_rcpts(sp, id, 0, true, 2, rcpts, &count));
    assert_int_equal(count, 2);
    assert_int_equal(rcpts[0].attempts, 0);
    assert_int_equal(rcpts[0].transport.len + rcpts[0].nexthop.len, 0);
    assert_true(claim_is(id, SPOOL_INCOMING, 900));
}

static void too_long_a_word_is_refused_and_the_batch_goes_on(void **state)
{
    struct spool_content content = {.bytes = SLICE("x"), .fd = -1};
    struct spool_message m = {.arrived = {1}};
    char long_word[DSN_ORCPT_MAX + 1];
    struct slice word = slice_of(long_word, sizeof long_word), none = SLICE("");
    const struct spool_rcpt bad[] = {
        {.address = none},
        {.address = word},
        {.address = SLICE("a\0b")},
        {.address = SLICE("a"), .orcpt = word},
        {.address = SLICE("a"), .notify = 16},
        {.address = SLICE("a"), .nexthop = SLICE("no.transport.example")},
    };
    struct msg_id id = {0}, good;

    (void)state;
    memset(long_word, 'w', sizeof long_word);
    fixture_ok(sp, fixture_submit(sp, "me@example.com", "x@example.net", 1, 1, false, &good));
    for (size_t i = 0; i < COUNT(bad); i++) {
        assert_int_equal(spool_submit(sp, &m, &bad[i], 1, none, &content, false, none, &id),
                         -EINVAL);
    }
    m.envid = word;
    assert_int_equal(spool_submit(sp, &m, &(struct spool_rcpt){.address = SLICE("a")}, 1, none,
                                  &content, false, none, &id),
                     -EINVAL);
    assert_int_equal(id.n, 0);
    fixture_ok(sp, spool_commit(sp));
    assert_int_equal(state_of(good), SPOOL_INCOMING);
}

static void a_long_reason_is_cut(void **state)
{
    struct msg_id id = submit(false);
    char *reason = mem_new(5000);
    struct spool_message m;

    (void)state;
    memset(reason, 'r', 5000);
    fixture_ok(sp, spool_hold(sp, id, slice_of(reason, 5000)));
    fixture_ok(sp, spool_read(sp, id, &m));
    assert_int_equal(m.reason.len, SPOOL_DIAGNOSTIC_MAX);
    mem_free(reason);
}

static void nothing_open_is_nothing_to_commit(void **state)
{
    (void)state;
    assert_false(spool_dirty(sp));
    assert_int_equal(spool_commit(sp), 0);
    spool_tidy(sp);
}

static void is_parked(struct msg_id id, const char *key)
{
    struct spool_message m;

    fixture_ok(sp, spool_read(sp, id, &m));
    assert_int_equal(m.parked.len, strlen(key));
    assert_memory_equal(m.parked.ptr, key, m.parked.len);
}

static void what_is_parked_is_found_by_its_key_the_oldest_first(void **state)
{
    const struct slice here = SLICE("smtp/a.example"), there = SLICE("smtp/b.example");
    struct msg_id first = submit(true), second = submit(true), third = submit(true), got[3];
    struct slice keys[3];
    bool more = false;
    size_t count;

    (void)state;
    fixture_ok(sp, spool_park(sp, third, here, (struct wall){900}));
    fixture_ok(sp, spool_park(sp, second, there, (struct wall){900}));
    fixture_ok(sp, spool_park(sp, first, here, (struct wall){950}));
    fixture_ok(sp, spool_commit(sp));
    assert_int_equal(state_of(first), SPOOL_DEFERRED);
    assert_false(spool_is_claimed(sp, first));
    fixture_ok(sp, spool_parked_keys(sp, SLICE(""), COUNT(keys), keys, &count));
    assert_int_equal(count, 2);
    assert_true(slice_equal(keys[0], here));
    assert_true(slice_equal(keys[1], there));

    fixture_ok(sp, spool_claim_parked(sp, here, (struct wall){200}, 1, got, &count, &more));
    fixture_ok(sp, spool_commit(sp));
    assert_int_equal(count, 1);
    assert_int_equal(got[0].n, first.n);
    assert_true(more);
    assert_true(spool_is_claimed(sp, first));
    is_parked(first, "");
    fixture_ok(sp, spool_claim_parked(sp, here, (struct wall){200}, 3, got, &count, &more));
    fixture_ok(sp, spool_commit(sp));
    assert_int_equal(count, 1);
    assert_int_equal(got[0].n, third.n);
    assert_false(more);
    is_parked(second, "smtp/b.example");

    /* Given back, it is due at once and not when it would have been. */
    spool_unclaim(sp, first);
    assert_true(claim_is(first, SPOOL_DEFERRED, 200));
}

static void what_is_parked_falls_due_as_any_other(void **state)
{
    const struct slice key = SLICE("smtp/a.example");
    struct msg_id id = submit(true), got[1];
    bool more, gone;
    size_t count;

    (void)state;
    fixture_ok(sp, spool_park(sp, id, key, (struct wall){900}));
    fixture_ok(sp, spool_commit(sp));
    assert_true(claim_is(id, SPOOL_DEFERRED, 900));
    fixture_ok(sp, spool_claim_parked(sp, key, (struct wall){900}, 1, got, &count, &more));
    assert_int_equal(count, 0);
    assert_false(more);
    fixture_ok(sp, spool_finish(sp, id, (struct wall){1000}, &gone));
    fixture_ok(sp, spool_commit(sp));
    is_parked(id, "");
}

static void all_that_waits_under_a_key_is_woken_but_what_is_claimed(void **state)
{
    const struct slice here = SLICE("smtp/a.example"), there = SLICE("smtp/b.example");
    struct msg_id first = submit(true), second = submit(true), busy = submit(true);
    struct msg_id other = submit(true), got[3];
    size_t count;

    (void)state;
    fixture_ok(sp, spool_park(sp, busy, here, (struct wall){150}));
    fixture_ok(sp, spool_commit(sp));
    assert_true(claim_is(busy, SPOOL_DEFERRED, 150));
    fixture_ok(sp, spool_park(sp, second, here, (struct wall){900}));
    fixture_ok(sp, spool_park(sp, first, here, (struct wall){950}));
    fixture_ok(sp, spool_park(sp, other, there, (struct wall){900}));
    fixture_ok(sp, spool_wake(sp, here, (struct wall){300}, &count));
    fixture_ok(sp, spool_commit(sp));
    assert_int_equal(count, 2);
    is_parked(first, "");
    is_parked(other, "smtp/b.example");
    fixture_ok(sp, spool_claim(sp, SPOOL_DEFERRED, (struct wall){299}, 3, got, &count));
    assert_int_equal(count, 0);
    fixture_ok(sp, spool_claim(sp, SPOOL_DEFERRED, (struct wall){300}, 3, got, &count));
    assert_int_equal(count, 2);
    assert_int_equal(got[0].n, first.n);
    assert_int_equal(got[1].n, second.n);
    assert_true(spool_is_claimed(sp, busy));
}

static void parts_that_an_engine_lacks_are_refused(void **state)
{
    const struct spool_engine *whole = sp->engine;
    struct spool_engine bare = *whole;
    struct msg_id id = submit(true), found;
    const uint32_t n = 1;
    struct spool_destination destination = {.nexthop = SLICE("x")};
    struct spool_filter all = {0};
    struct wall again, arrived;
    struct spool_event event;
    uint64_t matches;
    size_t count;

    (void)state;
    assert_false(spool_divides(sp));
    assert_int_equal(spool_put_off(sp, id, &n, 1, SLICE("key"), (struct wall){900}), -ENOTSUP);
    assert_int_equal(spool_reroute(sp, id, &n, 1, &count), -ENOTSUP);
    assert_int_equal(spool_resync(sp, SLICE("90417")), -ENOTSUP);
    assert_int_equal(spool_external_fd(sp), -1);
    fixture_ok(sp, spool_poll(sp, (struct wall){100}, &again));
    assert_int_equal(again.us, WALL_NEVER.us);
    assert_false(spool_next_event(sp, &event));

    bare.search = NULL;
    sp->engine = &bare;
    assert_int_equal(spool_scan(sp, &all, 1, &found, &count), -ENOTSUP);
    assert_non_null(strstr(spool_error(sp), "searched"));
    assert_int_equal(spool_count(sp, &all, &matches), -ENOTSUP);
    assert_int_equal(spool_destinations(sp, 1, &destination, &count), -ENOTSUP);
    assert_int_equal(spool_destinations_from(sp, &destination, 1, &destination, &count), -ENOTSUP);
    assert_int_equal(spool_oldest(sp, &destination, &arrived), -ENOTSUP);
    sp->engine = whole;
}

static void mail_is_submitted_parked(void **state)
{
    const struct spool_rcpt rcpt = {.address = SLICE("you@example.net")};
    const struct spool_content content = {.bytes = SLICE("x"), .fd = -1};
    struct spool_message m = {.due = {500}, .parked = SLICE("smtp/a.example")};
    struct msg_id id, got[1];
    struct spool_totals t;
    size_t count;
    bool more;

    (void)state;
    fixture_ok(sp, spool_submit(sp, &m, &rcpt, 1, SLICE(""), &content, false, SLICE(""), &id));
    fixture_ok(sp, spool_commit(sp));
    is_parked(id, "smtp/a.example");
    fixture_ok(sp, spool_totals(sp, &t));
    assert_int_equal(t.incoming, 0);
    assert_int_equal(t.deferred, 1);
    fixture_ok(sp, spool_claim_parked(sp, m.parked, (struct wall){1}, 1, got, &count, &more));
    assert_int_equal(count, 1);
    assert_int_equal(got[0].n, id.n);
    fixture_ok(sp, spool_commit(sp));
}

static void holding_and_requeueing_end_the_parking(void **state)
{
    const struct slice key = SLICE("smtp/a.example");
    struct msg_id held = submit(true), requeued = submit(true);
    struct slice keys[1];
    size_t count;

    (void)state;
    fixture_ok(sp, spool_park(sp, held, key, (struct wall){900}));
    fixture_ok(sp, spool_park(sp, requeued, key, (struct wall){900}));
    fixture_ok(sp, spool_hold(sp, held, SLICE("look at it")));
    fixture_ok(sp, spool_requeue(sp, requeued, (struct wall){300}));
    fixture_ok(sp, spool_commit(sp));
    fixture_ok(sp, spool_parked_keys(sp, SLICE(""), 1, keys, &count));
    assert_int_equal(count, 0);
    assert_int_equal(spool_park(sp, held, key, (struct wall){900}), -EINVAL);
    assert_int_equal(spool_park(sp, requeued, SLICE(""), (struct wall){900}), -EINVAL);
    fixture_ok(sp, spool_commit(sp));
}

static void all_claims_are_told_bit_by_bit(void **state)
{
    struct msg_id claimed[100], got[8];
    bool told[COUNT(claimed)] = {false};
    uint64_t cursor = 0;
    size_t all = 0, count;

    (void)state;
    for (size_t i = 0; i < COUNT(claimed); i++) {
        claimed[i] = submit(true);
        (void)submit(false);
    }
    do {
        count = spool_claimed(sp, &cursor, COUNT(got), got);
        assert_true(count <= COUNT(got));
        for (size_t i = 0; i < count; i++) {
            for (size_t j = 0; j < COUNT(claimed); j++) {
                told[j] |= claimed[j].n == got[i].n;
            }
            assert_true(spool_is_claimed(sp, got[i]));
        }
    } while (cursor != 0);
    for (size_t j = 0; j < COUNT(claimed); j++) {
        all += told[j];
    }
    assert_true(all > COUNT(claimed) / 2); /* a crowded bucket may be told in part */
}

#define EACH(test)                                                                                 \
    cmocka_unit_test_setup_teardown(test, set_up_sqlite, tear_down),                               \
        cmocka_unit_test_setup_teardown(test, set_up_memory, tear_down)

UNIT_MAIN(EACH(a_message_is_claimed_when_it_is_due), EACH(it_goes_when_nobody_is_left),
          EACH(what_is_held_during_a_delivery_stays_held), EACH(what_is_corrupt_is_only_removed),
          EACH(requeueing_begins_anew), EACH(too_long_a_word_is_refused_and_the_batch_goes_on),
          EACH(what_is_parked_is_found_by_its_key_the_oldest_first),
          EACH(what_is_parked_falls_due_as_any_other), EACH(mail_is_submitted_parked),
          EACH(all_that_waits_under_a_key_is_woken_but_what_is_claimed),
          EACH(parts_that_an_engine_lacks_are_refused),
          EACH(holding_and_requeueing_end_the_parking), EACH(a_long_reason_is_cut),
          EACH(all_claims_are_told_bit_by_bit), EACH(nothing_open_is_nothing_to_commit))
