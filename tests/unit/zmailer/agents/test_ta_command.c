#include "unit.h"

#include <string.h>

#include "ta_command.h"

static const char *look(void *arg, struct slice name)
{
    static const char *const variables[][2] = {{"MAILBIN", "/usr/lib/zmailer"},
                                               {"LOGDIR", "/var/log/mail"},
                                               {"PATH", "/bin:/usr/bin"},
                                               {"ZCONFIG", "/etc/zmailer.conf"},
                                               {"EMPTY", ""}};
    bool *without = arg;

    for (size_t i = *without ? 1 : 0; i < COUNT(variables); i++) {
        if (slice_equal(name, slice_string(variables[i][0]))) {
            return variables[i][1];
        }
    }
    return NULL;
}

static bool without_mailbin;

/* Words and settings, each behind a blank; a bar between the two. */
static void check(const char *command, const char *host, const char *want)
{
    const struct ta_command_names names = {.channel = SLICE("smtp"),
                                           .host = slice_string(host),
                                           .look = look,
                                           .arg = &without_mailbin};
    struct ta_command c;
    struct buf told;
    const char *why;

    buf_init(&told, TA_COMMAND_BYTES_MAX * 2);
    if (ta_command_expand(slice_string(command), &names, NULL, &c, &why)) {
        for (size_t i = 0; c.words[i] != NULL; i++) {
            assert_true(buf_addf(&told, "%s ", c.words[i]));
        }
        (void)buf_add_string(&told, "|");
        for (size_t i = 0; c.environment[i] != NULL; i++) {
            assert_true(buf_addf(&told, " %s", c.environment[i]));
        }
    } else {
        assert_true(buf_add_string(&told, why));
    }
    assert_string_equal(buf_cstr(&told), want);
    buf_fini(&told);
    ta_command_fini(&c);
}

#define FROM_ZENV "PATH=/bin:/usr/bin ZCONFIG=/etc/zmailer.conf"

static void words_are_filled_in(void **state)
{
    static const struct {
        const char *command, *want;
    } cases[] = {
        {"smtp -c $channel", "/usr/lib/zmailer/ta/smtp -c smtp | " FROM_ZENV},
        {"  /x/smtp\t-8  ", "/x/smtp -8 | " FROM_ZENV},
        {"A=1 B=${LOGDIR} smtp", "/usr/lib/zmailer/ta/smtp | A=1 B=/var/log/mail " FROM_ZENV},
        {"smtp -l $LOGDIR/smtp x${LOGDIR}y", "/usr/lib/zmailer/ta/smtp -l /var/log/mail/smtp "
                                             "x/var/log/maily | " FROM_ZENV},
        {"smtp $host x-${host} ${channel}",
         "/usr/lib/zmailer/ta/smtp mx.x x-mx.x smtp | " FROM_ZENV},
        {"sm ${NOBODY} $NOBODY [${EMPTY}]", "/usr/lib/zmailer/ta/sm  $NOBODY [] | " FROM_ZENV},
        {"sm $ $1 ${host a$ $$host", "/usr/lib/zmailer/ta/sm $ $1 ${host a$ $mx.x | " FROM_ZENV},
        {"${MAILBIN}/sm a=b", "/usr/lib/zmailer/sm a=b | " FROM_ZENV},
        {"", "it names no program"},
        {"A=1 B=2", "it names no program"},
    };

    (void)state;
    without_mailbin = false;
    for (size_t i = 0; i < COUNT(cases); i++) {
        check(cases[i].command, "mx.x", cases[i].want);
    }
}

static void a_host_stays_one_word_and_is_no_option(void **state)
{
    (void)state;
    check("x $host", "a b;c \"d\"", "/usr/lib/zmailer/ta/x a b;c \"d\" | " FROM_ZENV);
    check("x -h$host", "-oRoot", "/usr/lib/zmailer/ta/x -h-oRoot | " FROM_ZENV);
    check("x ${host}", "-oRoot",
          "a word of it would be an option, as the host's name begins with -");
    check("$host", "-oRoot", "its program would begin with the host's name");
}

static void a_relative_program_needs_mailbin(void **state)
{
    (void)state;
    without_mailbin = true;
    check("/x/smtp", "mx.x", "/x/smtp | " FROM_ZENV);
    check("smtp", "mx.x", "its program has no leading / and the ZENV file has no MAILBIN");
}

static void sizes_are_bounded(void **state)
{
    struct buf long_command;

    (void)state;
    without_mailbin = false;
    buf_init(&long_command, 10 * TA_COMMAND_BYTES_MAX);
    for (int i = 0; i < TA_COMMAND_WORDS_MAX; i++) {
        (void)buf_add_string(&long_command, "A=1 ");
    }
    (void)buf_add_string(&long_command, "x A=1");
    buf_truncate(&long_command, buf_len(&long_command) - 4);
    const struct ta_command_names names = {
        .host = SLICE("h"), .look = look, .arg = &without_mailbin};
    struct ta_command c;
    const char *why;

    assert_true(ta_command_expand(buf_slice(&long_command), &names, "UTC", &c, &why));
    assert_string_equal(c.environment[TA_COMMAND_WORDS_MAX], "TZ=UTC");
    assert_null(c.environment[TA_COMMAND_WORDS_MAX + 3]);
    ta_command_fini(&c);
    buf_clear(&long_command);
    for (int i = 0; i < TA_COMMAND_WORDS_MAX; i++) {
        (void)buf_add_string(&long_command, "word ");
    }
    assert_true(ta_command_expand(buf_slice(&long_command), &names, NULL, &c, &why));
    assert_null(c.words[TA_COMMAND_WORDS_MAX]);
    ta_command_fini(&c);
    (void)buf_add_string(&long_command, "word");
    assert_false(ta_command_expand(buf_slice(&long_command), &names, NULL, &c, &why));
    assert_string_equal(why, "it has more than 40 words or settings");
    ta_command_fini(&c);
    buf_clear(&long_command);
    (void)buf_add_string(&long_command, "x ");
    while (buf_len(&long_command) < TA_COMMAND_BYTES_MAX) {
        (void)buf_add_string(&long_command, "yyyyyyyyyyyyyyyy");
    }
    assert_false(ta_command_expand(buf_slice(&long_command), &names, NULL, &c, &why));
    assert_string_equal(why, "it is too long");
    ta_command_fini(&c);
    buf_fini(&long_command);
}

static void a_command_that_names_the_host_is_bound_to_it(void **state)
{
    static const struct {
        const char *command;
        bool want;
    } cases[] = {
        {"smtp $host", true},     {"smtp ${host}", true}, {"smtp x$host/y", true},
        {"H=${host} smtp", true}, {"smtp $hostx", false}, {"smtp $channel", false},
        {"smtp ${hosts}", false}, {"smtp host", false},   {"", false},
        {"smtp $$host", true},    {"smtp ${host", false},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(ta_command_is_host_bound(slice_string(cases[i].command)), cases[i].want);
    }
}

UNIT_MAIN(cmocka_unit_test(words_are_filled_in),
          cmocka_unit_test(a_host_stays_one_word_and_is_no_option),
          cmocka_unit_test(a_relative_program_needs_mailbin), cmocka_unit_test(sizes_are_bounded),
          cmocka_unit_test(a_command_that_names_the_host_is_bound_to_it))
