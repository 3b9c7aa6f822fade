/*
 * Mail in passage: what a killed holder leaves of it, and what damage does to it. A child process
 * is the holder; it ends without closing the spool.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mem.h"
#include "passage.h"
#include "passage_envelope.h"
#include "spool_check.h"
#include "spool_engine.h"
#include "spool_events.h"
#include "spool_fixture.h"
#include "spool_keys.h"
#include "spool_search.h"

#define SMALL   700  /* in the record; what stays goes into the database */
#define LARGE   1900 /* in the record; what stays goes to a segment */
#define SEGMENT 9000

static struct fixture fx;

static int set_up(void **state)
{
    (void)state;
    fixture_init(&fx);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fixture_fini(&fx);
    return 0;
}

static struct msg_id pass(struct spool *sp, const char *sender, const char *rcpts, size_t size)
{
    struct msg_id id;

    fixture_ok(sp, fixture_submit(sp, sender, rcpts, 5, size, true, &id));
    return id;
}

/* Run `does` in a process that is killed behind it. */
static void in_killed_process(void (*does)(struct spool *sp))
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        does(fixture_open(&fx));
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* How many messages are there, and do all of them have their content? */
static size_t count_good(struct spool *sp)
{
    struct msg_id ids[100];
    struct spool_message m;
    size_t count, good = 0;

    fixture_ok(sp, spool_scan(sp, &(struct spool_filter){.states = 0}, COUNT(ids), ids, &count));
    for (size_t i = 0; i < count; i++) {
        fixture_ok(sp, spool_read(sp, ids[i], &m));
        good += fixture_content_ok(sp, &m);
    }
    return good;
}

static bool is_there(struct spool *sp, const char *sender)
{
    uint64_t count;

    fixture_ok(sp, spool_count(sp, &(struct spool_filter){.sender = slice_string(sender)}, &count));
    return count == 1;
}

static const char *passage_path(unsigned number)
{
    static char path[256];

    snprintf(path, sizeof path, "%s.d/%08x.passage", fx.path, number);
    return path;
}

/* ---- a kill --------------------------------------------------------------------------------- */

static void four_of_which_one_is_done(struct spool *sp)
{
    struct msg_id done;

    (void)pass(sp, "small@example.com", "a@example.net b@example.net", SMALL);
    done = pass(sp, "done@example.com", "a@example.net", SMALL);
    fixture_ok(sp, spool_commit(sp));
    (void)pass(sp, "large@example.com", "a@example.net", LARGE);
    (void)pass(sp, "segment@example.com", "a@example.net", SEGMENT);
    fixture_ok(sp, spool_finish_all_done(sp, done));
    fixture_ok(sp, spool_commit(sp));
    (void)pass(sp, "never@example.com", "a@example.net", SMALL); /* its commit never comes */
}

static void a_kill_leaves_what_was_committed(void **state)
{
    struct spool *sp;

    (void)state;
    in_killed_process(four_of_which_one_is_done);
    assert_string_equal(fixture_ask(&fx, "SELECT count(*) FROM message"), "0");
    for (int i = 0; i < 2; i++) { /* what is taken in once is not taken in again */
        sp = fixture_open(&fx);
        assert_int_equal(count_good(sp), 3);
        assert_true(is_there(sp, "small@example.com"));
        assert_true(is_there(sp, "large@example.com"));
        assert_true(is_there(sp, "segment@example.com"));
        spool_close(sp);
    }
}

/* The files are still there, and say what was true before. */
static void what_is_done_after_a_start_does_not_come_back(void **state)
{
    struct msg_id ids[10];
    struct spool *sp;
    size_t count;

    (void)state;
    in_killed_process(four_of_which_one_is_done);
    sp = fixture_open(&fx);
    fixture_ok(sp, spool_claim(sp, SPOOL_INCOMING, (struct wall){100}, COUNT(ids), ids, &count));
    assert_int_equal(count, 3);
    for (size_t i = 0; i < count; i++) {
        fixture_ok(sp, spool_finish_all_done(sp, ids[i]));
    }
    fixture_ok(sp, spool_commit(sp));
    spool_close(sp);
    sp = fixture_open(&fx);
    assert_int_equal(count_good(sp), 0);
    spool_close(sp);
}

static void one_that_is_deferred_and_done(struct spool *sp)
{
    struct msg_id id = pass(sp, "gone@example.com", "a@example.net", SMALL);
    struct msg_id stays = pass(sp, "stays@example.com", "a@example.net", LARGE);
    bool gone;

    fixture_ok(sp, spool_commit(sp));
    fixture_ok(sp, spool_finish(sp, id, (struct wall){50}, &gone));
    fixture_ok(sp, spool_finish(sp, stays, (struct wall){50}, &gone));
    fixture_ok(sp, spool_commit(sp));
    fixture_ok(sp, spool_remove(sp, id)); /* that is the database's alone */
    fixture_ok(sp, spool_commit(sp));
    (void)pass(sp, "later@example.com", "a@example.net", SMALL);
    fixture_ok(sp, spool_commit(sp));
}

static void what_has_moved_to_the_database_does_not_come_back(void **state)
{
    struct spool_totals totals;
    struct spool *sp;

    (void)state;
    in_killed_process(one_that_is_deferred_and_done);
    sp = fixture_open(&fx);
    assert_int_equal(count_good(sp), 2);
    assert_true(is_there(sp, "stays@example.com"));
    assert_true(is_there(sp, "later@example.com"));
    fixture_ok(sp, spool_totals(sp, &totals));
    assert_int_equal(totals.incoming, 1);
    assert_int_equal(totals.deferred, 1);
    assert_int_equal(totals.bytes, SMALL + LARGE);
    spool_close(sp);
}

/* Written to several times over, while one message stays where it began. */
static void many_pass_and_one_waits(struct spool *sp)
{
    struct msg_id before[4] = {{0}}, now[4];

    (void)pass(sp, "waits@example.com", "a@example.net", LARGE);
    for (int i = 0; i < 400; i++) {
        for (size_t j = 0; j < COUNT(now); j++) {
            now[j] = pass(sp, "passes@example.com", "a@example.net", LARGE);
            if (i > 0) {
                fixture_ok(sp, spool_finish_all_done(sp, before[j]));
            }
        }
        fixture_ok(sp, spool_commit(sp));
        memcpy(before, now, sizeof before);
    }
}

static void files_are_written_again(void **state)
{
    struct spool *sp;
    struct stat st;

    (void)state;
    in_killed_process(many_pass_and_one_waits);
    assert_int_not_equal(stat(passage_path(PASSAGE_FILES + 2), &st), 0);
    assert_int_equal(stat(passage_path(1), &st), 0);
    assert_true(st.st_size < 3 * SEGMENT_SIZE);
    sp = fixture_open(&fx);
    assert_int_equal(count_good(sp), 5);
    assert_true(is_there(sp, "waits@example.com"));
    spool_close(sp);
}

static void many_pass_while_it_is_copied(struct spool *sp)
{
    char keep[256];

    (void)pass(sp, "first@example.com", "a@example.net", SMALL);
    fixture_ok(sp, spool_commit(sp));
    snprintf(keep, sizeof keep, "%s.d/keep", fx.path);
    close(open(keep, O_WRONLY | O_CREAT, 0600));
    many_pass_and_one_waits(sp);
}

static void nothing_is_written_again_while_it_is_copied(void **state)
{
    struct stat st;

    (void)state;
    in_killed_process(many_pass_while_it_is_copied);
    assert_int_equal(stat(passage_path(4 * PASSAGE_FILES), &st), 0);
}

/* A journal of events: each commit syncs the database, and one sync is less than two. */
static void mail_has_rows_where_each_commit_has_others(void **state)
{
    struct spool *sp = fixture_open(&fx);

    (void)state;
    fixture_ok(sp, spool_events_add(sp, 1, 1, (struct wall){1}, SLICE("{}\n")));
    (void)pass(sp, "first@example.com", "a@example.net", SMALL);
    fixture_ok(sp, spool_commit(sp));
    assert_string_equal(fixture_ask(&fx, "SELECT count(*) FROM message"), "0");
    (void)pass(sp, "second@example.com", "a@example.net", SMALL);
    fixture_ok(sp, spool_commit(sp));
    assert_string_equal(fixture_ask(&fx, "SELECT count(*) FROM message"), "1");
    (void)pass(sp, "third@example.com", "a@example.net", SMALL);
    fixture_ok(sp, spool_commit(sp));
    assert_string_equal(fixture_ask(&fx, "SELECT count(*) FROM message"), "1");
    assert_int_equal(count_good(sp), 3);
    spool_close(sp);
}

/* ---- keys of calls --------------------------------------------------------------------------- */

#define KEYS_MAX 10000

static int find_key(struct spool *sp, int number, int64_t now, struct spool_key *ret_key)
{
    static char name[20];

    snprintf(name, sizeof name, "app %d", number);
    *ret_key = (struct spool_key){.key = slice_string(name)};
    return spool_key_find(sp, ret_key, (struct wall){now}, KEYS_MAX);
}

/* A message and its key, which was not there. */
static struct msg_id pass_with_key(struct spool *sp, int number, int64_t now, int64_t until)
{
    struct msg_id id = pass(sp, "key@example.com", "a@example.net", SMALL);
    struct spool_key k;

    assert_int_equal(find_key(sp, number, now, &k), -ENOENT);
    k.id = id;
    k.until.us = until;
    memset(k.sum, number % 251, sizeof k.sum);
    fixture_ok(sp, spool_key_add(sp, &k));
    return id;
}

static void assert_keys(struct spool *sp, int from, int to, int64_t now)
{
    struct spool_key k;

    for (int i = from; i < to; i++) {
        fixture_ok(sp, find_key(sp, i, now, &k));
        assert_int_equal(k.sum[0], i % 251);
        assert_int_equal(k.sum[SPOOL_KEY_SUM - 1], i % 251);
    }
}

static const char *count_rows_of_keys(void)
{
    return fixture_ask(&fx, "SELECT (SELECT count(*) FROM call_key) || ' ' || keys FROM call_keys");
}

static void some_keys_pass(struct spool *sp)
{
    struct msg_id done = pass_with_key(sp, 1, 10, 1000);

    fixture_ok(sp, spool_commit(sp));
    (void)pass_with_key(sp, 2, 10, 20);
    fixture_ok(sp, spool_finish_all_done(sp, done));
    fixture_ok(sp, spool_commit(sp));
    (void)pass_with_key(sp, 3, 10, 1000);
    assert_int_equal(spool_batch_failed(sp, -EIO), -EIO);
    assert_int_equal(spool_commit(sp), -EIO);
    (void)pass_with_key(sp, 2, 30, 1000); /* the time of the other one is over */
    fixture_ok(sp, spool_commit(sp));
    assert_keys(sp, 1, 3, 30);
    (void)pass_with_key(sp, 4, 10, 1000); /* its commit never comes */
}

static void keys_pass_with_their_mail(void **state)
{
    struct spool_key k;
    struct spool *sp;

    (void)state;
    in_killed_process(some_keys_pass);
    assert_string_equal(fixture_ask(&fx, "SELECT count(*) FROM message"), "0");
    for (int i = 0; i < 2; i++) {
        sp = fixture_open(&fx);
        assert_keys(sp, 1, 3, 30);
        assert_int_equal(find_key(sp, 2, 30, &k), 0);
        assert_int_equal(k.until.us, 1000);
        assert_int_equal(find_key(sp, 3, 30, &k), -ENOENT);
        assert_int_equal(find_key(sp, 4, 30, &k), -ENOENT);
        assert_int_equal(count_good(sp), 2);
        fixture_ok(sp, spool_commit(sp));
        spool_close(sp);
        assert_string_equal(count_rows_of_keys(), "2 2");
    }
}

static void many_keys_pass(struct spool *sp)
{
    for (int i = 0; i < 1200; i++) {
        struct msg_id id = pass_with_key(sp, i, 10, 1000);

        fixture_ok(sp, spool_finish_all_done(sp, id));
        if (i % 7 == 6) {
            if (i % 3 == 0) {
                assert_int_equal(spool_batch_failed(sp, -EIO), -EIO);
                assert_int_equal(spool_commit(sp), -EIO);
                i -= 7;
                for (int again = 0; again < 7; again++) {
                    (void)pass_with_key(sp, ++i, 10, 1000);
                }
            }
            fixture_ok(sp, spool_commit(sp));
        }
    }
    fixture_ok(sp, spool_commit(sp));
    assert_keys(sp, 0, 1200, 10);
}

static void keys_get_rows_many_at_once(void **state)
{
    struct spool *sp;

    (void)state;
    in_killed_process(many_keys_pass);
    assert_true(atoi(count_rows_of_keys()) >= 1000);
    sp = fixture_open(&fx);
    assert_string_equal(count_rows_of_keys(), "1200 1200");
    assert_keys(sp, 0, 1200, 10);
    spool_close(sp);
}

static void one_key_and_many_files(struct spool *sp)
{
    (void)pass_with_key(sp, 1, 10, 1000);
    many_pass_and_one_waits(sp);
}

static void a_key_outlives_its_file(void **state)
{
    struct spool *sp;

    (void)state;
    in_killed_process(one_key_and_many_files);
    assert_string_equal(count_rows_of_keys(), "1 1");
    sp = fixture_open(&fx);
    assert_keys(sp, 1, 2, 10);
    spool_close(sp);
}

/* ---- damage --------------------------------------------------------------------------------- */

enum { OF_PAGE = -1 };

/* One bit, so far behind the first place of these bytes; OF_PAGE: in what its page begins with, as
 * the header of a batch does. */
static void flip_behind(unsigned number, const char *what, off_t skip)
{
    int fd = open(passage_path(number), O_RDWR);
    static char bytes[1 << 20];
    ssize_t len = pread(fd, bytes, sizeof bytes, 0);
    char *at = memmem(bytes, (size_t)len, what, strlen(what));

    assert_non_null(at);
    if (skip == OF_PAGE) {
        at -= (at - bytes) % (off_t)PASSAGE_PAGE;
        skip = 40;
    }
    at[skip] ^= 1;
    assert_int_equal(pwrite(fd, at + skip, 1, at + skip - bytes), 1);
    close(fd);
}

static void three_commits(struct spool *sp)
{
    static const char *const senders[] = {"one@example.com", "two@example.com",
                                          "three@example.com"};

    for (size_t i = 0; i < COUNT(senders); i++) {
        (void)pass(sp, senders[i], "a@example.net", SMALL);
        (void)pass(sp, "beside@example.com", "a@example.net", SMALL);
        fixture_ok(sp, spool_commit(sp));
    }
}

static void a_damaged_record_harms_its_own_message_alone(void **state)
{
    struct spool_event event;
    struct spool *sp;

    (void)state;
    in_killed_process(three_commits);
    flip_behind(1, "two@example.com", 3);
    sp = fixture_open(&fx);
    assert_int_equal(count_good(sp), 5);
    assert_false(is_there(sp, "two@example.com"));
    assert_true(spool_next_event(sp, &event));
    assert_non_null(strstr(event.text.ptr, "1 records of mail in passage are damaged"));
    spool_close(sp);
}

static void a_damaged_header_harms_its_own_batch_alone(void **state)
{
    struct spool_event event;
    struct spool *sp;

    (void)state;
    in_killed_process(three_commits);
    flip_behind(1, "two@example.com", OF_PAGE);
    sp = fixture_open(&fx);
    assert_int_equal(count_good(sp), 4);
    assert_true(is_there(sp, "one@example.com"));
    assert_false(is_there(sp, "two@example.com"));
    assert_true(is_there(sp, "three@example.com"));
    assert_true(spool_next_event(sp, &event));
    assert_non_null(strstr(event.text.ptr, "1 records of mail in passage are damaged"));
    spool_close(sp);
}

static void a_damaged_content_is_found_when_it_is_read(void **state)
{
    struct spool *sp;

    (void)state;
    in_killed_process(three_commits);
    flip_behind(1, "two@example.com", 300);
    sp = fixture_open(&fx);
    assert_int_equal(count_good(sp), 5);
    assert_true(is_there(sp, "two@example.com"));
    spool_close(sp);
}

static void told(void *context, const char *line)
{
    printf("# %s\n", line);
    *(unsigned *)context += 1;
}

/* While it passes: what can't be made rows of is quarantined under its id. */
static void a_record_damaged_under_the_holder_is_quarantined(void **state)
{
    struct spool *sp = fixture_open(&fx);
    struct spool_message m;
    struct msg_id id;
    bool gone;

    (void)state;
    id = pass(sp, "one@example.com", "a@example.net", SMALL);
    fixture_ok(sp, spool_commit(sp));
    flip_behind(1, "one@example.com", 3);
    assert_int_equal(spool_read(sp, id, &m), -EBADMSG);
    fixture_ok(sp, spool_finish(sp, id, (struct wall){9}, &gone));
    assert_false(gone);
    fixture_ok(sp, spool_commit(sp));
    fixture_ok(sp, spool_read(sp, id, &m));
    assert_int_equal(m.state, SPOOL_CORRUPT);
    fixture_ok(sp, spool_remove(sp, id));
    fixture_ok(sp, spool_commit(sp));
    spool_close(sp);
}

static void a_file_of_another_is_left_alone(void **state)
{
    struct spool *sp = fixture_open(&fx);
    struct stat st;
    int fd;

    (void)state;
    (void)pass(sp, "one@example.com", "a@example.net", SEGMENT); /* makes the directory */
    fixture_ok(sp, spool_commit(sp));
    spool_close(sp);
    fd = open(passage_path(1), O_WRONLY | O_TRUNC);
    assert_int_equal(ftruncate(fd, 50000), 0);
    close(fd);
    sp = fixture_open(&fx);
    (void)pass(sp, "two@example.com", "a@example.net", SMALL);
    fixture_ok(sp, spool_commit(sp));
    assert_int_equal(count_good(sp), 2);
    spool_close(sp);
    assert_int_equal(stat(passage_path(1), &st), 0);
    assert_int_equal(st.st_size, 50000);
    assert_int_equal(stat(passage_path(2), &st), 0);
}

static void some_rows_and_some_in_passage(struct spool *sp)
{
    struct msg_id id;

    fixture_ok(sp, fixture_submit(sp, "row@example.com", "a@example.net", 5, SMALL, false, &id));
    four_of_which_one_is_done(sp);
}

static void a_repair_takes_in_what_is_in_passage(void **state)
{
    static const struct {
        const char *damage;
        size_t want; /* that are whole */
    } cases[] = {{"", 4}, {"DELETE FROM spool", 4}, {"DELETE FROM message", 3}};
    struct spool_repaired repaired;
    struct buf error;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        unsigned lines = 0;
        uint64_t findings;
        struct spool *sp;

        in_killed_process(some_rows_and_some_in_passage);
        fixture_sql(&fx, cases[i].damage);
        buf_init(&error, 1000);
        assert_int_equal(spool_repair(fx.url, told, &lines, &error, &repaired), 0);
        assert_int_equal(spool_check(fx.url, told, &lines, &error, &findings), 0);
        buf_fini(&error);
        sp = fixture_open(&fx);
        assert_int_equal(count_good(sp), cases[i].want);
        assert_true(is_there(sp, "small@example.com"));
        assert_true(is_there(sp, "large@example.com"));
        assert_true(is_there(sp, "segment@example.com"));
        spool_close(sp);
        fixture_fini(&fx);
        fixture_init(&fx);
    }
}

static void a_check_tells_of_damage(void **state)
{
    unsigned lines = 0;
    uint64_t findings;
    struct buf error;

    (void)state;
    buf_init(&error, 1000);
    in_killed_process(three_commits);
    assert_int_equal(spool_check(fx.url, told, &lines, &error, &findings), 0);
    assert_int_equal(findings, 0);
    flip_behind(1, "two@example.com", 3);
    assert_int_equal(spool_check(fx.url, told, &lines, &error, &findings), 0);
    assert_int_equal(findings, 1);
    buf_fini(&error);
}

static void two_before_an_older_database(struct spool *sp)
{
    struct msg_id id = pass(sp, "moved@example.com", "a@example.net", SMALL);
    bool gone;

    fixture_ok(sp, spool_commit(sp));
    fixture_sql(&fx, "PRAGMA wal_checkpoint(TRUNCATE)");
    fixture_ok(sp, spool_finish(sp, id, (struct wall){50}, &gone)); /* into the log */
    (void)pass(sp, "passes@example.com", "a@example.net", SMALL);
    fixture_ok(sp, spool_commit(sp));
    (void)pass(sp, "later@example.com", "a@example.net", SMALL);
    fixture_ok(sp, spool_commit(sp));
}

/* A database that has lost its log: what it says has moved there is in passage again. */
static void a_database_that_went_back_loses_nothing_that_passed(void **state)
{
    char log[256];
    struct spool *sp;

    (void)state;
    in_killed_process(two_before_an_older_database);
    snprintf(log, sizeof log, "%s-wal", fx.path);
    assert_int_equal(truncate(log, 0), 0);
    sp = fixture_open(&fx);
    assert_int_equal(count_good(sp), 3);
    assert_true(is_there(sp, "moved@example.com"));
    spool_close(sp);
}

/* ---- envelopes ------------------------------------------------------------------------------ */

static void an_envelope_is_what_it_was_or_refused(void **state)
{
    struct spool_message m = {.sender = SLICE("s@example.com"),
                              .client = SLICE("host[192.0.2.1]"),
                              .class_name = SLICE("bulk"),
                              .arrived = {1763702181000000},
                              .created = {1763702180000000},
                              .due = {INT64_C(1763702190000000)},
                              .size = 4242,
                              .flags = ENVELOPE_8BIT,
                              .rcpt_total = 2};
    struct spool_rcpt rcpts[2] = {
        {.address = SLICE("a@example.net"), .orcpt = SLICE("rfc822;b"), .notify = NOTIFY_FAILURE},
        {.address = SLICE("b@example.net"),
         .transport = SLICE("smtp"),
         .nexthop = SLICE("example.net"),
         .route_generation = INT64_MAX}};
    struct passage_envelope e;
    struct buf b;
    char *copy;
    size_t len;

    (void)state;
    buf_init(&b, 10000);
    passage_envelope_add(&b, &m, rcpts, (struct segment_place){.segment = 7, .at = 4096}, 99);
    len = buf_len(&b);
    assert_true(passage_envelope_read(buf_slice(&b), &e));
    assert_true(slice_equal(e.m.sender, m.sender) && slice_equal(e.m.class_name, m.class_name));
    assert_int_equal(e.m.created.us, m.created.us);
    assert_int_equal(e.m.due.us, m.due.us);
    assert_int_equal(e.m.rcpt_total, 2);
    assert_true(slice_equal(e.rcpts[1].nexthop, rcpts[1].nexthop));
    assert_int_equal(e.rcpts[1].route_generation, INT64_MAX);
    assert_int_equal(e.place.segment, 7);
    assert_int_equal(e.content_sum, 99);
    for (size_t cut = 0; cut < len; cut++) { /* of its own, so that reading beyond it is noticed */
        copy = mem_new(cut + 1);
        memcpy(copy, buf_slice(&b).ptr, cut);
        assert_false(passage_envelope_read(slice_of(copy, cut), &e));
        mem_free(copy);
    }
    for (size_t at = 0; at < len * 255; at++) {
        copy = mem_new(len);
        memcpy(copy, buf_slice(&b).ptr, len);
        copy[at / 255] = (char)(copy[at / 255] + 1 + (int)(at % 255));
        if (passage_envelope_read(slice_of(copy, len), &e)) {
            assert_in_range(e.m.rcpt_total, 1, PASSAGE_RCPTS_MAX);
            assert_true(e.rcpts[0].address.len > 0 && e.rcpts[0].address.len <= ADDRESS_MAX);
        }
        mem_free(copy);
    }
    buf_fini(&b);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

UNIT_MAIN(EACH(a_kill_leaves_what_was_committed),
          EACH(what_is_done_after_a_start_does_not_come_back),
          EACH(what_has_moved_to_the_database_does_not_come_back), EACH(files_are_written_again),
          EACH(nothing_is_written_again_while_it_is_copied),
          EACH(mail_has_rows_where_each_commit_has_others), EACH(keys_pass_with_their_mail),
          EACH(keys_get_rows_many_at_once), EACH(a_key_outlives_its_file),
          EACH(a_damaged_record_harms_its_own_message_alone),
          EACH(a_damaged_header_harms_its_own_batch_alone),
          EACH(a_damaged_content_is_found_when_it_is_read),
          EACH(a_record_damaged_under_the_holder_is_quarantined),
          EACH(a_file_of_another_is_left_alone), EACH(a_repair_takes_in_what_is_in_passage),
          EACH(a_check_tells_of_damage), EACH(a_database_that_went_back_loses_nothing_that_passed),
          EACH(an_envelope_is_what_it_was_or_refused))
