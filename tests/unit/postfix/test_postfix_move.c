/*
 * Mail from Postfix's queue directory into a spool and back: what of it arrives, and what there is
 * when the move is killed before any of its calls that change a disk and is run again.
 */
#include "export.h"
#include "import.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"

#include "example_file.h"
#include "queue_dir.h"
#include "queue_file.h"
#include "queue_tree.h"
#include "spool_search.h"
#include "status_log.h"

#define NOW_S   INT64_C(1795400000)
#define PATHS   512
#define KILLED  9
#define MANY    205 /* more than one batch */
#define STORY   20000
#define FAILED1 5

static const struct wall now = {NOW_S * US_PER_S};

struct world {
    struct queue_tree tree;
    char spool[PATHS]; /* directory of the database: in memory, where syncs cost nothing */
    char url[PATHS];
    char told[STORY];
};

static void make_world(struct world *w)
{
    memset(w, 0, sizeof *w);
    queue_tree_make(&w->tree);
    (void)strcpy(w->spool, "/dev/shm/sluice-spool-XXXXXX"); /* fits */
    if (mkdtemp(w->spool) == NULL) {
        (void)strcpy(w->spool, "/tmp/sluice-spool-XXXXXX"); /* fits */
        assert_non_null(mkdtemp(w->spool));
    }
    (void)snprintf(w->url, sizeof w->url, "sqlite:%.80s/queue.db", w->spool);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static void end_world(struct world *w)
{
    queue_tree_remove(&w->tree);
    assert_return_code(nftw(w->spool, remove_one, 16, FTW_DEPTH | FTW_PHYS), errno);
}

static void keep_line(void *context, const char *line)
{
    struct world *w = context;
    size_t len = strlen(w->told);

    (void)snprintf(w->told + len, sizeof w->told - len, "%s\n", line); /* cut is good enough */
}

static struct spool *open_spool(const struct world *w, enum spool_open_mode mode)
{
    struct spool_options options = {.inline_limit = 16384, .id_floor = (uint64_t)now.us};
    struct spool *sp = NULL;
    struct buf error;

    buf_init(&error, 1000);
    if (spool_open(w->url, mode, &options, &error, &sp) != 0) {
        fail_msg("%s", buf_cstr(&error));
    }
    buf_fini(&error);
    return sp;
}

/* On disk when the machine wants: it is not switched off here. */
static int no_sync(int fd)
{
    (void)fd;
    return 0;
}

static int run(struct world *w, spool_move_call *call, const struct spool_io *io, bool dry,
               struct spool_moved *ret_moved)
{
    struct spool_io quick = io != NULL ? *io : spool_io_real;
    struct spool_move move = {.directory = w->tree.path,
                              .url = w->url,
                              .io = &quick,
                              .now = now,
                              .dry_run = dry,
                              .tell = keep_line,
                              .context = w};
    struct buf error;
    int err;

    quick.syncfs = no_sync;
    quick.fsync = quick.fsync == spool_io_real.fsync ? no_sync : quick.fsync;
    w->told[0] = '\0';
    move.spool = open_spool(w, SPOOL_OPEN_WRITE);
    buf_init(&error, 2000);
    err = call(&move, ret_moved, &error);
    if (err != 0 && !error.failed) {
        keep_line(w, buf_cstr(&error));
    }
    buf_fini(&error);
    spool_close(move.spool);
    return err;
}

/* ---- what there is -------------------------------------------------------------------------- */

static void add(char *story, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add(char *story, const char *format, ...)
{
    size_t len = strlen(story);
    va_list args;

    va_start(args, format);
    (void)vsnprintf(story + len, STORY - len, format, args); /* stories are shorter */
    va_end(args);
}

/* The spool's messages, in order of id. */
static void tell_spool(const struct world *w, char story[STORY])
{
    static const char *const states[] = {"?", "incoming", "deferred", "hold", "corrupt"};
    struct spool *sp = open_spool(w, SPOOL_OPEN_WRITE);
    struct spool_filter all = {0};
    struct msg_id ids[400];
    size_t count;

    story[0] = '\0';
    assert_int_equal(spool_scan(sp, &all, COUNT(ids), ids, &count), 0);
    for (size_t i = 0; i < count; i++) {
        struct spool_message m;
        struct spool_rcpt r[20];
        size_t rcpts;

        assert_int_equal(spool_read(sp, ids[i], &m), 0);
        add(story, "%s <%.*s>", states[m.state], SLICE_ARGS(m.sender));
        assert_int_equal(spool_read_rcpts(sp, ids[i], 0, false, COUNT(r), r, &rcpts), 0);
        for (size_t j = 0; j < rcpts; j++) {
            add(story, " %.*s%s%.*s", SLICE_ARGS(r[j].address),
                r[j].state == SPOOL_RCPT_PENDING  ? ""
                : r[j].state == SPOOL_RCPT_FAILED ? " failed "
                                                  : " delivered ",
                SLICE_ARGS(r[j].status));
        }
        add(story, "\n");
    }
    spool_close(sp);
}

static uint64_t spool_messages(const struct world *w)
{
    struct spool *sp = open_spool(w, SPOOL_OPEN_WRITE);
    struct spool_filter all = {0};
    uint64_t count;

    assert_int_equal(spool_count(sp, &all, &count), 0);
    spool_close(sp);
    return count;
}

/* Files of one of Postfix's queues, and the first one's path. */
static size_t files(const struct world *w, enum queue_dir_name which, char *first)
{
    struct queue_dir_options options = {0};
    char name[QUEUE_ID_MAX + 1];
    struct queue_scan scan;
    struct queue_dir dir;
    enum queue_scan_found got;
    struct buf error;
    size_t count = 0;
    int err;

    buf_init(&error, 1000);
    assert_int_equal(queue_dir_open(&dir, w->tree.path, &options, &error), 0);
    queue_scan_begin(&scan, &dir, which);
    while ((got = queue_scan_next(&scan, 1000, name, &err)) != QUEUE_SCAN_END) {
        assert_int_not_equal(got, QUEUE_SCAN_FAILED);
        if (got == QUEUE_SCAN_ID && first != NULL && count == 0) {
            queue_scan_path(&scan, name, first);
        }
        count += got == QUEUE_SCAN_ID;
    }
    queue_scan_end(&scan);
    queue_dir_close(&dir);
    buf_fini(&error);
    return count;
}

static size_t all_files(const struct world *w)
{
    return files(w, QUEUE_DIR_INCOMING, NULL) + files(w, QUEUE_DIR_ACTIVE, NULL) +
           files(w, QUEUE_DIR_DEFERRED, NULL) + files(w, QUEUE_DIR_HOLD, NULL);
}

static void put_message(const struct world *w, const char *path, const char *prefix, unsigned rcpts)
{
    struct buf bytes;

    buf_init(&bytes, 100000);
    queue_tree_message(&bytes, "sender@example.org", prefix, rcpts);
    queue_tree_put(&w->tree, path, buf_slice(&bytes), 0700, NOW_S + 100);
    buf_fini(&bytes);
}

/* ---- examples ------------------------------------------------------------------------------- */

/* The content of a queue file, in wire form. */
static void content_of(struct slice file, struct buf *ret)
{
    struct queue_file_source source = {
        .read = queue_file_read_bytes, .context = &file, .size = file.len};
    struct queue_file_reader r, c;
    struct queue_file_rcpt rcpt;
    enum queue_file_read got;
    struct slice piece;
    bool ends;

    queue_file_init(&r, source);
    while ((got = queue_file_next(&r, &rcpt)) == QUEUE_FILE_READ_ITEM) {
    }
    assert_int_equal(got, QUEUE_FILE_READ_END);
    queue_file_content_init(&c, source, &r.envelope);
    while ((got = queue_file_content_next(&c, &piece, &ends)) == QUEUE_FILE_READ_ITEM) {
        assert_true(buf_add(ret, piece) && (!ends || buf_add_string(ret, "\r\n")));
    }
    assert_int_equal(got, QUEUE_FILE_READ_END);
    queue_file_fini(&c);
    queue_file_fini(&r);
}

static void read_whole(const struct world *w, const char *path, struct buf *ret)
{
    char full[PATHS], bytes[50000];
    ssize_t n;
    int fd;

    (void)snprintf(full, sizeof full, "%s/%s", w->tree.path, path);
    fd = open(full, O_RDONLY);
    assert_return_code(fd, errno);
    n = read(fd, bytes, sizeof bytes);
    assert_true(n >= 0 && (size_t)n < sizeof bytes);
    assert_true(buf_add(ret, slice_of(bytes, (size_t)n)));
    (void)close(fd);
}

/* In any order: files of a directory have none. */
static void assert_same_lines(const char *a, const char *b)
{
    struct slice rest = slice_string(a);

    assert_int_equal(strlen(a), strlen(b));
    while (rest.len > 0) {
        struct slice line = slice_cut(&rest, '\n');
        char text[STORY];

        (void)snprintf(text, sizeof text, "%.*s\n", SLICE_ARGS(line)); /* a line is shorter */
        assert_non_null(strstr(b, text));
    }
}

static void examples_go_there_and_back(void **unused)
{
    static const struct {
        const char *name;
        const char *want; /* what the spool tells; or why it is left */
    } cases[] = {
        {"01-smtpd-two-recipients-bcc",
         "deferred <alice@src.example> r1@good.example r2@good.example archive@good.example\n"},
        {"02-smtpd-dsn", "deferred <bob@good.example> q@good.example archive@good.example\n"},
        {"04-milter-edited", "deferred <newsender@src.example> "},
        {"05-content-filter", "content filter"},
        {"06-sendmail", "deferred <bob@good.example> w@good.example archive@good.example\n"},
        {"07-bounce-daemon-report", "deferred <> "},
        {"08-sendmail-verp", "deferred <bob+w1=good.example@good.example> w1@good.example\n"},
        {"10-one-done-one-todo", "deferred <"},
        {"11-sendmail-bv", "it is an address probe, no mail"},
        {"12-sendmail-v", "deferred <"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        bool left = strncmp(cases[i].want, "deferred", 8) != 0;
        char story[STORY], again[STORY], path[QUEUE_DIR_PATH_MAX];
        struct spool_moved moved;
        struct buf before, after, file;
        struct example e;
        struct world w;

        make_world(&w);
        example_read(cases[i].name, &e);
        queue_tree_put(&w.tree, "deferred/4/4A1B2C3D4E", buf_slice(&e.bytes), 0700, NOW_S + 77);
        assert_int_equal(run(&w, postfix_import, NULL, false, &moved), 0);
        assert_int_equal(moved.left, left);
        assert_int_equal(all_files(&w), left);
        if (left) {
            assert_non_null(strstr(w.told, cases[i].want));
        } else {
            tell_spool(&w, story);
            if (strncmp(story, cases[i].want, strlen(cases[i].want)) != 0) {
                fail_msg("%s: %s", cases[i].name, story);
            }
            assert_int_equal(run(&w, postfix_export, NULL, false, &moved), 0);
            assert_int_equal(spool_messages(&w), 0);
            assert_true(files(&w, QUEUE_DIR_DEFERRED, path) > 0);
            assert_int_equal(queue_tree_mtime(&w.tree, path), NOW_S + 77);
            assert_int_equal(queue_tree_mode(&w.tree, path) & 07777, 0700);
            buf_init(&before, 100000);
            buf_init(&after, 100000);
            buf_init(&file, 100000);
            read_whole(&w, path, &file);
            content_of(buf_slice(&e.bytes), &before);
            content_of(buf_slice(&file), &after);
            assert_true(slice_equal(buf_slice(&before), buf_slice(&after)));
            buf_fini(&before);
            buf_fini(&after);
            buf_fini(&file);
            assert_int_equal(run(&w, postfix_import, NULL, false, &moved), 0);
            tell_spool(&w, again);
            assert_same_lines(story, again);
        }
        example_fini(&e);
        end_world(&w);
    }
}

/* ---- what waits for a report ---------------------------------------------------------------- */

static void what_bounce_has_to_report_is_not_lost(void **unused)
{
    struct status_log_entry e = {.recipient = SLICE("gone@example.org"),
                                 .original = SLICE("gone@example.org"),
                                 .offset = 1,
                                 .status = SLICE("5.1.1"),
                                 .action = SLICE("failed"),
                                 .diag_type = SLICE("smtp"),
                                 .diag_text = SLICE("550 5.1.1 unknown"),
                                 .mta_type = SLICE("dns"),
                                 .mta_mname = SLICE("mx.example.org"),
                                 .reason = SLICE("host mx.example.org said: 550 5.1.1 unknown")};
    char story[STORY], path[QUEUE_DIR_PATH_MAX];
    struct spool_moved moved;
    struct world w;
    struct buf log;

    (void)unused;
    make_world(&w);
    put_message(&w, "active/4A1B2C3D4E", "r", 1);
    buf_init(&log, 10000);
    status_log_put(&log, &e);
    queue_tree_put(&w.tree, "bounce/4A1B2C3D4E", buf_slice(&log), 0600, NOW_S);
    assert_int_equal(run(&w, postfix_import, NULL, false, &moved), 0);
    assert_int_equal(moved.reports, 1);
    tell_spool(&w, story);
    assert_non_null(strstr(story, "r1@example.org gone@example.org failed 5.1.1\n"));
    assert_int_equal(all_files(&w) + files(&w, QUEUE_DIR_BOUNCE, NULL), 0);

    assert_int_equal(run(&w, postfix_export, NULL, false, &moved), 0);
    assert_int_equal(moved.reports, 1);
    assert_int_equal(files(&w, QUEUE_DIR_BOUNCE, path), 1);
    buf_clear(&log);
    read_whole(&w, path, &log);
    assert_non_null(strstr(buf_cstr(&log), "\nrecipient=gone@example.org\n"));
    assert_non_null(strstr(buf_cstr(&log), "\nstatus=5.1.1\naction=failed\n"));
    assert_int_equal(run(&w, postfix_import, NULL, false, &moved), 0);
    tell_spool(&w, story);
    assert_non_null(strstr(story, "r1@example.org gone@example.org failed 5.1.1\n"));
    buf_fini(&log);
    end_world(&w);
}

/* ---- what stays ----------------------------------------------------------------------------- */

static void damaged_and_busy_files_stay_where_they_are(void **unused)
{
    struct spool_moved moved;
    char full[PATHS];
    struct world w;
    int fd;

    (void)unused;
    make_world(&w);
    put_message(&w, "incoming/AAAAA1", "good", 1);
    queue_tree_put(&w.tree, "incoming/AAAAA2", SLICE("rubbish"), 0700, NOW_S);
    queue_tree_put(&w.tree, "deferred/A/AAAAA3", SLICE(""), 0600, NOW_S);
    put_message(&w, "active/AAAAA4", "busy", 1);
    (void)snprintf(full, sizeof full, "%s/active/AAAAA4", w.tree.path);
    fd = open(full, O_RDONLY);
    assert_return_code(flock(fd, LOCK_SH), errno);
    assert_int_equal(run(&w, postfix_import, NULL, true, &moved), 0);
    assert_int_equal(moved.incoming, 1);
    assert_int_equal(moved.left, 3);
    assert_int_equal(all_files(&w), 4);
    assert_int_equal(run(&w, postfix_import, NULL, false, &moved), 0);
    assert_int_equal(moved.incoming, 1);
    assert_int_equal(moved.left, 3);
    assert_int_equal(all_files(&w), 3);
    assert_non_null(strstr(w.told, "incoming/AAAAA2 is left: damaged: "));
    assert_non_null(strstr(w.told, "deferred/A/AAAAA3 is left: it was not written to its end\n"));
    assert_non_null(strstr(w.told, "active/AAAAA4 is left: a delivery agent still has it"));
    assert_true(queue_tree_has(&w.tree, "incoming/AAAAA2"));
    assert_int_equal(queue_tree_mtime(&w.tree, "incoming/AAAAA2"), NOW_S);
    (void)close(fd);
    end_world(&w);
}

static void nothing_is_done_while_postfix_runs(void **unused)
{
    struct spool_moved moved;
    char full[PATHS];
    struct world w;
    int fd;

    (void)unused;
    make_world(&w);
    put_message(&w, "incoming/AAAAA1", "good", 1);
    queue_tree_put(&w.tree, "pid/master.pid", SLICE("1\n"), 0644, NOW_S);
    (void)snprintf(full, sizeof full, "%s/pid/master.pid", w.tree.path);
    fd = open(full, O_RDWR);
    assert_return_code(flock(fd, LOCK_EX), errno);
    assert_int_equal(run(&w, postfix_import, NULL, false, &moved), -EBUSY);
    assert_int_equal(run(&w, postfix_export, NULL, false, &moved), -EBUSY);
    assert_int_equal(all_files(&w), 1);
    (void)close(fd);
    end_world(&w);
}

/* ---- a kill at each call -------------------------------------------------------------------- */

static unsigned calls_left;

static void step(void)
{
    if (calls_left-- == 0) {
        _exit(KILLED);
    }
}

static ssize_t killing_write(int fd, const void *bytes, size_t len)
{
    step();
    return spool_io_real.write(fd, bytes, len);
}

static ssize_t killing_pwrite(int fd, const void *bytes, size_t len, uint64_t at)
{
    step();
    return spool_io_real.pwrite(fd, bytes, len, at);
}

static int killing_fsync(int fd)
{
    step();
    return no_sync(fd);
}

static int killing_openat(int dir, const char *path, int flags, mode_t mode)
{
    step();
    return spool_io_real.openat(dir, path, flags, mode);
}

static int killing_renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    step();
    return spool_io_real.renameat(from_dir, from, to_dir, to);
}

static int killing_unlinkat(int dir, const char *path)
{
    step();
    return spool_io_real.unlinkat(dir, path);
}

static int killing_mkdirat(int dir, const char *path, mode_t mode)
{
    step();
    return spool_io_real.mkdirat(dir, path, mode);
}

static int killing_utimensat(int dir, const char *path, const struct timespec times[2], int flags)
{
    step();
    return spool_io_real.utimensat(dir, path, times, flags);
}

static int killing_fchmod(int fd, mode_t mode)
{
    step();
    return spool_io_real.fchmod(fd, mode);
}

/* Run it in a process that ends before call number `n`; true: it had fewer, and came to its end. */
static bool run_killed(struct world *w, spool_move_call *call, unsigned n)
{
    struct spool_io io = spool_io_real;
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        struct spool_moved moved;

        io.write = killing_write;
        io.pwrite = killing_pwrite;
        io.fsync = killing_fsync;
        io.openat = killing_openat;
        io.renameat = killing_renameat;
        io.unlinkat = killing_unlinkat;
        io.mkdirat = killing_mkdirat;
        io.utimensat = killing_utimensat;
        io.fchmod = killing_fchmod;
        calls_left = n;
        _exit(run(w, call, &io, false, &moved) == 0 ? 0 : FAILED1);
    }
    assert_return_code(pid, errno);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == KILLED);
    return WEXITSTATUS(status) == 0;
}

static void put_some(const struct world *w)
{
    struct status_log_entry e = {.recipient = SLICE("gone@example.org"),
                                 .offset = 1,
                                 .status = SLICE("5.1.1"),
                                 .reason = SLICE("unknown")};
    struct buf log;

    put_message(w, "incoming/AAAAA1", "a", 2);
    put_message(w, "active/AAAAA2", "b", 1);
    put_message(w, "deferred/A/AAAAA3", "c", 1);
    put_message(w, "hold/AAAAA4", "d", 1);
    buf_init(&log, 10000);
    status_log_put(&log, &e);
    queue_tree_put(&w->tree, "bounce/AAAAA2", buf_slice(&log), 0600, NOW_S);
    queue_tree_put(&w->tree, "defer/A/AAAAA3", buf_slice(&log), 0600, NOW_S);
    buf_fini(&log);
}

static const char some[] = "incoming <sender@example.org> b1@example.org gone@example.org failed "
                           "5.1.1\n"
                           "incoming <sender@example.org> a1@example.org a2@example.org\n"
                           "deferred <sender@example.org> c1@example.org\n"
                           "hold <sender@example.org> d1@example.org\n";

static void an_import_may_be_killed_at_each_call(void **unused)
{
    bool ended = false;
    unsigned n;

    (void)unused;
    for (n = 0; !ended; n++) {
        struct spool_moved moved;
        char story[STORY];
        struct world w;

        make_world(&w);
        put_some(&w);
        ended = run_killed(&w, postfix_import, n);
        assert_int_equal(run(&w, postfix_import, NULL, false, &moved), 0);
        tell_spool(&w, story);
        assert_string_equal(story, some);
        assert_int_equal(all_files(&w) + files(&w, QUEUE_DIR_BOUNCE, NULL) +
                             files(&w, QUEUE_DIR_DEFER, NULL),
                         0);
        assert_false(queue_tree_has(&w.tree, "sluice-import"));
        end_world(&w);
    }
    assert_true(n > 14);
}

static void an_export_may_be_killed_at_each_call(void **unused)
{
    bool ended = false;
    unsigned n;

    (void)unused;
    for (n = 0; !ended; n++) {
        struct spool_moved moved;
        char story[STORY];
        struct world w;

        make_world(&w);
        put_some(&w);
        assert_int_equal(run(&w, postfix_import, NULL, false, &moved), 0);
        ended = run_killed(&w, postfix_export, n);
        assert_int_equal(run(&w, postfix_export, NULL, false, &moved), 0);
        assert_int_equal(spool_messages(&w), 0);
        assert_int_equal(files(&w, QUEUE_DIR_INCOMING, NULL), 2);
        assert_int_equal(files(&w, QUEUE_DIR_DEFERRED, NULL), 1);
        assert_int_equal(files(&w, QUEUE_DIR_HOLD, NULL), 1);
        assert_int_equal(files(&w, QUEUE_DIR_BOUNCE, NULL), 1);
        assert_false(queue_tree_has(&w.tree, "sluice-export"));
        assert_int_equal(run(&w, postfix_import, NULL, false, &moved), 0);
        tell_spool(&w, story);
        assert_int_equal(strlen(story), strlen(some));
        assert_non_null(strstr(story, "b1@example.org gone@example.org failed 5.1.1\n"));
        assert_non_null(strstr(story, "hold <sender@example.org> d1@example.org\n"));
        end_world(&w);
    }
    assert_true(n > 30);
}

static void several_batches_may_be_killed(void **unused)
{
    (void)unused;
    for (unsigned n = 3; n < 3 * MANY; n += 401) {
        struct spool_moved moved;
        struct world w;

        make_world(&w);
        for (unsigned i = 0; i < MANY; i++) {
            char path[64];

            (void)snprintf(path, sizeof path, "deferred/%X/%X1F%03X", i % 16, i % 16, i);
            put_message(&w, path, "x", 1);
        }
        (void)run_killed(&w, postfix_import, n);
        assert_int_equal(run(&w, postfix_import, NULL, false, &moved), 0);
        assert_int_equal(spool_messages(&w), MANY);
        assert_int_equal(all_files(&w), 0);
        (void)run_killed(&w, postfix_export, 10 * n);
        assert_int_equal(run(&w, postfix_export, NULL, false, &moved), 0);
        assert_int_equal(spool_messages(&w), 0);
        assert_int_equal(files(&w, QUEUE_DIR_DEFERRED, NULL), MANY);
        end_world(&w);
    }
}

UNIT_MAIN(cmocka_unit_test(examples_go_there_and_back),
          cmocka_unit_test(what_bounce_has_to_report_is_not_lost),
          cmocka_unit_test(damaged_and_busy_files_stay_where_they_are),
          cmocka_unit_test(nothing_is_done_while_postfix_runs),
          cmocka_unit_test(an_import_may_be_killed_at_each_call),
          cmocka_unit_test(an_export_may_be_killed_at_each_call),
          cmocka_unit_test(several_batches_may_be_killed))
