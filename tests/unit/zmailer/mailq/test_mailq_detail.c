#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "mailq_detail.h"

static const char control[] = "@ 0x00000007\ni 90417\no 46\nl <m@x>\ne miller@mill.example\n"
                              "s local - miller@mill.example 1204\n"
                              "r           smtp mx1 baker@grain.example 65534\n"
                              "r           smtp mx1 \"odd user\"@oven.example 65534\n"
                              "m\nSubject: flour\n\n";

static char top[] = "/tmp/mailq-detail-XXXXXX";
static uint64_t offsets[2];

static void write_file(const char *name, const char *text)
{
    char path[200];
    FILE *file;

    assert_true(snprintf(path, sizeof path, "%s/%s", top, name) > 0);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void remove_file(const char *name)
{
    char path[200];

    assert_true(snprintf(path, sizeof path, "%s/%s", top, name) > 0);
    assert_int_equal(remove(path), 0);
}

static void make_directory(const char *name)
{
    char path[200];

    assert_true(snprintf(path, sizeof path, "%s/%s", top, name) > 0);
    assert_int_equal(mkdir(path, 0700), 0);
}

static int set_up(void **unused)
{
    const char *at = strstr(control, "\nr ");
    char path[200];
    /* 2026-11-20 12:00:00 */
    const struct timespec times[2] = {{.tv_sec = 1795176000}, {.tv_sec = 1795176000}};

    (void)unused;
    if (mkdtemp(top) == NULL) {
        return -1;
    }
    offsets[0] = (uint64_t)(at - control) + 1;
    offsets[1] = (uint64_t)(strstr(at + 1, "\nr ") - control) + 1;
    make_directory("transport");
    make_directory("transport/A");
    make_directory("queue");
    make_directory("queue/A");
    write_file("transport/A/90417", control);
    write_file("transport/A/90418", "i 90418\n");
    write_file("queue/A/90417", "the message");
    assert_true(snprintf(path, sizeof path, "%s/queue/A/90417", top) > 0);
    return utimensat(AT_FDCWD, path, times, 0);
}

static int tear_down(void **unused)
{
    static const char *const names[] = {
        "transport/A/90417", "transport/A/90418", "transport/A", "transport",
        "queue/A/90417",     "queue/A",           "queue",       ""};

    (void)unused;
    for (size_t i = 0; i < COUNT(names); i++) {
        remove_file(names[i]);
    }
    return 0;
}

static void assert_detail_at(const struct mailq_row *row, int64_t now_s, bool sizes,
                             const char *want)
{
    struct buf out;

    buf_init(&out, 10000);
    mailq_detail_put(&out, top, now_s, row, sizes);
    assert_string_equal(buf_cstr(&out), want);
    buf_fini(&out);
}

static void assert_detail(const struct mailq_row *row, const char *want)
{
    assert_detail_at(row, 1795176058, false, want);
}

static void what_a_control_file_says(void **unused)
{
    struct mailq_row row = {.path = "A/90417", .offsets = offsets, .count = 2};
    char want[1000];

    (void)unused;
    assert_detail(&row, "\t  id\t<m@x>\n\t  from\tmiller@mill.example\n"
                        "\t  to\tbaker@grain.example\n\t\t\"odd user\"@oven.example\n");
    row.is_short = true;
    row.tries = 2;
    row.expires = true;
    row.expires_in_s = 3542;
    row.count = 1;
    row.diagnostic = "smtp; 466 (no)\r<<- RCPT\x1b";
    assert_true(snprintf(want, sizeof want,
                         "\tA/90417: (2 tries, age 58s, expires in 59m2s, %zu+11 bytes)\n"
                         "\t  id\t<m@x>\n\t  from\tmiller@mill.example\n"
                         "\t  to\tbaker@grain.example\n"
                         "\t  diag\tsmtp; 466 (no)\n\t  diag\t<<- RCPT?\n",
                         strlen(control)) > 0);
    assert_detail(&row, want);
}

static void more_words_have_size_and_age_in_version_1_only(void **unused)
{
    static const struct {
        int64_t age;
        const char *want;
    } cases[] = {
        {0, "0s"},        {58, "58s"},    {60, "60s"},      {61, "1m1s"},      {3600, "60m0s"},
        {3661, "1h1m1s"}, {7200, "2h0s"}, {86400, "24h0s"}, {90061, "1d1h1m"}, {172800, "2d0s"},
    };
    struct mailq_row row = {.path = "A/90417", .offsets = offsets, .count = 1};
    char want[1000];

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_true(snprintf(want, sizeof want,
                             "\t  id\t<m@x>, 11 bytes, age %s\n\t  from\tmiller@mill.example\n"
                             "\t  to\tbaker@grain.example\n",
                             cases[i].want) > 0);
        assert_detail_at(&row, 1795176000 + cases[i].age, true, want);
    }
    row.is_short = true;
    assert_true(snprintf(want, sizeof want,
                         "\tA/90417: (0 tries, age 58s, %zu+11 bytes)\n"
                         "\t  id\t<m@x>\n\t  from\tmiller@mill.example\n"
                         "\t  to\tbaker@grain.example\n",
                         strlen(control)) > 0);
    assert_detail_at(&row, 1795176058, true, want);
}

static void what_can_not_be_read_is_said(void **unused)
{
    static const struct {
        const char *path, *want;
    } cases[] = {
        {"A/90419", "\t  (control file)\tNo such file or directory\n"},
        {"A/90418", "\t  (control file)\tit is damaged\n"},
        {"A/../A/90417", "\t  (control file)\tthe server names no control file\n"},
        {"/etc/passwd", "\t  (control file)\tthe server names no control file\n"},
        {"../1/2", "\t  (control file)\tthe server names no control file\n"},
        {"1/../../2", "\t  (control file)\tthe server names no control file\n"},
        {"", "\t  (control file)\tthe server names no control file\n"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_detail(&(struct mailq_row){.path = cases[i].path, .offsets = offsets, .count = 1},
                      cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_control_file_says),
        cmocka_unit_test(more_words_have_size_and_age_in_version_1_only),
        cmocka_unit_test(what_can_not_be_read_is_said),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
