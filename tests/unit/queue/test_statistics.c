#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "log.h"
#include "mem.h"
#include "log_sink.h"
#include "statistics.h"

#define AT(seconds)                                                                                \
    {                                                                                              \
        (seconds) * US_PER_S                                                                       \
    }

static const struct statistics_line plain = {
    .spoolid = {"S11059230AbmKTNSaerpyH", 22},
    .name = {"11059230", 8},
    .word = "ok3",
    .channel = {"smtp", 4},
    .host = {"[127.0.0.1]", 11},
    .created = AT(1795180710),
    .listed = AT(1795180777),
};

static const char *printed(enum conf_statistics_format format, const struct statistics_line *line)
{
    static char text[8192];
    struct buf out;

    buf_init(&out, sizeof text - 1);
    statistics_print(&out, format, (struct wall)AT(1795180811), line);
    assert_false(out.failed);
    snprintf(text, sizeof text, "%.*s", SLICE_ARGS(buf_slice(&out)));
    buf_fini(&out);
    return text;
}

static void a_line_has_both_of_zmailers_forms(void **state)
{
    (void)state;
    assert_string_equal(printed(CONF_STATISTICS_FORMAT_CURRENT, &plain),
                        "S11059230AbmKTNSaerpyH 67 34 ok3 smtp/[127.0.0.1]\n");
    assert_string_equal(printed(CONF_STATISTICS_FORMAT_OLD, &plain),
                        "1795180710 11059230 67 34 ok3 smtp/[127.0.0.1]\n");
}

static void without_a_router_all_time_is_the_schedulers(void **state)
{
    struct statistics_line line = plain;

    (void)state;
    line.listed = (struct wall){0};
    assert_string_equal(printed(CONF_STATISTICS_FORMAT_CURRENT, &line),
                        "S11059230AbmKTNSaerpyH 0 101 ok3 smtp/[127.0.0.1]\n");
}

/* Programs split such lines at blanks. */
static void hostile_names_stay_one_field(void **state)
{
    struct statistics_line line = plain;
    char host[5000];
    const char *text;

    (void)state;
    line.host = SLICE("a b\n\tS1 0 0 ok x/y");
    assert_string_equal(printed(CONF_STATISTICS_FORMAT_CURRENT, &line),
                        "S11059230AbmKTNSaerpyH 67 34 ok3 smtp/a?b??S1?0?0?ok?x/y\n");
    memset(host, 'h', sizeof host);
    line.host = line.channel = line.spoolid = slice_of(host, sizeof host);
    text = printed(CONF_STATISTICS_FORMAT_CURRENT, &line);
    assert_int_equal(strlen(text), 3 * 1024 + strlen(" 67 34 ok3 /\n"));
}

/* ---- log_sinks ------------------------------------------------------------------------------- */

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
        cmocka_unit_test(a_line_has_both_of_zmailers_forms),
        cmocka_unit_test(without_a_router_all_time_is_the_schedulers),
        cmocka_unit_test(hostile_names_stay_one_field),
        cmocka_unit_test(a_full_file_loses_no_line_below_the_limit),
        cmocka_unit_test(lines_past_the_limit_are_counted),
        cmocka_unit_test(each_line_for_syslog_is_a_datagram),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
