#include "unit.h"

#include <string.h>
#include <sysexits.h>

#include "pipe.h"

static const struct slice two[] = {
    {"Joe+x@a.test", sizeof "Joe+x@a.test" - 1},
    {"\"a b\"@b.test", sizeof "\"a b\"@b.test" - 1},
};

static struct pipe_delivery delivery(void)
{
    return (struct pipe_delivery){.sender = SLICE("s@here.test"),
                                  .nexthop = SLICE("hop"),
                                  .queue_id = SLICE("4Vq1"),
                                  .size_bytes = 1234,
                                  .delimiters = SLICE("+"),
                                  .recipients = two,
                                  .recipient_count = COUNT(two)};
}

/* The words, joined by `|`. */
static const char *words_text(const struct pipe_words *w, struct buf *out)
{
    buf_clear(out);
    for (size_t i = 0; i < w->count; i++) {
        buf_addf(out, "%s%s", i == 0 ? "" : "|", w->words[i]);
    }
    assert_null(w->words[w->count]);
    return buf_cstr(out);
}

static void a_command_line_becomes_words(void **state)
{
    static const struct {
        const char *command;
        enum pipe_outcome want;
        const char *words;
    } table[] = {
        {"/bin/cat", PIPE_OK, "/bin/cat"},
        {"  a  b\tc  ", PIPE_OK, "a|b|c"},
        {"a -f $sender -- $recipient", PIPE_OK, "a|-f|s@here.test|--|Joe+x@a.test|\"a b\"@b.test"},
        {"a ${size}/$nexthop/$queue_id", PIPE_OK, "a|1234/hop/4Vq1"},
        {"a $user:$extension:$mailbox:$domain", PIPE_OK, "a|Joe:x:Joe+x:a.test|a b::a b:b.test"},
        {"a '$sender' \"$sender x\" \\$sender", PIPE_OK, "a|$sender|s@here.test x|$sender"},
        {"a 'it''s' \"a\\\"b\" ''", PIPE_OK, "a|its|a\"b|"},
        {"/bin/sh -c 'x \"$RECIPIENT\"'", PIPE_OK, "/bin/sh|-c|x \"$RECIPIENT\""},
        {"", PIPE_BAD_COMMAND, NULL},
        {"a 'b", PIPE_BAD_COMMAND, NULL},
        {"a $nothing", PIPE_BAD_COMMAND, NULL},
        {"a ${sender", PIPE_BAD_COMMAND, NULL},
        {"a $", PIPE_BAD_COMMAND, NULL},
        {"'' a", PIPE_BAD_COMMAND, NULL},
    };
    struct pipe_delivery d = delivery();

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        const char *why = NULL;
        struct pipe_words words;
        struct buf out;

        buf_init(&out, 10000);
        assert_int_equal(pipe_command(slice_string(table[i].command), &d, &words, &why),
                         table[i].want);
        if (table[i].want == PIPE_OK) {
            assert_string_equal(words_text(&words, &out), table[i].words);
        } else {
            assert_non_null(why);
        }
        pipe_words_fini(&words);
        buf_fini(&out);
    }
}

static void an_address_is_never_an_option(void **state)
{
    struct slice evil = SLICE("-oQ/tmp@a.test");
    struct pipe_delivery d = delivery();
    struct pipe_words words;
    const char *why;

    (void)state;
    d.recipients = &evil;
    d.recipient_count = 1;
    assert_int_equal(pipe_command(SLICE("a $recipient"), &d, &words, &why), PIPE_BAD_ADDRESS);
    pipe_words_fini(&words);
    assert_int_equal(pipe_command(SLICE("a \"$user\""), &d, &words, &why), PIPE_BAD_ADDRESS);
    pipe_words_fini(&words);
    assert_int_equal(pipe_command(SLICE("a --to=$recipient"), &d, &words, &why), PIPE_OK);
    pipe_words_fini(&words);
}

static void too_many_words_are_refused(void **state)
{
    static struct slice many[PIPE_WORDS_MAX];
    struct pipe_delivery d = delivery();
    struct pipe_words words;
    const char *why;

    (void)state;
    for (size_t i = 0; i < COUNT(many); i++) {
        many[i] = SLICE("x@a.test");
    }
    d.recipients = many;
    d.recipient_count = COUNT(many);
    assert_int_equal(pipe_command(SLICE("a $recipient"), &d, &words, &why), PIPE_BAD_COMMAND);
    pipe_words_fini(&words);
}

static void scripts_find_the_values_in_their_environment(void **state)
{
    struct pipe_delivery d = delivery();
    struct pipe_words words;
    struct buf out;

    (void)state;
    d.sender = SLICE("");
    buf_init(&out, 10000);
    pipe_environment(&d, "joe", "/home/joe", &words);
    assert_string_equal(words_text(&words, &out),
                        "PATH=/usr/local/bin:/usr/bin:/bin|SHELL=/bin/sh|LANG=C|LOGNAME=joe|"
                        "HOME=/home/joe|SENDER=MAILER-DAEMON|NEXTHOP=hop|SIZE=1234|QUEUE_ID=4Vq1|"
                        "RECIPIENT=Joe+x@a.test \"a b\"@b.test|EXTENSION=x|MAILBOX=Joe+x|"
                        "DOMAIN=a.test");
    pipe_words_fini(&words);
    buf_fini(&out);
}

#define EXITED(code) ((code) << 8)

static void an_end_means_what_sysexits_says(void **state)
{
    static const struct {
        int wait_status;
        bool timed_out;
        const char *output;
        const char *status, *text;
    } table[] = {
        {EXITED(0), false, "", "2.0.0", "delivered via svc service"},
        {EXITED(0), false, "fine\n", "2.0.0", "delivered via svc service (fine)"},
        {EXITED(EX_NOUSER), false, "", "5.1.1", "user unknown"},
        {EXITED(EX_NOUSER), false, "no joe\n", "5.1.1", "user unknown. Command output: no joe"},
        {EXITED(EX_TEMPFAIL), false, "busy", "4.3.0", "temporary failure. Command output: busy"},
        {EXITED(EX_UNAVAILABLE), false, "4.2.2 mailbox full", "4.2.2", "mailbox full"},
        {EXITED(EX_TEMPFAIL), false, "5.7.1 go away\nnow", "5.7.1", "go away?now"},
        {EXITED(EX_TEMPFAIL), false, "5.7.1", "5.7.1", "unspecified failure"},
        {EXITED(EX_TEMPFAIL), false, "2.0.0 fine", "4.3.0",
         "temporary failure. Command output: 2.0.0 fine"},
        {EXITED(1), false, "", "4.3.0", "Command died with status 1: \"/bin/x\""},
        {EXITED(0), true, "", "4.3.0", "Command time limit exceeded: \"/bin/x\""},
        {9, true, "hm", "4.3.0", "Command time limit exceeded: \"/bin/x\". Command output: hm"},
        {11, false, "5.0.0 x", "4.3.0",
         "Command died with signal 11: \"/bin/x\". Command output: 5.0.0 x"},
        {EXITED(75), false, "\033[31m", "4.3.0", "temporary failure. Command output: ?[31m"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct pipe_end end = {.wait_status = table[i].wait_status,
                               .timed_out = table[i].timed_out,
                               .output = slice_string(table[i].output),
                               .name = "/bin/x",
                               .service = "svc"};
        char printed[STATUS_SIZE];
        struct buf text;

        buf_init(&text, 2000);
        assert_string_equal(status_print(pipe_result(&end, &text), printed), table[i].status);
        assert_string_equal(buf_cstr(&text), table[i].text);
        buf_fini(&text);
    }
}

/* A command that is not found, cannot run or is wrongly set up must not return the mail. */
static void every_exit_status_has_a_meaning(void **state)
{
    static const int about_the_mail[] = {EX_DATAERR,     EX_NOUSER,   EX_NOHOST,
                                         EX_UNAVAILABLE, EX_PROTOCOL, EX_NOPERM};

    (void)state;
    for (int code = 1; code < 256; code++) {
        struct pipe_end end = {
            .wait_status = EXITED(code), .output = SLICE(""), .name = "x", .service = "y"};
        struct status status;
        bool is_permanent = false;
        struct buf text;

        for (size_t i = 0; i < COUNT(about_the_mail); i++) {
            is_permanent = is_permanent || code == about_the_mail[i];
        }
        buf_init(&text, 2000);
        status = pipe_result(&end, &text);
        assert_int_equal(status.class, is_permanent ? STATUS_PERMANENT : STATUS_TRANSIENT);
        assert_true(buf_len(&text) > 0);
        buf_fini(&text);
    }
}

UNIT_MAIN(cmocka_unit_test(a_command_line_becomes_words),
          cmocka_unit_test(an_address_is_never_an_option),
          cmocka_unit_test(too_many_words_are_refused),
          cmocka_unit_test(scripts_find_the_values_in_their_environment),
          cmocka_unit_test(an_end_means_what_sysexits_says),
          cmocka_unit_test(every_exit_status_has_a_meaning))
