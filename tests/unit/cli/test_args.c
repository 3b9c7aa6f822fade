#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "args.h"

#define ARGV_MAX 12

/* Parse words separated by blanks. */
static int parse(struct args *a, unsigned groups, bool to_first_word, char *line, struct buf *error)
{
    char *argv[ARGV_MAX], *at = NULL;
    int argc = 0;

    for (char *word = strtok_r(line, " ", &at); word != NULL; word = strtok_r(NULL, " ", &at)) {
        assert_true(argc < ARGV_MAX);
        argv[argc++] = word;
    }
    args_init(a);
    return args_parse(a, groups, to_first_word, argc, argv, error);
}

static void filters_become_the_api_s_members(void **state)
{
    static const struct {
        const char *line, *want;
    } rows[] = {
        {"", "{}"},
        {"--state deferred", "{\"state\":[\"deferred\"]}"},
        {"--state hold,corrupt --state=incoming",
         "{\"state\":[\"hold\",\"corrupt\",\"incoming\"]}"},
        {"--sender <> --recipient=@b.example", "{\"sender\":\"<>\",\"recipient\":\"@b.example\"}"},
        {"--destination smtp/x", "{\"destination\":\"smtp/x\"}"},
        {"--older-than 1d --newer-than 2h30m", "{\"older_than\":86400,\"newer_than\":9000}"},
        {"--older-than 90", "{\"older_than\":90}"},
        {"--min-size 1M --max-size 4000", "{\"min_size\":1048576,\"max_size\":4000}"},
        {"--sender a --sender b", "{\"sender\":\"b\"}"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct args a;
        struct buf error;
        char line[200], *text;

        buf_init(&error, 1000);
        (void)snprintf(line, sizeof line, "%s", rows[i].line);
        assert_true(parse(&a, ARG_FILTER, false, line, &error) >= 0);
        text = json_dumps(a.filter, JSON_COMPACT);
        assert_string_equal(text, rows[i].want);
        free(text);
        args_fini(&a);
        buf_fini(&error);
    }
}

static void mistakes_are_told_with_what_was_expected(void **state)
{
    static const struct {
        const char *line, *want;
    } rows[] = {
        {"--sendr x", "unknown option --sendr, did you mean --sender?"},
        {"--frobnicate", "unknown option --frobnicate"},
        {"--dry-run", "unknown option --dry-run"},
        {"-z", "unknown option -z"},
        {"-jz", "unknown option -z"},
        {"--sender", "--sender: ADDRESS is missing"},
        {"--sender=", "--sender : a text in UTF-8 is expected"},
        {"--sender \xff", "--sender \xff: a text in UTF-8 is expected"},
        {"--json=yes", "--json takes no value"},
        {"--state foo", "--state foo: incoming, active, deferred, hold or corrupt is expected"},
        {"--state hold,", "--state hold,: incoming, active, deferred, hold or corrupt is expected"},
        {"--older-than 5x", "--older-than 5x: a time like 90s, 5m, 2h or 1d is expected"},
        {"--min-size -1", "--min-size -1: a size like 4000, 10k or 5M is expected"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct args a;
        struct buf error;
        char line[200];

        buf_init(&error, 1000);
        (void)snprintf(line, sizeof line, "%s", rows[i].line);
        assert_int_equal(parse(&a, ARG_FILTER | ARG_JSON, false, line, &error), -1);
        assert_string_equal(buf_cstr(&error), rows[i].want);
        args_fini(&a);
        buf_fini(&error);
    }
}

static void letters_stand_together_and_words_anywhere(void **state)
{
    char line[] = "one -ny -cFILE - two -- --all";
    struct args a;
    struct buf error;

    (void)state;
    buf_init(&error, 1000);
    assert_int_equal(parse(&a, ARG_CHANGE | ARG_COMMAND, false, line, &error), 7);
    assert_true(a.dry_run && a.yes);
    assert_false(a.all);
    assert_string_equal(a.conf_path, "FILE");
    assert_int_equal(a.word_count, 4);
    assert_string_equal(a.words[0], "one");
    assert_string_equal(a.words[1], "-");
    assert_string_equal(a.words[2], "two");
    assert_string_equal(a.words[3], "--all");
    args_fini(&a);
    buf_fini(&error);
}

static void the_program_s_options_end_at_the_command(void **state)
{
    char line[] = "-c FILE cat -h x";
    struct args a;
    struct buf error;

    (void)state;
    buf_init(&error, 1000);
    assert_int_equal(parse(&a, ARG_PROGRAM, true, line, &error), 2);
    assert_string_equal(a.conf_path, "FILE");
    assert_false(a.help);
    assert_int_equal(a.word_count, 0);
    args_fini(&a);
    buf_fini(&error);
}

static void one_letter_means_what_its_group_says(void **state)
{
    char content[] = "-h", mailq[] = "-Ac -v -j";
    struct args a;
    struct buf error;

    (void)state;
    buf_init(&error, 1000);
    assert_int_equal(parse(&a, ARG_CONTENT | ARG_COMMAND, false, content, &error), 1);
    assert_true(a.header);
    assert_false(a.help);
    args_fini(&a);
    assert_int_equal(parse(&a, ARG_MAILQ | ARG_JSON, false, mailq, &error), 3);
    assert_true(a.json);
    args_fini(&a);
    buf_fini(&error);
}

UNIT_MAIN(cmocka_unit_test(filters_become_the_api_s_members),
          cmocka_unit_test(mistakes_are_told_with_what_was_expected),
          cmocka_unit_test(letters_stand_together_and_words_anywhere),
          cmocka_unit_test(the_program_s_options_end_at_the_command),
          cmocka_unit_test(one_letter_means_what_its_group_says))
