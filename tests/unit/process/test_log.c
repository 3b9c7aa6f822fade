#include "unit.h"

#include <fcntl.h>
#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"
#include "mem.h"

static char directory[] = "/tmp/sluice-test-log-XXXXXX";

static void open_log(const char *where)
{
    struct buf error;

    buf_init(&error, 1000);
    assert_true(log_open(where, directory, "postfix", "qmgr", &error));
    buf_fini(&error);
}

/* What is in the file `name` of the directory. */
static struct buf content(const char *name)
{
    char path[200];
    struct buf b;
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "%s/%s", directory, name);
    buf_init(&b, 8u << 20);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    while ((n = read(fd, buf_room(&b, 65536), 65536)) > 0) {
        buf_grew(&b, (size_t)n);
    }
    close(fd);
    return b;
}

static void remove_log(const char *name)
{
    char path[200];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    assert_int_equal(unlink(path), 0);
}

static bool matches(const char *pattern, const char *text)
{
    regex_t compiled;
    bool ok;

    assert_int_equal(regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB), 0);
    ok = regexec(&compiled, text, 0, NULL, 0) == 0;
    regfree(&compiled);
    return ok;
}

static void a_line_has_postfix_form(void **state)
{
    struct buf b;

    (void)state;
    open_log("file:form");
    log_as("smtp", 4711, "%s: to=<%s>", "4Vq", "a@b.test");
    log_warning("it is late");
    log_flush();
    b = content("form");
    assert_true(matches("^[A-Z][a-z]{2} [ 1-3][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2} [^ ]+ "
                        "postfix/smtp\\[4711\\]: 4Vq: to=<a@b\\.test>\n"
                        "[A-Z][a-z]{2} .* postfix/qmgr\\[[0-9]+\\]: warning: it is late\n$",
                        buf_cstr(&b)));
    buf_fini(&b);
    remove_log("form");
}

static void text_from_outside_stays_on_its_line(void **state)
{
    struct buf b;

    (void)state;
    open_log("file:outside");
    log_info("a\nNov 21 forged\x1b[31m\x7f caf\xc3\xa9 \xff \xe2\x80\xae\xe2\x80\xa8\rx");
    log_flush();
    b = content("outside");
    assert_non_null(strstr(buf_cstr(&b), ": a?Nov 21 forged?[31m? caf\xc3\xa9 ? ?????? x\n"));
    buf_fini(&b);
    remove_log("outside");
}

static void a_long_line_is_cut(void **state)
{
    char *text = mem_new(2 * LOG_LINE_MAX);
    struct buf b;

    (void)state;
    memset(text, 'x', 2 * LOG_LINE_MAX - 1);
    open_log("file:long");
    log_info("%s", text);
    log_info("next");
    log_flush();
    b = content("long");
    assert_true(slice_find(buf_slice(&b), '\n') < LOG_LINE_MAX);
    assert_non_null(strstr(buf_cstr(&b), "]: next\n"));
    buf_fini(&b);
    mem_free(text);
    remove_log("long");
}

static void levels_below_the_least_are_left_out(void **state)
{
    struct buf b;

    (void)state;
    open_log("file:level");
    log_debug("hidden");
    log_set_level(LOG_LEVEL_DEBUG);
    log_debug("shown");
    log_set_level(LOG_LEVEL_INFO);
    log_flush();
    b = content("level");
    assert_null(strstr(buf_cstr(&b), "hidden"));
    assert_non_null(strstr(buf_cstr(&b), "shown"));
    buf_fini(&b);
    remove_log("level");
}

static void a_bad_destination_leaves_the_old_one(void **state)
{
    static const char *const bad[] = {"nowhere", "file:missing/log", ""};
    struct buf error, b;

    (void)state;
    open_log("file:old");
    buf_init(&error, 1000);
    for (size_t i = 0; i < COUNT(bad); i++) {
        buf_clear(&error);
        assert_false(log_open(bad[i], directory, "postfix", "qmgr", &error));
        assert_true(buf_len(&error) > 0);
    }
    buf_fini(&error);
    log_info("still here");
    log_flush();
    b = content("old");
    assert_non_null(strstr(buf_cstr(&b), "still here"));
    buf_fini(&b);
    remove_log("old");
}

static void a_rotated_file_is_opened_again(void **state)
{
    struct buf b;
    int shared;

    (void)state;
    open_log("file:rotated");
    log_info("one");
    log_flush();
    assert_false(log_moved());
    remove_log("rotated");
    assert_true(log_moved());
    log_info("two");
    log_reopen(); /* what waits still goes to the old one */
    log_info("three");
    log_flush();
    b = content("rotated");
    assert_null(strstr(buf_cstr(&b), "two"));
    assert_non_null(strstr(buf_cstr(&b), "three"));
    buf_fini(&b);
    shared = log_share();
    assert_true(shared >= 0);
    log_adopt(shared);
    log_info("four");
    log_flush();
    b = content("rotated");
    assert_non_null(strstr(buf_cstr(&b), "four"));
    buf_fini(&b);
    remove_log("rotated");
}

/* Nobody reads standard error: the process goes on, the lines are counted. */
static void a_stuck_reader_stops_nothing(void **state)
{
    int saved = dup(STDERR_FILENO), fds[2];
    char bytes[65536];
    struct buf all;
    ssize_t n;

    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
    close(fds[1]);
    open_log("stderr");
    for (unsigned i = 0; i < 60000; i++) {
        if (i % 10 == 0) {
            log_as("smtp", 1, "delivery %u", i); /* these have the other half of the buffer */
        }
        log_info("line %u of many that are long enough to fill the buffer after a while", i);
        if (i % 100 == 0) {
            log_flush();
        }
    }
    assert_true(log_waiting());

    assert_int_equal(fcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
    buf_init(&all, 16u << 20);
    while (log_waiting()) {
        log_flush();
        while ((n = read(fds[0], bytes, sizeof bytes)) > 0) {
            assert_true(buf_add(&all, slice_of(bytes, (size_t)n)));
        }
    }
    log_info("after");
    log_flush();
    n = read(fds[0], bytes, sizeof bytes);
    assert_true(n > 0 && buf_add(&all, slice_of(bytes, (size_t)n)));
    assert_true(matches("warning: [0-9]+ log lines were lost, 0 of them of deliveries or warnings: "
                        "the log does not take them as fast as they come\n.*: after\n$",
                        buf_cstr(&all)));
    assert_non_null(strstr(buf_cstr(&all), ": delivery 59990\n"));
    buf_fini(&all);

    close(fds[0]); /* and now it is gone */
    log_info("to nobody");
    log_flush();
    assert_false(log_waiting());
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(saved);
}

static int make_directory(void **state)
{
    (void)state;
    return signal(SIGPIPE, SIG_IGN) == SIG_ERR || mkdtemp(directory) == NULL ? -1 : 0;
}

static int remove_directory(void **state)
{
    (void)state;
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_has_postfix_form),
        cmocka_unit_test(text_from_outside_stays_on_its_line),
        cmocka_unit_test(a_long_line_is_cut),
        cmocka_unit_test(levels_below_the_least_are_left_out),
        cmocka_unit_test(a_bad_destination_leaves_the_old_one),
        cmocka_unit_test(a_rotated_file_is_opened_again),
        cmocka_unit_test(a_stuck_reader_stops_nothing),
    };

    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
