#include "log_sink.h"

#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mem.h"

static struct slice read_all(int fd)
{
    static char text[4u << 20];
    size_t len = 0;
    ssize_t n;

    while ((n = read(fd, text + len, sizeof text - len)) > 0) {
        len += (size_t)n;
    }
    return slice_of(text, len);
}

/* A pipe that nobody empties is a full disk that comes back. */
static void a_full_file_loses_no_line_below_the_limit(void **state)
{
    struct slice got;
    struct log_sink o;
    int fds[2];
    char *line;

    (void)state;
    assert_int_equal(pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
    log_sink_init(&o, LOG_SINK_STATISTICS);
    log_sink_add(&o, SLICE("nobody has opened it\n"));
    log_sink_adopt(&o, fds[1]);
    line = mem_array(100001, 1);
    memset(line, 'x', 99999);
    line[99999] = '\n';
    for (int i = 0; i < 8; i++) {
        log_sink_add(&o, slice_of(line, 100000));
        log_sink_flush(&o);
    }
    assert_true(o.stuck);
    assert_int_equal(o.lost, 0);
    for (size_t total = 0; total < 800000; total += got.len) {
        got = read_all(fds[0]);
        assert_true(got.len > 0);
        for (size_t i = 0; i < got.len; i++) {
            assert_int_equal(got.ptr[i], (total + i) % 100000 == 99999 ? '\n' : 'x');
        }
        log_sink_flush(&o);
    }
    assert_false(o.stuck);
    mem_free(line);
    log_sink_fini(&o);
    assert_int_equal(read_all(fds[0]).len, 0);
    close(fds[0]);
}

static void lines_past_the_limit_are_counted(void **state)
{
    static char line[LOG_SINK_MAX / 4];
    struct log_sink o;
    int fds[2];

    (void)state;
    assert_int_equal(pipe2(fds, O_NONBLOCK | O_CLOEXEC), 0);
    log_sink_init(&o, LOG_SINK_STATISTICS);
    log_sink_adopt(&o, fds[1]);
    memset(line, 'y', sizeof line);
    line[sizeof line - 1] = '\n';
    for (int i = 0; i < 7; i++) {
        log_sink_add(&o, slice_of(line, sizeof line));
    }
    assert_int_equal(o.lost, 3);
    log_sink_add(&o, SLICE(""));
    for (int i = 0; i < 1000 && (i == 0 || o.stuck); i++) {
        log_sink_flush(&o);
        (void)read_all(fds[0]);
    }
    assert_false(o.stuck);
    assert_int_equal(o.lost, 0); /* told */
    log_sink_fini(&o);
    close(fds[0]);
}

static void each_line_for_syslog_is_a_datagram(void **state)
{
    struct log_sink o;
    char got[100];
    int fds[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, fds), 0);
    log_sink_init(&o, LOG_SINK_SYSLOG);
    log_sink_adopt(&o, fds[1]);
    log_sink_add(&o, SLICE("one\n"));
    log_sink_add(&o, SLICE("two words\n"));
    log_sink_flush(&o);
    assert_int_equal(recv(fds[0], got, sizeof got, MSG_DONTWAIT), 3);
    assert_int_equal(recv(fds[0], got, sizeof got, MSG_DONTWAIT), 9);
    assert_memory_equal(got, "two words", 9);
    assert_int_equal(recv(fds[0], got, sizeof got, MSG_DONTWAIT), -1);
    log_sink_fini(&o);
    close(fds[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_file_loses_no_line_below_the_limit),
        cmocka_unit_test(lines_past_the_limit_are_counted),
        cmocka_unit_test(each_line_for_syslog_is_a_datagram),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
