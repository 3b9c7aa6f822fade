/*
 * What is particular to the sqlite engine: the file, its readers, damage, versions, content files.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "check.h"
#include "mem.h"
#include "spool_fixture.h"
#include "spool_engine.h"
#include "spool_keys.h"
#include "spool_search.h"
#include "sqlite_schema.h"

#define NOBODY 65534

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

/* A spool with one committed message, not claimed. */
static struct spool *open_with_one(size_t size, struct msg_id *ret_id)
{
    struct spool *sp = fixture_open(&fx);

    fixture_ok(sp, fixture_submit(sp, "me@example.com", "you@example.net her@example.org", 10, size,
                                  false, ret_id));
    fixture_ok(sp, spool_commit(sp));
    return sp;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static const char *content_path(struct msg_id id)
{
    static char path[256];
    char text[SPOOL_ID_TEXT_MAX];

    spool_id_print(id, text);
    snprintf(path, sizeof path, "%s.d/%s", fx.path, text);
    return path;
}

/* ---- who may open it ------------------------------------------------------------------------ */

static void only_one_process_holds_it(void **state)
{
    struct spool *sp = fixture_open(&fx), *other;
    struct spool_options options = {.inline_limit = 1};
    struct buf error;
    char want[32];

    (void)state;
    buf_init(&error, 1024);
    assert_int_equal(spool_open(fx.url, SPOOL_OPEN_WRITE, &options, &error, &other), -EBUSY);
    snprintf(want, sizeof want, "process %ld", (long)getpid());
    assert_non_null(strstr(buf_cstr(&error), want));
    buf_fini(&error);
    spool_close(sp);
    assert_int_equal(fixture_try(&fx, SPOOL_OPEN_WRITE, NULL, &other), 0);
    spool_close(other);
}

static void others_read_beside_it_and_without_it(void **state)
{
    struct msg_id id, claimed, found[4];
    struct spool *sp = open_with_one(100, &id), *reader;
    struct spool_event event;
    struct spool_message m;
    size_t count;

    (void)state;
    fixture_ok(sp, fixture_submit(sp, "b@example.com", "x@example.net", 10, 5000, true, &claimed));
    assert_int_equal(fixture_try(&fx, SPOOL_OPEN_READ, NULL, &reader), 0);
    fixture_ok(reader, spool_scan(reader, &(struct spool_filter){.states = 0}, 4, found, &count));
    assert_int_equal(count, 1); /* the other is not committed */
    fixture_ok(sp, spool_commit(sp));
    /* It is in passage: a reader that comes now is told that it is not shown. */
    spool_close(reader);
    assert_int_equal(fixture_try(&fx, SPOOL_OPEN_READ, NULL, &reader), 0);
    assert_true(spool_next_event(reader, &event));
    assert_non_null(strstr(event.text.ptr, ": 1 messages in passage are not shown"));
    assert_int_equal(spool_read(reader, claimed, &m), -ENOENT);
    /* When something more is done to it, it has rows, which are in no index. */
    fixture_ok(sp,
               spool_settle(sp, claimed, 1, &(struct spool_verdict){.state = SPOOL_RCPT_FAILED}));
    fixture_ok(sp, spool_commit(sp));
    assert_string_equal(fixture_ask(&fx, "SELECT listed FROM message ORDER BY id DESC LIMIT 1"),
                        "0");
    fixture_ok(reader, spool_scan(reader, &(struct spool_filter){.rcpt = SLICE("@EXAMPLE.net")}, 4,
                                  found, &count));
    assert_int_equal(count, 2);
    assert_int_equal(found[1].n, claimed.n);
    fixture_ok(reader, spool_read(reader, claimed, &m));
    assert_true(fixture_content_ok(reader, &m));
    assert_int_equal(spool_remove(reader, id), -EROFS);
    spool_close(sp);
    fixture_ok(reader, spool_read(reader, id, &m));
    spool_close(reader);
    assert_int_equal(fixture_try(&fx, SPOOL_OPEN_READ, NULL, &reader), 0);
    fixture_ok(reader, spool_read(reader, id, &m));
    spool_close(reader);
}

/* Who may not write in the directory can't make the log's index, and does not need it while nobody
 * holds the spool and the log is empty. */
static void a_spool_at_rest_can_be_read_without_leave_to_write(void **state)
{
    struct msg_id id;
    struct spool *sp = open_with_one(10, &id);
    struct spool_message m;

    (void)state;
    spool_close(sp);
    if (geteuid() != 0) {
        skip();
    }
    assert_int_equal(chown(fx.path, NOBODY, NOBODY), 0);
    assert_int_equal(chmod(fx.dir, 0755), 0);
    assert_int_equal(seteuid(NOBODY), 0);
    int err = fixture_try(&fx, SPOOL_OPEN_READ, NULL, &sp);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(err, 0);
    fixture_ok(sp, spool_read(sp, id, &m));
    spool_close(sp);
}

static void nobody_else_may_read_the_files(void **state)
{
    struct msg_id id;
    struct spool *sp = open_with_one(OWN_FILE, &id);
    struct stat st;

    (void)state;
    assert_int_equal(stat(fx.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(stat(content_path(id), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    spool_close(sp);
}

static void reading_needs_a_spool(void **state)
{
    struct spool *sp;

    (void)state;
    assert_int_equal(fixture_try(&fx, SPOOL_OPEN_READ, NULL, &sp), -ENOENT);
    assert_false(exists(fx.path));
    fixture_sql(&fx, "VACUUM");
    assert_int_equal(fixture_try(&fx, SPOOL_OPEN_READ, NULL, &sp), -EPROTO);
}

static void a_missing_table_is_named(void **state)
{
    struct spool_destination list[3];
    struct spool *sp = fixture_open(&fx);
    size_t count;

    (void)state;
    spool_close(sp);
    fixture_sql(&fx, "DROP TABLE destination");
    assert_int_equal(fixture_try(&fx, SPOOL_OPEN_READ, NULL, &sp), 0);
    assert_int_not_equal(spool_destinations(sp, COUNT(list), list, &count), 0);
    assert_non_null(strstr(spool_error(sp), "no such table: destination"));
    spool_close(sp);
}

/* ---- versions ------------------------------------------------------------------------------- */

static void a_newer_schema_is_refused(void **state)
{
    struct spool *sp = fixture_open(&fx);

    (void)state;
    spool_close(sp);
    fixture_sql(&fx, "PRAGMA user_version = 1000");
    assert_int_equal(fixture_try(&fx, SPOOL_OPEN_WRITE, NULL, &sp), -EPROTO);
    assert_int_equal(fixture_try(&fx, SPOOL_OPEN_READ, NULL, &sp), -EPROTO);
}

static void another_programs_database_is_refused(void **state)
{
    struct spool *sp;

    (void)state;
    fixture_sql(&fx, "CREATE TABLE recipes (name)");
    assert_int_equal(fixture_try(&fx, SPOOL_OPEN_WRITE, NULL, &sp), -EPROTO);
    assert_string_equal(fixture_ask(&fx, "SELECT group_concat(name) FROM sqlite_schema"),
                        "recipes");
}

static const struct schema_step older_and_newer[] = {
    {"make it", "PRAGMA application_id = 0x534c5549; CREATE TABLE a (x); INSERT INTO a VALUES (1)"},
    {"add a column", "ALTER TABLE a ADD COLUMN y DEFAULT 2"},
    {"break", "UPDATE a SET y = 3; SELECT no_such_function()"},
};

static void an_older_file_is_upgraded_step_by_step(void **state)
{
    const char *why = "";
    sqlite3 *db;

    (void)state;
    assert_int_equal(sqlite3_open(fx.path, &db), SQLITE_OK);
    assert_int_equal(schema_upgrade(db, older_and_newer, 1, &why), SQLITE_OK);
    assert_int_equal(schema_check(db, 2, &why), SQLITE_MISMATCH);
    assert_int_equal(schema_upgrade(db, older_and_newer, 2, &why), SQLITE_OK);
    assert_int_equal(schema_upgrade(db, older_and_newer, 2, &why), SQLITE_OK);
    /* A step that fails leaves the file as it was before that step. */
    assert_int_equal(schema_upgrade(db, older_and_newer, 3, &why), SQLITE_ERROR);
    assert_string_equal(why, "break");
    sqlite3_close(db);
    assert_string_equal(fixture_ask(&fx, "SELECT x || y FROM a"), "12");
    assert_string_equal(fixture_ask(&fx, "PRAGMA user_version"), "2");
}

/* A file of version 1, which knew no classes. */
static void a_spool_without_classes_is_upgraded(void **state)
{
    struct spool_message m = {.sender = SLICE("s@example.com"),
                              .class_name = SLICE("bulk"),
                              .class_source = CLASS_SOURCE_LIST_ID};
    struct spool_rcpt rcpt = {.address = SLICE("r@example.net")};
    struct spool_content content = {.bytes = SLICE("x"), .fd = -1};
    struct msg_id found[3], old = {7}, bulk;
    const char *why;
    size_t count;
    struct spool *sp;
    sqlite3 *db;

    (void)state;
    assert_int_equal(sqlite3_open(fx.path, &db), SQLITE_OK);
    assert_int_equal(schema_upgrade(db, schema_steps, 1, &why), SQLITE_OK);
    sqlite3_close(db);
    fixture_sql(&fx, "UPDATE spool SET last_id = 7, unlisted_from = 8, deferred = 1, bytes = 1;"
                     "INSERT INTO message VALUES (7, 1, 2, 5, 5, 5, 1, 0, 0, 1, 1, 0, 0, 0,"
                     " 's@example.com', 'example.com', '', '', '');"
                     "INSERT INTO recipient VALUES (7, 1, 1, 1, 0, 0, 0, 0, 'r@example.net',"
                     " 'example.net', '', 'example.net', '', '', '', '');"
                     "INSERT INTO content VALUES (7, x'78')");
    assert_int_equal(fixture_try(&fx, SPOOL_OPEN_READ, NULL, &sp), -EPROTO);
    sp = fixture_open(&fx);
    fixture_ok(sp, spool_submit(sp, &m, &rcpt, 1, SLICE(""), &content, false, SLICE(""), &bulk));
    fixture_ok(sp, spool_commit(sp));
    fixture_ok(sp, spool_read(sp, old, &m));
    assert_true(slice_equal(m.class_name, SLICE("")));
    assert_int_equal(m.class_source, CLASS_SOURCE_NONE);
    spool_close(sp);

    sp = fixture_open(&fx);
    fixture_ok(sp, spool_read(sp, bulk, &m));
    assert_true(slice_equal(m.class_name, SLICE("bulk")));
    assert_int_equal(m.class_source, CLASS_SOURCE_LIST_ID);
    fixture_ok(sp, spool_scan(sp, &(struct spool_filter){.class_name = SLICE("bulk")}, COUNT(found),
                              found, &count));
    assert_int_equal(count, 1);
    assert_int_equal(found[0].n, bulk.n);
    spool_close(sp);
    assert_string_equal(fixture_ask(&fx, "SELECT group_concat(class) FROM queue"), ",bulk");
}

static void a_class_that_is_no_name_is_refused(void **state)
{
    struct spool_message m = {.class_name = SLICE("Not a class")};
    struct spool_rcpt rcpt = {.address = SLICE("r@example.net")};
    struct spool_content content = {.bytes = SLICE("x"), .fd = -1};
    struct spool *sp = fixture_open(&fx);
    struct msg_id id;

    (void)state;
    assert_int_equal(spool_submit(sp, &m, &rcpt, 1, SLICE(""), &content, false, SLICE(""), &id),
                     -EINVAL);
    assert_false(spool_dirty(sp));
    spool_close(sp);
}

/* ---- damage --------------------------------------------------------------------------------- */

static void an_impossible_row_harms_only_itself(void **state)
{
    static const char *const damages[] = {
        "UPDATE message SET state = 9",
        "UPDATE message SET rcpt_pending = 70",
        "UPDATE message SET size = -1",
        "UPDATE message SET flags = 4096",
        "UPDATE message SET client = printf('%.9999c', 'x')",
        "UPDATE message SET sender = printf('%.999c', 'x')",
        "UPDATE message SET size = 1 << 50",
        "UPDATE message SET class = 'no class'",
        "UPDATE message SET class = printf('%.999c', 'x')",
        "UPDATE message SET class_source = 99",
    };

    (void)state;
    for (size_t i = 0; i < COUNT(damages); i++) {
        struct msg_id bad, good;
        struct spool *sp = open_with_one(10, &bad);
        struct spool_totals totals;
        struct spool_message m;
        char sql[256];

        fixture_ok(sp, fixture_submit(sp, "g@example.com", "x@example.net", 10, 5, false, &good));
        fixture_ok(sp, spool_commit(sp));
        snprintf(sql, sizeof sql, "PRAGMA ignore_check_constraints = 1; %s WHERE id = %llu",
                 damages[i], (unsigned long long)bad.n);
        fixture_sql(&fx, sql);
        assert_int_equal(spool_read(sp, bad, &m), -EBADMSG);
        fixture_ok(sp, spool_read(sp, good, &m));
        fixture_ok(sp, spool_quarantine(sp, bad, slice_string(spool_error(sp))));
        fixture_ok(sp, spool_commit(sp));
        fixture_ok(sp, spool_read(sp, bad, &m));
        assert_int_equal(m.state, SPOOL_CORRUPT);
        assert_int_equal(m.rcpt_pending, 2);
        assert_true(m.reason.len > 0);
        fixture_ok(sp, spool_remove(sp, bad));
        fixture_ok(sp, spool_remove(sp, good));
        fixture_ok(sp, spool_commit(sp));
        fixture_ok(sp, spool_totals(sp, &totals));
        assert_int_equal(totals.corrupt, 0);
        spool_close(sp);
    }
}

static void an_impossible_recipient_is_reported(void **state)
{
    struct msg_id id;
    struct spool *sp = open_with_one(10, &id);
    struct spool_rcpt rcpts[4];
    size_t count;

    (void)state;
    fixture_sql(&fx,
                "PRAGMA ignore_check_constraints = 1; UPDATE recipient SET state = 7 WHERE n = 2");
    assert_int_equal(spool_read_rcpts(sp, id, 0, false, 4, rcpts, &count), -EBADMSG);
    assert_non_null(strstr(spool_error(sp), "state"));
    fixture_ok(sp, spool_quarantine(sp, id, SLICE("damaged")));
    fixture_ok(sp, spool_commit(sp));
    spool_close(sp);
}

static void missing_content_is_reported(void **state)
{
    struct msg_id id, large;
    struct spool *sp = open_with_one(10, &id);
    struct buf bytes;
    uint64_t size;
    int fd;

    (void)state;
    fixture_ok(sp,
               fixture_submit(sp, "g@example.com", "x@example.net", 10, OWN_FILE, false, &large));
    fixture_ok(sp, spool_commit(sp));
    buf_init(&bytes, 1 << 20);
    fixture_sql(&fx, "DELETE FROM content");
    assert_int_equal(spool_read_content(sp, id, &bytes, &fd, &size), -EBADMSG);
    assert_int_equal(truncate(content_path(large), OWN_FILE - 1), 0);
    assert_int_equal(spool_read_content(sp, large, &bytes, &fd, &size), -EBADMSG);
    assert_int_equal(unlink(content_path(large)), 0);
    assert_int_equal(spool_read_content(sp, large, &bytes, &fd, &size), -EBADMSG);
    buf_fini(&bytes);
    spool_close(sp);
}

static void a_damaged_file_is_called_that(void **state)
{
    struct msg_id id;
    struct spool *sp = open_with_one(10, &id);
    int fd;

    (void)state;
    spool_close(sp);
    fd = open(fx.path, O_WRONLY);
    assert_int_equal(pwrite(fd, "garbage garbage garbage", 23, 0), 23);
    close(fd);
    assert_int_equal(fixture_try(&fx, SPOOL_OPEN_WRITE, NULL, &sp), -EUCLEAN);
}

/* ---- content files -------------------------------------------------------------------------- */

static void the_largest_content_has_a_file_of_its_own(void **state)
{
    struct msg_id small, large;
    struct spool *sp = open_with_one(INLINE_LIMIT, &small);
    struct spool_message m;

    (void)state;
    assert_false(exists(content_path(small)));
    fixture_ok(sp, fixture_submit(sp, "a@example.com", "x@example.net", 1, OWN_FILE, true, &large));
    fixture_ok(sp, spool_commit(sp));
    assert_true(exists(content_path(large)));
    fixture_ok(sp, spool_read(sp, large, &m));
    assert_true(fixture_content_ok(sp, &m));
    fixture_ok(sp, spool_finish_all_done(sp, large));
    assert_true(exists(content_path(large)));
    fixture_ok(sp, spool_commit(sp));
    assert_false(exists(content_path(large)));
    spool_close(sp);
}

static void content_comes_from_a_file_too(void **state)
{
    static const size_t sizes[] = {0, 300, 400000};
    struct spool *sp = fixture_open(&fx);
    char path[128];
    int fd;

    (void)state;
    snprintf(path, sizeof path, "%s/source", fx.dir);
    fd = open(path, O_RDWR | O_CREAT, 0600);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        struct spool_message m = {.arrived = {1}};
        struct spool_rcpt r = {.address = SLICE("x@example.net")};
        struct spool_content c = {.bytes = SLICE("Subject: x\n\n"), .fd = fd, .fd_size = sizes[i]};
        char *body = mem_new(sizes[i]), want[64], text[SPOOL_ID_TEXT_MAX];
        struct buf found;
        struct msg_id id;
        uint64_t size;
        int content;

        memset(body, 'y', sizes[i]);
        assert_int_equal(pwrite(fd, body, sizes[i], 0), sizes[i]);
        fixture_ok(sp, spool_submit(sp, &m, &r, 1, SLICE("Received: id \1;\n"), &c, false,
                                    SLICE(""), &id));
        fixture_ok(sp, spool_commit(sp));
        spool_id_print(id, text);
        snprintf(want, sizeof want, "Received: id %s;\nSubject: x\n\n", text);
        buf_init(&found, 1 << 20);
        fixture_ok(sp, spool_read_content(sp, id, &found, &content, &size));
        assert_int_equal(size, strlen(want) + sizes[i]);
        if (content >= 0) {
            assert_int_equal(read(content, buf_room(&found, size), size), size);
            buf_grew(&found, size);
            assert_int_equal(write(content, "x", 1), -1);
            close(content);
        }
        assert_true(slice_starts(buf_slice(&found), slice_string(want)));
        assert_memory_equal(buf_slice(&found).ptr + strlen(want), body, sizes[i]);
        buf_fini(&found);
        mem_free(body);
        c.fd_size++; /* more than there is: refused, and the batch goes on */
        assert_int_equal(spool_submit(sp, &m, &r, 1, SLICE(""), &c, false, SLICE(""), &id),
                         -ENODATA);
        assert_int_equal(spool_commit(sp), 0);
    }
    close(fd);
    spool_close(sp);
}

static void orphans_go_when_it_is_opened(void **state)
{
    struct msg_id kept;
    struct spool *sp = open_with_one(OWN_FILE, &kept);
    char orphan[256], other[256];

    (void)state;
    spool_close(sp);
    snprintf(orphan, sizeof orphan, "%s", content_path((struct msg_id){kept.n + 5}));
    snprintf(other, sizeof other, "%s.d/README", fx.path);
    close(open(orphan, O_WRONLY | O_CREAT, 0600));
    close(open(other, O_WRONLY | O_CREAT, 0600));
    sp = fixture_open(&fx);
    assert_false(exists(orphan));
    assert_true(exists(other));
    assert_true(exists(content_path(kept)));
    spool_close(sp);
}

static void files_of_an_undone_batch_go(void **state)
{
    struct spool *sp = fixture_open(&fx);
    struct msg_id id;

    (void)state;
    /* More files than are kept open for one sync. */
    for (int i = 0; i < 100; i++) {
        fixture_ok(sp,
                   fixture_submit(sp, "a@example.com", "x@example.net", 1, OWN_FILE, true, &id));
    }
    assert_true(exists(content_path(id)));
    spool_close(sp);
    assert_false(exists(content_path(id)));
}

/* ---- claims, ids, the log ------------------------------------------------------------------- */

static void ids_grow_and_are_never_used_twice(void **state)
{
    struct spool_options options = {.inline_limit = 100, .id_floor = 1000};
    struct msg_id first, second, third;
    struct spool *sp = open_with_one(10, &first);
    struct buf error;

    (void)state;
    fixture_ok(sp, fixture_submit(sp, "a@example.com", "x@example.net", 1, 1, false, &second));
    fixture_ok(sp, spool_remove(sp, second));
    fixture_ok(sp, spool_commit(sp));
    spool_close(sp);
    sp = fixture_open(&fx);
    fixture_ok(sp, fixture_submit(sp, "a@example.com", "x@example.net", 1, 1, false, &third));
    assert_true(first.n < second.n && second.n < third.n);
    fixture_ok(sp, spool_commit(sp));
    spool_close(sp);
    buf_init(&error, 100);
    assert_int_equal(spool_open(fx.url, SPOOL_OPEN_WRITE, &options, &error, &sp), 0);
    fixture_ok(sp, fixture_submit(sp, "a@example.com", "x@example.net", 1, 1, false, &third));
    assert_int_equal(third.n, 1001);
    buf_fini(&error);
    spool_close(sp);
}

static void passing_mail_is_found_again_after_a_crash(void **state)
{
    struct spool *sp = fixture_open(&fx);
    struct msg_id id, found[2];
    struct wall due;
    size_t count;

    (void)state;
    fixture_ok(sp, fixture_submit(sp, "a@example.com", "x@example.net", 50, 1, true, &id));
    fixture_ok(sp, spool_commit(sp));
    assert_string_equal(fixture_ask(&fx, "SELECT count(*) FROM message"), "0");
    fixture_ok(sp, spool_next_due(sp, &due));
    assert_int_equal(due.us, WALL_NEVER.us);
    spool_close(sp);
    sp = fixture_open(&fx);
    fixture_ok(sp, spool_next_due(sp, &due));
    assert_int_equal(due.us, 50);
    fixture_ok(sp, spool_claim(sp, SPOOL_INCOMING, (struct wall){50}, 2, found, &count));
    assert_int_equal(count, 1);
    assert_int_equal(found[0].n, id.n);
    spool_close(sp);
}

static void equal_due_times_are_claimed_once_each(void **state)
{
    struct spool *sp = fixture_open(&fx);
    struct msg_id id, ids[7];
    uint64_t last = 0, total = 0;
    size_t count;

    (void)state;
    for (int i = 0; i < 500; i++) {
        fixture_ok(sp, fixture_submit(sp, "a@example.com", "x@example.net", 50, 1, false, &id));
    }
    do {
        fixture_ok(sp, spool_claim(sp, SPOOL_INCOMING, (struct wall){50}, COUNT(ids), ids, &count));
        for (size_t i = 0; i < count; i++) {
            assert_true(ids[i].n > last);
            last = ids[i].n;
        }
        total += count;
    } while (count > 0);
    assert_int_equal(total, 500);
    spool_close(sp);
}

static void the_log_does_not_grow_without_bound(void **state)
{
    struct spool *sp = fixture_open(&fx);
    char log[128], *content = mem_new(60000);
    struct spool_message m = {.arrived = {1}};
    struct spool_rcpt r = {.address = SLICE("x@example.net")};
    struct spool_options options = {.inline_limit = SPOOL_INLINE_MAX};
    struct msg_id id;
    struct stat st;
    struct buf error;

    (void)state;
    spool_close(sp);
    buf_init(&error, 100);
    assert_int_equal(spool_open(fx.url, SPOOL_OPEN_WRITE, &options, &error, &sp), 0);
    for (int i = 0; i < 4000; i++) { /* 240 MB */
        fixture_ok(sp, spool_submit(sp, &m, &r, 1, SLICE(""),
                                    &(struct spool_content){slice_of(content, 60000), -1, 0}, true,
                                    SLICE(""), &id));
        if (i % 20 == 0) {
            fixture_ok(sp, spool_commit(sp));
        }
        fixture_ok(sp, spool_finish_all_done(sp, id));
    }
    fixture_ok(sp, spool_commit(sp));
    spool_tidy(sp);
    snprintf(log, sizeof log, "%s-wal", fx.path);
    assert_int_equal(stat(log, &st), 0);
    assert_true(st.st_size < 24 << 20);
    spool_close(sp);
    buf_fini(&error);
    mem_free(content);
}

static void a_shell_reads_it_in_words(void **state)
{
    struct msg_id id;
    struct spool *sp = open_with_one(10, &id);
    char text[SPOOL_ID_TEXT_MAX], want[128];

    (void)state;
    spool_id_print(id, text);
    snprintf(want, sizeof want, "%s|incoming|1970-01-01T00:00:00Z|me@example.com|2", text);
    assert_string_equal(fixture_ask(&fx, "SELECT queue_id || '|' || state || '|' || due || '|' ||"
                                         " sender || '|' || pending FROM queue"),
                        want);
    assert_string_equal(fixture_ask(&fx, "SELECT group_concat(address || ' ' || state)"
                                         " FROM queue_recipient"),
                        "you@example.net pending,her@example.org pending");
    spool_close(sp);
}

/* ---- keys of calls -------------------------------------------------------------------------- */

static struct spool_key key_of(const char *name, uint8_t sum, int64_t until)
{
    struct spool_key k = {.key = slice_string(name), .id = {7}, .until = {until}};

    memset(k.sum, sum, sizeof k.sum);
    return k;
}

static int find_key(struct spool *sp, const char *name, int64_t now, uint64_t max, uint8_t *ret_sum)
{
    struct spool_key k = {.key = slice_string(name)};
    int err = spool_key_find(sp, &k, (struct wall){now}, max);

    *ret_sum = k.sum[0];
    return err;
}

static void keys_are_there_after_a_commit_and_until_their_time(void **state)
{
    struct spool *sp = fixture_open(&fx);
    struct spool_key k = key_of("app a", 1, 100);
    uint8_t sum;

    (void)state;
    assert_int_equal(find_key(sp, "app a", 10, 9, &sum), -ENOENT);
    fixture_ok(sp, spool_key_add(sp, &k));
    assert_int_equal(find_key(sp, "app a", 10, 9, &sum), 0); /* before the commit, too */
    spool_close(sp);
    sp = fixture_open(&fx); /* there was none */
    assert_int_equal(find_key(sp, "app a", 10, 9, &sum), -ENOENT);
    fixture_ok(sp, spool_key_add(sp, &k));
    fixture_ok(sp, spool_commit(sp));
    spool_close(sp);
    sp = fixture_open(&fx);
    assert_int_equal(find_key(sp, "app a", 99, 9, &sum), 0);
    assert_int_equal(sum, 1);
    assert_int_equal(find_key(sp, "app b", 99, 9, &sum), -ENOENT);
    assert_int_equal(find_key(sp, "app a", 100, 9, &sum), -ENOENT);
    fixture_ok(sp, spool_commit(sp));
    spool_close(sp);
}

static void keys_are_counted_and_forgotten(void **state)
{
    struct spool *sp = fixture_open(&fx);
    char name[20];
    uint8_t sum;

    (void)state;
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "app %d", i);
        struct spool_key k = key_of(name, 1, 100 + i);

        assert_int_equal(find_key(sp, name, 10, 20, &sum), -ENOENT);
        fixture_ok(sp, spool_key_add(sp, &k));
    }
    assert_int_equal(find_key(sp, "app more", 10, 20, &sum), -ENOSPC);
    assert_int_equal(find_key(sp, "app 19", 10, 20, &sum), 0);
    /* One whose time is over and that is not among the oldest: it counts once. */
    assert_int_equal(find_key(sp, "app 18", 118, 20, &sum), -ENOENT);
    struct spool_key again = key_of("app 18", 2, 300);

    fixture_ok(sp, spool_key_add(sp, &again));
    assert_int_equal(find_key(sp, "app 18", 118, 20, &sum), 0);
    assert_int_equal(sum, 2);
    for (int i = 0; i < 20; i++) {
        (void)find_key(sp, "app more", 200, 20, &sum);
    }
    fixture_ok(sp, spool_commit(sp));
    assert_string_equal(fixture_ask(&fx, "SELECT group_concat(key) || ' ' || (SELECT keys FROM"
                                         " call_keys) FROM call_key"),
                        "app 18 1");
    spool_close(sp);
}

/* What was known in memory of a batch that fails is forgotten with it. */
static void keys_of_a_failed_batch_do_not_count(void **state)
{
    struct spool *sp = fixture_open(&fx);
    struct spool_key one = key_of("app 1", 1, 100), two = key_of("app 2", 1, 50);
    uint8_t sum;

    (void)state;
    assert_int_equal(find_key(sp, "app 1", 10, 9, &sum), -ENOENT);
    fixture_ok(sp, spool_key_add(sp, &one));
    fixture_ok(sp, spool_commit(sp));
    assert_int_equal(find_key(sp, "app 2", 10, 9, &sum), -ENOENT);
    fixture_ok(sp, spool_key_add(sp, &two));
    assert_int_equal(spool_batch_failed(sp, -EIO), -EIO);
    assert_int_equal(spool_commit(sp), -EIO);
    assert_int_equal(find_key(sp, "app 2", 10, 2, &sum), -ENOENT); /* there is room */
    assert_int_equal(find_key(sp, "app 2", 60, 1, &sum), -ENOSPC);
    fixture_ok(sp, spool_commit(sp));
    spool_close(sp); /* until then it is in passage */
    assert_string_equal(fixture_ask(&fx, "SELECT group_concat(key) || ' ' || (SELECT keys FROM"
                                         " call_keys) FROM call_key"),
                        "app 1 1");
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

UNIT_MAIN(EACH(only_one_process_holds_it), EACH(others_read_beside_it_and_without_it),
          EACH(a_spool_at_rest_can_be_read_without_leave_to_write),
          EACH(nobody_else_may_read_the_files), EACH(reading_needs_a_spool),
          EACH(a_missing_table_is_named), EACH(a_newer_schema_is_refused),
          EACH(another_programs_database_is_refused), EACH(an_older_file_is_upgraded_step_by_step),
          EACH(a_spool_without_classes_is_upgraded), EACH(a_class_that_is_no_name_is_refused),
          EACH(an_impossible_row_harms_only_itself), EACH(an_impossible_recipient_is_reported),
          EACH(missing_content_is_reported), EACH(a_damaged_file_is_called_that),
          EACH(the_largest_content_has_a_file_of_its_own), EACH(content_comes_from_a_file_too),
          EACH(orphans_go_when_it_is_opened), EACH(files_of_an_undone_batch_go),
          EACH(ids_grow_and_are_never_used_twice), EACH(passing_mail_is_found_again_after_a_crash),
          EACH(equal_due_times_are_claimed_once_each), EACH(the_log_does_not_grow_without_bound),
          EACH(a_shell_reads_it_in_words), EACH(keys_are_there_after_a_commit_and_until_their_time),
          EACH(keys_are_counted_and_forgotten), EACH(keys_of_a_failed_batch_do_not_count))
