/*
 * Dovecot's authentication protocol: what is said, and what its answers mean.
 */
#include "unit.h"

#include <string.h>

#include "dovecot.h"
#include "mem.h"

#define STORY_MAX 4000

#define GREETING                                                                                   \
    "VERSION\t1\t2\nMECH\tPLAIN\tplaintext\nMECH\tLOGIN\tplaintext\nMECH\tOAUTHBEARER\n"           \
    "MECH\tSCRAM-SHA-256\tmutual-auth\nSPID\t6\nCUID\t1\nCOOKIE\tabc\nDONE\n"

/* Append what the engine tells. */
static void tell(struct dovecot *d, struct buf *story)
{
    struct dovecot_event e;

    do {
        dovecot_next(d, &e);
        switch (e.type) {
        case DOVECOT_NEED_INPUT:
            break;
        case DOVECOT_READY:
            buf_add_string(story, "ready:");
            sasl_put_mechanisms(story, dovecot_mechanisms(d));
            buf_add_byte(story, ';');
            break;
        case DOVECOT_CHALLENGE:
            buf_addf(story, "%u?%.*s;", e.id, SLICE_ARGS(e.challenge));
            break;
        case DOVECOT_ACCEPTED:
            buf_addf(story, "%u+%.*s,%.*s,%.*s;", e.id, SLICE_ARGS(e.user),
                     SLICE_ARGS(e.class_name), SLICE_ARGS(e.senders));
            break;
        case DOVECOT_REFUSED:
            buf_addf(story, "%u-%.*s;", e.id, SLICE_ARGS(e.user));
            break;
        case DOVECOT_UNAVAILABLE:
            buf_addf(story, "%u!%s;", e.id, e.why);
            break;
        case DOVECOT_FAILED:
            buf_addf(story, "FAILED %s;", e.why);
            return;
        }
    } while (e.type != DOVECOT_NEED_INPUT);
}

/* Replies end wherever reads do: the story must not depend on it. */
static void check_story(const char *in, const char *want)
{
    size_t len = strlen(in);

    for (size_t cut = 0; cut <= len; cut++) {
        struct dovecot d;
        struct buf story;

        dovecot_init(&d, 7);
        buf_init(&story, STORY_MAX);
        dovecot_input(&d, slice_of(in, cut));
        tell(&d, &story);
        dovecot_input(&d, slice_of(in + cut, len - cut));
        if (strstr(buf_cstr(&story), "FAILED") == NULL) {
            tell(&d, &story);
        }
        assert_string_equal(buf_cstr(&story), want);
        buf_fini(&story);
        dovecot_fini(&d);
    }
}

static void the_greeting_says_what_may_be_offered(void **unused)
{
    (void)unused;
    check_story(GREETING, "ready:SCRAM-SHA-256 PLAIN LOGIN;");
    check_story("VERSION\t1\t9\nDONE\n", "ready:;");
    check_story("VERSION\t2\t0\nDONE\n",
                "FAILED it speaks another version of the protocol than 1;");
    check_story("MECH\tPLAIN\n", "FAILED it does not begin with its VERSION;");
    check_story("VERSION\tx\n", "FAILED its VERSION cannot be read;");
    check_story("VERSION\t1\t1\nVERSION\t1\t1\n", "FAILED its VERSION cannot be read;");
}

static void replies_are_understood(void **unused)
{
    static const struct {
        const char *in, *want;
    } cases[] = {
        {"OK\t3\tuser=app\n", "3+app,,;"},
        {"OK\t3\tuser=app\tclass=orders\tsenders=a@b.example,@c.example\tmaster=x\n",
         "3+app,orders,a@b.example,@c.example;"},
        {"OK\t4294967295\tuser=a\001xb\n", "4294967295+axb,,;"},
        {"OK\t3\tuser=app\tnologin\n", "3-app;"},
        {"OK\t3\tuser=app\tnologin=\treason=no\n", "3-app;"},
        {"OK\t3\tuser=app\tproxy\thost=192.0.2.1\n", "3-app;"},
        {"OK\t3\tuser=app\tnologins\n", "3+app,,;"},
        {"FAIL\t3\tuser=app\n", "3-app;"},
        {"FAIL\t3\n", "3-;"},
        {"FAIL\t3\tuser=app\ttemp\n", "3!Dovecot reports a temporary failure;"},
        {"FAIL\t3\tuser=app\tcode=temp_fail\n", "3!Dovecot reports a temporary failure;"},
        {"FAIL\t3\tcode=user_disabled\tuser=app\n", "3-app;"},
        {"CONT\t3\tUGFzc3dvcmQ6\n", "3?Password:;"},
        {"CONT\t3\t\n", "3?;"},
        {"CONT\t3\n", "3?;"},
        {"NEWS\t3\nFAIL\t4\n", "4-;"},
        /* Rights that cannot be read are none. */
        {"OK\t3\tuser=app\tclass=no such\n", "3!Dovecot gives the user a `class' that is none;"},
        {"OK\t3\tuser=app\tsenders=nonsense\n",
         "3!Dovecot gives the user `senders' that are none;"},
        /* Lies. */
        {"OK\t3\n", "FAILED it sends an answer that cannot be read;"},
        {"OK\t3\tuser=\n", "FAILED it sends an answer that cannot be read;"},
        {"OK\t3\tuser=a\001nb\n", "FAILED it sends an answer that cannot be read;"},
        {"OK\t3\tuser=a\0010b\n", "FAILED it sends an answer that cannot be read;"},
        {"OK\n", "FAILED it sends an answer that cannot be read;"},
        {"FAIL\t4294967296\n", "FAILED it sends an answer that cannot be read;"},
        {"FAIL\t-1\n", "FAILED it sends an answer that cannot be read;"},
        {"CONT\t3\t*\n", "FAILED it sends an answer that cannot be read;"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct buf in, want;

        buf_init(&in, STORY_MAX);
        buf_init(&want, STORY_MAX);
        buf_addf(&in, GREETING "%s", cases[i].in);
        buf_addf(&want, "ready:SCRAM-SHA-256 PLAIN LOGIN;%s", cases[i].want);
        check_story(buf_cstr(&in), buf_cstr(&want));
        buf_fini(&in);
        buf_fini(&want);
    }
}

static void what_does_not_end_is_cut_off(void **unused)
{
    char *line = mem_new(DOVECOT_LINE_MAX + 2);
    struct dovecot d;
    struct buf story;

    (void)unused;
    memset(line, 'x', DOVECOT_LINE_MAX + 1);
    buf_init(&story, STORY_MAX);
    dovecot_init(&d, 7);
    dovecot_input(&d, SLICE(GREETING));
    dovecot_input(&d, slice_of(line, DOVECOT_LINE_MAX));
    tell(&d, &story);
    assert_null(strstr(buf_cstr(&story), "FAILED"));
    dovecot_input(&d, slice_of(line, 1));
    tell(&d, &story);
    assert_non_null(strstr(buf_cstr(&story), "FAILED it sends a line that is too long;"));
    dovecot_fini(&d);

    buf_clear(&story);
    dovecot_init(&d, 7);
    dovecot_input(&d, SLICE("VERSION\t1\t1\n"));
    for (unsigned i = 1; i < DOVECOT_GREETING_MAX; i++) {
        dovecot_input(&d, SLICE("MECH\tPLAIN\n"));
        tell(&d, &story);
    }
    assert_string_equal(buf_cstr(&story), "");
    dovecot_input(&d, SLICE("MECH\tPLAIN\n"));
    tell(&d, &story);
    assert_string_equal(buf_cstr(&story), "FAILED its greeting does not end;");
    dovecot_fini(&d);
    buf_fini(&story);
    mem_free(line);
}

static void requests_are_lines_of_fields(void **unused)
{
    struct dovecot_request request = {.mechanism = SASL_PLAIN,
                                      .remote = SLICE("192.0.2.1"),
                                      .local = SLICE("2001:db8::1"),
                                      .message = SLICE("\0app\0secret")};
    struct dovecot d;
    struct buf story;

    (void)unused;
    buf_init(&story, STORY_MAX);
    dovecot_init(&d, 7);
    assert_string_equal(buf_cstr(dovecot_output(&d)), "VERSION\t1\t1\nCPID\t7\n");
    buf_clear(dovecot_output(&d));
    dovecot_input(&d, SLICE(GREETING));
    tell(&d, &story);
    dovecot_begin(&d, 1, &request);
    request = (struct dovecot_request){
        .mechanism = SASL_LOGIN, .remote = SLICE("x\ty"), .message = slice_of(NULL, 0)};
    dovecot_begin(&d, 2, &request);
    request = (struct dovecot_request){.mechanism = SASL_SCRAM_SHA_256, .message = SLICE("")};
    dovecot_begin(&d, 4294967295u, &request);
    dovecot_answer(&d, 2, SLICE("app"));
    dovecot_cancel(&d, 2);
    assert_string_equal(buf_cstr(dovecot_output(&d)),
                        "AUTH\t1\tPLAIN\tservice=smtp\tsecured\trip=192.0.2.1\tlip=2001:db8::1\t"
                        "resp=AGFwcABzZWNyZXQ=\n"
                        "AUTH\t2\tLOGIN\tservice=smtp\tsecured\n"
                        "AUTH\t4294967295\tSCRAM-SHA-256\tservice=smtp\tsecured\tresp=\n"
                        "CONT\t2\tYXBw\n"
                        "CANCEL\t2\n");
    dovecot_fini(&d);
    buf_fini(&story);
}

UNIT_MAIN(cmocka_unit_test(the_greeting_says_what_may_be_offered),
          cmocka_unit_test(replies_are_understood), cmocka_unit_test(what_does_not_end_is_cut_off),
          cmocka_unit_test(requests_are_lines_of_fields))
