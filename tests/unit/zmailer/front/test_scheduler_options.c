#include "unit.h"

#include <string.h>

#include "scheduler_options.h"

#define WORDS_MAX 20

/* `line`: the arguments, parted by single blanks. */
static int parse(const char *line, struct scheduler_options *o, struct buf *messages)
{
    static char text[400];
    static char *argv[WORDS_MAX + 1];
    int argc = 1;

    assert_true(strlen(line) < sizeof text);
    strcpy(text, line);
    argv[0] = (char[]){"scheduler"};
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " ")) {
        assert_true(argc < WORDS_MAX);
        argv[argc++] = word;
    }
    argv[argc] = NULL;
    return scheduler_options_parse(argc, argv, o, messages);
}

static struct scheduler_options parse_clean(const char *line)
{
    struct scheduler_options o;
    struct buf messages;

    buf_init(&messages, 4000);
    assert_int_equal(parse(line, &o, &messages), 0);
    assert_int_equal(buf_len(&messages), 0);
    buf_fini(&messages);
    return o;
}

static void without_options_it_is_a_daemon_with_the_manual_s_numbers(void **state)
{
    struct scheduler_options o = parse_clean("");

    (void)state;
    assert_int_equal(o.mode, SCHEDULER_DAEMON);
    assert_int_equal(o.verbose, 0);
    assert_false(o.version || o.freeze || o.headers_only || o.mailq_short || o.read_queue_first);
    assert_int_equal(o.hash_levels, 0);
    assert_int_equal(o.mailq_protocol, 1);
    assert_int_equal(o.scan_files, 40000);
    assert_int_equal(o.scan_s, 5);
    assert_int_equal(o.fd_limit, 32);
    assert_int_equal(o.start_rate, 30);
    assert_true(o.conf == NULL && o.log == NULL && o.statistics == NULL && o.postoffice == NULL &&
                o.only == NULL && o.rendezvous == NULL && o.zenv == NULL);
    assert_null(o.files[0]);
}

static void the_last_word_says_whether_it_is_a_daemon(void **state)
{
    (void)state;
    assert_int_equal(parse_clean("-i").mode, SCHEDULER_FOREGROUND);
    assert_int_equal(parse_clean("-vv").mode, SCHEDULER_FOREGROUND);
    assert_int_equal(parse_clean("-vv").verbose, 2);
    assert_int_equal(parse_clean("-v -d").mode, SCHEDULER_DAEMON);
    assert_int_equal(parse_clean("-d -i").mode, SCHEDULER_FOREGROUND);
}

static void flags_may_stand_together(void **state)
{
    struct scheduler_options o = parse_clean("-FHHHnQSWV -f x.conf -L log -l stat -P /po -q dump "
                                             "-Z zenv -p smtp/* A/1 2");

    (void)state;
    assert_true(o.version && o.freeze && o.headers_only && o.mailq_short && o.read_queue_first);
    assert_int_equal(o.hash_levels, 2);
    assert_string_equal(o.conf, "x.conf");
    assert_string_equal(o.log, "log");
    assert_string_equal(o.statistics, "stat");
    assert_string_equal(o.postoffice, "/po");
    assert_string_equal(o.rendezvous, "dump");
    assert_string_equal(o.zenv, "zenv");
    assert_string_equal(o.only, "smtp/*");
    assert_string_equal(o.files[0], "A/1");
    assert_string_equal(o.files[1], "2");
    assert_null(o.files[2]);
    assert_int_equal(o.mode, SCHEDULER_FOREGROUND); /* as there are files */
    assert_false(parse_clean("-n -n").headers_only);
}

static void numbers_are_brought_into_their_range(void **state)
{
    static const struct {
        const char *line;
        unsigned scan_files, scan_s, fd_limit, start_rate;
    } cases[] = {
        {"-E 100", 100, 5, 32, 30},    {"-E 1", 10, 5, 32, 30},       {"-E 20,1", 20, 2, 32, 30},
        {"-E 20,99", 20, 15, 32, 30},  {"-E 20,7", 20, 7, 32, 30},    {"-N 9", 40000, 5, 32, 30},
        {"-N 10", 40000, 5, 10, 30},   {"-N 256", 40000, 5, 256, 30}, {"-R 0", 40000, 5, 32, 1},
        {"-R 500", 40000, 5, 32, 500},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct scheduler_options o = parse_clean(cases[i].line);

        assert_int_equal(o.scan_files, cases[i].scan_files);
        assert_int_equal(o.scan_s, cases[i].scan_s);
        assert_int_equal(o.fd_limit, cases[i].fd_limit);
        assert_int_equal(o.start_rate, cases[i].start_rate);
    }
    assert_int_equal(parse_clean("-M 2").mailq_protocol, 2);
}

static void what_is_wrong_has_zmailer_s_exit_status(void **state)
{
    static const struct {
        const char *line;
        int status;
        const char *message;
    } cases[] = {
        {"-X", 129, "unknown option -X\nUsage: scheduler "},
        {"-X -k -i", 130, "unknown option -X\nunknown option -k\nUsage: "},
        {"-f", 129, "-f needs a value\nUsage: "},
        {"-N many -R x -E 1,y", 131,
         "-N: found `many', expected a number\n-R: found `x', expected a number\n"
         "-E: found `1,y', expected a number, or two with a comma\nUsage: "},

        {"1 2,3", 129, "`2,3': the name of a control file is expected\nUsage: "},
        {"-M 3", 64, "-M: found `3', expected 1 or 2\n"},
        {"-M 12", 64, "-M: found `12', expected 1 or 2\n"},
        {"-p smtp", 64, "-p: found `smtp', expected CHANNEL/HOST\n"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct scheduler_options o;
        struct buf messages;

        buf_init(&messages, 4000);
        assert_int_equal(parse(cases[i].line, &o, &messages), cases[i].status);
        if (strncmp(buf_cstr(&messages), cases[i].message, strlen(cases[i].message)) != 0) {
            assert_string_equal(buf_cstr(&messages), cases[i].message);
        }
        buf_fini(&messages);
    }
}

UNIT_MAIN(cmocka_unit_test(without_options_it_is_a_daemon_with_the_manual_s_numbers),
          cmocka_unit_test(the_last_word_says_whether_it_is_a_daemon),
          cmocka_unit_test(flags_may_stand_together),
          cmocka_unit_test(numbers_are_brought_into_their_range),
          cmocka_unit_test(what_is_wrong_has_zmailer_s_exit_status))
