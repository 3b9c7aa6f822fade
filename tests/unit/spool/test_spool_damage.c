/*
 * What the sqlite engine does with a store that was damaged: bytes of content that changed, rows
 * that make no sense, pages that can't be read. Damage is told; it harms only its message; what was
 * acknowledged is delivered or remains visible.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "spool_fixture.h"

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

static const char *content_path(struct msg_id id)
{
    static char path[256];
    char text[SPOOL_ID_TEXT_MAX];

    spool_id_print(id, text);
    snprintf(path, sizeof path, "%s.d/%s", fx.path, text);
    return path;
}

static int read_content(struct spool *sp, struct msg_id id)
{
    struct buf bytes;
    uint64_t size;
    int fd = -1, err;

    buf_init(&bytes, 1 << 20);
    err = spool_read_content(sp, id, &bytes, &fd, &size);
    if (err == 0 && fd >= 0) {
        close(fd);
    }
    buf_fini(&bytes);
    return err;
}

/* ---- content -------------------------------------------------------------------------------- */

static void flip_in_file(struct msg_id id, off_t at)
{
    int fd = open(content_path(id), O_RDWR);
    char c;

    assert_int_equal(pread(fd, &c, 1, at), 1);
    c ^= 1;
    assert_int_equal(pwrite(fd, &c, 1, at), 1);
    close(fd);
}

static void changed_content_is_noticed(void **state)
{
    struct spool *sp = fixture_open(&fx);
    struct msg_id small, large;

    (void)state;
    fixture_ok(sp, fixture_submit(sp, "a@example.com", "x@example.net", 10, 300, false, &small));
    fixture_ok(sp, fixture_submit(sp, "b@example.com", "x@example.net", 10, 9999, false, &large));
    fixture_ok(sp, spool_commit(sp));
    for (int at = 0; at < 300; at += 23) {
        char sql[200];

        fixture_ok(sp, read_content(sp, small));
        for (int undo = 0; undo < 2; undo++) {
            snprintf(sql, sizeof sql,
                     "UPDATE content SET bytes = CAST(substr(bytes, 1, %d) ||"
                     " char(unicode(substr(bytes, %d, 1)) %+d) || substr(bytes, %d) AS BLOB)",
                     at, at + 1, undo == 1 ? -1 : 1, at + 2);
            fixture_sql(&fx, sql);
            assert_int_equal(read_content(sp, small), undo == 1 ? 0 : -EBADMSG);
        }
    }
    for (off_t at = 0; at < 9999; at += 1999) {
        fixture_ok(sp, read_content(sp, large));
        flip_in_file(large, at);
        assert_int_equal(read_content(sp, large), -EBADMSG);
        assert_non_null(strstr(spool_error(sp), "checksum"));
        flip_in_file(large, at);
    }
    spool_close(sp);
}

static void content_of_another_message_is_noticed(void **state)
{
    struct spool *sp = fixture_open(&fx);
    struct msg_id ids[4];
    char path[256];

    (void)state;
    for (size_t i = 0; i < COUNT(ids); i++) {
        char sender[32];

        snprintf(sender, sizeof sender, "%.*s@example.com", (int)i + 1, "abcdef");
        fixture_ok(sp, fixture_submit(sp, sender, "x@example.net", 10, i < 2 ? 100 : 5000, false,
                                      &ids[i]));
    }
    fixture_ok(sp, spool_commit(sp));
    fixture_sql(&fx, "UPDATE content SET bytes = (SELECT bytes FROM content ORDER BY message DESC"
                     " LIMIT 1)");
    assert_int_equal(read_content(sp, ids[0]), -EBADMSG);
    fixture_ok(sp, read_content(sp, ids[1]));
    snprintf(path, sizeof path, "%s", content_path(ids[2]));
    assert_int_equal(rename(content_path(ids[3]), path), 0);
    assert_int_equal(read_content(sp, ids[2]), -EBADMSG);
    assert_int_equal(read_content(sp, ids[3]), -EBADMSG);
    spool_close(sp);
}

/* What an older version has stored has no checksum, and is delivered as before. */
static void content_without_a_checksum_is_believed(void **state)
{
    struct spool *sp = fixture_open(&fx);
    struct msg_id small, large;

    (void)state;
    fixture_ok(sp, fixture_submit(sp, "a@example.com", "x@example.net", 10, 300, false, &small));
    fixture_ok(sp, fixture_submit(sp, "b@example.com", "x@example.net", 10, 9999, false, &large));
    fixture_ok(sp, spool_commit(sp));
    fixture_sql(&fx, "UPDATE message SET content_sum = NULL, sum = NULL");
    fixture_ok(sp, read_content(sp, small));
    fixture_ok(sp, read_content(sp, large));
    spool_close(sp);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH(changed_content_is_noticed),
        EACH(content_of_another_message_is_noticed),
        EACH(content_without_a_checksum_is_believed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
