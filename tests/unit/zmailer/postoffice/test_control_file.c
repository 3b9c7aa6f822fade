#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "capture.h"
#include "control_example.h"
#include "control_file.h"
#include "envelope.h"

static void assert_slice(struct slice got, const char *want)
{
    if (!slice_equal(got, slice_string(want))) {
        fail_msg("\"%.*s\" instead of \"%s\"", SLICE_ARGS(got), want);
    }
}

static void parse_ok(struct slice bytes, struct control_file *f)
{
    struct control_problem problem = {0};

    if (!control_file_parse(bytes, f, &problem)) {
        fail_msg("offset %llu: expected %s", (unsigned long long)problem.offset, problem.expected);
    }
}

static void a_file_from_the_router(void **unused)
{
    const uint64_t offsets[] = {115, 250, 325, 600};
    struct control_file f;

    (void)unused;
    assert_int_equal(sizeof control_example - 1, 690);
    parse_ok(slice_string(control_example), &f);
    assert_slice(f.name, "90417");
    assert_int_equal(f.body_at, 412);
    assert_slice(f.log_id, "<20240305.0912@mill.example>");
    assert_slice(f.error_to, "miller@mill.example");
    assert_int_equal(f.ret, CONTROL_RET_HEADERS);
    assert_slice(f.envid, "ENV+2B77");
    assert_false(f.is_bounce);
    assert_int_equal(f.group_count, 2);
    assert_int_equal(f.groups[0].headers_at, 387);
    assert_int_equal(f.groups[0].headers.len, 542 - 387);
    assert_int_equal(f.rcpt_count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(f.rcpts[i].offset, offsets[i]);
        assert_int_equal(f.rcpts[i].tag, ' ');
        assert_true(f.rcpts[i].open && f.rcpts[i].has_lock);
        assert_ptr_equal(control_file_find(&f, offsets[i]), &f.rcpts[i]);
        assert_null(control_file_find(&f, offsets[i] + 1));
    }
    assert_slice(f.rcpts[0].dsn, "NOTIFY=FAILURE,DELAY ORCPT=rfc822;baker@grain.example");
    assert_int_equal(f.rcpts[0].dsn_at, 176);
    assert_int_equal(f.rcpts[2].dsn_at, CONTROL_NONE);
    assert_slice(f.rcpts[2].address.host, "oven.example");
    assert_slice(f.rcpts[2].address.user, "\"odd user\"@oven.example");
    assert_int_equal(f.rcpts[2].address.uid, 65534);
    assert_slice(f.rcpts[3].address.channel, "local");
    assert_slice(f.rcpts[3].address.host, "-");
    assert_int_equal(f.rcpts[3].group, 1);
    control_file_fini(&f);
}

static void write_at(char *bytes, uint64_t offset, const char *tag_and_lock, size_t len)
{
    memcpy(bytes + offset + 1, tag_and_lock, len);
}

static void a_lock_names_its_process_whatever_its_number(void **unused)
{
    static const struct {
        int64_t pid;
        const char *columns; /* NULL: there is none such */
    } cases[] = {
        {1, "     1"},       {4711, "  4711"},    {999999, "999999"},
        {1000000, "0pecea"}, {1048576, "1aaaaa"}, {4194303, "3ppppp"},
        {4194304, NULL},     {0, NULL},           {INT64_C(1) << 32, NULL},
    };
    char bytes[sizeof control_example], mark[CONTROL_MARK_MAX];
    struct control_file f;

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        size_t len;

        memcpy(bytes, control_example, sizeof control_example);
        parse_ok(slice_string(bytes), &f);
        len = control_mark(&f.rcpts[1], '~', cases[i].pid, mark);
        control_file_fini(&f);
        assert_int_equal(len, cases[i].columns != NULL ? CONTROL_MARK_MAX : 0);
        if (len > 0) {
            assert_memory_equal(mark + 1, cases[i].columns, CONTROL_MARK_MAX - 1);
            write_at(bytes, 250, mark, len);
            parse_ok(slice_string(bytes), &f);
            assert_int_equal(f.rcpts[1].lock_pid, cases[i].pid);
            control_file_fini(&f);
        }
    }
    memcpy(bytes, control_example, sizeof control_example);
    write_at(bytes, 250, "~0aaaab", CONTROL_MARK_MAX); /* that number has digits enough */
    parse_ok(slice_string(bytes), &f);
    assert_int_equal(f.rcpts[1].lock_pid, 0);
    control_file_fini(&f);
}

static void a_file_in_delivery(void **unused)
{
    char bytes[sizeof control_example + sizeof control_example_failed], mark[CONTROL_MARK_MAX];
    const struct control_diagnostic *d;
    struct control_file f;
    struct buf out;

    (void)unused;
    memcpy(bytes, control_example, sizeof control_example);
    memcpy(bytes + sizeof control_example - 1, control_example_failed,
           sizeof control_example_failed);
    parse_ok(slice_string(control_example), &f);
    write_at(bytes, 115, mark, control_mark(&f.rcpts[0], '+', 0, mark));
    write_at(bytes, 250, mark, control_mark(&f.rcpts[1], '~', 4711, mark));
    write_at(bytes, 325, mark, control_mark(&f.rcpts[2], '-', 0, mark));
    control_file_fini(&f);
    assert_memory_equal(bytes + 115, "r+          smtp", 16);
    assert_memory_equal(bytes + 250, "r~  4711    smtp", 16);
    assert_memory_equal(bytes + 325, "r-          smtp", 16);

    parse_ok(slice_string(bytes), &f);
    assert_false(f.rcpts[0].open);
    assert_true(f.rcpts[1].open);
    assert_int_equal(f.rcpts[1].lock_pid, 4711);
    assert_false(f.rcpts[2].open);
    assert_int_equal(f.diagnostic_count, 1);
    d = &f.diagnostics[0];
    assert_int_equal(d->offset, 690);
    assert_int_equal(d->rcpt, 325);
    assert_int_equal(d->headers_at, 387);
    assert_int_equal(d->dsn_at, CONTROL_NONE);
    assert_int_equal(d->time_s, 1709630002);
    assert_true(slice_starts(d->notary, SLICE("\"odd user\"@oven.example\001failed\001")));
    assert_slice(d->text, "smtp; 550 user unknown");
    buf_init(&out, 1000);
    control_put_diagnostic(&out, d);
    assert_string_equal(buf_cstr(&out), control_example_failed);
    buf_fini(&out);
    control_file_fini(&f);

    /* An append that was cut short is none; whoever does it again starts on a line of its own. */
    bytes[strlen(bytes) - 5] = '\0';
    parse_ok(slice_string(bytes), &f);
    assert_int_equal(f.diagnostic_count, 0);
    assert_true(f.ends_in_part);
    control_file_fini(&f);
}

static void damaged_diagnostics_cost_nobody_mail(void **unused)
{
    static const char *const lines[] = {
        "d \n",
        "d 1:2\n",
        "d 1:2:3::4\n",
        "d -1:2:3::4\tx\ty\n",
        "d 1:2:3:::4\tx\ty\n",
        "d 1:2:3:4\tx\ty\n",
        "d x:2:3::4\tx\ty\n",
        "d 325:38d 325:387:-1::1709630002\t\tx\n",
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(lines); i++) {
        struct control_file f;
        char text[2000];

        assert_true(snprintf(text, sizeof text, "%s%sd 325:-1:::5\t\tlast\n", control_example,
                             lines[i]) > 0);
        parse_ok(slice_string(text), &f);
        assert_int_equal(f.rcpt_count, 4);
        assert_int_equal(f.damaged_diagnostics, 1);
        assert_int_equal(f.diagnostic_count, 1);
        assert_slice(f.diagnostics[0].text, "last");
        assert_false(f.ends_in_part);
        control_file_fini(&f);
    }
}

static void recorded_file(void **unused)
{
    struct control_file f;
    struct buf bytes;
    size_t open = 0;

    (void)unused;
    buf_init(&bytes, 100000);
    capture_read(TEST_DATA_DIR "/30-control-file-in-flight.raw", &bytes);
    parse_ok(buf_slice(&bytes), &f);
    assert_int_equal(f.rcpt_count, 10);
    assert_int_equal(f.group_count, 2);
    for (size_t i = 0; i < f.rcpt_count; i++) {
        open += f.rcpts[i].open;
        assert_true(f.rcpts[i].dsn_at != CONTROL_NONE);
    }
    assert_int_equal(open, 4); /* one of them locked */
    assert_slice(f.error_to, "zmuser@zm.test");
    assert_slice(f.envid, "QQ+2B314");
    assert_true(f.diagnostic_count > 0);
    for (size_t i = 0; i < f.diagnostic_count; i++) {
        const struct control_rcpt *rcpt = control_file_find(&f, f.diagnostics[i].rcpt);

        assert_non_null(rcpt);
        assert_int_equal(f.diagnostics[i].dsn_at, rcpt->dsn_at);
        assert_int_equal(f.diagnostics[i].headers_at, f.groups[rcpt->group].headers_at);
    }
    control_file_fini(&f);
    buf_fini(&bytes);
}

static void old_files_without_format(void **unused)
{
    struct control_file f;
    char mark[CONTROL_MARK_MAX];

    (void)unused;
    parse_ok(SLICE("i 15582\no 60\nl <90Jun3.165355edt.15582@neat.example>\ne rayan\n"
                   "s local - rayan 7\n"
                   "r~ 23456local - rayan 7\n"
                   "r~23456 local - rayan 7\n"
                   "r 1     12  smtp h u -2\n"
                   "r local - rayan 7\n"
                   "m\nSubject: a control file\n"),
             &f);
    assert_int_equal(f.rcpt_count, 4);
    assert_int_equal(f.rcpts[0].lock_pid, 23456);
    assert_int_equal(f.rcpts[1].lock_pid, 23456);
    assert_slice(f.rcpts[1].address.channel, "local");
    assert_slice(f.rcpts[2].address.channel, "smtp");
    assert_int_equal(f.rcpts[2].address.uid, -2);
    assert_false(f.rcpts[3].has_lock);
    assert_int_equal(control_mark(&f.rcpts[3], '~', 1, mark), 0);
    assert_int_equal(control_mark(&f.rcpts[3], '+', 0, mark), 1);
    assert_int_equal(control_mark(&f.rcpts[0], '~', 4194304, mark), 0);
    assert_slice(f.groups[0].headers, "Subject: a control file\n");
    control_file_fini(&f);
}

static void who_is_told_of_failure(void **unused)
{
    const struct {
        const char *lines, *want;
        bool bounce;
    } cases[] = {
        {"e a@x\n", "a@x", false},
        {"e a@x\ns local - b@x 1\n", "b@x", false},
        {"e a@x\ns local - - 1\n", "a@x", false},
        {"s local - b@x 1\ne c@x\n", "c@x", false},
        {"s local - b@x 1\ne c@x\ns local - d@x 1\n", "d@x", false},
        {"e a@x\ns error <> <> 0\n", "", true},
        {"", "", false},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct control_file f;
        char text[300];

        assert_true(snprintf(text, sizeof text, "i 1\nl x\n%s", cases[i].lines) > 0);
        parse_ok(slice_string(text), &f);
        assert_slice(f.error_to, cases[i].want);
        assert_int_equal(f.is_bounce, cases[i].bounce);
        control_file_fini(&f);
    }
}

static void alternatives_take_turns(void **unused)
{
    const struct {
        const char *tags; /* of three in class 1, then two in class 2 */
        const char *open;
    } cases[] = {
        {"     ", "10010"}, {"-    ", "01010"}, {"--   ", "00110"}, {"--- -", "00010"},
        {" +   ", "00010"}, {"~    ", "10010"}, {"-~  +", "01000"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *t = cases[i].tags;
        struct control_file f;
        char text[500];

        assert_true(snprintf(text, sizeof text,
                             "@ 0x00000007\ni 1\nl x\ns local - a 1\n"
                             "X%c          1 smtp h u1 1\nX%c          1 smtp h u2 1\n"
                             "X%c          1 smtp h u3 1\nX%c          2 smtp h v1 1\n"
                             "X%c          2 smtp h v2 1\n",
                             t[0], t[1], t[2], t[3], t[4]) > 0);
        parse_ok(slice_string(text), &f);
        for (size_t j = 0; j < 5; j++) {
            assert_int_equal(f.rcpts[j].open, cases[i].open[j] == '1');
            assert_int_equal(f.rcpts[j].class, j < 3 ? 1 : 2);
        }
        control_file_fini(&f);
    }
}

static void lists_of_hosts_are_one_word(void **unused)
{
    struct control_file f;

    (void)unused;
    parse_ok(SLICE("@ 0x00000007\ni 1\nl x\ns local - a 1\n"
                   "r           smtp ((mx1)(mx2 mx3)) u\\ v 1\n"
                   "r           smtp (open u 1)x u 1\n"),
             &f);
    assert_slice(f.rcpts[0].address.host, "((mx1)(mx2 mx3))");
    assert_slice(f.rcpts[0].address.user, "u\\ v");
    assert_slice(f.rcpts[1].address.host, "(open u 1)x");
    control_file_fini(&f);
}

static void etrn_requests_stand_alone(void **unused)
{
    struct control_file f;

    (void)unused;
    parse_ok(SLICE("T client.example [192.0.2.9]\n"), &f);
    assert_slice(f.etrn, "client.example [192.0.2.9]");
    control_file_fini(&f);
}

static void damage_is_named_with_its_place(void **unused)
{
    const struct {
        const char *text;
        uint64_t offset;
        const char *expected;
    } cases[] = {
        {"", 0, "an `i` line with the name of the message file"},
        {"i 1\n", 4, "an `l` line with the log identification"},
        {"l x\n", 4, "an `i` line with the name of the message file"},
        {"i ../1\nl x\n", 2, "a file's name that begins with a digit and has no slash"},
        {"i .1\nl x\n", 2, "a file's name that begins with a digit and has no slash"},
        {"@ 0x0000000f\n", 2, "no format bits but 0x00000007"},
        {"@ 0x0000000g\n", 11, "a hexadecimal digit"},
        {"@ 7\n", 2, "0x and 8 hexadecimal digits"},
        {"i 1\nl x", 4, "a line feed at the end of the line"},
        {"i 1\nq x\n", 4, "one of the fields @vioelxsTrXNRnmMbd"},
        {"i\n", 0, "a field letter and a tag"},
        {"o x\n", 2, "the offset of the body"},
        {"r 1     local - u 1\n", 0, "a sender before the first recipient"},
        {"s local - u\n", 2, "CHANNEL HOST USER UID"},
        {"s local - u 1 2\n", 13, "the end of the line after CHANNEL HOST USER UID"},
        {"s local - \"u 1\n", 2, "CHANNEL HOST USER UID"},
        {"s local ((x) u 1\n", 2, "CHANNEL HOST USER UID"},
        {"s a - u 1\nr?          a - u 1\n", 11, "a tag: blank, ~, + or -"},
        {"@ 0x00000007\ns a - u 1\nr           \n", 25,
         "an address after the columns of lock and delay"},
        {"@ 0x00000007\ns a - u 1\nr    x      smtp h u 1\n", 28,
         "a digit or a blank in the columns of lock and delay"},
        {"@ 0x00000007\ns a - u 1\nX           smtp h u 1\n", 39,
         "the number of the class of alternatives"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct control_problem problem;
        struct control_file f;

        if (control_file_parse(slice_string(cases[i].text), &f, &problem)) {
            fail_msg("taken: %s", cases[i].text);
        }
        assert_string_equal(problem.expected, cases[i].expected);
        assert_int_equal(problem.offset, cases[i].offset);
    }
}

/* Whatever happens to a byte, a recipient that is still read is one of the true ones or the damage
 * is in its own line; and no more are open than there were. */
static void any_byte_may_break(void **unused)
{
    static const char odd[] = {'\0', '\n', ' ', 'r', '~', '\xff', '0', '-'};
    size_t len = sizeof control_example - 1, refused = 0;
    char bytes[sizeof control_example];

    (void)unused;
    for (size_t at = 0; at < len; at++) {
        for (size_t k = 0; k <= COUNT(odd); k++) {
            struct control_problem problem;
            struct control_file f;
            size_t size = k == COUNT(odd) ? at : len; /* the last: cut off there */

            memcpy(bytes, control_example, sizeof control_example);
            if (k < COUNT(odd)) {
                bytes[at] = odd[k];
            }
            if (!control_file_parse(slice_of(bytes, size), &f, &problem)) {
                refused++;
                assert_true(problem.offset <= size);
                assert_non_null(problem.expected);
                continue;
            }
            for (size_t i = 0; i < f.rcpt_count; i++) {
                const struct control_rcpt *r = &f.rcpts[i];

                assert_true(r->offset < size);
                assert_true(bytes[r->offset] == 'r');
                assert_true(r->address.user.ptr + r->address.user.len <= bytes + size);
                if (r->offset != 115 && r->offset != 250 && r->offset != 325 && r->offset != 600) {
                    assert_true(at <= r->offset && r->offset <= at + 1); /* the damage made it */
                }
            }
            control_file_fini(&f);
        }
    }
    assert_true(refused > 1000);
}

static void names(void **unused)
{
    char text[CONTROL_SPOOLID_MAX], path[5];
    uint64_t n;

    (void)unused;
    control_spoolid(11059704, 1795179113, 579927753, text);
    assert_string_equal(text, "S11059704AbmKTMvxegP7J");
    control_spoolid(11059704, 1795179113, 0, text);
    assert_string_equal(text, "S11059704AbmKTMvx");
    control_spoolid(UINT64_MAX, INT64_MAX, 999999999, text);
    assert_true(strlen(text) < sizeof text);
    control_spoolid(1, INT64_MIN, 0, text);
    assert_true(strlen(text) < sizeof text);

    assert_true(control_spool_number(SLICE("90417-2"), &n));
    assert_int_equal(n, 90417);
    assert_false(control_spool_number(SLICE("x1"), &n));
    assert_false(control_spool_number(SLICE(""), &n));
    assert_false(control_spool_number(SLICE("99999999999999999999999"), &n));

    control_hash_directory(11059300, 2, path);
    assert_string_equal(path, "X/S/");
    control_hash_directory(11059320, 2, path);
    assert_string_equal(path, "Y/M/");
    control_hash_directory(90417, 1, path);
    assert_string_equal(path, "P/");
    control_hash_directory(90417, 0, path);
    assert_string_equal(path, "");
}

/* What a file system may leave of an append that a power cut has met. */
static void zeros_at_the_end_cost_nobody_mail(void **unused)
{
    static const char tails[][40] = {
        "\0\0\0\0",   "\0\0\0\0\nd 325:-1:::5\t\tlast\n", "d 325:\0\0\0\nd 325:-1:::5\t\tlast\n",
        "d 325:\0\0", "d 325:-1:::5\t\tlast\n\0\0\0",
    };
    static const size_t lengths[] = {4, 25, 30, 8, 23};
    char bytes[sizeof control_example + 40];
    struct control_problem problem;
    struct control_file f;

    (void)unused;
    for (size_t i = 0; i < COUNT(tails); i++) {
        size_t len = sizeof control_example - 1 + lengths[i];

        memcpy(bytes, control_example, sizeof control_example - 1);
        memcpy(bytes + sizeof control_example - 1, tails[i], lengths[i]);
        parse_ok(slice_of(bytes, len), &f);
        assert_int_equal(f.rcpt_count, 4);
        assert_int_equal(f.diagnostic_count, i == 0 || i == 3 ? 0 : 1);
        assert_int_equal(f.ends_in_part, bytes[len - 1] != '\n');
        control_file_fini(&f);
    }
    /* Where a recipient may have stood they are damage. */
    memcpy(bytes, control_example, sizeof control_example - 1);
    memset(bytes + 250, 0, 50);
    assert_false(control_file_parse(slice_of(bytes, sizeof control_example - 1), &f, &problem));
    assert_false(control_file_parse(slice_of(bytes, 300), &f, &problem));
}

static void wishes_are_words_in_any_case(void **state)
{
    static const struct {
        const char *dsn;
        unsigned notify;
        const char *orcpt;
    } table[] = {
        {"NOTIFY=SUCCESS,FAILURE,DELAY ORCPT=rfc822;a@b",
         NOTIFY_SUCCESS | NOTIFY_FAILURE | NOTIFY_DELAY, "rfc822;a@b"},
        {"notify=never orcpt=x", NOTIFY_NEVER, "x"},
        {"ORCPT=rfc822;o1+20y", NOTIFY_DEFAULT, "rfc822;o1+20y"},
        {"NOTIFY=TRACE,success", NOTIFY_SUCCESS, ""},
        {"NOTIFY ORCPT", NOTIFY_DEFAULT, ""},
        {"NOTIFY=", NOTIFY_DEFAULT, ""},
        {"", NOTIFY_DEFAULT, ""},
        {"  INRCPT=NOTIFY=NEVER  NOTIFY=DELAY", NOTIFY_DELAY, ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct slice dsn = slice_string(table[i].dsn);

        assert_int_equal(control_notify(dsn), table[i].notify);
        assert_true(
            slice_equal(control_dsn_word(dsn, SLICE("ORCPT")), slice_string(table[i].orcpt)));
    }
}

static void a_list_of_hosts_goes_by_its_first(void **state)
{
    static const char *const table[][2] = {
        {"mx.example", "mx.example"}, {"-", "-"},   {"((mx1)(mx2 mx3))", "((mx1"},
        {"(mx1 mx2)", "(mx1"},        {"((", "(("}, {"", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        assert_true(
            slice_equal(control_host_key(slice_string(table[i][0])), slice_string(table[i][1])));
    }
}

UNIT_MAIN(cmocka_unit_test(a_file_from_the_router),
          cmocka_unit_test(a_lock_names_its_process_whatever_its_number),
          cmocka_unit_test(a_file_in_delivery),
          cmocka_unit_test(damaged_diagnostics_cost_nobody_mail), cmocka_unit_test(recorded_file),
          cmocka_unit_test(old_files_without_format), cmocka_unit_test(who_is_told_of_failure),
          cmocka_unit_test(alternatives_take_turns), cmocka_unit_test(lists_of_hosts_are_one_word),
          cmocka_unit_test(etrn_requests_stand_alone),
          cmocka_unit_test(damage_is_named_with_its_place), cmocka_unit_test(any_byte_may_break),
          cmocka_unit_test(names), cmocka_unit_test(zeros_at_the_end_cost_nobody_mail),
          cmocka_unit_test(wishes_are_words_in_any_case),
          cmocka_unit_test(a_list_of_hosts_goes_by_its_first))
