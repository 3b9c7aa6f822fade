/* The sqlite engine's large content: in segments, which many messages share. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mem.h"
#include "spool_fixture.h"

#define FOUR_TO_A_SEGMENT 15000

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

static const char *segment_path(unsigned number)
{
    static char path[256];

    snprintf(path, sizeof path, "%s.d/%08x.segment", fx.path, number);
    return path;
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static size_t segments_there(void)
{
    size_t count = 0;

    for (unsigned i = 1; i < 200; i++) {
        count += exists(segment_path(i));
    }
    return count;
}

static unsigned long number_asked(const char *sql)
{
    return strtoul(fixture_ask(&fx, sql), NULL, 10);
}

static struct msg_id submit(struct spool *sp, size_t size, bool claim)
{
    struct msg_id id;

    fixture_ok(sp, fixture_submit(sp, "a@example.com", "x@example.net", 1, size, claim, &id));
    return id;
}

static bool content_is_good(struct spool *sp, struct msg_id id)
{
    struct spool_message m;

    fixture_ok(sp, spool_read(sp, id, &m));
    return fixture_content_ok(sp, &m);
}

/* Its error; what it says contains `want`. */
static int read_error(struct spool *sp, struct msg_id id, const char *want)
{
    struct buf bytes;
    uint64_t size;
    int fd, err;

    buf_init(&bytes, 1 << 20);
    err = spool_read_content(sp, id, &bytes, &fd, &size);
    buf_fini(&bytes);
    assert_non_null(strstr(spool_error(sp), want));
    return err;
}

static void tidy(struct spool *sp)
{
    for (int i = 0; i < 100; i++) {
        spool_tidy(sp);
    }
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void large_content_goes_to_a_segment(void **state)
{
    struct spool *sp = fixture_open(&fx);
    struct msg_id small = submit(sp, INLINE_LIMIT, false), large, larger;
    struct stat st;

    (void)state;
    fixture_ok(sp, spool_commit(sp));
    assert_int_equal(segments_there(), 0);
    large = submit(sp, INLINE_LIMIT + 1, true);
    larger = submit(sp, SEGMENT_SIZE / 4, false);
    assert_true(content_is_good(sp, large)); /* in the open batch, too */
    fixture_ok(sp, spool_commit(sp));
    assert_int_equal(stat(segment_path(1), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(number_asked("SELECT count(*) FROM content"), 1);
    spool_close(sp);
    sp = fixture_open(&fx);
    assert_true(content_is_good(sp, small));
    assert_true(content_is_good(sp, large));
    assert_true(content_is_good(sp, larger));
    fixture_ok(sp, spool_remove(sp, large));
    fixture_ok(sp, spool_remove(sp, larger));
    fixture_ok(sp, spool_commit(sp));
    (void)submit(sp, 5000, false); /* from the beginning again */
    fixture_ok(sp, spool_commit(sp));
    assert_string_equal(
        fixture_ask(&fx, "SELECT segment || ' ' || at FROM message WHERE segment IS NOT NULL"),
        "1 4096");
    spool_close(sp);
}

/* No descriptor of a segment leaves the spool: it would show other mail. */
static void content_that_is_read_comes_alone(void **state)
{
    struct spool_options options = {.inline_limit = 1000};
    struct spool_message m = {.arrived = {1}};
    struct spool_rcpt r = {.address = SLICE("x@example.net")};
    char *body = mem_new(300000);
    struct spool_content c = {.bytes = slice_of(body, 300000), .fd = -1};
    struct buf bytes;
    struct spool *sp;
    struct msg_id id;
    struct stat st;
    uint64_t size;
    int fd;

    (void)state;
    buf_init(&bytes, 1 << 20);
    assert_int_equal(spool_open(fx.url, SPOOL_OPEN_WRITE, &options, &bytes, &sp), 0);
    (void)submit(sp, 70000, false);
    fixture_ok(sp, spool_submit(sp, &m, &r, 1, SLICE(""), &c, false, SLICE(""), &id));
    fixture_ok(sp, spool_commit(sp));
    fixture_ok(sp, spool_read_content(sp, id, &bytes, &fd, &size));
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size, 300000);
    assert_int_equal(write(fd, "x", 1), -1);
    assert_int_equal(ftruncate(fd, 0), -1);
    close(fd);
    buf_fini(&bytes);
    mem_free(body);
    spool_close(sp);
}

static void a_damaged_segment_harms_its_own_messages_alone(void **state)
{
    struct spool *sp = fixture_open(&fx);
    struct msg_id ids[8], elsewhere;

    (void)state;
    for (size_t i = 0; i < COUNT(ids); i++) {
        ids[i] = submit(sp, FOUR_TO_A_SEGMENT, false);
    }
    elsewhere = submit(sp, 100, false);
    fixture_ok(sp, spool_commit(sp));
    assert_int_equal(truncate(segment_path(1), 40000), 0);
    assert_int_equal(read_error(sp, ids[3], "segment is cut short"), -EBADMSG);
    assert_int_equal(read_error(sp, ids[2], "segment is cut short"), -EBADMSG);
    assert_true(content_is_good(sp, ids[0]));
    assert_int_equal(unlink(segment_path(2)), 0);
    assert_int_equal(read_error(sp, ids[4], "so is its segment"), -EBADMSG);
    spool_close(sp);
    sp = fixture_open(&fx); /* a start does not mind, either */
    assert_true(content_is_good(sp, ids[0]));
    assert_true(content_is_good(sp, ids[1]));
    assert_true(content_is_good(sp, elsewhere));
    fixture_ok(sp, spool_remove(sp, ids[3]));
    fixture_ok(sp, spool_remove(sp, ids[5]));
    elsewhere = submit(sp, FOUR_TO_A_SEGMENT, false);
    fixture_ok(sp, spool_commit(sp));
    tidy(sp);
    assert_true(content_is_good(sp, ids[0]));
    assert_true(content_is_good(sp, elsewhere));
    assert_int_equal(read_error(sp, ids[4], "so is its segment"), -EBADMSG);
    spool_close(sp);
}

/* One message of each segment stays: together they need few. */
static void few_that_stay_are_moved_together(void **state)
{
    struct spool *sp = fixture_open(&fx);
    struct msg_id ids[120];
    bool gone;

    (void)state;
    for (size_t i = 0; i < COUNT(ids); i++) {
        ids[i] = submit(sp, FOUR_TO_A_SEGMENT, true);
        if (i % 10 == 9) {
            fixture_ok(sp, spool_commit(sp));
        }
    }
    assert_true(segments_there() >= COUNT(ids) / 4);
    for (size_t i = 0; i < COUNT(ids); i++) {
        if (i % 12 == 0) {
            fixture_ok(sp, spool_finish(sp, ids[i], (struct wall){1000}, &gone));
        } else {
            fixture_ok(sp, spool_finish_all_done(sp, ids[i]));
        }
    }
    fixture_ok(sp, spool_commit(sp));
    tidy(sp);
    assert_in_range(number_asked("SELECT count(DISTINCT segment) FROM message"), 1, 4);
    assert_in_range(segments_there(), 1, 13);
    for (size_t i = 0; i < COUNT(ids); i += 12) {
        assert_true(content_is_good(sp, ids[i]));
    }
    spool_close(sp);
    sp = fixture_open(&fx);
    for (size_t i = 0; i < COUNT(ids); i += 12) {
        assert_true(content_is_good(sp, ids[i]));
        fixture_ok(sp, spool_remove(sp, ids[i]));
    }
    fixture_ok(sp, spool_commit(sp));
    assert_in_range(segments_there(), 1, 9);
    spool_close(sp);
}

/* It stays where it is, and so does its segment; what is good beside it goes on. */
static void damaged_content_is_not_moved(void **state)
{
    struct spool *sp = fixture_open(&fx);
    struct msg_id ids[8];
    int fd;

    (void)state;
    for (size_t i = 0; i < COUNT(ids); i++) {
        ids[i] = submit(sp, FOUR_TO_A_SEGMENT, false);
    }
    fixture_ok(sp, spool_commit(sp));
    fd = open(segment_path(1), O_WRONLY);
    assert_int_equal(pwrite(fd, "?", 1, 5000), 1);
    close(fd);
    for (size_t i = 1; i < 6; i++) {
        fixture_ok(sp, spool_remove(sp, ids[i]));
    }
    fixture_ok(sp, spool_commit(sp));
    tidy(sp);
    assert_int_equal(read_error(sp, ids[0], "checksum"), -EBADMSG);
    assert_true(content_is_good(sp, ids[6]));
    fixture_ok(sp, spool_quarantine(sp, ids[0], SLICE("damaged")));
    fixture_ok(sp, spool_commit(sp));
    tidy(sp);
    assert_int_equal(number_asked("SELECT segment FROM message WHERE state = 4"), 1);
    fixture_ok(sp, spool_remove(sp, ids[0]));
    fixture_ok(sp, spool_commit(sp));
    spool_close(sp);
}

/* What a reader meant to read has been delivered, and its place written again. */
static void a_reader_that_comes_too_late_is_told(void **state)
{
    struct spool *sp = fixture_open(&fx), *reader;
    struct msg_id first = submit(sp, 5000, false), next;

    (void)state;
    fixture_ok(sp, spool_commit(sp));
    assert_int_equal(fixture_try(&fx, SPOOL_OPEN_READ, NULL, &reader), 0);
    assert_true(content_is_good(reader, first));
    fixture_ok(sp, spool_finish_all_done(sp, first));
    fixture_ok(sp, spool_commit(sp));
    next = submit(sp, 5000, false);
    fixture_ok(sp, spool_commit(sp));
    assert_int_equal(read_error(reader, first, "no such message"), -ENOENT);
    assert_true(content_is_good(reader, next));
    spool_close(reader);
    spool_close(sp);
}

/* A database put beside the segments of another one: they are not its own, and may be needed. */
static void segments_of_another_database_are_left_alone(void **state)
{
    struct spool *sp = fixture_open(&fx);
    struct msg_id id = submit(sp, 5000, true);

    (void)state;
    fixture_ok(sp, spool_commit(sp));
    spool_close(sp);
    fixture_sql(&fx, "UPDATE spool SET tag = tag + 1; UPDATE message SET listed = 1;"
                     "UPDATE message SET segment = segment + 50");
    sp = fixture_open(&fx);
    (void)submit(sp, 5000, true);
    fixture_ok(sp, spool_commit(sp));
    assert_true(number_asked("SELECT segment FROM message ORDER BY id DESC LIMIT 1") > 1);
    spool_close(sp);
    fixture_sql(&fx, "UPDATE spool SET tag = tag - 1; UPDATE message SET segment = segment - 50");
    sp = fixture_open(&fx);
    assert_true(content_is_good(sp, id));
    spool_close(sp);
}

/* Without the database segments may be all that is left of the mail. */
static void a_spool_does_not_start_over_beside_segments(void **state)
{
    struct spool *sp = fixture_open(&fx);

    (void)state;
    (void)submit(sp, 5000, false);
    fixture_ok(sp, spool_commit(sp));
    spool_close(sp);
    assert_int_equal(unlink(fx.path), 0);
    assert_int_equal(fixture_try(&fx, SPOOL_OPEN_WRITE, NULL, &sp), -EUCLEAN);
    assert_int_equal(segments_there(), 1);
}

/* Rows that say of a segment what can't be. */
static void impossible_places_are_refused(void **state)
{
    static const char *const changes[] = {"segment = 0",
                                          "segment = -1",
                                          "segment = 4294967297",
                                          "at = -5",
                                          "at = 9223372036854775807",
                                          "segment = 99",
                                          "at = 4160",
                                          "at = 1000000"};
    struct spool *sp = fixture_open(&fx);
    struct msg_id id = submit(sp, 5000, false), other = submit(sp, 5000, false);
    char sql[200];

    (void)state;
    fixture_ok(sp, spool_commit(sp));
    for (size_t i = 0; i < COUNT(changes); i++) {
        snprintf(sql, sizeof sql, "UPDATE message SET segment = 1, at = 4096 WHERE id = %llu",
                 (unsigned long long)id.n);
        fixture_sql(&fx, sql);
        snprintf(sql, sizeof sql, "UPDATE message SET %s WHERE id = %llu", changes[i],
                 (unsigned long long)id.n);
        fixture_sql(&fx, sql);
        assert_int_equal(read_error(sp, id, "damaged"), -EBADMSG);
        spool_close(sp);
        sp = fixture_open(&fx);
        assert_int_equal(read_error(sp, id, "damaged"), -EBADMSG);
        assert_true(content_is_good(sp, other));
        tidy(sp);
    }
    fixture_ok(sp, spool_quarantine(sp, id, SLICE("damaged")));
    fixture_ok(sp, spool_remove(sp, id));
    fixture_ok(sp, spool_commit(sp));
    assert_true(content_is_good(sp, other));
    spool_close(sp);
}

/* Content that an older version has put into files and rows is read from there, until it leaves. */
static void content_of_an_older_version_stays_where_it_is(void **state)
{
    struct spool_options options = {.inline_limit = 100000, .segment_bytes = SEGMENT_SIZE};
    struct msg_id in_file, in_row;
    struct buf error;
    struct spool *sp;

    (void)state;
    buf_init(&error, 1000);
    assert_int_equal(spool_open(fx.url, SPOOL_OPEN_WRITE, &options, &error, &sp), 0);
    in_row = submit(sp, OWN_FILE, false);
    fixture_ok(sp, spool_commit(sp));
    spool_close(sp);
    sp = fixture_open(&fx);
    in_file = submit(sp, OWN_FILE, false);
    fixture_ok(sp, spool_commit(sp));
    spool_close(sp);
    fixture_sql(&fx, "DROP INDEX message_segment; ALTER TABLE message DROP COLUMN segment;"
                     "ALTER TABLE message DROP COLUMN at; ALTER TABLE spool DROP COLUMN tag;"
                     "ALTER TABLE recipient DROP COLUMN reply;"
                     "ALTER TABLE recipient DROP COLUMN tls;"
                     "DROP TABLE call_key; DROP TABLE call_keys; DROP TABLE note; DROP TABLE event;"
                     "ALTER TABLE spool DROP COLUMN passage_from;"
                     "PRAGMA user_version = 4");
    sp = fixture_open(&fx);
    assert_true(content_is_good(sp, in_row));
    assert_true(content_is_good(sp, in_file));
    (void)submit(sp, 5000, false);
    fixture_ok(sp, spool_remove(sp, in_row));
    fixture_ok(sp, spool_remove(sp, in_file));
    fixture_ok(sp, spool_commit(sp));
    assert_int_equal(number_asked("SELECT segment FROM message"), 1);
    assert_int_equal(number_asked("SELECT count(*) FROM content"), 0);
    assert_int_not_equal(number_asked("SELECT abs(tag) FROM spool"), 0);
    spool_close(sp);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(large_content_goes_to_a_segment),
        EACH(content_that_is_read_comes_alone),
        EACH(a_damaged_segment_harms_its_own_messages_alone),
        EACH(few_that_stay_are_moved_together),
        EACH(damaged_content_is_not_moved),
        EACH(a_reader_that_comes_too_late_is_told),
        EACH(segments_of_another_database_are_left_alone),
        EACH(a_spool_does_not_start_over_beside_segments),
        EACH(impossible_places_are_refused),
        EACH(content_of_an_older_version_stays_where_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
