#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "capture.h"
#include "control_example.h"
#include "mem.h"
#include "ta_job.h"

#define FILE_NAME "A/90417"

static char top[64];
static int ends[2];
static struct ta_agent agent;

/* ---- a postoffice --------------------------------------------------------------------------- */

static void write_file(const char *path, const char *bytes, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
    assert_int_equal(close(fd), 0);
}

static struct buf read_file(const char *path)
{
    struct buf bytes;

    buf_init(&bytes, 1 << 20);
    capture_read(path, &bytes);
    return bytes;
}

static void write_example(void)
{
    write_file(FILE_NAME, control_example, sizeof control_example - 1);
}

static int begin(void **state)
{
    char message[430];

    (void)state;
    (void)snprintf(top, sizeof top, "/tmp/test_ta_job.XXXXXX");
    if (mkdtemp(top) == NULL || chdir(top) != 0 || mkdir("transport", 0700) != 0 ||
        mkdir("queue", 0700) != 0 || mkdir("queue/A", 0700) != 0 ||
        mkdir("transport/A", 0700) != 0 || chdir("transport") != 0 ||
        socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
        return -1;
    }
    memset(message, 'h', 412);
    memcpy(message + 412, "flour, please\n", 14);
    write_file("../queue/" FILE_NAME, message, 426);
    write_example();
    ta_agent_init(&agent, "smtp", SLICE("smtp"), ends[1], ends[1]);
    agent.pid = 4711;
    return 0;
}

static int end(void **state)
{
    char command[100];

    (void)state;
    ta_agent_fini(&agent);
    (void)close(ends[0]);
    (void)close(ends[1]);
    (void)snprintf(command, sizeof command, "rm -rf %s", top);
    return chdir("/") == 0 ? system(command) : -1;
}

static void want_said(const char *want)
{
    char got[4000];
    ssize_t n = recv(ends[0], got, sizeof got - 1, MSG_DONTWAIT);

    got[n < 0 ? 0 : n] = '\0';
    assert_string_equal(got, want);
}

static void settle(struct ta_job *job, size_t i, const struct ta_job_result *result)
{
    ta_job_settle(job, i, result);
    ta_job_tell(job);
}

static void settle_rest(struct ta_job *job, const struct ta_job_result *result)
{
    ta_job_settle_rest(job, result);
    ta_job_tell(job);
}

static bool open_job(struct ta_job *job, const char *path, const char *host)
{
    struct ta_order order = {
        .type = TA_ORDER_JOB, .path = slice_string(path), .host = slice_string(host)};

    return ta_job_open(job, &agent, &order);
}

static void want_at(size_t offset, const char *want)
{
    struct buf bytes = read_file(FILE_NAME);

    assert_true(offset + strlen(want) <= buf_len(&bytes));
    assert_memory_equal(buf_slice(&bytes).ptr + offset, want, strlen(want));
    buf_fini(&bytes);
}

/* Nothing but tags and locks of the recipients and what is behind the end has changed. */
static void want_only_marks(void)
{
    static const size_t offsets[] = {115, 250, 325, 600};
    struct buf bytes = read_file(FILE_NAME);
    char *copy = mem_copy(buf_slice(&bytes).ptr, buf_len(&bytes));

    for (size_t i = 0; i < COUNT(offsets); i++) {
        memset(copy + offsets[i] + 1, ' ', CONTROL_MARK_MAX);
    }
    assert_memory_equal(copy, control_example, sizeof control_example - 1);
    mem_free(copy);
    buf_fini(&bytes);
}

static const struct ta_job_result delivered = {
    .outcome = TA_JOB_DELIVERED,
    .status = {"2.2.0 (Delivered successfully)", 30},
    .diagnostic = {"x-local; 250 (Delivered successfully)", 37},
    .remote = {"", 0},
    .text = {"Ok", 2},
};

static const struct ta_job_result failed = {
    .outcome = TA_JOB_FAILED,
    .status = {"5.1.1 (no such user)", 20},
    .diagnostic = {"smtp; 550 (user unknown)", 24},
    .remote = {"dns; oven.example", 17},
    .text = {"smtp; 550 user unknown", 22},
};

static const struct ta_job_result deferred = {
    .outcome = TA_JOB_DEFERRED,
    .status = {"4.3.0", 5},
    .diagnostic = {"smtp; 450 (Error: command failed)", 33},
    .remote = {"X-IP-addr; [127.0.0.4]", 22},
    .text = {"later\r->> 450 4.3.0", 19},
};

/* ---- the example ---------------------------------------------------------------------------- */

static void a_file_changes_byte_by_byte_as_the_example_says(void **state)
{
    struct ta_job first, second;
    struct buf bytes;
    struct slice line;
    char expected[500];

    (void)state;
    assert_true(open_job(&first, FILE_NAME, "MX1.grain.example"));
    assert_int_equal(first.rcpt_count, 2);
    assert_int_equal(first.number, 90417);
    want_at(115, "r~  4711    smtp mx1");
    want_at(250, "r~  4711    smtp mx1");
    want_at(325, "r           smtp oven");
    want_at(600, "r           local - storeman");

    settle(&first, 0, &delivered);
    want_said("90417/115\t\tok3 Ok\n");
    want_at(115, "r+          smtp mx1");
    want_at(250, "r~  4711    smtp mx1");

    assert_true(open_job(&second, FILE_NAME, "oven.example"));
    assert_int_equal(second.rcpt_count, 1);
    want_at(325, "r~  4711    smtp oven");
    settle(&second, 0, &failed);
    want_said("90417/325\t\terror2 smtp; 550 user unknown\n");
    want_at(325, "r-          smtp oven");
    ta_job_close(&second);

    ta_job_close(&first);
    want_at(250, "r           smtp mx1"); /* without a result it is unlocked */
    want_said("");
    want_only_marks();

    /* The appended line is the example's but for its time. */
    bytes = read_file(FILE_NAME);
    line = slice_skip(buf_slice(&bytes), sizeof control_example - 1);
    assert_true(line.len > 0 && line.ptr[line.len - 1] == '\n');
    (void)snprintf(expected, sizeof expected, "%.*s%.*s%s", 14, control_example_failed, 10,
                   line.ptr + 14, control_example_failed + 24);
    /* Recipient, headers and DSN are the first 14 bytes: "d 325:387:-1::", then 10 digits. */
    assert_true(slice_equal(line, slice_string(expected)));
    buf_fini(&bytes);
}

static void a_deferral_takes_the_lock_back_and_says_why(void **state)
{
    struct ta_job job;

    (void)state;
    assert_true(open_job(&job, FILE_NAME, "oven.example"));
    settle_rest(&job, &deferred);
    want_said("90417/325\t\"odd user\"@oven.example\1delayed\1"
              "4.3.0\1smtp; 450 (Error: command failed)\1X-IP-addr; [127.0.0.4]\1smtp[4711]"
              "\tdeferred later\r->> 450 4.3.0\n");
    ta_job_close(&job);
    want_at(0, control_example);
    want_only_marks();
}

static void success_is_noted_when_it_was_asked_for(void **state)
{
    static const struct {
        enum ta_job_outcome outcome;
        const char *said, *action;
    } table[] = {
        {TA_JOB_DELIVERED, "90417/115\t\tok2 Ok\n", "\1delivered\1"},
        {TA_JOB_RELAYED, "90417/115\t\tok2 Ok\n", "\1relayed\1"},
        {TA_JOB_PASSED, "90417/115\t\tok3 Ok\n", NULL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct ta_job_result result = delivered;
        char *file = mem_string(control_example);
        struct ta_job job;
        struct buf bytes;

        memcpy(strstr(file, "NOTIFY=FAILURE,"), "NOTIFY=SUCCESS,", 15);
        write_file(FILE_NAME, file, strlen(file));
        assert_true(open_job(&job, FILE_NAME, "mx1.grain.example"));
        result.outcome = table[i].outcome;
        settle(&job, 0, &result);
        want_said(table[i].said);
        bytes = read_file(FILE_NAME);
        if (table[i].action == NULL) {
            assert_int_equal(buf_len(&bytes), sizeof control_example - 1);
        } else {
            const char *line = buf_cstr(&bytes) + sizeof control_example - 1;

            assert_int_equal(strncmp(line, "d 115:387:176::", 15), 0);
            assert_non_null(strstr(line, table[i].action));
        }
        buf_fini(&bytes);
        ta_job_close(&job);
        mem_free(file);
    }
}

static void content_is_headers_an_empty_line_and_the_body(void **state)
{
    static struct ta_content content;
    struct slice piece;
    struct ta_job job;
    struct buf all;

    (void)state;
    agent.channel = SLICE("local");
    assert_true(open_job(&job, FILE_NAME, ""));
    assert_true(slice_equal(ta_job_sender(&job, 0), SLICE("miller@mill.example")));
    buf_init(&all, 1000);
    ta_content_init(&content, &job, 0);
    while (ta_content_read(&content, &piece) > 0) {
        assert_true(buf_add(&all, piece));
    }
    assert_string_equal(buf_cstr(&all), "From: miller@mill.example\nTo: storeman\n"
                                        "Subject: flour\n\nflour, please\n");
    buf_fini(&all);
    ta_job_close(&job);
}

/* ---- others at the same file ---------------------------------------------------------------- */

static void a_recipient_has_one_agent(void **state)
{
    struct ta_job first, second;

    (void)state;
    assert_true(open_job(&first, FILE_NAME, "oven.example"));
    assert_false(open_job(&second, FILE_NAME, "oven.example"));
    want_said("#resync " FILE_NAME "\n");
    want_at(325, "r~  4711    smtp oven");
    ta_job_close(&first);
    assert_true(open_job(&second, FILE_NAME, "oven.example"));
    ta_job_close(&second);
}

static void a_lock_that_was_taken_over_is_left_alone(void **state)
{
    struct ta_job job;
    int fd;

    (void)state;
    assert_true(open_job(&job, FILE_NAME, "oven.example"));
    fd = open(FILE_NAME, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "~ 12345", 7, 326), 7);
    assert_int_equal(close(fd), 0);
    ta_job_close(&job);
    want_at(325, "r~ 12345    smtp oven");
    want_said("# smtp[4711]: " FILE_NAME ": the lock at 325 is lost\n");
}

/* In place of the C library's. */
static int syncs;
static char synced_tag;
static int said_at_sync;

int fdatasync(int fd)
{
    if (pread(fd, &synced_tag, 1, 326) != 1 || ioctl(ends[0], FIONREAD, &said_at_sync) != 0) {
        synced_tag = '?';
    }
    syncs++;
    return (int)syscall(SYS_fdatasync, fd);
}

static void marks_are_on_disk_before_the_scheduler_hears(void **state)
{
    struct ta_job job;

    (void)state;
    syncs = 0;
    assert_true(open_job(&job, FILE_NAME, "oven.example"));
    ta_job_settle(&job, 0, &delivered);
    want_said("");
    want_at(325, "r+          smtp oven");
    ta_job_tell(&job);
    assert_int_equal(syncs, 1);
    assert_int_equal(synced_tag, '+');
    assert_int_equal(said_at_sync, 0);
    want_said("90417/325\t\tok3 Ok\n");
    ta_job_close(&job);
    assert_int_equal(syncs, 1);
    assert_true(open_job(&job, FILE_NAME, "mx1.grain.example"));
    ta_job_settle(&job, 0, &deferred); /* a lock that a power cut leaves is a dead one */
    ta_job_settle(&job, 1, &delivered);
    ta_job_close(&job); /* one sync for both */
    assert_int_equal(syncs, 2);
    assert_int_equal(said_at_sync, 0);
}

static void a_long_process_id_holds_its_lock(void **state)
{
    struct ta_job job, other;

    (void)state;
    agent.pid = 4194303;
    assert_true(open_job(&job, FILE_NAME, "oven.example"));
    want_at(325, "r~3ppppp    smtp oven");
    assert_false(open_job(&other, FILE_NAME, "oven.example"));
    settle_rest(&job, &delivered);
    want_at(325, "r+          smtp oven");
    ta_job_close(&job);
}

static void a_removed_file_is_no_job(void **state)
{
    struct ta_job job;

    (void)state;
    assert_true(open_job(&job, FILE_NAME, "oven.example"));
    assert_int_equal(unlink(FILE_NAME), 0);
    settle_rest(&job, &failed); /* into a file without a name: nothing breaks */
    ta_job_close(&job);
    want_said("90417/325\t\terror2 smtp; 550 user unknown\n");
    assert_false(open_job(&job, FILE_NAME, "oven.example"));
    want_said("#resync " FILE_NAME "\n");
}

/* ---- files that are not as they should be --------------------------------------------------- */

/* The file can't grow by as much as is to be appended, as on a full disk. */
static void limit_growth(rlim_t bytes)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes == 0 ? limit.rlim_max : sizeof control_example - 1 + bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_line_that_does_not_fit_leaves_nothing_behind(void **state)
{
    struct ta_job_result relayed = delivered;
    char *file = mem_string(control_example);
    struct ta_job job;

    (void)state;
    memcpy(strstr(file, "NOTIFY=FAILURE,"), "NOTIFY=SUCCESS,", 15);
    write_file(FILE_NAME, file, strlen(file));
    relayed.outcome = TA_JOB_RELAYED;
    assert_true(open_job(&job, FILE_NAME, "mx1.grain.example"));
    limit_growth(20);
    /* It was delivered: the scheduler is to note it. */
    settle(&job, 0, &relayed);
    limit_growth(0);
    want_said("#HELP! smtp[4711]: cannot append to " FILE_NAME ": No space left on device\n"
              "90417/115\tbaker@grain.example\1relayed\1"
              "2.2.0 (Delivered successfully)\1x-local; 250 (Delivered successfully)\1\1"
              "smtp[4711]\tok Ok\n");
    want_at(115, "r+          smtp mx1");
    /* It failed: nobody would hear of it, so it is tried again. */
    assert_true(job.stuck);
    settle(&job, 1, &failed);
    want_said("90417/250\tcook@grain.example\1failed\1"
              "5.1.1 (no such user)\1smtp; 550 (user unknown)\1dns; oven.example\1smtp[4711]"
              "\tdeferred smtp; 550 user unknown\n");
    want_at(250, "r           smtp mx1");
    ta_job_close(&job);
    assert_true(agent.stop);
    assert_int_equal(agent.exit_status, EX_IOERR);
    memcpy(file + 115, "r+", 2);
    struct buf bytes = read_file(FILE_NAME);
    assert_string_equal(buf_cstr(&bytes), file);
    buf_fini(&bytes);
    mem_free(file);
}

static void a_torn_line_is_ended_first(void **state)
{
    char *file = mem_new(sizeof control_example + 20);
    struct control_problem problem;
    struct control_file f;
    struct ta_job job;
    struct buf bytes;

    (void)state;
    (void)snprintf(file, sizeof control_example + 20, "%sd 115:387:17", control_example);
    write_file(FILE_NAME, file, strlen(file));
    assert_true(open_job(&job, FILE_NAME, "oven.example"));
    settle_rest(&job, &failed);
    ta_job_close(&job);
    bytes = read_file(FILE_NAME);
    assert_true(control_file_parse(buf_slice(&bytes), &f, &problem));
    assert_int_equal(f.diagnostic_count, 1);
    assert_int_equal(f.damaged_diagnostics, 1);
    assert_int_equal(f.diagnostics[0].rcpt, 325);
    control_file_fini(&f);
    buf_fini(&bytes);
    mem_free(file);
}

static void nothing_outside_is_opened(void **state)
{
    static const char *const paths[] = {
        "",        "/etc/passwd", "../queue/A/90417", "A/../A/90417", "A/B/C/90417",
        "a/90417", "A/.90417",    "A/x90417",         "A//90417",     "90417/x",
        "A/99999", "A/link1",     "A/9link",          "A/8dir",       "7fifo",
    };
    struct ta_job job;

    (void)state;
    assert_int_equal(symlink("90417", "A/9link"), 0);
    assert_int_equal(mkdir("A/8dir", 0700), 0);
    assert_int_equal(mkfifo("7fifo", 0600), 0);
    for (size_t i = 0; i < COUNT(paths); i++) {
        char said[4000];
        ssize_t n;

        assert_false(open_job(&job, paths[i], "oven.example"));
        n = recv(ends[0], said, sizeof said - 1, MSG_DONTWAIT);
        assert_true(n > 0);
        said[n] = '\0';
        assert_non_null(strstr(said, "#resync "));
    }
    want_at(0, control_example);
}

static void a_message_that_is_not_there_keeps_its_recipients(void **state)
{
    struct ta_job job;

    (void)state;
    assert_int_equal(truncate("../queue/" FILE_NAME, 411), 0);
    assert_false(open_job(&job, FILE_NAME, "oven.example"));
    want_said("# smtp[4711]: " FILE_NAME ": ../queue/" FILE_NAME
              ": shorter than the offset of its body\n#resync " FILE_NAME "\n");
    assert_int_equal(unlink("../queue/" FILE_NAME), 0);
    assert_false(open_job(&job, FILE_NAME, "oven.example"));
    want_said("# smtp[4711]: " FILE_NAME ": ../queue/" FILE_NAME
              ": No such file or directory\n#resync " FILE_NAME "\n");
    assert_int_equal(symlink("/etc/passwd", "../queue/" FILE_NAME), 0);
    assert_false(open_job(&job, FILE_NAME, "oven.example"));
    want_at(0, control_example);
}

/* Whatever byte is wrong: no crash, and no byte is written but marks and appended lines. */
static void any_byte_may_be_wrong(void **state)
{
    static const char wrong[] = {'\0', '\n', ' ', '~', '9', 'r', '(', '"', '\377'};

    (void)state;
    for (size_t at = 0; at < sizeof control_example - 1; at++) {
        char file[sizeof control_example];
        struct ta_job job;
        char drained[4000];

        memcpy(file, control_example, sizeof file);
        file[at] = wrong[at % sizeof wrong];
        write_file(FILE_NAME, file, sizeof file - 1);
        if (open_job(&job, FILE_NAME, "mx1.grain.example")) {
            settle(&job, 0, &failed);
            ta_job_close(&job);
        }
        while (recv(ends[0], drained, sizeof drained, MSG_DONTWAIT) > 0) {
        }
        struct buf bytes = read_file(FILE_NAME);
        const char *now = buf_slice(&bytes).ptr;

        for (size_t i = 0; i < sizeof file - 1; i++) {
            size_t in_line = 0;

            while (in_line < i && file[i - in_line - 1] != '\n') {
                in_line++;
            }
            if (now[i] != file[i] && (in_line < 1 || in_line > CONTROL_MARK_MAX)) {
                fail_msg("byte %zu was changed when byte %zu was wrong", i, at);
            }
        }
        buf_fini(&bytes);
    }
}

/* ---- files of ZMailer's --------------------------------------------------------------------- */

static void a_recorded_file(void **state)
{
    struct buf recorded =
        read_file(TEST_DATA_DIR "/zmailer/postoffice/data/30-control-file-in-flight.raw");
    struct buf after;
    struct ta_job job;

    (void)state;
    assert_int_equal(mkdir("X", 0700) + mkdir("X/S", 0700) + mkdir("../queue/X", 0700) +
                         mkdir("../queue/X/S", 0700),
                     0);
    write_file("X/S/11059300", buf_slice(&recorded).ptr, buf_len(&recorded));
    write_file("../queue/X/S/11059300", control_example, sizeof control_example - 1);
    assert_int_equal(truncate("../queue/X/S/11059300", 2000), 0);
    agent.pid = 15177;
    /* Done, failed, and held by another. */
    assert_false(open_job(&job, "X/S/11059300", "[127.0.0.1]"));
    assert_false(open_job(&job, "X/S/11059300", "[127.0.0.3]"));
    assert_false(open_job(&job, "X/S/11059300", "[127.0.0.5]"));
    want_said("#resync X/S/11059300\n#resync X/S/11059300\n#resync X/S/11059300\n");
    /* Its words are the recording's, but for the action: it is not failed. */
    assert_true(open_job(&job, "X/S/11059300", "[127.0.0.4]"));
    settle_rest(&job, &deferred);
    ta_job_close(&job);
    want_said("11059300/1462\te@soft.com\1delayed\1"
              "4.3.0\1smtp; 450 (Error: command failed)\1X-IP-addr; [127.0.0.4]\1smtp[15177]"
              "\tdeferred later\r->> 450 4.3.0\n");
    after = read_file("X/S/11059300");
    assert_true(slice_equal(buf_slice(&after), buf_slice(&recorded)));
    buf_fini(&after);
    buf_fini(&recorded);
}

static void alternatives_are_taken_in_turn(void **state)
{
    static const char file[] = "@ 0x00000007\ni 90417\no 4\nl <x@y>\ns local - rayan 7\n"
                               "X           1 smtp mx a@b 7\nX           1 smtp mx b@b 7\n"
                               "X           2 smtp mx c@b 7\nm\nSubject: x\n\n";
    struct ta_job job;

    (void)state;
    write_file(FILE_NAME, file, sizeof file - 1);
    assert_true(open_job(&job, FILE_NAME, "mx"));
    assert_int_equal(job.rcpt_count, 2);
    settle(&job, 0, &failed);
    settle(&job, 1, &delivered);
    ta_job_close(&job);
    want_at(51, "X-          1 smtp mx a@b 7\nX           1 smtp mx b@b 7\nX+ ");
    assert_true(open_job(&job, FILE_NAME, "mx"));
    assert_int_equal(job.rcpt_count, 1);
    assert_true(slice_equal(job.rcpts[0].rcpt->address.user, SLICE("b@b")));
    settle(&job, 0, &delivered);
    ta_job_close(&job);
    assert_false(open_job(&job, FILE_NAME, "mx"));
}

/* Without the format line: the columns of the lock alone, or none at all. */
static void old_files(void **state)
{
    static const char with[] = "i 90417\no 4\nl <x@y>\ns local - rayan 7\nr       smtp mx a@b 7\n"
                               "m\nSubject: a control file\n\n";
    static const char without[] = "i 90417\no 4\nl <x@y>\ns local - rayan 7\nr smtp mx a@b 7\n"
                                  "m\nSubject: a control file\n\n";
    struct ta_job job;

    (void)state;
    write_file(FILE_NAME, with, sizeof with - 1);
    assert_true(open_job(&job, FILE_NAME, "mx"));
    want_at(38, "r~  4711smtp mx");
    settle_rest(&job, &delivered);
    ta_job_close(&job);
    want_at(38, "r+      smtp mx");

    write_file(FILE_NAME, without, sizeof without - 1);
    assert_true(open_job(&job, FILE_NAME, "mx"));
    want_at(0, without);
    settle_rest(&job, &delivered);
    ta_job_close(&job);
    want_at(38, "r+smtp mx");
    want_said("90417/38\t\tok3 Ok\n90417/38\t\tok3 Ok\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

UNIT_MAIN(TEST(a_file_changes_byte_by_byte_as_the_example_says),
          TEST(a_deferral_takes_the_lock_back_and_says_why),
          TEST(success_is_noted_when_it_was_asked_for),
          TEST(content_is_headers_an_empty_line_and_the_body), TEST(a_recipient_has_one_agent),
          TEST(a_lock_that_was_taken_over_is_left_alone),
          TEST(marks_are_on_disk_before_the_scheduler_hears),
          TEST(a_long_process_id_holds_its_lock), TEST(a_removed_file_is_no_job),
          TEST(a_line_that_does_not_fit_leaves_nothing_behind), TEST(a_torn_line_is_ended_first),
          TEST(nothing_outside_is_opened), TEST(a_message_that_is_not_there_keeps_its_recipients),
          TEST(any_byte_may_be_wrong), TEST(alternatives_are_taken_in_turn), TEST(a_recorded_file),
          TEST(old_files))
