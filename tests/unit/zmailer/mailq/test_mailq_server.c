/*
 * The recorded dialogues are played again: what the client said goes in, byte by byte, the lists
 * are given as they were recorded, and everything the server says must be as recorded.
 */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "base64.h"
#include "capture.h"
#include "mailq_server.h"

#define TEXT_MAX 1000000
#define NONCE    "0123456789abcdef"

struct session {
    struct mailq_server *server;
    struct mailq_auth *auth;
    struct mailq_counts counts;
    struct buf in, seen;
    bool closed;
};

static const char auth_text[] = "nobody:nobody:SNMP QQ TT ETRN:[127.0.0.1]\n"
                                "tester:secret:ALL:[127.0.0.1]\n"
                                "quiet:secret:NONE:[127.0.0.1]\n"
                                "hashed:{SCRAM-SHA-256}4096,c2FsdA==,"
                                "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=,"
                                "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:ALL:\n";

static void open_session(struct session *x, const struct mailq_peer *peer, const char *moment)
{
    struct buf problems;

    memset(x, 0, sizeof *x);
    buf_init(&problems, 1000);
    x->auth = mailq_auth_parse("auth", slice_string(auth_text), &problems);
    assert_int_equal(buf_len(&problems), 0);
    buf_fini(&problems);
    x->server = mailq_server_new(x->auth, peer, moment, NONCE, &x->counts);
    buf_init(&x->in, 100000);
    buf_init(&x->seen, TEXT_MAX);
}

static void close_session(struct session *x)
{
    mailq_server_free(x->server);
    mailq_auth_free(x->auth);
    buf_fini(&x->in);
    buf_fini(&x->seen);
}

/* Move on until something is wanted; what was said is in x->seen. */
static struct mailq_event turn(struct session *x)
{
    struct mailq_event event;
    struct buf *output = mailq_server_output(x->server);

    mailq_server_next(x->server, &x->in, &event);
    while (event.type == MAILQ_NEED_AUTH) {
        mailq_server_auth(x->server, x->auth);
        mailq_server_next(x->server, &x->in, &event);
    }
    assert_true(buf_add(&x->seen, buf_slice(output)));
    buf_consume(output, buf_len(output));
    x->closed = event.type == MAILQ_CLOSE;
    return event;
}

static struct mailq_event say(struct session *x, const char *text)
{
    struct mailq_event event = {0};

    for (size_t i = 0; text[i] != '\0'; i++) {
        assert_true(buf_add_byte(&x->in, text[i]));
        event = turn(x);
        if (event.type == MAILQ_ASK) {
            assert_int_equal(text[i + 1], '\0');
        }
    }
    return event;
}

static void assert_said(struct session *x, const char *want)
{
    assert_string_equal(buf_cstr(&x->seen), want);
    buf_clear(&x->seen);
}

static void login(struct session *x, const char *user, const char *password, const char *moment)
{
    char challenge[100], hex[33], line[200];

    assert_true(snprintf(challenge, sizeof challenge, "220 MAILQ-V2-CHALLENGE: %s", moment) > 0);
    mailq_auth_md5(slice_string(challenge), slice_string(password), hex);
    assert_true(snprintf(line, sizeof line, "AUTH %s %s\n", user, hex) > 0);
    (void)say(x, line);
}

/* A session in which somebody has logged in. */
static void open_as(struct session *x, const char *user, const char *password)
{
    open_session(x, &mailq_peer_local, "1.2.3");
    login(x, user, password, "1.2.3");
    assert_said(x, "version zmailer 2.0\n220 MAILQ-V2-CHALLENGE: 1.2.3\n+OK\n");
}

/* ---- recorded dialogues --------------------------------------------------------------------- */

/* Cut the next line that the server said off *rest, without "S: ". */
static bool next_said(struct slice *rest, struct slice *ret_line)
{
    struct slice saved = *rest;

    if (rest->ptr == NULL) {
        return false;
    }
    *ret_line = slice_cut(rest, '\n');
    if (!slice_starts(*ret_line, SLICE("S:"))) {
        *rest = saved;
        return false;
    }
    *ret_line = slice_skip(*ret_line, ret_line->len > 2 ? 3 : 2);
    return true;
}

/* Plays one dialogue from its greeting on. */
static size_t play(struct slice *rest, struct session *x)
{
    struct slice line;
    size_t commands = 0;

    for (;;) {
        struct mailq_event event;
        struct buf want;

        (void)turn(x);
        buf_init(&want, TEXT_MAX);
        if (rest->ptr != NULL && slice_starts(*rest, SLICE("C: "))) {
            line = slice_skip(slice_cut(rest, '\n'), 3);
            assert_true(buf_add(&x->in, line) && buf_add_byte(&x->in, '\n'));
            event = turn(x);
            commands++;
        } else {
            event = (struct mailq_event){.type = MAILQ_NEED_INPUT};
        }
        while (next_said(rest, &line)) {
            bool in_list = event.type == MAILQ_ASK && event.question < MAILQ_ASK_ETRN &&
                           !slice_equal(line, SLICE("+OK until LF.LF"));

            assert_true(buf_add(&want, line) && buf_add_byte(&want, '\n'));
            if (in_list && !slice_equal(line, SLICE("."))) {
                mailq_server_lines(x->server,
                                   slice_of(line.ptr, line.len + 1)); /* its line feed follows */
            } else if (in_list) {
                mailq_server_done(x->server);
                event.type = MAILQ_NEED_INPUT;
            } else if (event.type == MAILQ_ASK && event.question >= MAILQ_ASK_ETRN) {
                bool nothing = memmem(line.ptr, line.len, "didn't", 6) != NULL;

                mailq_server_verdict(x->server, !nothing, 0);
                event.type = MAILQ_NEED_INPUT;
            }
        }
        (void)turn(x);
        assert_said(x, buf_cstr(&want));
        if (buf_len(&want) == 0 && rest->ptr != NULL && !slice_starts(*rest, SLICE("C: "))) {
            buf_fini(&want);
            return commands;
        }
        buf_fini(&want);
        if (rest->ptr == NULL) {
            return commands;
        }
    }
}

static void recorded_dialogues(void **unused)
{
    static const struct {
        const char *file;
        size_t commands;
    } cases[] = {
        {TEST_DATA_DIR "/20-mailq-v2-dialogue-nobody.txt", 20},
        {TEST_DATA_DIR "/21-mailq-v2-dialogue-active.txt", 7},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct session x;
        struct buf text, bytes;
        struct slice rest, challenge;

        buf_init(&text, TEXT_MAX);
        buf_init(&bytes, TEXT_MAX);
        capture_read(cases[i].file, &text);
        capture_unescape(buf_slice(&text), &bytes);
        rest = buf_slice(&bytes);
        (void)slice_cut(&rest, '\n');
        challenge = slice_cut(&rest, '\n');
        rest = buf_slice(&bytes);
        {
            char moment[100];
            struct slice words = slice_skip(challenge, strlen("S: 220 MAILQ-V2-CHALLENGE: "));

            assert_true(snprintf(moment, sizeof moment, "%.*s", SLICE_ARGS(words)) > 0);
            open_session(&x, &mailq_peer_local, moment);
        }
        assert_int_equal(play(&rest, &x), cases[i].commands);
        assert_true(x.closed);
        close_session(&x);
        buf_fini(&text);
        buf_fini(&bytes);
    }
}

static void logins_that_fail(void **unused)
{
    const struct mailq_peer stranger = {{192, 0, 2, 1}, 4};
    struct mailq_auth *none;
    struct buf problems;
    struct session x;

    (void)unused;
    open_session(&x, &mailq_peer_local, "1.2.3");
    (void)turn(&x);
    assert_said(&x, "version zmailer 2.0\n220 MAILQ-V2-CHALLENGE: 1.2.3\n");
    (void)say(&x, "SHOW SNMP\n");
    assert_said(&x, "-BAD; USER MUST AUTHENTICATE\n");
    login(&x, "nobody", "wrong", "1.2.3");
    assert_said(&x, "-BAD USER OR PASSWORD\n");
    login(&x, "nouser", "nobody", "1.2.3");
    assert_said(&x, "-BAD USER OR AUTHENTICATOR OR CONTACT ADDRESS\n");
    (void)say(&x, "AUTH nobody\r\n");
    assert_said(&x, "-BAD USER OR AUTHENTICATOR OR CONTACT ADDRESS\n");
    login(&x, "hashed", "secret", "1.2.3");
    assert_said(&x, "-BAD USER OR PASSWORD\n");
    login(&x, "nobody", "nobody", "1.2.3");
    assert_said(&x, "+OK\n");
    (void)say(&x, "quit\n");
    assert_said(&x, "+Bye bye\n");
    assert_true(x.closed);
    close_session(&x);

    buf_init(&problems, 1000);
    none = mailq_auth_parse("auth", SLICE("u:p:ALL:[127.0.0.1]\n"), &problems);
    x = (struct session){.auth = none};
    x.server = mailq_server_new(none, &stranger, "1.2.3", NONCE, &x.counts);
    buf_init(&x.in, 100);
    buf_init(&x.seen, 1000);
    (void)turn(&x);
    assert_said(&x, "version zmailer 2.0\n550 NO ACCESS FOR YOU\n");
    assert_true(x.closed);
    close_session(&x);
    buf_fini(&problems);
}

static void guessing_ends_the_session(void **unused)
{
    struct session x;

    (void)unused;
    open_session(&x, &mailq_peer_local, "1.2.3");
    for (int i = 0; i < MAILQ_LOGINS_MAX; i++) {
        assert_false(x.closed);
        login(&x, "nobody", "wrong", "1.2.3");
    }
    assert_true(x.closed);
    close_session(&x);
}

static void rights_bound_what_may_be_asked(void **unused)
{
    struct session x;

    (void)unused;
    open_as(&x, "quiet", "secret");
    (void)say(&x, "SHOW SNMP\n");
    assert_said(&x, "-MAILQ2 Unknown command, or refused by access control; VERB='SHOW' "
                    "REST='SNMP'\n");
    (void)say(&x, "SHOW THREAD smtp x\n");
    (void)say(&x, "REROUTE smtp x\n");
    buf_clear(&x.seen);
    (void)say(&x, "ETRN x\n");
    assert_said(&x, "-No ETRN allowed for you.\n");
    (void)say(&x, "KILL MSG 1\n");
    assert_said(&x, "-No KILL allowed for you.\n");
    close_session(&x);
}

static void changes_are_asked_with_their_words(void **unused)
{
    struct session x;
    struct mailq_event event;

    (void)unused;
    open_as(&x, "tester", "secret");

    event = say(&x, "KILL MSG 11059704\n");
    assert_int_equal(event.type, MAILQ_ASK);
    assert_int_equal(event.question, MAILQ_ASK_KILL_MSG);
    assert_true(slice_equal(event.id, SLICE("11059704")));
    assert_true(slice_equal(event.user, SLICE("tester")));
    mailq_server_verdict(x.server, true, 0);
    (void)turn(&x);
    assert_said(&x, "+OK; KILLed something.\n\n");

    event = say(&x, "KILL THREAD smtp example.org\n");
    assert_int_equal(event.question, MAILQ_ASK_KILL_THREAD);
    assert_true(slice_equal(event.channel, SLICE("smtp")));
    assert_true(slice_equal(event.host, SLICE("example.org")));
    mailq_server_verdict(x.server, false, 0);
    (void)turn(&x);
    assert_said(&x, "+OK; nothing to KILL.\n\n");

    event = say(&x, "REROUTE smtp  example.org\n");
    assert_int_equal(event.question, MAILQ_ASK_REROUTE);
    assert_true(slice_equal(event.host, SLICE("example.org")));
    mailq_server_verdict(x.server, true, 0);
    (void)turn(&x);
    assert_said(&x, "+OK; REROUTEd something.\n");
    (void)say(&x, "REROUTE smtp example.org\n");
    mailq_server_verdict(x.server, true, 2);
    (void)turn(&x);
    assert_said(&x, "+OK; REROUTEd something. Being delivered: 2 recipients.\n");
    (void)say(&x, "REROUTE smtp example.org\n");
    mailq_server_verdict(x.server, false, 1);
    (void)turn(&x);
    assert_said(&x, "+OK; nothing to REROUTE. Being delivered: 1 recipient.\n");

    (void)say(&x, "KILL\n");
    assert_said(&x, "-Unknown request.\n\n");
    close_session(&x);
}

static void lists_are_dot_stuffed_and_bounded(void **unused)
{
    struct session x;
    struct mailq_event event;

    (void)unused;
    open_as(&x, "tester", "secret");
    event = say(&x, "SHOW THREAD smtp x\n");
    assert_int_equal(event.question, MAILQ_ASK_THREAD);
    mailq_server_lines(x.server, SLICE(".\n..x\ny\n"));
    mailq_server_done(x.server);
    (void)turn(&x);
    assert_said(&x, "+OK until LF.LF\n..\n...x\ny\n.\n");

    /* Nothing more is taken while the answer is outstanding or waits to be sent. */
    event = say(&x, "SHOW QUEUE THREADS\n");
    assert_int_equal(event.type, MAILQ_ASK);
    assert_true(buf_add_string(&x.in, "SHOW SNMP\n"));
    assert_int_equal(turn(&x).type, MAILQ_NEED_OUTPUT);
    while (!mailq_server_is_full(x.server)) {
        mailq_server_lines(x.server, SLICE("a line\n"));
    }
    mailq_server_done(x.server);
    mailq_server_next(x.server, &x.in, &event);
    assert_int_equal(event.type, MAILQ_NEED_OUTPUT);
    assert_int_equal(buf_len(&x.in), 10);
    buf_clear(mailq_server_output(x.server));
    mailq_server_next(x.server, &x.in, &event);
    assert_int_equal(event.type, MAILQ_ASK);
    assert_int_equal(event.question, MAILQ_ASK_TOTALS);
    close_session(&x);
}

static void endless_lines_end_the_session(void **unused)
{
    struct session x;
    struct mailq_event event = {0};

    (void)unused;
    open_session(&x, &mailq_peer_local, "1.2.3");
    for (size_t i = 0; i <= MAILQ_LINE_MAX && event.type != MAILQ_CLOSE; i++) {
        assert_true(buf_add_byte(&x.in, 'x'));
        mailq_server_next(x.server, &x.in, &event);
    }
    assert_int_equal(event.type, MAILQ_CLOSE);
    close_session(&x);

    open_session(&x, &mailq_peer_local, "1.2.3");
    (void)say(&x, "SHO");
    mailq_server_input_ended(x.server);
    (void)turn(&x);
    assert_true(x.closed);
    close_session(&x);
}

static void what_a_client_said_is_not_echoed_raw(void **unused)
{
    struct session x;

    (void)unused;
    open_as(&x, "nobody", "nobody");
    (void)say(&x, "\x1b[2J\xff a'b c\r\n");
    assert_said(&x, "-MAILQ2 Unknown command, or refused by access control; VERB='?[2J?' "
                    "REST='a'b'\n");
    close_session(&x);
}

static void version_1_dumps_and_ends(void **unused)
{
    struct session x = {.server = mailq_server_new_v1()};
    struct mailq_event event;

    (void)unused;
    buf_init(&x.in, 100);
    buf_init(&x.seen, 1000);
    event = turn(&x);
    assert_int_equal(event.type, MAILQ_ASK);
    assert_int_equal(event.question, MAILQ_ASK_DUMP);
    mailq_server_lines(x.server, SLICE("Vertices:\nEnd:\n.dots are left alone\n"));
    mailq_server_done(x.server);
    (void)turn(&x);
    assert_said(&x, "version zmailer 1.0\nVertices:\nEnd:\n.dots are left alone\n");
    assert_true(x.closed);
    close_session(&x);
}

/* Whatever happens, a ZMailer's mailq must find the end it waits for. */
static void failure_ends_what_was_begun(void **unused)
{
    static const struct {
        const char *command, *lines, *want;
    } cases[] = {
        {"SHOW SNMP\n", NULL, "-MAILQ2 The queue can't be asked now, try again later\n"},
        {"ETRN x\n", NULL, "-MAILQ2 The queue can't be asked now, try again later\n"},
        {"SHOW QUEUE THREADS\n", "a\n",
         "+OK until LF.LF\na\n(This is not all: the queue no longer answers.)\n.\n"},
        {"SHOW THREAD a b\n", "a\n",
         "+OK until LF.LF\na\n#(This is not all: the queue no longer answers.)\n.\n"},
        {"SHOW QUEUE THREADS2\n", "a\tb\n", "+OK until LF.LF\na\tb\n.\n"},
    };
    struct mailq_event event;
    struct session x;

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        open_as(&x, "tester", "secret");
        assert_int_equal(say(&x, cases[i].command).type, MAILQ_ASK);
        if (cases[i].lines != NULL) {
            mailq_server_lines(x.server, slice_string(cases[i].lines));
        }
        mailq_server_failed(x.server);
        assert_int_equal(turn(&x).type, MAILQ_NEED_INPUT);
        assert_said(&x, cases[i].want);
        close_session(&x);
    }
    for (int ended = 0; ended < 2; ended++) {
        x = (struct session){.server = mailq_server_new_v1()};
        buf_init(&x.in, 100);
        buf_init(&x.seen, 1000);
        event = turn(&x);
        assert_int_equal(event.type, MAILQ_ASK);
        mailq_server_lines(x.server, ended ? SLICE("End:\nx\n") : SLICE("Vertices:\n"));
        mailq_server_failed(x.server);
        (void)turn(&x);
        assert_said(&x, ended ? "version zmailer 1.0\nEnd:\nx\n"
                                "(This is not all: the queue no longer answers.)\n"
                              : "version zmailer 1.0\nVertices:\nEnd:\n"
                                "(This is not all: the queue no longer answers.)\n");
        assert_true(x.closed);
        close_session(&x);
    }
}

static void sessions_are_counted(void **unused)
{
    static const char *const commands[] = {
        "SHOW SNMP\n",   "SHOW QUEUE SHORT\n", "SHOW QUEUE THREADS2\n",
        "SHOW THREAD\n", "SHOW COUNTERS\n",    "ETRN x\n",
    };
    struct mailq_counter rows[MAILQ_COUNTS_ROWS];
    struct session x;
    uint64_t sum = 0;

    (void)unused;
    open_session(&x, &mailq_peer_local, "1.2.3");
    login(&x, "nobody", "wrong", "1.2.3");
    login(&x, "nobody", "nobody", "1.2.3");
    for (size_t i = 0; i < COUNT(commands); i++) {
        assert_int_equal(say(&x, commands[i]).type, MAILQ_ASK);
        mailq_server_failed(x.server);
    }
    (void)say(&x, "KILL MSG x\n");
    (void)say(&x, "HELP\n");
    (void)say(&x, "QUIT\n");
    assert_int_equal(x.counts.commands, 11);
    assert_int_equal(x.counts.command_rejects, 2);
    assert_int_equal(x.counts.auths, 2);
    assert_int_equal(x.counts.auth_rejects, 1);
    mailq_counts_rows(&x.counts, rows);
    for (size_t i = 0; i < COUNT(rows); i++) {
        sum += rows[i].value;
    }
    assert_int_equal(sum, 11 + 2 + 2 + 1 + 6 + 1); /* and QUIT */
    close_session(&x);
}

/* ---- SCRAM ---------------------------------------------------------------------------------- */

static void scram_login(struct session *x, const char *user, const char *password)
{
    struct scram client;
    struct buf message, line, answer;
    struct slice said;

    scram_init(&client);
    buf_init(&message, 3000);
    buf_init(&line, 3000);
    buf_init(&answer, 3000);
    scram_client_first(&client, slice_string(user), SLICE("fyko+d2lbbFgONRv9qkxdawL"), &message);
    assert_true(buf_add_string(&line, "SCRAM-SHA-256 "));
    base64_put(&line, buf_slice(&message));
    assert_true(buf_add_byte(&line, '\n'));
    buf_clear(&x->seen);
    (void)say(x, buf_cstr(&line));
    said = buf_slice(&x->seen);
    if (said.ptr[0] == '+') {
        assert_true(base64_get(slice_of(said.ptr + 1, said.len - 2), &answer));
        buf_clear(&message);
        assert_true(
            scram_client_final(&client, buf_slice(&answer), slice_string(password), &message));
        buf_clear(&line);
        base64_put(&line, buf_slice(&message));
        assert_true(buf_add_byte(&line, '\n'));
        buf_clear(&x->seen);
        (void)say(x, buf_cstr(&line));
        said = buf_slice(&x->seen);
        if (slice_starts(said, SLICE("+OK "))) {
            buf_clear(&answer);
            assert_true(base64_get(slice_of(said.ptr + 4, said.len - 5), &answer));
            assert_true(scram_client_verify(&client, buf_slice(&answer)));
        }
    }
    scram_fini(&client);
    buf_fini(&message);
    buf_fini(&line);
    buf_fini(&answer);
}

static void scram_logs_in(void **unused)
{
    struct session x;
    struct mailq_event event;

    (void)unused;
    open_session(&x, &mailq_peer_local, "1.2.3");
    (void)say(&x, "SCRAM-SHA-256 !\n");
    (void)say(&x, "SCRAM-SHA-256\n");
    buf_clear(&x.seen);
    scram_login(&x, "tester", "wrong");
    assert_said(&x, "-BAD USER OR PASSWORD\n");
    scram_login(&x, "nouser", "secret");
    assert_said(&x, "-BAD USER OR AUTHENTICATOR OR CONTACT ADDRESS\n");
    (void)say(&x, "SHOW SNMP\n");
    assert_said(&x, "-BAD; USER MUST AUTHENTICATE\n");
    scram_login(&x, "tester", "secret");
    assert_true(slice_starts(buf_slice(&x.seen), SLICE("+OK ")));
    event = say(&x, "SHOW SNMP\n");
    assert_int_equal(event.type, MAILQ_ASK);
    assert_true(slice_equal(event.user, SLICE("tester")));
    close_session(&x);
}

UNIT_MAIN(cmocka_unit_test(recorded_dialogues), cmocka_unit_test(logins_that_fail),
          cmocka_unit_test(guessing_ends_the_session),
          cmocka_unit_test(rights_bound_what_may_be_asked),
          cmocka_unit_test(changes_are_asked_with_their_words),
          cmocka_unit_test(lists_are_dot_stuffed_and_bounded),
          cmocka_unit_test(endless_lines_end_the_session),
          cmocka_unit_test(what_a_client_said_is_not_echoed_raw),
          cmocka_unit_test(version_1_dumps_and_ends), cmocka_unit_test(failure_ends_what_was_begun),
          cmocka_unit_test(sessions_are_counted), cmocka_unit_test(scram_logs_in))
