#include "unit.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "side_store.h"

static char directory[64], path[128];

static int setup(void **state)
{
    (void)state;
    (void)strcpy(directory, "/tmp/test_side_store.XXXXXX");
    assert_non_null(mkdtemp(directory));
    (void)snprintf(path, sizeof path, "%s/side.db", directory);
    return 0;
}

static int remove_one(const char *name, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(name);
}

static int teardown(void **state)
{
    (void)state;
    return nftw(directory, remove_one, 10, FTW_DEPTH | FTW_PHYS);
}

static struct side_store *open_store(void)
{
    struct side_store *s = NULL;
    struct buf error;

    buf_init(&error, 4096);
    assert_int_equal(side_store_open(path, NULL, &error, &s), 0);
    buf_fini(&error);
    return s;
}

static void add_note(void *context, struct slice name, struct slice text, bool is_damaged)
{
    char *out = context;
    size_t at = strlen(out);

    (void)snprintf(out + at, 256 - at, "%s%.*s%s%.*s", at > 0 ? " " : "", SLICE_ARGS(name),
                   is_damaged ? "!" : "=", SLICE_ARGS(text));
}

/* "name=text name=text", those that are damaged with a "!". */
static const char *notes(struct side_store *s)
{
    static char out[256];

    out[0] = '\0';
    (void)side_notes_read(s, add_note, out);
    return out;
}

/* All lines for the log; "-" behind those that are no warnings. */
static const char *lines(struct side_store *s)
{
    static char out[2048];
    bool is_warning;
    const char *line;

    out[0] = '\0';
    while ((line = side_store_line(s, &is_warning)) != NULL) {
        (void)strcat(strcat(out, line), is_warning ? "\n" : "-\n");
    }
    return out;
}

static void put(struct side_store *s, const char *name, const char *text)
{
    assert_int_equal(side_note_put(s, slice_string(name), slice_string(text)), 0);
}

static void notes_and_events_are_there_after_a_kill(void **state)
{
    struct side_store *s = open_store(), *after;
    struct spool_events_range range;
    uint64_t first, last, bytes;
    struct slice text;
    char copy[4 * sizeof path + 32];

    (void)state;
    assert_int_equal(access(path, F_OK), -1); /* nobody needs it yet */
    put(s, "b", "2");
    put(s, "a", "1");
    put(s, "c", "3");
    put(s, "b", "two");
    assert_int_equal(side_note_remove(s, SLICE("c")), 0);
    assert_int_equal(side_note_remove(s, SLICE("d")), 0);
    assert_int_equal(side_events_add(s, 1, 2, (struct wall){5}, SLICE("one\ntwo\n")), 0);
    assert_int_equal(side_events_add(s, 3, 3, (struct wall){6}, SLICE("three\n")), 0);
    assert_string_equal(notes(s), "a=1 b=two");
    /* As a kill leaves it: nothing is closed. */
    (void)snprintf(copy, sizeof copy, "cp %s %s.x; cp %s-wal %s.x-wal", path, path, path, path);
    assert_int_equal(system(copy), 0); /* NOLINT: a test's own directory */
    side_store_close(s);
    (void)strcat(path, ".x");
    after = open_store();
    assert_string_equal(notes(after), "a=1 b=two");
    assert_int_equal(side_events_range(after, true, &range), 0);
    assert_int_equal(range.first, 1);
    assert_int_equal(range.last, 3);
    assert_int_equal(side_events_read(after, 3, &first, &last, &text), 0);
    assert_true(slice_equal(text, SLICE("three\n")));
    assert_int_equal(side_events_read(after, 4, &first, &last, &text), -ENOENT);
    assert_int_equal(side_events_forget(after, &bytes), 0);
    assert_int_equal(bytes, 8);
    assert_string_equal(lines(after), "");
    side_store_close(after);
}

static void only_one_process_has_it(void **state)
{
    struct side_store *s = open_store(), *other;
    struct buf error;

    (void)state;
    put(s, "a", "1");
    buf_init(&error, 4096);
    assert_int_equal(side_store_open(path, NULL, &error, &other), -EBUSY);
    assert_non_null(strstr(buf_cstr(&error), "held by process"));
    buf_fini(&error);
    side_store_close(s);
}

static void one_that_is_removed_is_made_again_with_its_notes(void **state)
{
    struct side_store *s = open_store();

    (void)state;
    put(s, "a", "1");
    assert_int_equal(unlink(path), 0);
    put(s, "b", "2");
    assert_non_null(strstr(lines(s), "a new one begins"));
    side_store_close(s);
    s = open_store();
    assert_string_equal(notes(s), "a=1 b=2");
    side_store_close(s);
    assert_int_equal(unlink(path), 0); /* its lock and log stay */
    s = open_store();
    assert_string_equal(notes(s), "");
    put(s, "c", "3");
    assert_string_equal(lines(s), "");
    side_store_close(s);
}

static void one_whose_log_is_removed_gets_what_is_in_memory(void **state)
{
    struct side_store *s = open_store();
    char log[sizeof path + 8];

    (void)state;
    put(s, "a", "1");
    put(s, "b", "2");
    side_store_close(s);
    s = open_store();
    assert_int_equal(side_note_remove(s, SLICE("a")), 0);
    put(s, "b", "two");
    (void)snprintf(log, sizeof log, "%s-wal", path);
    assert_int_equal(unlink(log), 0);
    put(s, "c", "3");
    assert_non_null(strstr(lines(s), "a new one begins"));
    side_store_close(s);
    s = open_store();
    assert_string_equal(notes(s), "b=two c=3");
    side_store_close(s);
}

static void one_that_is_damaged_is_set_aside(void **state)
{
    struct side_store *s = open_store();
    char damaged[sizeof path + 16];
    FILE *f;

    (void)state;
    put(s, "a", "1");
    side_store_close(s);
    f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 4096; i++) {
        assert_int_equal(fputs("no database", f) >= 0, 1);
    }
    assert_int_equal(fclose(f), 0);
    s = open_store();
    assert_non_null(strstr(lines(s), "side.db.damaged, and a new one begins"));
    assert_string_equal(notes(s), "lost=its file was damaged");
    side_store_close(s);
    s = open_store();
    assert_string_equal(notes(s), "lost=its file was damaged"); /* until it is removed */
    put(s, "b", "2");
    assert_int_equal(side_note_remove(s, SLICE(SPOOL_NOTE_LOST)), 0);
    side_store_close(s);
    s = open_store();
    assert_string_equal(notes(s), "b=2");
    side_store_close(s);
    (void)snprintf(damaged, sizeof damaged, "%s.damaged", path);
    assert_int_equal(access(damaged, F_OK), 0);
}

static void one_that_can_not_be_written_is_told_once(void **state)
{
    struct side_store *s;

    (void)state;
    (void)snprintf(path, sizeof path, "%s/later/side.db", directory);
    s = open_store();
    assert_int_equal(side_note_put(s, SLICE("a"), SLICE("1")), -ENOENT);
    assert_int_equal(side_note_put(s, SLICE("a"), SLICE("1")), -ENOENT);
    assert_int_equal(side_events_add(s, 1, 1, (struct wall){5}, SLICE("one\n")), -ENOENT);
    assert_string_equal(notes(s), ""); /* it was answered so */
    assert_non_null(strstr(lines(s), "until that is over"));
    assert_string_equal(lines(s), "");
    *strrchr(path, '/') = '\0';
    assert_int_equal(mkdir(path, 0700), 0);
    put(s, "a", "1");
    assert_non_null(strstr(lines(s), "it can be written again-\n"));
    side_store_close(s);
}

static void one_that_can_not_be_read_is_left_alone(void **state)
{
    struct side_store *s;
    struct spool_events_range range;

    (void)state;
    assert_int_equal(mkdir(path, 0700), 0);
    s = open_store();
    assert_non_null(strstr(lines(s), "until the next start"));
    assert_int_equal(side_note_put(s, SLICE("a"), SLICE("1")), -EIO);
    assert_int_equal(side_events_range(s, true, &range), -EIO);
    assert_string_equal(notes(s), "");
    assert_int_equal(side_notes_read(s, add_note, (char[256]){""}), -EIO);
    side_store_close(s);
}

static void a_damaged_note_is_read_as_such_until_it_is_removed(void **state)
{
    struct side_store *s = open_store();
    sqlite3 *db;

    (void)state;
    put(s, "a", "1");
    put(s, "b", "2");
    put(s, "c", "3");
    side_store_close(s);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "UPDATE note SET text = 'two' WHERE name = 'b';"
                                  "UPDATE note SET name = 'C' WHERE name = 'c'",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    for (int i = 0; i < 2; i++) {
        s = open_store();
        assert_string_equal(notes(s), "a=1 C!3 b!two");
        if (i == 0) {
            side_store_close(s);
        }
    }
    assert_int_equal(side_note_remove_damaged(s, SLICE("b")), 0);
    assert_string_equal(notes(s), "a=1 C!3");
    assert_int_equal(unlink(path), 0);
    put(s, "d", "4"); /* into a new one, which has to say what is missing */
    side_store_close(s);
    s = open_store();
    assert_string_equal(notes(s), "a=1 d=4 lost=its file was damaged");
    side_store_close(s);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

UNIT_MAIN(TEST(notes_and_events_are_there_after_a_kill), TEST(only_one_process_has_it),
          TEST(one_that_is_removed_is_made_again_with_its_notes),
          TEST(one_whose_log_is_removed_gets_what_is_in_memory),
          TEST(one_that_is_damaged_is_set_aside), TEST(one_that_can_not_be_written_is_told_once),
          TEST(one_that_can_not_be_read_is_left_alone),
          TEST(a_damaged_note_is_read_as_such_until_it_is_removed))
