#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "capture.h"
#include "mbox.h"
#include "mem.h"

#define FROM  "From a@b.test Thu Jan  1 00:00:01 1970\n"
#define HEADS "Return-Path: <a@b.test>\nDelivered-To: joe\n"

static char top[64], path[80];

static int make_top(void **state)
{
    (void)state;
    (void)snprintf(top, sizeof top, "/tmp/test_mbox.XXXXXX");
    if (mkdtemp(top) == NULL) {
        return -1;
    }
    (void)snprintf(path, sizeof path, "%s/joe", top);
    return setenv("TZ", "UTC", 1);
}

static int remove_top(void **state)
{
    char command[100];

    (void)state;
    (void)snprintf(command, sizeof command, "rm -rf %s", top);
    return system(command);
}

/* Content in pieces of one size; may fail at its end. */
struct source {
    struct slice rest;
    size_t piece;
    int end;
};

static int read_source(void *arg, struct slice *ret_piece)
{
    struct source *s = arg;
    size_t len = s->rest.len < s->piece ? s->rest.len : s->piece;

    if (len == 0) {
        return s->end;
    }
    *ret_piece = slice_of(s->rest.ptr, len);
    s->rest = slice_skip(s->rest, len);
    return 1;
}

static int deliver_pieces(const char *content, size_t piece, int end, struct buf *why)
{
    struct source source = {.rest = slice_string(content), .piece = piece, .end = end};
    struct mbox_mail mail = {
        .copy = {.path = path,
                 .sender = SLICE("a@b.test"),
                 .recipient = SLICE("joe"),
                 .now = {US_PER_S}},
        .dot_lock = true,
        .lock_wait_s = 0,
    };

    return mbox_deliver(&mail, read_source, &source, why);
}

static void deliver_fails(int want, const char *want_why)
{
    struct buf why;

    buf_init(&why, 1000);
    assert_int_equal(deliver_pieces("x\n", 100, 0, &why), want);
    if (strstr(buf_cstr(&why), want_why) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", buf_cstr(&why), want_why);
    }
    buf_fini(&why);
}

static void deliver(const char *content, size_t piece)
{
    struct buf why;

    buf_init(&why, 1000);
    if (deliver_pieces(content, piece, 0, &why) != 0) {
        fail_msg("%s", buf_cstr(&why));
    }
    buf_fini(&why);
}

static void want_file(const char *want)
{
    struct buf got;

    buf_init(&got, 1 << 20);
    capture_read(path, &got);
    assert_string_equal(buf_cstr(&got), want);
    buf_fini(&got);
}

static void put_file(const char *bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_int_equal(write(fd, bytes, strlen(bytes)), strlen(bytes));
    assert_int_equal(close(fd), 0);
}

static size_t file_count(void)
{
    DIR *dir = opendir(top);
    size_t count = 0;

    while (readdir(dir) != NULL) {
        count++;
    }
    assert_int_equal(closedir(dir), 0);
    return count - 2;
}

static void messages_stand_one_behind_the_other(void **state)
{
    struct stat st;

    (void)state;
    deliver("Subject: 1\r\n\r\none\r\n", 100);
    deliver("Subject: 2\n\ntwo", 3);
    want_file(FROM HEADS "Subject: 1\n\none\n\n" FROM HEADS "Subject: 2\n\ntwo\n\n");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(file_count(), 1); /* no lock is left */
}

static void a_line_that_would_begin_a_message_is_quoted_at_any_split(void **state)
{
    static const char in[] = "From x\n>From y\n>>From z\nFrom\n>Fro m\n>\n\nFromage\n From \nFrom ";
    static const char out[] =
        FROM HEADS ">From x\n>>From y\n>>>From z\nFrom\n>Fro m\n>\n\nFromage\n"
                   " From \n>From \n\n";

    (void)state;
    for (size_t piece = 1; piece < sizeof in; piece++) {
        (void)unlink(path);
        deliver(in, piece);
        want_file(out);
    }
}

static void a_line_of_many_angles_takes_no_memory(void **state)
{
    char *in = mem_new(200001);

    (void)state;
    memset(in, '>', 200000);
    deliver(in, 65536);
    mem_free(in);
}

static void what_stood_before_is_separated(void **state)
{
    static const char *const before[][2] = {
        {"", ""}, {"x", "x\n\n"}, {"x\n", "x\n\n"}, {"x\n\n", "x\n\n"}, {"\n", "\n"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(before); i++) {
        char want[200];

        put_file(before[i][0]);
        deliver("s\n", 10);
        (void)snprintf(want, sizeof want, "%s" FROM HEADS "s\n\n", before[i][1]);
        want_file(want);
    }
}

static void what_fails_leaves_the_file_as_it_was(void **state)
{
    struct rlimit limit;
    struct buf why;
    char *large = mem_new(300001);

    (void)state;
    put_file("mine\n\n");
    buf_init(&why, 1000);
    memset(large, 'x', 300000);
    assert_int_equal(deliver_pieces(large, 65536, -EIO, &why), -EIO);
    want_file("mine\n\n");

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = 100000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(deliver_pieces(large, 65536, 0, &why), -EFBIG);
    limit.rlim_cur = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    want_file("mine\n\n");
    assert_int_equal(mbox_status(-EFBIG).class, STATUS_TRANSIENT);
    assert_int_equal(file_count(), 1);
    buf_fini(&why);
    mem_free(large);
}

static void files_that_are_not_the_users_own_are_refused(void **state)
{
    char other[100];

    (void)state;
    (void)snprintf(other, sizeof other, "%s/other", top);
    assert_int_equal(symlink("other", path), 0);
    deliver_fails(-ELOOP, "open");
    assert_int_equal(access(other, F_OK), -1);
    assert_int_equal(unlink(path), 0);

    put_file("mine\n");
    assert_int_equal(link(path, other), 0);
    deliver_fails(-EPERM, "one name");
    assert_int_equal(unlink(other), 0);
    want_file("mine\n");

    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    deliver_fails(-EPERM, "regular file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    deliver_fails(-EISDIR, "open");
    assert_int_equal(rmdir(path), 0);
    if (geteuid() == 0) {
        put_file("theirs\n");
        assert_int_equal(chown(path, 12345, 12345), 0);
        deliver_fails(-EPERM, "of the user's");
        want_file("theirs\n");
    }
}

static void a_locked_mailbox_is_waited_for_and_then_left(void **state)
{
    char lock[100];
    struct timespec old[2] = {{.tv_sec = time(NULL) - 2 * MBOX_LOCK_STALE_S}, {0}};
    int go[2], fd, status;
    pid_t pid;

    (void)state;
    (void)snprintf(lock, sizeof lock, "%s.lock", path);
    fd = open(lock, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(close(fd), 0);
    deliver_fails(-EAGAIN, "joe.lock");
    assert_int_equal(access(path, F_OK), -1);
    /* One that nobody has touched for long is nobody's. */
    old[1] = old[0];
    assert_int_equal(utimensat(AT_FDCWD, lock, old, 0), 0);
    deliver_fails(-EAGAIN, "joe.lock"); /* no time to try again */
    deliver("one\n", 10);
    want_file(FROM HEADS "one\n\n");

    assert_int_equal(pipe(go), 0);
    pid = fork();
    if (pid == 0) {
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

        fd = open(path, O_RDWR | O_CLOEXEC);
        (void)close(go[0]);
        if (fcntl(fd, F_SETLK, &whole) != 0 || write(go[1], "x", 1) != 1) {
            _exit(1);
        }
        for (;;) {
            (void)pause();
        }
    }
    assert_int_equal(read(go[0], lock, 1), 1);
    deliver_fails(-EAGAIN, "lock");
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    deliver("two\n", 10);
    want_file(FROM HEADS "one\n\n" FROM HEADS "two\n\n");
    (void)close(go[0]);
    (void)close(go[1]);
}

static void null_takes_everything(void **state)
{
    (void)state;
    (void)snprintf(path, sizeof path, "/dev/null");
    struct source source = {.rest = SLICE("x\n"), .piece = 1};
    struct mbox_mail mail = {.copy = {.path = path, .sender = SLICE(""), .recipient = SLICE("x")}};
    struct buf why;

    buf_init(&why, 1000);
    assert_int_equal(mbox_deliver(&mail, read_source, &source, &why), 0);
    assert_int_equal(source.rest.len, 0);
    buf_fini(&why);
}

static void a_sender_is_one_word_of_the_line(void **state)
{
    struct buf out;

    (void)state;
    buf_init(&out, 1000);
    mbox_put_from(&out, SLICE(""), (struct wall){0});
    mbox_put_from(&out, SLICE("\"a b\nFrom c\"@d"), (struct wall){0});
    assert_string_equal(buf_cstr(&out), "From MAILER-DAEMON Thu Jan  1 00:00:00 1970\n"
                                        "From \"a_b_From_c\"@d Thu Jan  1 00:00:00 1970\n");
    buf_fini(&out);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_top, remove_top)

UNIT_MAIN(TEST(messages_stand_one_behind_the_other),
          TEST(a_line_that_would_begin_a_message_is_quoted_at_any_split),
          TEST(a_line_of_many_angles_takes_no_memory), TEST(what_stood_before_is_separated),
          TEST(what_fails_leaves_the_file_as_it_was),
          TEST(files_that_are_not_the_users_own_are_refused),
          TEST(a_locked_mailbox_is_waited_for_and_then_left), TEST(null_takes_everything),
          TEST(a_sender_is_one_word_of_the_line))
