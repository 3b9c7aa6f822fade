/*
 * The engine of Postfix's queue directory, between a directory and services that the test plays.
 */
#include "postfix_spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

#include "heap_bytes.h"
#include "mem.h"
#include "postfix_store.h"
#include "queue_tree.h"
#include "services.h"
#include "spool_conclusion.h"
#include "spool_engine.h"
#include "spool_external.h"
#include "spool_search.h"

#define NOW_S   INT64_C(1795346264)
#define ASKS    200
#define EVENTS  4000
#define CLAIMED 300

struct asked {
    struct msg_id id;
    uint32_t n;
    char address[64];
};

struct fixture {
    struct queue_tree tree;
    struct spool *sp;
    struct wall now;
    struct postfix_services services;
    bool routes; /* asks are answered at once */
    bool ends;   /* and so are conclusions */
    struct asked asks[ASKS];
    size_t asked;
    struct msg_id concluded; /* the last; 0: none */
    bool deferred;
    struct wall due;
    struct msg_id forgotten;
    unsigned delivered; /* by deliver_all */
    char events[EVENTS];
};

/* ---- recipients ----------------------------------------------------------------------------- */

static bool has_rcpt(struct spool *sp, struct msg_id id, uint32_t n)
{
    struct postfix_rcpt rcpt;

    return postfix_rcpt(sp, id, n, &rcpt);
}

static struct postfix_rcpt rcpt_of(struct spool *sp, struct msg_id id, uint32_t n)
{
    struct postfix_rcpt rcpt;

    assert_true(postfix_rcpt(sp, id, n, &rcpt));
    return rcpt;
}

/* ---- services ------------------------------------------------------------------------------- */

static void answer(struct fixture *f, struct msg_id id, uint32_t n, const char *recipient,
                   enum postfix_disposal disposal)
{
    postfix_routed(f->sp, id, n,
                   &(struct postfix_route){.disposal = disposal,
                                           .transport = SLICE("smtp"),
                                           .nexthop = SLICE("example.org"),
                                           .recipient = slice_string(recipient)});
}

static void ask(void *context, struct msg_id id, const struct queue_file_envelope *m,
                const struct queue_file_rcpt *rcpt)
{
    struct fixture *f = context;
    struct asked *a = &f->asks[f->asked++ % ASKS];

    assert_true(m->data_offset > 0);
    a->id = id;
    a->n = rcpt->n;
    (void)snprintf(a->address, sizeof a->address, "%.*s", SLICE_ARGS(rcpt->address));
    if (f->routes) {
        answer(f, id, rcpt->n, a->address, POSTFIX_DELIVER);
    }
}

static void forget(void *context, struct msg_id id)
{
    ((struct fixture *)context)->forgotten = id;
}

static void conclude(void *context, struct msg_id id, bool deferred, struct wall due)
{
    struct fixture *f = context;

    f->concluded = id;
    f->deferred = deferred;
    f->due = due;
    if (f->ends) {
        postfix_concluded(f->sp, id, deferred ? POSTFIX_DEFERRED : POSTFIX_REMOVED, due);
    }
}

/* ---- the fixture ---------------------------------------------------------------------------- */

static void open_spool(struct fixture *f, const struct postfix_spool_options *own,
                       const struct spool_io *io)
{
    struct buf error;

    buf_init(&error, 1000);
    assert_int_equal(
        postfix_spool_open(f->tree.path, &(struct spool_options){.io = io}, own, &error, &f->sp),
        0);
    buf_fini(&error);
    f->services =
        (struct postfix_services){.context = f, .ask = ask, .forget = forget, .conclude = conclude};
    assert_int_equal(postfix_use_services(f->sp, &f->services), 0);
}

static struct fixture *setup_with(const struct postfix_spool_options *own,
                                  const struct spool_io *io)
{
    struct fixture *f = mem_new(sizeof *f);

    f->now.us = NOW_S * US_PER_S;
    f->routes = f->ends = true;
    queue_tree_make(&f->tree);
    open_spool(f, own, io);
    return f;
}

static struct fixture *setup(void)
{
    return setup_with(&(struct postfix_spool_options){0}, NULL);
}

static void teardown(struct fixture *f)
{
    spool_close(f->sp);
    queue_tree_remove(&f->tree);
    mem_free(f);
}

static void put_message(struct fixture *f, const char *path, unsigned rcpts, mode_t mode,
                        int64_t mtime_s)
{
    struct buf bytes;

    buf_init(&bytes, (size_t)1 << 28);
    queue_tree_message(&bytes, "sender@example.com", "r", rcpts);
    queue_tree_put(&f->tree, path, buf_slice(&bytes), mode, mtime_s);
    buf_fini(&bytes);
}

/* Poll until there is nothing to do now. What it tells is in f->events, a line each. */
static struct wall poll_all(struct fixture *f)
{
    struct spool_event event;
    struct wall again = {0};

    f->events[0] = '\0';
    for (unsigned i = 0; again.us <= f->now.us; i++) {
        assert_true(i < 10000);
        assert_int_equal(spool_poll(f->sp, f->now, &again), 0);
    }
    while (spool_next_event(f->sp, &event)) {
        size_t len = strlen(f->events);

        (void)snprintf(f->events + len, sizeof f->events - len, "%s%.*s\n",
                       event.type == SPOOL_EVENT_WARNING ? "warning: " : "",
                       SLICE_ARGS(event.text));
    }
    return again;
}

static void poll_after(struct fixture *f, int64_t seconds)
{
    f->now = wall_after(f->now, seconds * US_PER_S);
    (void)poll_all(f);
}

static struct msg_id claim_one(struct fixture *f, enum spool_state from)
{
    struct msg_id id = {0};
    size_t count;

    assert_int_equal(spool_claim(f->sp, from, f->now, 1, &id, &count), 0);
    return count == 1 ? id : (struct msg_id){0};
}

static void settle(struct fixture *f, struct msg_id id, uint32_t n, bool done)
{
    assert_int_equal(spool_settle(f->sp, id, n,
                                  &(struct spool_verdict){.state = done ? SPOOL_RCPT_DELIVERED
                                                                        : SPOOL_RCPT_PENDING,
                                                          .done = done,
                                                          .attempted = true,
                                                          .when = f->now}),
                     0);
}

/* A pass in which all recipients of the batch are delivered. */
static void deliver_all(struct fixture *f, struct msg_id id)
{
    struct spool_rcpt r;
    size_t count;
    uint32_t after = 0;

    while (spool_read_rcpts(f->sp, id, after, true, 1, &r, &count) == 0 && count == 1) {
        after = r.n;
        settle(f, id, r.n, true);
        f->delivered++;
    }
    assert_int_equal(spool_conclude(f->sp, id, false, f->now), 0);
    assert_int_equal(spool_commit(f->sp), 0);
}

/* ---- a message's way ------------------------------------------------------------------------ */

/* Postfix's own manager has some 1,900 bytes in memory for a message with one recipient. Ours has
 * these, those of the scheduler, and those of struct active_msg. */
static void a_message_in_memory_needs_less_than_a_kilobyte(void **unused)
{
    enum { COUNT_OF_MESSAGES = 100, BYTES_MAX = 750 };
    struct fixture *f = setup();
    struct msg_id ids[COUNT_OF_MESSAGES];
    size_t before, count, claimed = 0;
    char path[32];

    (void)unused;
    put_message(f, "incoming/A0", 1, 0700, NOW_S); /* what is allocated once */
    (void)poll_all(f);
    deliver_all(f, claim_one(f, SPOOL_INCOMING));
    before = heap_bytes();
    for (size_t i = 0; i < COUNT_OF_MESSAGES; i++) {
        (void)snprintf(path, sizeof path, "incoming/B%03zu", i);
        put_message(f, path, 1, 0700, NOW_S);
    }
    postfix_trigger(f->sp, POSTFIX_SCAN_INCOMING);
    do {
        (void)poll_all(f);
        assert_int_equal(spool_claim(f->sp, SPOOL_INCOMING, f->now, COUNT_OF_MESSAGES - claimed,
                                     ids + claimed, &count),
                         0);
        claimed += count;
        assert_int_not_equal(count, 0);
    } while (claimed < COUNT_OF_MESSAGES);
    assert_in_range((heap_bytes() - before) / COUNT_OF_MESSAGES, 1, BYTES_MAX);
    teardown(f);
}

/* A list is divided into pages of at most STORE_READ_MAX recipients. */
static void a_recipient_in_memory_needs_less_than_160_bytes(void **unused)
{
    enum { RCPTS = 4000, BYTES_MAX = 160 };
    struct fixture *f = setup();
    size_t before;

    (void)unused;
    put_message(f, "incoming/A0", 1, 0700, NOW_S); /* buffers that stay */
    (void)poll_all(f);
    deliver_all(f, claim_one(f, SPOOL_INCOMING));
    put_message(f, "incoming/A1", RCPTS, 0700, NOW_S);
    postfix_trigger(f->sp, POSTFIX_SCAN_INCOMING);
    before = heap_bytes();
    (void)poll_all(f);
    assert_int_not_equal(claim_one(f, SPOOL_INCOMING).n, 0);
    assert_in_range((heap_bytes() - before) / RCPTS, 1, BYTES_MAX);
    teardown(f);
}

static void mail_goes_from_incoming_through_active_to_its_end(void **unused)
{
    struct fixture *f = setup();
    struct spool_message m;
    struct spool_rcpt r[5];
    const struct postfix_message *told;
    struct postfix_rcpt rcpt;
    struct msg_id id;
    size_t count;

    (void)unused;
    put_message(f, "incoming/A1", 3, 0700, NOW_S);
    queue_tree_put(&f->tree, "defer/A/A1", SLICE("of the last activation"), 0600, NOW_S);
    (void)poll_all(f);
    assert_string_equal(f->events, "");
    assert_true(queue_tree_has(&f->tree, "active/A1"));
    assert_false(queue_tree_has(&f->tree, "defer/A/A1"));
    assert_int_equal(f->asked, 3);
    assert_int_equal(claim_one(f, SPOOL_DEFERRED).n, 0);
    id = claim_one(f, SPOOL_INCOMING);
    assert_int_not_equal(id.n, 0);
    assert_true(spool_is_claimed(f->sp, id));
    assert_int_equal(spool_read(f->sp, id, &m), 0);
    assert_true(slice_equal(m.sender, SLICE("sender@example.com")));
    assert_true(slice_equal(m.spoolid, SLICE("A1")));
    assert_int_equal(m.rcpt_pending, 3);
    assert_int_equal(m.rcpt_total, 3);
    assert_int_equal(m.arrived.us, 1000 * US_PER_S + 5);
    assert_int_equal(m.state, SPOOL_INCOMING);
    assert_int_equal(spool_read_rcpts(f->sp, id, 0, true, 5, r, &count), 0);
    assert_int_equal(count, 3);
    assert_true(slice_equal(r[1].address, SLICE("r2@example.org")));
    assert_true(slice_equal(r[1].orcpt, SLICE("rfc822;r2@example.org")));
    assert_true(slice_equal(r[1].transport, SLICE("smtp")));
    told = postfix_message(f->sp, id);
    assert_true(slice_equal(told->queue_id, SLICE("A1")));
    assert_int_equal(told->activated.us, f->now.us);
    rcpt = rcpt_of(f->sp, id, 2);
    assert_true(slice_equal(rcpt.original, SLICE("r2@example.org")));
    assert_int_equal(queue_tree_byte(&f->tree, "active/A1", rcpt.offset), 'R');
    assert_int_equal(postfix_rcpt_state(f->sp, id, 2), 'R');
    assert_int_equal(postfix_taken_from_incoming(f->sp), 1);
    assert_int_equal(postfix_taken_from_incoming(f->sp), 0);
    assert_false(postfix_scans_incoming(f->sp));

    settle(f, id, 1, true);
    settle(f, id, 2, false);
    assert_int_equal(spool_read_rcpts(f->sp, id, 0, true, 5, r, &count), 0);
    assert_int_equal(count, 1);
    assert_int_equal(r[0].n, 3);
    assert_int_equal(spool_read_rcpts(f->sp, id, 0, false, 5, r, &count), 0);
    assert_int_equal(count, 3); /* of the file: no agent has marked one in this test */
    assert_true(slice_equal(r[2].transport, SLICE("smtp")));
    assert_int_equal(spool_conclude(f->sp, id, true, wall_after(f->now, 300 * US_PER_S)), 0);
    assert_false(spool_is_claimed(f->sp, id));
    assert_int_equal(f->concluded.n, 0); /* at the commit */
    assert_int_equal(spool_commit(f->sp), 0);
    assert_int_equal(f->concluded.n, id.n);
    assert_true(f->deferred);
    assert_int_equal(queue_tree_mtime(&f->tree, "deferred/A/A1"), NOW_S + 300);
    assert_int_equal(spool_read(f->sp, id, &m), -ENOENT);
    assert_null(postfix_message(f->sp, id));

    /* not before its time, which is when the queue is scanned next */
    poll_after(f, 298);
    postfix_trigger(f->sp, POSTFIX_SCAN_DEFERRED);
    (void)poll_all(f);
    assert_true(queue_tree_has(&f->tree, "deferred/A/A1"));
    poll_after(f, 2);
    id = claim_one(f, SPOOL_DEFERRED);
    assert_int_equal(spool_read(f->sp, id, &m), 0);
    assert_int_equal(m.state, SPOOL_DEFERRED);
    assert_int_equal(m.rcpt_pending, 3);
    assert_int_equal(spool_finish_all_done(f->sp, id), 0);
    assert_int_equal(spool_commit(f->sp), 0);
    assert_false(f->deferred);
    (void)poll_all(f);
    assert_string_equal(f->events, "A1: removed\n");
    assert_false(queue_tree_has(&f->tree, "active/A1"));
    teardown(f);
}

/* The order of the scan, however long trivial-rewrite takes for a recipient. */
/* The services see the header, and what they say is the message's. */
static void classify(void *context, const struct queue_file_envelope *m, struct slice content,
                     char room[CLASS_NAME_MAX], struct slice *ret_name,
                     enum class_source *ret_source)
{
    (void)context;
    assert_true(m->data_offset > 0);
    assert_true(slice_equal(content, SLICE("Subject: test\r\n\r\n")));
    memcpy(room, "bulk", 4);
    *ret_name = slice_of(room, 4);
    *ret_source = CLASS_SOURCE_LIST_ID;
}

static void mail_has_the_class_that_its_header_says(void **unused)
{
    struct fixture *f = setup();
    struct spool_message m;

    (void)unused;
    f->services.classify = classify;
    put_message(f, "incoming/A1", 1, 0700, NOW_S);
    (void)poll_all(f);
    assert_int_equal(spool_read(f->sp, claim_one(f, SPOOL_INCOMING), &m), 0);
    assert_true(slice_equal(m.class_name, SLICE("bulk")));
    assert_int_equal(m.class_source, CLASS_SOURCE_LIST_ID);
    teardown(f);
}

static void mail_is_claimed_when_it_is_known_where_it_goes(void **unused)
{
    struct fixture *f = setup();
    struct msg_id first, second;
    struct wall due;

    (void)unused;
    f->routes = false;
    put_message(f, "incoming/A1", 2, 0700, NOW_S);
    (void)poll_all(f);
    put_message(f, "incoming/B1", 1, 0700, NOW_S);
    postfix_trigger(f->sp, POSTFIX_SCAN_INCOMING);
    (void)poll_all(f);
    assert_int_equal(f->asked, 3);
    first = f->asks[0].id;
    second = f->asks[2].id;
    answer(f, second, 1, "b", POSTFIX_DELIVER);
    answer(f, first, 2, "a", POSTFIX_DELIVER);
    answer(f, first, 2, "twice", POSTFIX_DELIVER); /* of no effect */
    answer(f, first, 7, "no such recipient", POSTFIX_DELIVER);
    answer(f, (struct msg_id){99}, 1, "no such message", POSTFIX_DELIVER);
    assert_int_equal(spool_next_due(f->sp, &due), 0);
    assert_int_equal(due.us, WALL_NEVER.us);
    assert_int_equal(claim_one(f, SPOOL_INCOMING).n, 0);
    answer(f, first, 1, "a", POSTFIX_DELIVER);
    assert_int_equal(spool_next_due(f->sp, &due), 0);
    assert_true(due.us <= f->now.us);
    assert_int_equal(claim_one(f, SPOOL_INCOMING).n, first.n);
    assert_int_equal(claim_one(f, SPOOL_INCOMING).n, second.n);
    assert_int_equal(claim_one(f, SPOOL_INCOMING).n, 0);
    teardown(f);
}

static void recipients_may_be_skipped_or_discarded(void **unused)
{
    struct fixture *f = setup();
    struct msg_id id;
    struct spool_message m;
    uint64_t offset;

    (void)unused;
    f->routes = false;
    put_message(f, "incoming/A1", 3, 0700, NOW_S);
    (void)poll_all(f);
    id = f->asks[0].id;
    answer(f, id, 1, "other@example.net", POSTFIX_DELIVER); /* a redirect */
    offset = rcpt_of(f->sp, id, 1).offset;
    answer(f, id, 2, "", POSTFIX_SKIP);
    answer(f, id, 3, "", POSTFIX_DISCARD);
    assert_int_equal(claim_one(f, SPOOL_INCOMING).n, id.n);
    assert_int_equal(spool_read(f->sp, id, &m), 0);
    assert_int_equal(m.rcpt_pending, 1);
    assert_true(slice_equal(rcpt_of(f->sp, id, 1).recipient, SLICE("other@example.net")));
    assert_false(has_rcpt(f->sp, id, 2));
    assert_int_equal(postfix_rcpt_state(f->sp, id, 2), -ENOENT);
    assert_int_equal(queue_tree_byte(&f->tree, "active/A1", offset), 'R');
    deliver_all(f, id);
    assert_int_equal(f->delivered, 1);
    assert_false(f->deferred);
    teardown(f);
}

static void what_is_done_in_the_file_is_not_tried_again(void **unused)
{
    struct fixture *f = setup();
    struct queue_file_mark mark;
    struct queue_dir dir;
    struct buf error;
    struct msg_id id;

    (void)unused;
    put_message(f, "incoming/A1", 2, 0700, NOW_S);
    (void)poll_all(f);
    id = claim_one(f, SPOOL_INCOMING);
    mark = queue_file_mark_done(rcpt_of(f->sp, id, 1).offset);
    buf_init(&error, 100);
    assert_int_equal(queue_dir_open(&dir, f->tree.path, &(struct queue_dir_options){0}, &error), 0);
    assert_int_equal(queue_dir_mark(&dir, QUEUE_DIR_ACTIVE, SLICE("A1"), &mark), 0);
    queue_dir_close(&dir);
    assert_int_equal(postfix_rcpt_state(f->sp, id, 1), 'D');
    assert_int_equal(postfix_rcpt_state(f->sp, id, 2), 'R');
    settle(f, id, 1, true);
    assert_int_equal(spool_conclude(f->sp, id, true, f->now), 0);
    assert_int_equal(spool_commit(f->sp), 0);
    f->asked = 0;
    poll_after(f, 300);
    assert_int_equal(f->asked, 1);
    assert_string_equal(f->asks[0].address, "r2@example.org");
    assert_int_equal(f->asks[0].n, 2);
    teardown(f);
}

/* A file in which all is done comes to its end, with its reports, without a delivery. */
static void a_file_without_recipients_to_do_is_concluded(void **unused)
{
    struct fixture *f = setup();
    struct spool_message m;
    struct msg_id id;

    (void)unused;
    put_message(f, "incoming/A1", 0, 0700, NOW_S);
    (void)poll_all(f);
    id = claim_one(f, SPOOL_INCOMING);
    assert_int_equal(spool_read(f->sp, id, &m), 0);
    assert_int_equal(m.rcpt_pending, 0);
    deliver_all(f, id);
    assert_false(queue_tree_has(&f->tree, "active/A1"));
    teardown(f);
}

/* ---- many ----------------------------------------------------------------------------------- */

/* Have the next recipients, and tell what became of them; how many there were. */
static size_t settle_next(struct fixture *f, struct msg_id id, uint32_t *after, size_t max,
                          bool done)
{
    struct spool_rcpt r[10];
    size_t count;

    assert_int_equal(spool_want_rcpts(f->sp, id, *after, max), 0);
    assert_int_equal(spool_read_rcpts(f->sp, id, *after, true, max, r, &count), 0);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(r[i].n, *after + 1);
        *after = r[i].n;
    }
    for (size_t i = 0; i < count; i++) {
        settle(f, id, r[i].n, done);
    }
    assert_int_equal(spool_commit(f->sp), 0);
    return count;
}

/* As when a commit fails. */
static void roll_back(struct fixture *f)
{
    assert_true(f->sp->dirty);
    f->sp->engine->rollback(f->sp);
    f->sp->dirty = false;
}

static uint32_t pending(struct fixture *f, struct msg_id id)
{
    struct spool_message m;

    assert_int_equal(spool_read(f->sp, id, &m), 0);
    return m.rcpt_pending;
}

/* Of a message with more recipients than may be in memory the next ones are read when they are
 * asked for, exactly as many, and each once. */
static void recipients_are_read_as_they_are_asked_for(void **unused)
{
    struct fixture *f =
        setup_with(&(struct postfix_spool_options){.rcpt_limit = 20, .rcpt_minimum = 3}, NULL);
    struct msg_id big, small;
    uint32_t after = 0;

    (void)unused;
    put_message(f, "incoming/A1", 47, 0700, NOW_S);
    (void)poll_all(f);
    big = claim_one(f, SPOOL_INCOMING);
    assert_int_equal(f->asked, 20);
    assert_int_equal(pending(f, big), 47);
    put_message(f, "incoming/B1", 5, 0700, NOW_S);
    postfix_trigger(f->sp, POSTFIX_SCAN_INCOMING);
    (void)poll_all(f);
    small = claim_one(f, SPOOL_INCOMING);
    assert_int_equal(f->asked, 23); /* its minimum, where there is no room */
    assert_int_equal(pending(f, small), 5);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(settle_next(f, big, &after, 10, true), 10);
    }
    assert_int_equal(f->asked, 23); /* these were there */
    for (unsigned i = 1; i <= 3; i++) {
        assert_int_equal(settle_next(f, big, &after, 7, i != 2), 7);
        assert_int_equal(f->asked, 23 + 7 * i);
    }
    assert_int_equal(pending(f, big), 6 + 7);
    assert_int_equal(settle_next(f, big, &after, 7, true), 6);
    assert_int_equal(settle_next(f, big, &after, 7, true), 0);
    assert_int_equal(pending(f, big), 7); /* what was deferred, though it is in memory no more */
    assert_false(has_rcpt(f->sp, big, 30));
    assert_int_equal(spool_conclude(f->sp, big, true, wall_after(f->now, 300 * US_PER_S)), 0);
    assert_int_equal(spool_commit(f->sp), 0);
    assert_true(queue_tree_has(&f->tree, "deferred/A/A1"));
    after = 0;
    assert_int_equal(settle_next(f, small, &after, 10, true), 5);
    deliver_all(f, small);
    assert_false(queue_tree_has(&f->tree, "active/B1"));
    teardown(f);
}

/* What is settled leaves memory with the commit, and comes back with a rollback. */
static void settled_recipients_leave_memory(void **unused)
{
    enum { RCPTS = 10000, PAGE = 10 };
    struct fixture *f =
        setup_with(&(struct postfix_spool_options){.rcpt_limit = PAGE, .rcpt_minimum = 1}, NULL);
    struct msg_id id;
    uint32_t after = 0;
    uint64_t most = 0;

    (void)unused;
    put_message(f, "incoming/A1", RCPTS, 0700, NOW_S);
    (void)poll_all(f);
    id = claim_one(f, SPOOL_INCOMING);
    settle(f, id, 1, true);
    settle(f, id, 2, false);
    roll_back(f);
    assert_int_equal(pending(f, id), RCPTS);
    while (settle_next(f, id, &after, PAGE, after % 100 < 50) > 0) {
        const struct store_message *m = store_find(store_of(f->sp), id);

        most = store_of(f->sp)->rcpts > most ? store_of(f->sp)->rcpts : most;
        most = m->rcpt_size > most ? m->rcpt_size : most;
    }
    assert_int_equal(after, RCPTS);
    assert_int_equal(store_of(f->sp)->rcpts, 0);
    assert_true(most <= 4 * PAGE);
    assert_int_equal(pending(f, id), RCPTS / 2);
    teardown(f);
}

/* One that has been deferred stays in memory while something is done with it; with too many of
 * them the message gets no others. */
static void pinned_recipients_stay(void **unused)
{
    struct fixture *f =
        setup_with(&(struct postfix_spool_options){.rcpt_limit = 4, .rcpt_minimum = 1}, NULL);
    const uint32_t ns[] = {1, 2, 3, 4, 5, 6, 99};
    struct spool_event event;
    struct msg_id id;
    uint32_t after = 0;

    (void)unused;
    put_message(f, "incoming/A1", 12, 0700, NOW_S);
    (void)poll_all(f);
    id = claim_one(f, SPOOL_INCOMING);
    postfix_pin(f->sp, id, ns, 4);
    postfix_pin(f->sp, (struct msg_id){99}, ns, 4);
    assert_int_equal(settle_next(f, id, &after, 4, false), 4);
    assert_true(slice_equal(rcpt_of(f->sp, id, 4).recipient, SLICE("r4@example.org")));
    assert_int_equal(postfix_rcpt_state(f->sp, id, 4), 'R');
    assert_int_equal(spool_want_rcpts(f->sp, id, after, 4), -ENOBUFS);
    assert_false(spool_next_event(f->sp, &event));
    postfix_unpin(f->sp, id, ns, 2);
    assert_true(spool_next_event(f->sp, &event));
    assert_int_equal(event.type, SPOOL_EVENT_READY);
    assert_false(has_rcpt(f->sp, id, 2));
    assert_true(has_rcpt(f->sp, id, 3));
    assert_int_equal(spool_want_rcpts(f->sp, id, after, 4), 0);
    postfix_pin(f->sp, id, ns, 7);
    settle(f, id, 5, true); /* what is done is of no use to anybody */
    settle(f, id, 6, false);
    roll_back(f);
    settle(f, id, 5, true);
    settle(f, id, 6, false);
    assert_int_equal(spool_commit(f->sp), 0);
    assert_false(has_rcpt(f->sp, id, 5));
    assert_true(has_rcpt(f->sp, id, 6));
    postfix_unpin(f->sp, id, ns, 7);
    assert_false(has_rcpt(f->sp, id, 6));
    assert_int_equal(store_find(store_of(f->sp), id)->pinned, 0);
    assert_int_equal(pending(f, id), 11);
    teardown(f);
}

/* It may take its time to say where the next ones go; then an event tells that they are there. */
static void recipients_to_come_wait_for_the_resolver(void **unused)
{
    struct fixture *f =
        setup_with(&(struct postfix_spool_options){.rcpt_limit = 2, .rcpt_minimum = 1}, NULL);
    struct spool_event event;
    struct spool_rcpt r[4];
    struct msg_id id;
    size_t count;

    (void)unused;
    put_message(f, "incoming/A1", 6, 0700, NOW_S);
    (void)poll_all(f);
    id = claim_one(f, SPOOL_INCOMING);
    settle(f, id, 1, true);
    settle(f, id, 2, true);
    f->routes = false;
    assert_int_equal(spool_want_rcpts(f->sp, id, 2, 2), -EAGAIN);
    assert_int_equal(spool_want_rcpts(f->sp, id, 2, 2), -EAGAIN);
    assert_int_equal(f->asked, 4);
    assert_int_equal(spool_read_rcpts(f->sp, id, 2, true, 4, r, &count), 0);
    assert_int_equal(count, 0);
    answer(f, id, 4, "r4@example.org", POSTFIX_DELIVER);
    assert_false(spool_next_event(f->sp, &event));
    answer(f, id, 3, "", POSTFIX_SKIP);
    assert_true(spool_next_event(f->sp, &event));
    assert_int_equal(event.type, SPOOL_EVENT_READY);
    assert_int_equal(spool_want_rcpts(f->sp, id, 2, 2), -EAGAIN); /* another instead of that one */
    assert_int_equal(f->asked, 5);
    answer(f, id, 5, "r5@example.org", POSTFIX_DELIVER);
    assert_int_equal(spool_want_rcpts(f->sp, id, 2, 2), 0);
    assert_int_equal(spool_read_rcpts(f->sp, id, 2, true, 4, r, &count), 0);
    assert_int_equal(count, 2);
    assert_int_equal(spool_commit(f->sp), 0);
    assert_int_equal(pending(f, id), 3);
    teardown(f);
}

/* The rest of a file can't be read: what was read of it is delivered, and it goes to corrupt/ or
 * waits, whatever else is due. */
static void a_file_may_be_damaged_after_its_first_recipients(void **unused)
{
    enum { DAMAGED, GONE, HELD, WAYS };

    (void)unused;
    for (unsigned way = 0; way < WAYS; way++) {
        struct fixture *f =
            setup_with(&(struct postfix_spool_options){.rcpt_limit = 2, .rcpt_minimum = 1}, NULL);
        uint32_t after = 2;
        struct msg_id id;
        uint64_t offset;

        f->ends = false;
        put_message(f, "incoming/A1", 2000, 0700, NOW_S);
        (void)poll_all(f);
        id = claim_one(f, SPOOL_INCOMING);
        offset = rcpt_of(f->sp, id, 2).offset;
        if (way == DAMAGED) {
            int fd;
            char path[200];

            (void)snprintf(path, sizeof path, "%s/active/A1", f->tree.path);
            fd = open(path, O_WRONLY | O_CLOEXEC);
            assert_int_equal(pwrite(fd, "\xff\xff", 2, (off_t)offset + 100), 2);
            (void)close(fd);
        } else if (way == GONE) {
            queue_tree_unlink(&f->tree, "active/A1");
        } else {
            queue_tree_rename(&f->tree, "active/A1", "hold/A1");
        }
        settle(f, id, 1, true);
        settle(f, id, 2, true);
        assert_int_equal(settle_next(f, id, &after, 10, true), 0);
        assert_int_equal(pending(f, id), 1998);
        assert_int_equal(spool_conclude(f->sp, id, true, f->now), 0);
        assert_int_equal(spool_commit(f->sp), 0);
        assert_int_equal(postfix_pass_is_usable(f->sp, id), 0);
        postfix_concluded(f->sp, id, POSTFIX_CORRUPT, f->now);
        (void)poll_all(f);
        assert_non_null(strstr(f->events, way == DAMAGED ? "warning: A1: message rejected: "
                                                         : "can't be read: No such file"));
        assert_int_equal(queue_tree_has(&f->tree, "corrupt/A1"), way == DAMAGED);
        assert_int_equal(queue_tree_has(&f->tree, "hold/A1"), way == HELD);
        teardown(f);
    }
}

/* Mail that waits costs a look at its name and time, in pieces, and nothing that stays. */
static void a_long_queue_is_scanned_in_pieces(void **unused)
{
    enum { FILES = 2000 };
    struct fixture *f = setup();
    struct wall again = {0};
    unsigned polls = 0;

    (void)unused;
    for (unsigned i = 0; i < FILES; i++) {
        char path[64];

        (void)snprintf(path, sizeof path, "deferred/%X/%XAB%04u", i % 16, i % 16, i);
        queue_tree_put(&f->tree, path, SLICE("it is not read"), 0700, NOW_S + 1000);
    }
    put_message(f, "incoming/A1", 1, 0700, NOW_S);
    assert_int_equal(spool_poll(f->sp, f->now, &again), 0);
    assert_int_equal(again.us, f->now.us);
    assert_int_not_equal(claim_one(f, SPOOL_INCOMING).n, 0); /* new mail does not wait for it */
    while (again.us <= f->now.us) {
        assert_int_equal(spool_poll(f->sp, f->now, &again), 0);
        polls++;
    }
    assert_true(polls >= FILES / 200);
    assert_int_equal(again.us, f->now.us + 300 * US_PER_S);
    assert_int_equal(f->asked, 1);
    teardown(f);
}

/* No more is taken into active/ than may be there, and incoming and deferred mail take turns. */
static void active_has_a_limit(void **unused)
{
    struct fixture *f = setup_with(&(struct postfix_spool_options){.active_limit = 6}, NULL);
    unsigned incoming = 0, deferred = 0;
    struct msg_id id;

    (void)unused;
    for (unsigned i = 0; i < 10; i++) {
        char path[64];

        (void)snprintf(path, sizeof path, "incoming/A%u", i);
        put_message(f, path, 1, 0700, NOW_S);
        (void)snprintf(path, sizeof path, "deferred/B/B%u", i);
        put_message(f, path, 1, 0700, NOW_S);
    }
    (void)poll_all(f);
    assert_int_equal(f->asked, 6);
    while ((id = claim_one(f, SPOOL_INCOMING)).n != 0) {
        incoming++;
    }
    while ((id = claim_one(f, SPOOL_DEFERRED)).n != 0) {
        deferred++;
    }
    assert_int_equal(incoming, 3);
    assert_int_equal(deferred, 3);
    (void)poll_all(f);
    assert_int_equal(f->asked, 6);
    teardown(f);
}

/* ---- triggers and times --------------------------------------------------------------------- */

static void triggers_ask_for_mail_before_its_time(void **unused)
{
    struct fixture *f = setup();
    struct msg_id id;

    (void)unused;
    (void)poll_all(f);
    put_message(f, "deferred/A/A1", 1, 0700, NOW_S + 5000);
    put_message(f, "incoming/B1", 1, 0740, NOW_S);
    postfix_trigger(f->sp, POSTFIX_SCAN_IGNORE_TIME | POSTFIX_SCAN_FLUSH); /* these start none */
    (void)poll_all(f);
    assert_int_equal(f->asked, 0);
    assert_false(postfix_scans_incoming(f->sp));
    postfix_trigger(f->sp, POSTFIX_SCAN_DEFERRED | POSTFIX_SCAN_INCOMING);
    assert_true(postfix_scans_incoming(f->sp));
    (void)poll_all(f);
    id = claim_one(f, SPOOL_DEFERRED);
    assert_true(postfix_message(f->sp, id)->flushed);
    id = claim_one(f, SPOOL_INCOMING);
    assert_true(postfix_message(f->sp, id)->flushed);
    assert_int_equal(queue_tree_mode(&f->tree, "active/B1"), 0700); /* by its mode, too */
    /* they were for one scan */
    put_message(f, "deferred/C/C1", 1, 0700, NOW_S + 5000);
    put_message(f, "incoming/D1", 1, 0700, NOW_S);
    postfix_trigger(f->sp, POSTFIX_SCAN_DEFERRED | POSTFIX_SCAN_INCOMING);
    (void)poll_all(f);
    assert_true(queue_tree_has(&f->tree, "deferred/C/C1"));
    id = claim_one(f, SPOOL_INCOMING);
    assert_false(postfix_message(f->sp, id)->flushed);
    teardown(f);
}

static void the_descriptor_is_readable_when_there_is_something_to_do(void **unused)
{
    struct fixture *f = setup();
    struct wall again;
    uint64_t count;
    int fd = spool_external_fd(f->sp);

    (void)unused;
    (void)poll_all(f);
    assert_int_equal(read(fd, &count, sizeof count), -1);
    postfix_trigger(f->sp, POSTFIX_SCAN_INCOMING); /* who calls it polls next */
    assert_int_equal(read(fd, &count, sizeof count), -1);
    f->routes = false;
    put_message(f, "incoming/A1", 1, 0700, NOW_S);
    again = poll_all(f);
    assert_true(again.us > f->now.us);
    assert_int_equal(read(fd, &count, sizeof count), -1);
    answer(f, f->asks[0].id, 1, "a", POSTFIX_DELIVER);
    assert_int_equal(read(fd, &count, sizeof count), (int)sizeof count);
    teardown(f);
}

/* As a start leaves it whose predecessor has found an agent at the file: no trigger tells of it. */
static void mail_in_incoming_is_looked_at_when_its_time_comes(void **unused)
{
    struct fixture *f = setup();
    struct wall again;

    (void)unused;
    put_message(f, "incoming/A1", 1, 0700, NOW_S + 60);
    postfix_trigger(f->sp, POSTFIX_SCAN_INCOMING);
    again = poll_all(f);
    assert_int_equal(again.us, (NOW_S + 60) * US_PER_S);
    assert_int_equal((int)f->asked, 0);
    f->now = again;
    (void)poll_all(f);
    assert_int_equal((int)f->asked, 1);
    teardown(f);
}

static void deferred_mail_is_scanned_by_time(void **unused)
{
    struct fixture *f =
        setup_with(&(struct postfix_spool_options){.run_delay_us = 100 * US_PER_S}, NULL);

    (void)unused;
    assert_int_equal(poll_all(f).us, f->now.us + 100 * US_PER_S);
    put_message(f, "deferred/A/A1", 1, 0700, NOW_S);
    poll_after(f, 99);
    assert_int_equal(f->asked, 0);
    poll_after(f, 1);
    assert_int_equal(f->asked, 1);
    f->now = wall_after(f->now, 250 * US_PER_S); /* a turn was late: the times stay */
    assert_int_equal(poll_all(f).us, f->now.us + 50 * US_PER_S);
    f->now.us -= 5000 * US_PER_S; /* the clock was set back */
    assert_int_equal(poll_all(f).us, f->now.us + 100 * US_PER_S);
    teardown(f);
}

/* ---- operators ------------------------------------------------------------------------------ */

static void mail_is_given_up_with_what_is_said_of_it(void **unused)
{
    struct fixture *f = setup();
    struct spool_message m;
    struct msg_id id;

    (void)unused;
    put_message(f, "deferred/A/A1", 2, 0710, NOW_S);
    queue_tree_put(&f->tree, "defer/A/A1", SLICE("why"), 0600, NOW_S);
    put_message(f, "incoming/B1", 2, 0710, NOW_S); /* nothing is said of it: it is tried */
    queue_tree_put(&f->tree, "defer/B/B1", SLICE(""), 0600, NOW_S);
    (void)poll_all(f);
    assert_int_equal(f->asked, 2);
    id = claim_one(f, SPOOL_DEFERRED);
    assert_int_equal(spool_read(f->sp, id, &m), 0);
    assert_true(m.force_expire);
    assert_int_equal(m.rcpt_pending, 2);
    assert_true(queue_tree_has(&f->tree, "defer/A/A1"));
    assert_int_equal(queue_tree_mode(&f->tree, "active/A1"), 0710); /* left set */
    id = claim_one(f, SPOOL_INCOMING);
    assert_int_equal(spool_read(f->sp, id, &m), 0);
    assert_false(m.force_expire);
    assert_true(postfix_message(f->sp, id)->force_expire);
    assert_false(queue_tree_has(&f->tree, "defer/B/B1"));
    teardown(f);
}

static void verbs_do_what_postsuper_does(void **unused)
{
    struct fixture *f = setup();
    struct spool_message m;
    struct msg_id ids[5];

    (void)unused;
    put_message(f, "incoming/A1", 1, 0700, NOW_S);
    put_message(f, "incoming/B1", 1, 0700, NOW_S);
    put_message(f, "incoming/C1", 1, 0700, NOW_S);
    put_message(f, "incoming/D1", 1, 0700, NOW_S);
    put_message(f, "incoming/E1", 1, 0700, NOW_S);
    (void)poll_all(f);
    for (size_t i = 0; i < 5; i++) {
        struct msg_id id = claim_one(f, SPOOL_INCOMING);

        ids[postfix_message(f->sp, id)->queue_id.ptr[0] - 'A'] = id;
    }
    queue_tree_put(&f->tree, "bounce/B1", SLICE("x"), 0600, NOW_S);
    assert_int_equal(spool_hold(f->sp, ids[0], SLICE("why")), 0);
    assert_int_equal(spool_remove(f->sp, ids[1]), 0);
    assert_int_equal(spool_quarantine(f->sp, ids[2], SLICE("why")), 0);
    assert_int_equal(spool_set_force_expire(f->sp, ids[3]), 0);
    queue_tree_put(&f->tree, "defer/E/E1", SLICE("x"), 0600, NOW_S);
    assert_int_equal(spool_requeue(f->sp, ids[4], f->now), 0);
    assert_int_equal(spool_set_due(f->sp, ids[0], f->now), 0); /* it stays on hold */
    assert_int_equal(spool_read(f->sp, ids[0], &m), 0);
    assert_int_equal(m.state, SPOOL_HOLD);
    assert_int_equal(spool_commit(f->sp), 0);
    assert_int_equal(spool_read(f->sp, ids[0], &m), -ENOENT);
    assert_true(queue_tree_has(&f->tree, "hold/A1"));
    assert_true(queue_tree_has(&f->tree, "maildrop/E1"));
    assert_false(queue_tree_has(&f->tree, "active/E1"));
    assert_false(queue_tree_has(&f->tree, "defer/E/E1"));
    assert_false(queue_tree_has(&f->tree, "active/B1"));
    assert_false(queue_tree_has(&f->tree, "bounce/B1"));
    assert_true(queue_tree_has(&f->tree, "corrupt/C1"));
    assert_int_equal(queue_tree_mode(&f->tree, "active/D1"), 0710);
    /* results that come late are of no message */
    assert_int_equal(
        spool_settle(f->sp, ids[0], 1, &(struct spool_verdict){.state = SPOOL_RCPT_DELIVERED}),
        -ENOENT);
    assert_int_equal(spool_commit(f->sp), 0);
    teardown(f);
}

static void a_claim_can_be_given_back(void **unused)
{
    struct fixture *f = setup();
    struct msg_id id;

    (void)unused;
    put_message(f, "deferred/A/A1", 1, 0700, NOW_S);
    (void)poll_all(f);
    id = claim_one(f, SPOOL_DEFERRED);
    spool_unclaim(f->sp, id);
    assert_true(queue_tree_has(&f->tree, "incoming/A1"));
    (void)poll_all(f);
    id = claim_one(f, SPOOL_INCOMING);
    assert_int_not_equal(id.n, 0);
    settle(f, id, 1, true);
    spool_unclaim(f->sp, id); /* within a batch */
    assert_false(spool_is_claimed(f->sp, id));
    assert_int_equal(spool_commit(f->sp), 0);
    assert_true(queue_tree_has(&f->tree, "incoming/A1"));
    teardown(f);
}

static void what_fails_with_its_batch_has_not_happened(void **unused)
{
    struct fixture *f = setup();
    struct spool_message m;
    struct msg_id id;

    (void)unused;
    put_message(f, "incoming/A1", 2, 0700, NOW_S);
    (void)poll_all(f);
    id = claim_one(f, SPOOL_INCOMING);
    settle(f, id, 1, true);
    assert_int_equal(spool_remove(f->sp, id), 0);
    assert_int_equal(spool_batch_failed(f->sp, -EIO), -EIO);
    assert_int_equal(spool_commit(f->sp), -EIO);
    assert_true(spool_is_claimed(f->sp, id));
    assert_int_equal(spool_read(f->sp, id, &m), 0);
    assert_int_equal(m.rcpt_pending, 2);
    assert_true(has_rcpt(f->sp, id, 1));
    deliver_all(f, id);
    assert_int_equal(f->delivered, 2);
    teardown(f);
}

/* ---- races ---------------------------------------------------------------------------------- */

static void files_that_vanish_are_no_fault(void **unused)
{
    struct fixture *f = setup();
    struct msg_id id;

    (void)unused;
    f->ends = false;
    put_message(f, "incoming/A1", 1, 0700, NOW_S);
    (void)poll_all(f);
    id = claim_one(f, SPOOL_INCOMING);
    queue_tree_rename(&f->tree, "active/A1", "hold/A1"); /* postsuper -h */
    assert_int_equal(postfix_rcpt_state(f->sp, id, 1), -ENOENT);
    deliver_all(f, id);
    assert_int_equal(postfix_pass_bounce_log(f->sp, id), 0);
    assert_int_equal(postfix_pass_is_usable(f->sp, id), 0);
    assert_int_equal(postfix_pass_traced(f->sp, id), -EBADMSG); /* it has no such record */
    postfix_concluded(f->sp, id, POSTFIX_REMOVED, f->now);
    (void)poll_all(f);
    assert_string_equal(f->events, "warning: qmgr_active_done_3_generic: remove A1 from active: "
                                   "No such file or directory\n");
    assert_true(queue_tree_has(&f->tree, "hold/A1"));
    postfix_concluded(f->sp, id, POSTFIX_REMOVED, f->now); /* of no effect */

    queue_tree_rename(&f->tree, "hold/A1", "deferred/A/A1"); /* postsuper -H */
    poll_after(f, 300);
    id = claim_one(f, SPOOL_DEFERRED);
    queue_tree_unlink(&f->tree, "active/A1"); /* postsuper -d */
    deliver_all(f, id);
    postfix_concluded(f->sp, id, POSTFIX_DEFERRED, f->now);
    (void)poll_all(f);
    assert_string_equal(f->events, "warning: qmgr_active_defer: rename A1 from active to deferred: "
                                   "No such file or directory\n");
    teardown(f);
}

/* The services see the logs and the mode of the file, and write their marks. */
static void a_conclusion_sees_the_files(void **unused)
{
    struct fixture *f = setup();
    struct msg_id id;

    (void)unused;
    f->ends = false;
    put_message(f, "incoming/A1", 1, 0700, NOW_S);
    (void)poll_all(f);
    id = claim_one(f, SPOOL_INCOMING);
    assert_int_equal(postfix_pass_bounce_log(f->sp, id), 0); /* no conclusion: nothing to see */
    deliver_all(f, id);
    assert_int_equal(postfix_pass_bounce_log(f->sp, id), 0);
    queue_tree_put(&f->tree, "bounce/A1", SLICE(""), 0600, NOW_S);
    assert_int_equal(postfix_pass_bounce_log(f->sp, id), 0);
    assert_false(queue_tree_has(&f->tree, "bounce/A1"));
    queue_tree_put(&f->tree, "bounce/A1", SLICE("x"), 0600, NOW_S);
    assert_int_equal(postfix_pass_bounce_log(f->sp, id), 1);
    assert_int_equal(postfix_pass_is_usable(f->sp, id), 1);
    queue_tree_unlink(&f->tree, "active/A1");
    put_message(f, "active/A1", 1, 0400, NOW_S); /* an agent found it damaged */
    assert_int_equal(postfix_pass_is_usable(f->sp, id), 0);
    postfix_concluded(f->sp, id, POSTFIX_CORRUPT, f->now);
    (void)poll_all(f);
    assert_string_equal(f->events, "warning: saving corrupt file \"A1\" from queue \"active\" to "
                                   "queue \"corrupt\"\n");
    assert_true(queue_tree_has(&f->tree, "corrupt/A1"));
    teardown(f);
}

/* An operator removes a message while bounce(8) has it. */
static void a_message_that_is_removed_in_its_conclusion_is_forgotten(void **unused)
{
    struct fixture *f = setup();
    struct msg_id id;

    (void)unused;
    f->ends = false;
    put_message(f, "incoming/A1", 1, 0700, NOW_S);
    (void)poll_all(f);
    id = claim_one(f, SPOOL_INCOMING);
    deliver_all(f, id);
    assert_int_equal(spool_remove(f->sp, id), 0);
    assert_int_equal(spool_commit(f->sp), 0);
    assert_int_equal(f->forgotten.n, id.n);
    assert_false(queue_tree_has(&f->tree, "active/A1"));
    postfix_concluded(f->sp, id, POSTFIX_DEFERRED, f->now);
    assert_false(queue_tree_has(&f->tree, "deferred/A/A1"));
    teardown(f);
}

static void an_agent_of_the_manager_before_keeps_its_file(void **unused)
{
    struct fixture *f = setup();
    char path[100];
    int agent;

    (void)unused;
    put_message(f, "active/A1", 1, 0700, NOW_S + 50);
    (void)snprintf(path, sizeof path, "%s/active/A1", f->tree.path);
    agent = open(path, O_RDWR);
    assert_return_code(flock(agent, LOCK_SH | LOCK_NB), errno);
    (void)poll_all(f);
    assert_string_equal(f->events, "A1: skipped, still being delivered\n");
    assert_int_equal(queue_tree_mtime(&f->tree, "incoming/A1"), NOW_S + 60);
    assert_int_equal(f->asked, 0);
    (void)close(agent);
    poll_after(f, 60);
    assert_int_equal(f->asked, 1);
    teardown(f);
}

/* ---- damage --------------------------------------------------------------------------------- */

static void damaged_files_are_kept_and_told(void **unused)
{
    struct fixture *f = setup();
    struct buf bytes;

    (void)unused;
    buf_init(&bytes, 10000);
    queue_tree_message(&bytes, "sender@example.com", "r", 2);
    queue_tree_put(&f->tree, "incoming/A1", slice_of(buf_slice(&bytes).ptr, buf_len(&bytes) - 2),
                   0700, NOW_S);
    put_message(f, "incoming/B1", 1, 0700, NOW_S);
    (void)poll_all(f);
    assert_string_equal(
        f->events,
        "warning: A1: message rejected: missing end record\n"
        "warning: saving corrupt file \"A1\" from queue \"active\" to queue \"corrupt\"\n");
    assert_true(queue_tree_has(&f->tree, "corrupt/A1"));
    assert_int_equal(f->asked, 1); /* other mail goes on */
    buf_fini(&bytes);
    teardown(f);
}

static struct spool_io failing;
static int failing_renames;

static int fail_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return failing_renames > 0 ? failing_renames--,
           -ENOSPC             : spool_io_real.renameat(from_dir, from, to_dir, to);
}

/* A disk that is full keeps a message in active/, and it leaves when there is room. */
static void a_rename_that_fails_is_made_again(void **unused)
{
    struct fixture *f;
    struct msg_id id;

    (void)unused;
    failing = spool_io_real;
    failing.renameat = fail_renameat;
    failing_renames = 0;
    f = setup_with(&(struct postfix_spool_options){0}, &failing);
    put_message(f, "incoming/A1", 1, 0700, NOW_S);
    (void)poll_all(f);
    id = claim_one(f, SPOOL_INCOMING);
    failing_renames = 2;
    assert_int_equal(spool_conclude(f->sp, id, true, wall_after(f->now, 100 * US_PER_S)), 0);
    assert_int_equal(spool_commit(f->sp), 0);
    assert_int_equal(poll_all(f).us, f->now.us + 60 * US_PER_S);
    assert_string_equal(f->events, "warning: qmgr_active_defer: rename A1 from active to deferred: "
                                   "No space left on device\n");
    assert_true(queue_tree_has(&f->tree, "active/A1"));
    assert_int_equal(spool_conclude(f->sp, id, true, f->now), -ENOENT);
    assert_int_equal(spool_commit(f->sp), 0);
    poll_after(f, 60);
    assert_true(queue_tree_has(&f->tree, "active/A1"));
    poll_after(f, 60);
    assert_int_equal(queue_tree_mtime(&f->tree, "deferred/A/A1"), NOW_S + 100);
    assert_string_equal(f->events, "");
    teardown(f);
}

static void content_is_read_as_it_travels(void **unused)
{
    static const char want[] = "Subject: test\r\n\r\none line in two pieces\r\n";
    struct fixture *f = setup();
    char got[sizeof want];
    struct buf bytes;
    struct msg_id id;
    uint64_t size;
    int fd = -1;

    (void)unused;
    buf_init(&bytes, 1000);
    put_message(f, "incoming/A1", 1, 0700, NOW_S);
    (void)poll_all(f);
    id = claim_one(f, SPOOL_INCOMING);
    assert_int_equal(spool_read_content(f->sp, id, &bytes, &fd, &size), 0);
    assert_int_equal(size, sizeof want - 1);
    assert_int_equal(pread(fd, got, sizeof got, 0), (int)sizeof want - 1);
    assert_memory_equal(got, want, sizeof want - 1);
    (void)close(fd);
    buf_fini(&bytes);
    teardown(f);
}

static void claims_can_be_listed(void **unused)
{
    struct fixture *f = setup();
    struct msg_id ids[CLAIMED];
    uint64_t cursor = 0;
    size_t count = 0;

    (void)unused;
    for (unsigned i = 0; i < 150; i++) {
        char path[32];

        (void)snprintf(path, sizeof path, "incoming/A%u", i);
        put_message(f, path, 1, 0700, NOW_S);
    }
    (void)poll_all(f);
    for (unsigned i = 0; i < 100; i++) {
        assert_int_not_equal(claim_one(f, SPOOL_INCOMING).n, 0);
    }
    do {
        size_t n = spool_claimed(f->sp, &cursor, CLAIMED - count, ids + count);

        for (size_t i = count; i < count + n; i++) {
            assert_true(spool_is_claimed(f->sp, ids[i]));
        }
        count += n;
    } while (cursor != 0);
    assert_int_equal(count, 100);
    teardown(f);
}

/* ---- questions ------------------------------------------------------------------------------ */

static struct msg_id find_name(struct fixture *f, const char *name)
{
    struct spool_filter filter = {.name = slice_string(name)};
    struct msg_id id = {0};
    size_t count;

    assert_int_equal(spool_scan(f->sp, &filter, 1, &id, &count), 0);
    return count == 1 ? id : (struct msg_id){0};
}

static enum spool_state state_of(struct fixture *f, struct msg_id id)
{
    struct spool_message m;

    assert_int_equal(spool_read(f->sp, id, &m), 0);
    return m.state;
}

/* Of mail on disk nothing is known, but what is asked for by name. */
static void mail_on_disk_is_found_by_its_queue_id(void **unused)
{
    struct fixture *f = setup();
    struct spool_filter all = {0};
    struct spool_message m;
    struct spool_rcpt r[4];
    struct msg_id id, ids[5];
    size_t count;

    (void)unused;
    put_message(f, "deferred/A/A1", 3, 0710, NOW_S + 5000);
    put_message(f, "hold/B1", 1, 0700, NOW_S);
    put_message(f, "incoming/C1", 1, 0600, NOW_S); /* not to be taken yet */
    queue_tree_put(&f->tree, "corrupt/D1", SLICE("damaged"), 0700, NOW_S);
    queue_tree_put(&f->tree, "deferred/E/E1", SLICE("damaged"), 0700, NOW_S + 5000);
    (void)poll_all(f);
    id = find_name(f, "A1");
    assert_int_not_equal(id.n, 0);
    assert_int_equal(find_name(f, "A1").n, id.n);
    assert_int_equal(find_name(f, "nothing").n, 0);
    assert_int_equal(find_name(f, "../A1").n, 0);
    assert_int_equal(spool_read(f->sp, id, &m), 0);
    assert_int_equal(m.state, SPOOL_DEFERRED);
    assert_int_equal(m.due.us, (NOW_S + 5000) * US_PER_S);
    assert_int_equal(m.rcpt_pending, 3);
    assert_true(m.force_expire);
    assert_true(slice_equal(m.spoolid, SLICE("A1")));
    assert_int_equal(spool_read_rcpts(f->sp, id, 1, true, 4, r, &count), 0);
    assert_int_equal(count, 2);
    assert_true(slice_equal(r[0].address, SLICE("r2@example.org")));
    assert_int_equal(state_of(f, find_name(f, "B1")), SPOOL_HOLD);
    assert_int_equal(state_of(f, find_name(f, "D1")), SPOOL_CORRUPT);
    assert_int_equal(spool_read(f->sp, find_name(f, "E1"), &m), -EBADMSG);
    assert_string_equal(spool_error(f->sp), "E1: the record at offset 0 is cut short");
    assert_int_equal(spool_scan(f->sp, &all, 5, ids, &count), 0);
    assert_int_equal(count, 4);                       /* all but what can't be read */
    assert_int_equal(ids[0].n, find_name(f, "C1").n); /* queue by queue */
    assert_int_equal(ids[1].n, id.n);
    assert_int_equal(
        spool_scan(f->sp, &(struct spool_filter){.states = 1U << SPOOL_HOLD}, 5, ids, &count), 0);
    assert_int_equal(count, 1);
    assert_int_equal(ids[0].n, find_name(f, "B1").n);
    assert_true(spool_due_by_scans(f->sp));
    teardown(f);
}

/* As many as there are, a bounded piece with each call; each message once. */
static void a_list_of_mail_on_disk_comes_in_pieces(void **unused)
{
    enum { FILES = 6010, PAGE = 90, LISTS = 4 };
    struct fixture *f = setup();
    struct msg_id ids[PAGE], rest, first_page_end;
    struct spool_filter all = {0}, wanted = {.sender = SLICE("nobody@example.org")};
    uint64_t total = 0, some;
    size_t count, seen = 0, calls = 0;
    struct spool_totals totals;

    (void)unused;
    for (unsigned i = 0; i < FILES; i++) {
        char path[32];

        (void)snprintf(path, sizeof path, i % 2 == 0 ? "hold/A%u" : "deferred/A/A%u", i);
        put_message(f, path, 1, 0700, NOW_S + 5000);
    }
    do {
        assert_int_equal(spool_scan(f->sp, &all, PAGE, ids, &count), 0);
        seen += count;
        assert_true(count == PAGE || seen == FILES);
        for (size_t i = 0; i < count; i++) {
            assert_true(all.after.n < ids[i].n || i > 0);
        }
        all.after = count > 0 ? ids[count - 1] : (struct msg_id){0};
    } while (count > 0 && spool_scan_goes_on(f->sp, &all.after));
    assert_int_equal(seen, FILES);
    /* files that have to be read are read in pieces, too */
    do {
        assert_int_equal(spool_count(f->sp, &wanted, &some), 0);
        total += some;
        calls++;
    } while (spool_scan_goes_on(f->sp, &wanted.after));
    assert_int_equal(total, 0);
    assert_in_range(calls, 3, 10);
    /* names are enough to count what is on hold */
    assert_int_equal(spool_count(f->sp, &(struct spool_filter){.states = 1U << SPOOL_HOLD}, &total),
                     0);
    assert_int_equal(total, FILES / 2);
    assert_false(spool_scan_goes_on(f->sp, &rest));
    assert_int_equal(spool_totals(f->sp, &totals), 0);
    assert_int_equal(totals.hold, FILES / 2);
    assert_int_equal(totals.corrupt, 0);
    /* the reader of a page may have taken a part of it */
    all.after.n = 0;
    assert_int_equal(spool_scan(f->sp, &all, PAGE, ids, &count), 0);
    first_page_end = ids[PAGE - 1];
    all.after = ids[PAGE - 3];
    assert_int_equal(spool_scan(f->sp, &all, 2, ids, &count), 0);
    assert_int_equal(count, 2);
    assert_int_equal(ids[1].n, first_page_end.n);
    /* one that is not gone on with is given up */
    all.after = ids[1];
    for (unsigned i = 0; i < LISTS; i++) {
        assert_int_equal(spool_scan(f->sp, &(struct spool_filter){0}, 1, ids, &count), 0);
    }
    assert_int_equal(spool_scan(f->sp, &all, 2, ids, &count), -ESTALE);
    teardown(f);
}

static void mail_on_disk_is_changed_by_its_queue_id(void **unused)
{
    struct fixture *f = setup();
    struct msg_id a, b, c, d, e;

    (void)unused;
    put_message(f, "deferred/A/A1", 1, 0700, NOW_S + 5000);
    put_message(f, "deferred/B/B1", 1, 0700, NOW_S + 5000);
    put_message(f, "deferred/C/C1", 1, 0700, NOW_S + 5000);
    put_message(f, "hold/D1", 1, 0700, NOW_S + 5000);
    put_message(f, "deferred/E/E1", 1, 0700, NOW_S + 5000);
    put_message(f, "deferred/F/F1", 1, 0700, NOW_S + 5000);
    queue_tree_put(&f->tree, "defer/B/B1", SLICE("why"), 0600, NOW_S);
    queue_tree_put(&f->tree, "defer/F/F1", SLICE("why"), 0600, NOW_S);
    (void)poll_all(f);
    a = find_name(f, "A1");
    b = find_name(f, "B1");
    c = find_name(f, "C1");
    d = find_name(f, "D1");
    e = find_name(f, "E1");
    assert_int_equal(spool_hold(f->sp, a, SLICE("why")), 0);
    assert_int_equal(spool_set_due(f->sp, a, f->now), 0); /* it stays on hold */
    assert_int_equal(state_of(f, a), SPOOL_HOLD);
    assert_int_equal(spool_remove(f->sp, b), 0);
    assert_int_equal(spool_set_force_expire(f->sp, c), 0);
    assert_int_equal(spool_release(f->sp, d, f->now), 0);
    assert_int_equal(spool_set_due(f->sp, e, f->now), 0);
    assert_int_equal(spool_requeue(f->sp, find_name(f, "F1"), f->now), 0);
    assert_true(queue_tree_has(&f->tree, "deferred/A/A1")); /* at the commit */
    assert_int_equal(spool_commit(f->sp), 0);
    assert_true(queue_tree_has(&f->tree, "hold/A1"));
    assert_int_equal(queue_tree_mtime(&f->tree, "maildrop/F1"), f->now.us / 1000000);
    assert_false(queue_tree_has(&f->tree, "deferred/F/F1"));
    assert_false(queue_tree_has(&f->tree, "defer/F/F1"));
    assert_false(queue_tree_has(&f->tree, "deferred/B/B1"));
    assert_false(queue_tree_has(&f->tree, "defer/B/B1"));
    assert_int_equal(queue_tree_mode(&f->tree, "deferred/C/C1"), 0710);
    assert_int_equal(queue_tree_mtime(&f->tree, "deferred/C/C1"), NOW_S + 5000);
    /* what is asked for is active under its id, and its destinations are revived */
    (void)poll_all(f);
    for (unsigned i = 0; i < 2; i++) {
        struct msg_id id = claim_one(f, SPOOL_INCOMING);

        assert_true(id.n == d.n || id.n == e.n);
        assert_int_equal(postfix_message(f->sp, id)->flushed, id.n == e.n);
    }
    /* a file that has gone meanwhile */
    queue_tree_unlink(&f->tree, "hold/A1");
    assert_int_equal(spool_remove(f->sp, a), 0);
    assert_int_equal(spool_commit(f->sp), 0);
    (void)poll_all(f);
    assert_string_equal(f->events, "");
    teardown(f);
}

/* The engine's clock is that of its last poll. */
static void mail_is_made_due_long_after_the_last_poll(void **unused)
{
    struct fixture *f = setup();
    struct msg_id a;

    (void)unused;
    put_message(f, "deferred/A/A1", 1, 0700, NOW_S + 5000);
    (void)poll_all(f);
    a = find_name(f, "A1");
    f->now = wall_after(f->now, 100 * US_PER_S);
    assert_int_equal(spool_set_due(f->sp, a, f->now), 0);
    assert_int_equal(spool_commit(f->sp), 0);
    assert_true(queue_tree_has(&f->tree, "incoming/A1"));
    (void)poll_all(f);
    assert_int_equal(claim_one(f, SPOOL_INCOMING).n, a.n);
    teardown(f);
}

static void what_is_active_is_listed(void **unused)
{
    static const struct {
        struct spool_filter filter;
        size_t want;
    } cases[] = {
        {{0}, 3},
        {{.sender = {"Sender@example.com", 18}}, 3},
        {{.sender = {"@example.com", 12}}, 3},
        {{.sender = {"<>", 2}}, 0},
        {{.rcpt = {"r3@EXAMPLE.org", 14}}, 1},
        {{.rcpt = {"@example.org", 12}}, 3},
        {{.destination = {"smtp/example.org", 16}}, 3},
        {{.destination = {"lmtp/example.org", 16}}, 0},
        {{.name = {"B1", 2}}, 1},
        {{.name = {"B1", 2}, .sender = {"<>", 2}}, 0},
        {{.states = 1U << SPOOL_DEFERRED}, 1},
        {{.size_min = 100000}, 0},
    };
    struct fixture *f = setup();
    struct spool_destination d[2];
    struct msg_id ids[5];
    struct wall arrived;
    uint64_t total;
    size_t count;

    (void)unused;
    put_message(f, "incoming/A1", 1, 0700, NOW_S);
    put_message(f, "incoming/B1", 3, 0700, NOW_S);
    put_message(f, "deferred/C/C1", 2, 0700, NOW_S);
    (void)poll_all(f);
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(spool_scan(f->sp, &cases[i].filter, 5, ids, &count), 0);
        assert_int_equal(count, cases[i].want);
        assert_int_equal(spool_count(f->sp, &cases[i].filter, &total), 0);
        assert_int_equal(total, cases[i].want);
    }
    assert_int_equal(spool_scan(f->sp, &(struct spool_filter){0}, 2, ids, &count), 0);
    assert_int_equal(count, 2);
    assert_true(ids[0].n < ids[1].n);
    assert_int_equal(spool_scan(f->sp, &(struct spool_filter){.after = ids[1]}, 2, ids, &count), 0);
    assert_int_equal(count, 1);
    assert_int_equal(spool_destinations(f->sp, 2, d, &count), 0);
    assert_int_equal(count, 1);
    assert_int_equal(d[0].rcpts, 6);
    assert_int_equal(d[0].messages, 3);
    assert_int_equal(spool_oldest(f->sp, &d[0], &arrived), 0);
    assert_int_equal(arrived.us, 1000 * US_PER_S + 5);
    teardown(f);
}

UNIT_MAIN(cmocka_unit_test(a_message_in_memory_needs_less_than_a_kilobyte),
          cmocka_unit_test(a_recipient_in_memory_needs_less_than_160_bytes),
          cmocka_unit_test(mail_goes_from_incoming_through_active_to_its_end),
          cmocka_unit_test(mail_has_the_class_that_its_header_says),
          cmocka_unit_test(mail_is_claimed_when_it_is_known_where_it_goes),
          cmocka_unit_test(recipients_may_be_skipped_or_discarded),
          cmocka_unit_test(what_is_done_in_the_file_is_not_tried_again),
          cmocka_unit_test(a_file_without_recipients_to_do_is_concluded),
          cmocka_unit_test(recipients_are_read_as_they_are_asked_for),
          cmocka_unit_test(settled_recipients_leave_memory),
          cmocka_unit_test(pinned_recipients_stay),
          cmocka_unit_test(recipients_to_come_wait_for_the_resolver),
          cmocka_unit_test(a_file_may_be_damaged_after_its_first_recipients),
          cmocka_unit_test(a_long_queue_is_scanned_in_pieces), cmocka_unit_test(active_has_a_limit),
          cmocka_unit_test(triggers_ask_for_mail_before_its_time),
          cmocka_unit_test(the_descriptor_is_readable_when_there_is_something_to_do),
          cmocka_unit_test(mail_in_incoming_is_looked_at_when_its_time_comes),
          cmocka_unit_test(deferred_mail_is_scanned_by_time),
          cmocka_unit_test(mail_is_given_up_with_what_is_said_of_it),
          cmocka_unit_test(verbs_do_what_postsuper_does),
          cmocka_unit_test(a_claim_can_be_given_back),
          cmocka_unit_test(what_fails_with_its_batch_has_not_happened),
          cmocka_unit_test(files_that_vanish_are_no_fault),
          cmocka_unit_test(a_conclusion_sees_the_files),
          cmocka_unit_test(a_message_that_is_removed_in_its_conclusion_is_forgotten),
          cmocka_unit_test(an_agent_of_the_manager_before_keeps_its_file),
          cmocka_unit_test(damaged_files_are_kept_and_told),
          cmocka_unit_test(a_rename_that_fails_is_made_again),
          cmocka_unit_test(content_is_read_as_it_travels), cmocka_unit_test(claims_can_be_listed),
          cmocka_unit_test(mail_on_disk_is_found_by_its_queue_id),
          cmocka_unit_test(a_list_of_mail_on_disk_comes_in_pieces),
          cmocka_unit_test(mail_on_disk_is_changed_by_its_queue_id),
          cmocka_unit_test(mail_is_made_due_long_after_the_last_poll),
          cmocka_unit_test(what_is_active_is_listed))
