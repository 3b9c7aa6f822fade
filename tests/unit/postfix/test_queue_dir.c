/*
 * The queue directory: where files are, and each step that a queue manager makes there, also when
 * another program was faster.
 */
#include "queue_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"

#include "queue_tree.h"

#define NOW_S INT64_C(1795346264)

static const struct wall now = {NOW_S * US_PER_S};

struct fixture {
    struct queue_tree tree;
    struct queue_dir dir;
};

static void open_dir(struct fixture *f, const struct queue_dir_options *options)
{
    struct buf error;

    buf_init(&error, 1000);
    queue_tree_make(&f->tree);
    assert_int_equal(queue_dir_open(&f->dir, f->tree.path, options, &error), 0);
    buf_fini(&error);
}

static void close_dir(struct fixture *f)
{
    queue_dir_close(&f->dir);
    queue_tree_remove(&f->tree);
}

/* ---- names ---------------------------------------------------------------------------------- */

static void ids_are_letters_digits_and_underscores(void **unused)
{
    static const struct {
        const char *name;
        bool want;
    } cases[] = {
        {"119CBA866C3", true}, {"4jXRPG2Df9z1hwFR", true}, {"a_B9", true},   {"", false},
        {".", false},          {"123456.789", false},      {"A#FIX", false}, {"a/b", false},
        {"..", false},         {"\xc3\xa4", false},
    };
    char longest[QUEUE_ID_MAX + 2];

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(queue_id_ok(slice_string(cases[i].name)), cases[i].want);
    }
    memset(longest, 'a', sizeof longest);
    assert_true(queue_id_ok(slice_of(longest, QUEUE_ID_MAX)));
    assert_false(queue_id_ok(slice_of(longest, QUEUE_ID_MAX + 1)));
}

static void files_are_hashed_as_postfix_hashes_them(void **unused)
{
    static const struct {
        const char *names;
        int depth;
        enum queue_dir_name which;
        const char *id, *want;
    } cases[] = {
        {NULL, 0, QUEUE_DIR_DEFERRED, "12738A865CF", "deferred/1/12738A865CF"},
        {NULL, 0, QUEUE_DIR_INCOMING, "12738A865CF", "incoming/12738A865CF"},
        {NULL, 0, QUEUE_DIR_DEFER, "4jXRPG2Df9z1hwFR", "defer/4/4jXRPG2Df9z1hwFR"},
        {"deferred", 2, QUEUE_DIR_DEFERRED, "4jXRPG2Df9z1hwFR", "deferred/4/D/4jXRPG2Df9z1hwFR"},
        {"active,incoming", 3, QUEUE_DIR_ACTIVE, "AB", "active/A/B/_/AB"},
        {"active incoming", 1, QUEUE_DIR_DEFERRED, "AB", "deferred/AB"},
        {"defer", 1, QUEUE_DIR_DEFERRED, "AB", "deferred/AB"}, /* another name's beginning */
        /* a z that is too early, and one behind what are no digits: short */
        {"deferred", 1, QUEUE_DIR_DEFERRED, "XbcdfzAAA", "deferred/X/XbcdfzAAA"},
        {"deferred", 1, QUEUE_DIR_DEFERRED, "X12345AEIOz1", "deferred/X/X12345AEIOz1"},
        {"deferred", 7, QUEUE_DIR_DEFERRED, "4jXRPG2Df9z1hwFR",
         "deferred/4/D/0/3/1/_/_/4jXRPG2Df9z1hwFR"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char path[QUEUE_DIR_PATH_MAX];
        struct fixture f;

        open_dir(&f, &(struct queue_dir_options){.hash_queue_names = cases[i].names,
                                                 .hash_queue_depth = cases[i].depth});
        queue_dir_path(&f.dir, cases[i].which, slice_string(cases[i].id), path);
        assert_string_equal(path, cases[i].want);
        close_dir(&f);
    }
}

static void a_directory_that_is_no_queue_is_refused(void **unused)
{
    struct queue_dir_options options = {0};
    struct queue_tree tree;
    struct queue_dir dir;
    struct buf error;
    char path[100];

    (void)unused;
    buf_init(&error, 1000);
    assert_int_equal(queue_dir_open(&dir, "/nonexistent", &options, &error), -ENOENT);
    assert_string_equal(buf_cstr(&error), "open /nonexistent: No such file or directory");
    queue_tree_make(&tree);
    (void)snprintf(path, sizeof path, "%s/deferred", tree.path);
    assert_return_code(rmdir(path), errno);
    buf_clear(&error);
    assert_int_equal(queue_dir_open(&dir, tree.path, &options, &error), -ENOENT);
    assert_non_null(strstr(buf_cstr(&error), "/deferred: No such file"));
    buf_clear(&error);
    options.hash_queue_depth = QUEUE_DIR_DEPTH_MAX + 1;
    assert_int_equal(queue_dir_open(&dir, tree.path, &options, &error), -EINVAL);
    assert_string_equal(buf_cstr(&error), "hash_queue_depth: 65 is not from 1 to 64");
    queue_tree_remove(&tree);
    buf_fini(&error);
}

/* ---- one file ------------------------------------------------------------------------------- */

static void modes_are_states(void **unused)
{
    static const struct {
        mode_t mode;
        bool usable, flushed, expires;
    } cases[] = {
        {0700, true, false, false},  {0600, false, false, false}, {0400, false, false, false},
        {0740, true, true, false},   {0710, true, false, true},   {0750, true, true, true},
        {0500, false, false, false},
    };
    struct fixture f;

    (void)unused;
    open_dir(&f, &(struct queue_dir_options){0});
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct queue_dir_file file;

        queue_tree_put(&f.tree, "active/A1", SLICE("x"), cases[i].mode, NOW_S);
        assert_int_equal(queue_dir_stat(&f.dir, QUEUE_DIR_ACTIVE, SLICE("A1"), &file), 0);
        assert_int_equal(queue_dir_usable(&file), cases[i].usable);
        assert_int_equal(queue_dir_flushed(&file), cases[i].flushed);
        assert_int_equal(queue_dir_force_expire(&file), cases[i].expires);
        assert_int_equal(file.modified.us, now.us);
        assert_int_equal(file.size, 1);
        queue_tree_unlink(&f.tree, "active/A1");
    }
    close_dir(&f);
}

static void moves_make_the_directories_of_hashing(void **unused)
{
    struct fixture f;
    struct slice id = SLICE("AB12");

    (void)unused;
    open_dir(&f, &(struct queue_dir_options){.hash_queue_depth = 2});
    queue_tree_put(&f.tree, "active/AB12", SLICE("x"), 0700, NOW_S);
    assert_int_equal(queue_dir_set_time(&f.dir, QUEUE_DIR_ACTIVE, id, wall_after(now, US_PER_S)),
                     0);
    assert_int_equal(queue_dir_move(&f.dir, id, QUEUE_DIR_ACTIVE, QUEUE_DIR_DEFERRED), 0);
    assert_int_equal(queue_tree_mtime(&f.tree, "deferred/A/B/AB12"), NOW_S + 1);
    assert_int_equal(queue_tree_mode(&f.tree, "deferred/A/B"), 0700);
    /* gone */
    assert_int_equal(queue_dir_move(&f.dir, id, QUEUE_DIR_ACTIVE, QUEUE_DIR_DEFERRED), -ENOENT);
    assert_int_equal(queue_dir_set_time(&f.dir, QUEUE_DIR_ACTIVE, id, now), -ENOENT);
    assert_int_equal(queue_dir_remove(&f.dir, QUEUE_DIR_DEFERRED, id), 0);
    assert_int_equal(queue_dir_remove(&f.dir, QUEUE_DIR_DEFERRED, id), -ENOENT);
    close_dir(&f);
}

static void marks_are_written_where_they_belong(void **unused)
{
    static const char bytes[] = "R\x03"
                                "a@bA\x01xW\x0f     1795360664D\x01y";
    const uint64_t r = 0, a = 5, w = 8, d = 25;
    struct queue_file_mark mark;
    char type;
    struct fixture f;
    struct slice id = SLICE("A1");

    (void)unused;
    open_dir(&f, &(struct queue_dir_options){0});
    queue_tree_put(&f.tree, "active/A1", slice_of(bytes, sizeof bytes - 1), 0700, NOW_S);
    mark = queue_file_mark_done(r);
    for (int i = 0; i < 2; i++) { /* the second time nothing is to be done */
        assert_int_equal(queue_dir_mark(&f.dir, QUEUE_DIR_ACTIVE, id, &mark), 0);
        assert_int_equal(queue_dir_rcpt_type(&f.dir, QUEUE_DIR_ACTIVE, id, r, &type), 0);
        assert_int_equal(type, 'D');
    }
    mark = queue_file_mark_killed(a);
    assert_int_equal(queue_dir_mark(&f.dir, QUEUE_DIR_ACTIVE, id, &mark), 0);
    assert_int_equal(queue_tree_byte(&f.tree, "active/A1", a), 'K');
    mark = queue_file_mark_warned(w);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(queue_dir_mark(&f.dir, QUEUE_DIR_ACTIVE, id, &mark), 0);
        assert_int_equal(queue_tree_byte(&f.tree, "active/A1", w + 15), '-');
        assert_int_equal(queue_tree_byte(&f.tree, "active/A1", w + 16), '1');
        assert_int_equal(queue_tree_byte(&f.tree, "active/A1", d), 'D');
    }
    /* not there, not such a record, behind the end, no such file */
    mark = queue_file_mark_warned(a);
    assert_int_equal(queue_dir_mark(&f.dir, QUEUE_DIR_ACTIVE, id, &mark), -EBADMSG);
    mark = queue_file_mark_done(a);
    assert_int_equal(queue_dir_mark(&f.dir, QUEUE_DIR_ACTIVE, id, &mark), -EBADMSG);
    mark = queue_file_mark_done(1000);
    assert_int_equal(queue_dir_mark(&f.dir, QUEUE_DIR_ACTIVE, id, &mark), -EBADMSG);
    assert_int_equal(queue_dir_rcpt_type(&f.dir, QUEUE_DIR_ACTIVE, id, 1000, &type), -EBADMSG);
    assert_int_equal(queue_dir_mark(&f.dir, QUEUE_DIR_HOLD, id, &mark), -ENOENT);
    close_dir(&f);
}

/* ---- taking --------------------------------------------------------------------------------- */

static void what_is_taken_and_what_is_not(void **unused)
{
    static const struct {
        mode_t mode;
        int64_t mtime_s;
        bool any_time;
        enum queue_dir_take want;
    } cases[] = {
        {0700, NOW_S, false, QUEUE_DIR_TAKEN},       {0700, NOW_S + 1, false, QUEUE_DIR_TAKEN},
        {0700, NOW_S + 2, false, QUEUE_DIR_NOT_DUE}, {0700, NOW_S + 100000, true, QUEUE_DIR_TAKEN},
        {0600, NOW_S, true, QUEUE_DIR_SKIPPED}, /* cleanup(8) writes it */
        {0400, NOW_S, true, QUEUE_DIR_SKIPPED},      {0750, NOW_S, false, QUEUE_DIR_TAKEN},
    };
    static const enum queue_dir_name from[] = {QUEUE_DIR_INCOMING, QUEUE_DIR_DEFERRED};
    static const char *const paths[] = {"incoming/A1", "deferred/A/A1"};
    struct queue_dir_file file;
    struct fixture f;
    int fd, err;

    (void)unused;
    open_dir(&f, &(struct queue_dir_options){0});
    for (size_t i = 0; i < 2 * COUNT(cases); i++) {
        size_t c = i / 2;

        queue_tree_put(&f.tree, paths[i % 2], SLICE("x"), cases[c].mode, cases[c].mtime_s);
        assert_int_equal(queue_dir_take(&f.dir, from[i % 2], SLICE("A1"), now, cases[c].any_time,
                                        &fd, &file, &err),
                         cases[c].want);
        assert_int_equal(queue_tree_has(&f.tree, paths[i % 2]), cases[c].want != QUEUE_DIR_TAKEN);
        if (cases[c].want == QUEUE_DIR_TAKEN) {
            assert_int_equal(queue_dir_clear_flushed(&f.dir, fd, &file), 0);
            assert_int_equal(queue_tree_mode(&f.tree, "active/A1"), cases[c].mode & ~(mode_t)0040);
            (void)close(fd);
            queue_tree_unlink(&f.tree, "active/A1");
        } else {
            queue_tree_unlink(&f.tree, paths[i % 2]);
        }
        assert_int_equal(
            queue_dir_take(&f.dir, from[i % 2], SLICE("A1"), now, true, &fd, &file, &err),
            QUEUE_DIR_SKIPPED); /* gone */
    }
    close_dir(&f);
}

static void a_link_is_no_mail(void **unused)
{
    struct queue_dir_file file;
    struct fixture f;
    char path[100];
    int fd, err;

    (void)unused;
    open_dir(&f, &(struct queue_dir_options){0});
    queue_tree_put(&f.tree, "hold/A1", SLICE("x"), 0700, NOW_S);
    (void)snprintf(path, sizeof path, "%s/incoming/A1", f.tree.path);
    assert_return_code(symlink("../hold/A1", path), errno);
    assert_int_equal(
        queue_dir_take(&f.dir, QUEUE_DIR_INCOMING, SLICE("A1"), now, true, &fd, &file, &err),
        QUEUE_DIR_SKIPPED);
    (void)snprintf(path, sizeof path, "%s/active/A1", f.tree.path);
    assert_return_code(symlink("../hold/A1", path), errno);
    assert_int_equal(queue_dir_open_file(&f.dir, QUEUE_DIR_ACTIVE, SLICE("A1"), O_RDWR, &fd),
                     -ELOOP);
    close_dir(&f);
}

/* An agent of the manager before has it. */
static void a_locked_file_waits_in_incoming(void **unused)
{
    struct queue_dir_file file;
    struct fixture f;
    char path[100];
    int agent, fd, err;

    (void)unused;
    open_dir(&f, &(struct queue_dir_options){0});
    queue_tree_put(&f.tree, "deferred/A/A1", SLICE("x"), 0700, NOW_S);
    (void)snprintf(path, sizeof path, "%s/deferred/A/A1", f.tree.path);
    agent = open(path, O_RDWR);
    assert_return_code(flock(agent, LOCK_SH | LOCK_NB), errno);
    assert_int_equal(
        queue_dir_take(&f.dir, QUEUE_DIR_DEFERRED, SLICE("A1"), now, false, &fd, &file, &err),
        QUEUE_DIR_LOCKED);
    assert_int_equal(queue_tree_mtime(&f.tree, "incoming/A1"), NOW_S + QUEUE_DIR_LOCKED_S);
    (void)close(agent);
    assert_int_equal(queue_dir_take(&f.dir, QUEUE_DIR_INCOMING, SLICE("A1"),
                                    wall_after(now, 60 * US_PER_S), false, &fd, &file, &err),
                     QUEUE_DIR_TAKEN);
    /* and now it is ours until it is closed */
    (void)snprintf(path, sizeof path, "%s/active/A1", f.tree.path);
    agent = open(path, O_RDWR);
    assert_int_equal(flock(agent, LOCK_SH | LOCK_NB), -1);
    (void)close(fd);
    assert_return_code(flock(agent, LOCK_SH | LOCK_NB), errno);
    (void)close(agent);
    close_dir(&f);
}

static struct spool_io failing;
static int failing_openat;
static int failing_renames; /* this many succeed */

static int fail_openat(int dir, const char *path, int flags, mode_t mode)
{
    return failing_openat != 0 ? failing_openat : spool_io_real.openat(dir, path, flags, mode);
}

static int fail_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return failing_renames-- > 0 ? spool_io_real.renameat(from_dir, from, to_dir, to) : -EIO;
}

/* It is where it was, with its time: nothing is lost when descriptors or the disk fail. */
static void a_file_that_cannot_be_taken_stays(void **unused)
{
    struct queue_dir_file file;
    struct fixture f;
    int fd, err;

    (void)unused;
    failing = spool_io_real;
    failing.openat = fail_openat;
    failing.renameat = fail_renameat;
    open_dir(&f, &(struct queue_dir_options){.io = &failing});
    queue_tree_put(&f.tree, "deferred/A/A1", SLICE("x"), 0700, NOW_S - 5);
    failing_renames = 2;
    failing_openat = -EMFILE;
    assert_int_equal(
        queue_dir_take(&f.dir, QUEUE_DIR_DEFERRED, SLICE("A1"), now, false, &fd, &file, &err),
        QUEUE_DIR_FAILED);
    assert_int_equal(err, -EMFILE);
    assert_int_equal(queue_tree_mtime(&f.tree, "deferred/A/A1"), NOW_S - 5);
    failing_openat = -ENOENT; /* postsuper -d was faster */
    failing_renames = 1;
    assert_int_equal(
        queue_dir_take(&f.dir, QUEUE_DIR_DEFERRED, SLICE("A1"), now, false, &fd, &file, &err),
        QUEUE_DIR_RACED);
    queue_tree_rename(&f.tree, "active/A1", "deferred/A/A1");
    failing_renames = 0;
    assert_int_equal(
        queue_dir_take(&f.dir, QUEUE_DIR_DEFERRED, SLICE("A1"), now, false, &fd, &file, &err),
        QUEUE_DIR_FAILED);
    assert_int_equal(err, -EIO);
    assert_true(queue_tree_has(&f.tree, "deferred/A/A1"));
    close_dir(&f);
}

/* ---- scans ---------------------------------------------------------------------------------- */

static void a_scan_finds_each_file_once(void **unused)
{
    enum { FILES = 60 };
    unsigned found[FILES] = {0}, others = 0, more = 0, i;
    char name[QUEUE_ID_MAX + 1];
    struct queue_scan scan;
    struct fixture f;
    int err;

    (void)unused;
    open_dir(&f, &(struct queue_dir_options){0});
    for (i = 0; i < FILES; i++) { /* at levels that no parameter names */
        char path[64];

        (void)snprintf(path, sizeof path, "deferred/%s%02uF",
                       i % 3 == 0   ? ""
                       : i % 3 == 1 ? "A/"
                                    : "B/c/",
                       i);
        queue_tree_put(&f.tree, path, SLICE("x"), 0700, NOW_S);
    }
    queue_tree_put(&f.tree, "deferred/123.456", SLICE("x"), 0600, NOW_S);
    queue_tree_put(&f.tree, "deferred/.hidden", SLICE("x"), 0600, NOW_S);
    queue_tree_put(&f.tree, "deferred/Z", SLICE("no directory"), 0600, NOW_S);
    queue_scan_begin(&scan, &f.dir, QUEUE_DIR_DEFERRED);
    for (bool on = true; on;) {
        switch (queue_scan_next(&scan, 1, name, &err)) {
        case QUEUE_SCAN_ID:
            assert_int_equal(sscanf(name, "%2uF", &i), 1);
            assert_true(i < FILES);
            found[i]++;
            break;
        case QUEUE_SCAN_OTHER:
            assert_string_equal(name, "123.456");
            others++;
            break;
        case QUEUE_SCAN_MORE:
            more++;
            break;
        case QUEUE_SCAN_END:
            on = false;
            break;
        case QUEUE_SCAN_FAILED:
            fail();
        }
    }
    for (i = 0; i < FILES; i++) {
        assert_int_equal(found[i], 1);
    }
    assert_int_equal(others, 1);
    assert_true(more > 3); /* directories, hidden names, ends */
    assert_int_equal(queue_scan_next(&scan, 1, name, &err), QUEUE_SCAN_END);
    queue_scan_end(&scan);
    close_dir(&f);
}

/* Deeper than hashing goes: told, and the rest is found. */
static void a_scan_has_a_depth(void **unused)
{
    char path[2 * QUEUE_DIR_DEPTH_MAX + 32] = "deferred/", name[QUEUE_ID_MAX + 1];
    unsigned ids = 0, failures = 0;
    struct queue_scan scan;
    enum queue_scan_found found;
    struct fixture f;
    int err = 0;

    (void)unused;
    open_dir(&f, &(struct queue_dir_options){0});
    for (unsigned i = 0; i < QUEUE_DIR_DEPTH_MAX + 3; i++) {
        (void)strcat(path, "a/");
    }
    (void)strcat(path, "A1");
    queue_tree_put(&f.tree, path, SLICE("x"), 0700, NOW_S);
    queue_tree_put(&f.tree, "deferred/b/B1", SLICE("x"), 0700, NOW_S);
    queue_scan_begin(&scan, &f.dir, QUEUE_DIR_DEFERRED);
    while ((found = queue_scan_next(&scan, 100, name, &err)) != QUEUE_SCAN_END) {
        ids += found == QUEUE_SCAN_ID;
        failures += found == QUEUE_SCAN_FAILED;
    }
    assert_int_equal(ids, 1);
    assert_int_equal(failures, 1);
    assert_int_equal(err, -ENAMETOOLONG);
    queue_scan_end(&scan);
    close_dir(&f);
}

static void remember_line(void *context, const char *line)
{
    (void)snprintf(context, 200, "%s", line);
}

static void a_start_moves_what_was_active_to_incoming(void **unused)
{
    char told[200] = "";
    struct fixture f;
    size_t count;

    (void)unused;
    open_dir(&f, &(struct queue_dir_options){.hash_queue_names = "active incoming",
                                             .hash_queue_depth = 1});
    queue_tree_put(&f.tree, "active/A/A1", SLICE("x"), 0700, NOW_S - 5);
    queue_tree_put(&f.tree, "active/B/B1", SLICE("x"), 0600, NOW_S + 500);
    queue_tree_put(&f.tree, "active/C#FIX", SLICE("x"), 0600, NOW_S);
    assert_int_equal(queue_dir_restart(&f.dir, now, remember_line, told, &count), 0);
    assert_int_equal(count, 2);
    assert_string_equal(told, "qmgr_move: ignored: queue active id C#FIX");
    assert_int_equal(queue_tree_mtime(&f.tree, "incoming/A/A1"), NOW_S);
    assert_int_equal(queue_tree_mtime(&f.tree, "incoming/B/B1"), NOW_S);
    assert_int_equal(queue_tree_mode(&f.tree, "incoming/B/B1"), 0600);
    assert_int_equal(queue_dir_restart(&f.dir, now, remember_line, told, &count), 0);
    assert_int_equal(count, 0);
    close_dir(&f);
}

UNIT_MAIN(cmocka_unit_test(ids_are_letters_digits_and_underscores),
          cmocka_unit_test(files_are_hashed_as_postfix_hashes_them),
          cmocka_unit_test(a_directory_that_is_no_queue_is_refused),
          cmocka_unit_test(modes_are_states),
          cmocka_unit_test(moves_make_the_directories_of_hashing),
          cmocka_unit_test(marks_are_written_where_they_belong),
          cmocka_unit_test(what_is_taken_and_what_is_not), cmocka_unit_test(a_link_is_no_mail),
          cmocka_unit_test(a_locked_file_waits_in_incoming),
          cmocka_unit_test(a_file_that_cannot_be_taken_stays),
          cmocka_unit_test(a_scan_finds_each_file_once), cmocka_unit_test(a_scan_has_a_depth),
          cmocka_unit_test(a_start_moves_what_was_active_to_incoming))
