/*
 * Mail that is stored in parts: who goes where, and what the callers of spool_parts.h rely on.
 */
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "mem.h"
#include "memory_spool.h"
#include "spool_engine.h"
#include "spool_fixture.h"

/* ---- who goes where -------------------------------------------------------------------------- */

/* An engine that divides, and keeps nothing. A next hop's name is its partition's number. */
static struct {
    struct spool sp;
    uint64_t last_id;
    unsigned submits, submits_in_parts;
    void (*check)(struct msg_id whole, const struct spool_new *n, const struct spool_share *shares,
                  size_t count);
} divider;

static unsigned partition_by_number(const struct spool *sp, const struct spool_rcpt *r)
{
    unsigned p = 0;

    assert_ptr_equal(sp, &divider.sp);
    assert_true(r->transport.len > 0);
    for (size_t i = 0; i < r->nexthop.len; i++) {
        p = p * 10 + (unsigned)(r->nexthop.ptr[i] - '0');
    }
    return p;
}

static int submit_in_parts(struct spool *sp, struct msg_id whole, const struct spool_new *n,
                           const struct spool_share *shares, size_t count)
{
    (void)sp;
    divider.submits_in_parts++;
    divider.check(whole, n, shares, count);
    return 0;
}

static int submit_whole(struct spool *sp, struct msg_id id, const struct spool_new *n)
{
    (void)sp;
    (void)id;
    assert_true(n->rcpt_count > 0);
    divider.submits++;
    return 0;
}

static struct msg_id next_id(struct spool *sp)
{
    (void)sp;
    return (struct msg_id){divider.last_id += 64};
}

static int begin(struct spool *sp)
{
    (void)sp;
    return 0;
}

static const struct spool_parts_part dividing = {.partition = partition_by_number,
                                                 .submit = submit_in_parts};
static const struct spool_engine dividing_engine = {
    .begin = begin, .next_id = next_id, .submit = submit_whole, .parts = &dividing};

/* Submit with recipients in these partitions. */
static struct msg_id divide(const unsigned *ps, uint32_t count)
{
    struct spool_message m = {.sender = SLICE("s@from.test")};
    struct spool_content content = {.bytes = SLICE("x\r\n"), .fd = -1};
    struct spool_rcpt *rcpts = mem_array(count, sizeof *rcpts);
    char(*names)[16] = mem_array(count, sizeof *names);
    struct msg_id id;

    divider.sp = (struct spool){.engine = &dividing_engine, .mode = SPOOL_OPEN_WRITE};
    for (uint32_t i = 0; i < count; i++) {
        (void)snprintf(names[i], sizeof names[i], "%u", ps[i]);
        rcpts[i] = (struct spool_rcpt){.address = SLICE("a@example.org"),
                                       .transport = SLICE("smtp"),
                                       .nexthop = slice_string(names[i])};
    }
    assert_int_equal(
        spool_submit(&divider.sp, &m, rcpts, count, SLICE(""), &content, false, SLICE(""), &id), 0);
    mem_free(names);
    mem_free(rcpts);
    return id;
}

/* Routes have numbers; ours are the third, and those in force. */
static struct {
    bool are_old;
} numbers;

static uint64_t third(const struct spool *sp)
{
    (void)sp;
    return 3 * SPOOL_ROUTE_VERSIONS;
}

static bool are_in_force(const struct spool *sp)
{
    (void)sp;
    return !numbers.are_old;
}

static int lies_in_five(const struct spool *sp, struct msg_id id)
{
    (void)sp;
    (void)id;
    return 5;
}

static int move_none(struct spool *sp, struct msg_id id, const struct spool_relocation *m)
{
    (void)sp;
    (void)id;
    (void)m;
    return 0;
}

static void tables_say_where_lies_what_they_or_older_ones_have_routed(void **state)
{
    static const struct spool_routes_part routes = {.generation = third,
                                                    .are_in_force = are_in_force};
    static const struct spool_parts_part parts = {
        .partition = partition_by_number, .lies_in = lies_in_five, .move = move_none};
    static const struct spool_engine engine = {.parts = &parts, .routes = &routes};
    struct spool_rcpt r = {.transport = SLICE("smtp"), .nexthop = SLICE("7")};
    struct msg_id id = {1};

    (void)state;
    divider.sp = (struct spool){.engine = &engine, .mode = SPOOL_OPEN_WRITE};
    r.route_generation = 3 * SPOOL_ROUTE_VERSIONS;
    assert_true(spool_lies_elsewhere(&divider.sp, id, &r));
    r.route_generation = 4 * SPOOL_ROUTE_VERSIONS;
    assert_false(spool_lies_elsewhere(&divider.sp, id, &r));
    r.route_generation = SPOOL_ROUTE_FIXED;
    assert_true(spool_lies_elsewhere(&divider.sp, id, &r));
    numbers.are_old = true;
    assert_false(spool_lies_elsewhere(&divider.sp, id, &r));
    r.route_generation = 3 * SPOOL_ROUTE_VERSIONS;
    assert_true(spool_lies_elsewhere(&divider.sp, id, &r)); /* of older ones it is routed anew */
    r.nexthop = SLICE("5");
    assert_false(spool_lies_elsewhere(&divider.sp, id, &r));
    r = (struct spool_rcpt){.address = SLICE("a@b")};
    assert_false(spool_lies_elsewhere(&divider.sp, id, &r));
}

/* Each recipient is in the share of its partition, once, in order; ids rise above the whole's. */
static void check_shares(struct msg_id whole, const struct spool_new *n,
                         const struct spool_share *shares, size_t count)
{
    bool *seen = mem_array(n->rcpt_count, sizeof *seen);
    uint64_t last_id = whole.n;
    uint32_t all = 0;

    for (size_t i = 0; i < count; i++) {
        const struct spool_share *s = &shares[i];

        assert_true(s->count > 0 && s->id.n > last_id);
        assert_true(i == 0 || s->partition > shares[i - 1].partition);
        last_id = s->id.n;
        for (uint32_t k = 0; k < s->count; k++) {
            uint32_t at = s->rcpts[k];

            assert_true(at < n->rcpt_count && !seen[at] && (k == 0 || at > s->rcpts[k - 1]));
            seen[at] = true;
            assert_int_equal(partition_by_number(&divider.sp, &n->rcpts[at]), s->partition);
        }
        all += s->count;
    }
    assert_int_equal(all, n->rcpt_count);
    mem_free(seen);
}

static void recipients_go_with_those_of_their_partition(void **state)
{
    (void)state;
    divider.check = check_shares;
    (void)divide((unsigned[]){7, 255, 7, 0, 255, 7}, 6);
    (void)divide((unsigned[]){1, 0}, 2);
    assert_int_equal(divider.submits_in_parts, 2);
    assert_int_equal(divider.submits, 0);
}

static void recipients_of_one_partition_stay_together(void **state)
{
    (void)state;
    divider.submits = divider.submits_in_parts = 0;
    struct msg_id id = divide((unsigned[]){3, 3, 3}, 3);
    (void)divide((unsigned[]){9}, 1);
    assert_int_equal(divider.submits, 2);
    assert_int_equal(divider.submits_in_parts, 0);
    assert_int_equal(divider.last_id, id.n + 64); /* no id was taken for a part */
}

static void a_hundred_thousand_recipients_are_divided(void **state)
{
    const uint32_t count = 100000;
    unsigned *ps = mem_array(count, sizeof *ps);
    uint64_t before = divider.last_id;

    (void)state;
    for (uint32_t i = 0; i < count; i++) {
        ps[i] = i * 7919 % SPOOL_PARTITIONS_MAX;
    }
    divider.check = check_shares;
    divider.submits_in_parts = 0;
    (void)divide(ps, count);
    assert_int_equal(divider.submits_in_parts, 1);
    assert_int_equal((divider.last_id - before) / 64, 1 + SPOOL_PARTITIONS_MAX);
    mem_free(ps);
}

/* ---- what parts are -------------------------------------------------------------------------- */

#define PARTS_MAX 10

static struct {
    struct spool *sp;
    struct msg_id whole, parts[PARTS_MAX];
    size_t count;
} mail;

/* A message of so many recipients, each at a site of its own. */
static int start(void **state)
{
    struct spool_message m = {
        .sender = SLICE("s@from.test"), .created = {1000}, .due = {1000}, .report_due = {9000}};
    struct spool_content content = {.bytes = SLICE("Subject: x\r\n"), .fd = -1};
    const char *hops[] = {"a", "b", "c"};
    struct spool_rcpt rcpts[3];

    (void)state;
    mail.sp = memory_spool_open(&(struct spool_options){.inline_limit = INLINE_LIMIT});
    memory_spool_divide(mail.sp, 100);
    for (size_t i = 0; i < COUNT(rcpts); i++) {
        rcpts[i] = (struct spool_rcpt){.address = SLICE("x@example.org"),
                                       .transport = SLICE("smtp"),
                                       .nexthop = slice_string(hops[i])};
    }
    assert_int_equal(spool_submit(mail.sp, &m, rcpts, COUNT(rcpts), SLICE(""), &content, true,
                                  SLICE(""), &mail.whole),
                     0);
    fixture_ok(mail.sp, spool_commit(mail.sp));
    fixture_ok(mail.sp, spool_parts_of(mail.sp, mail.whole, (struct msg_id){0}, PARTS_MAX,
                                       mail.parts, &mail.count));
    assert_int_equal(mail.count, COUNT(rcpts));
    return 0;
}

static int stop(void **state)
{
    (void)state;
    spool_close(mail.sp);
    return 0;
}

static struct spool_message read_message(struct msg_id id)
{
    struct spool_message m;

    fixture_ok(mail.sp, spool_read(mail.sp, id, &m));
    return m;
}

static size_t read_rcpts(struct msg_id id, bool only_pending, struct spool_rcpt rcpts[PARTS_MAX])
{
    size_t count;

    fixture_ok(mail.sp, spool_read_rcpts(mail.sp, id, 0, only_pending, PARTS_MAX, rcpts, &count));
    return count;
}

/* The only recipient of a part fails. */
static void fail_rcpt(struct msg_id id)
{
    struct spool_verdict v = {.state = SPOOL_RCPT_FAILED, .diagnostic = SLICE("no")};
    struct spool_rcpt rcpts[PARTS_MAX];

    assert_int_equal(read_rcpts(id, true, rcpts), 1);
    fixture_ok(mail.sp, spool_settle(mail.sp, id, rcpts[0].n, &v));
}

static bool finish(struct msg_id id)
{
    bool gone;

    fixture_ok(mail.sp, spool_finish(mail.sp, id, (struct wall){5000}, &gone));
    return gone;
}

static void a_part_is_a_message_with_the_content_of_the_whole(void **state)
{
    struct spool_rcpt rcpts[PARTS_MAX];
    uint64_t size;
    int fd;

    (void)state;
    assert_false(spool_is_claimed(mail.sp, mail.whole)); /* as was asked, and could not be */
    for (size_t i = 0; i < mail.count; i++) {
        struct spool_message m = read_message(mail.parts[i]);
        struct buf content;

        assert_true(spool_is_part(&m));
        assert_int_equal(spool_whole(&m).n, mail.whole.n);
        assert_int_equal(m.rcpt_pending, 1);
        assert_int_equal(read_rcpts(mail.parts[i], false, rcpts), 1);
        buf_init(&content, 1000);
        fixture_ok(mail.sp, spool_read_content(mail.sp, mail.parts[i], &content, &fd, &size));
        assert_true(slice_equal(buf_slice(&content), SLICE("Subject: x\r\n")));
        buf_fini(&content);
    }
    struct spool_message m = read_message(mail.whole);
    assert_true(m.gathers && !spool_is_part(&m));
    assert_int_equal(m.due.us, 9000);
    assert_int_equal(m.rcpt_pending, 0);
    assert_int_equal(read_rcpts(mail.whole, false, rcpts), 0);
    assert_int_equal(read_rcpts(mail.whole, true, rcpts), 3); /* of all parts */
}

static void what_is_given_is_at_the_report_part(void **state)
{
    struct spool_rcpt rcpts[PARTS_MAX];
    struct spool_message m;

    (void)state;
    fail_rcpt(mail.parts[1]);
    fixture_ok(mail.sp, spool_give(mail.sp, mail.parts[1], (struct wall){4000}));
    assert_int_equal(read_rcpts(mail.parts[1], false, rcpts), 0);
    assert_int_equal(read_rcpts(mail.whole, false, rcpts), 1);
    assert_true(slice_equal(rcpts[0].diagnostic, SLICE("no")));
    m = read_message(mail.whole);
    assert_int_equal(m.due.us, 4000);
    assert_int_equal(m.rcpt_to_report, 1);
    fail_rcpt(mail.parts[0]);
    fixture_ok(mail.sp, spool_give(mail.sp, mail.parts[0], (struct wall){6000}));
    assert_int_equal(read_message(mail.whole).due.us, 4000); /* the first says when */
    assert_int_equal(read_message(mail.whole).rcpt_to_report, 2);
    assert_int_equal(spool_give(mail.sp, mail.whole, (struct wall){0}), -EINVAL);
    assert_int_equal(spool_give(mail.sp, (struct msg_id){999}, (struct wall){0}), -ENOENT);
}

static void the_report_part_goes_last(void **state)
{
    (void)state;
    assert_false(finish(mail.whole));
    for (size_t i = 0; i < mail.count; i++) {
        assert_int_equal(spool_finish_all_done(mail.sp, mail.whole), -EINVAL);
        fixture_ok(mail.sp, spool_finish_all_done(mail.sp, mail.parts[i]));
    }
    assert_int_equal(read_message(mail.whole).due.us, 1000);
    assert_true(finish(mail.whole));
    assert_int_equal(spool_read(mail.sp, mail.whole, &(struct spool_message){.size = 0}), -ENOENT);
}

static void a_batch_that_is_lost_gives_nothing(void **state)
{
    struct spool_rcpt rcpts[PARTS_MAX];

    (void)state;
    fail_rcpt(mail.parts[0]);
    fixture_ok(mail.sp, spool_give(mail.sp, mail.parts[0], (struct wall){4000}));
    assert_true(finish(mail.parts[0]));
    (void)spool_batch_failed(mail.sp, -EIO);
    assert_int_equal(spool_commit(mail.sp), -EIO);
    assert_int_equal(read_rcpts(mail.parts[0], true, rcpts), 1);
    assert_int_equal(read_rcpts(mail.whole, false, rcpts), 0);
    assert_int_equal(read_message(mail.whole).due.us, 9000);
    for (size_t i = 0; i < mail.count; i++) {
        fixture_ok(mail.sp, spool_finish_all_done(mail.sp, mail.parts[i]));
    }
    assert_true(finish(mail.whole)); /* the lost batch has not counted a part twice */
}

/* This engine has parts, and each stays where it is. */
static void an_engine_that_can_not_move_mail_says_that_it_lies_where_it_should(void **state)
{
    struct spool_rcpt rcpts[PARTS_MAX];
    uint32_t moved = 1;

    (void)state;
    fixture_ok(mail.sp, spool_set_route(mail.sp, mail.parts[0], 1, SLICE("smtp"), SLICE("b"), 0));
    fixture_ok(mail.sp, spool_commit(mail.sp));
    assert_int_equal(read_rcpts(mail.parts[0], true, rcpts), 1);
    assert_false(spool_lies_elsewhere(mail.sp, mail.parts[0], &rcpts[0]));
    fixture_ok(mail.sp, spool_move(mail.sp, mail.parts[0], (struct wall){5000}, (struct wall){5000},
                                   &moved));
    assert_int_equal(moved, 0);
    assert_false(spool_dirty(mail.sp));
    assert_int_equal(
        spool_move(mail.sp, (struct msg_id){999}, (struct wall){0}, (struct wall){0}, &moved), 0);
}

static void to_remove_the_report_part_forgets_what_it_has(void **state)
{
    struct spool_rcpt rcpts[PARTS_MAX];

    (void)state;
    fail_rcpt(mail.parts[0]);
    fixture_ok(mail.sp, spool_give(mail.sp, mail.parts[0], (struct wall){4000}));
    fixture_ok(mail.sp, spool_remove(mail.sp, mail.whole));
    assert_int_equal(read_rcpts(mail.whole, false, rcpts), 0);
    for (size_t i = 0; i < mail.count; i++) {
        fixture_ok(mail.sp, spool_remove(mail.sp, mail.parts[i]));
    }
    fixture_ok(mail.sp, spool_remove(mail.sp, mail.whole));
    assert_int_equal(spool_read(mail.sp, mail.whole, &(struct spool_message){.size = 0}), -ENOENT);
}

#define MAIL_TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)

UNIT_MAIN(cmocka_unit_test(tables_say_where_lies_what_they_or_older_ones_have_routed),
          cmocka_unit_test(recipients_go_with_those_of_their_partition),
          cmocka_unit_test(recipients_of_one_partition_stay_together),
          cmocka_unit_test(a_hundred_thousand_recipients_are_divided),
          MAIL_TEST(a_part_is_a_message_with_the_content_of_the_whole),
          MAIL_TEST(what_is_given_is_at_the_report_part), MAIL_TEST(the_report_part_goes_last),
          MAIL_TEST(a_batch_that_is_lost_gives_nothing),
          MAIL_TEST(an_engine_that_can_not_move_mail_says_that_it_lies_where_it_should),
          MAIL_TEST(to_remove_the_report_part_forgets_what_it_has))
