#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "client.h"
#include "envelope.h"
#include "mem.h"

#define HOST     "mx.example[192.0.2.1]"
#define RCPT_MAX 64

/*
 * A talk is a list of lines: the server's begin with "S:", what the client is to send with "C:",
 * and events, as tell() prints them, with "=". The server's bytes up to the next line of another
 * kind are one burst; every test cuts each burst into pieces of 1, 2, 3 .. bytes and in one
 * piece, and wants the same talk.
 */
struct talk {
    struct client_config config;
    struct client_mail mail;
    struct client_rcpt rcpts[RCPT_MAX];
    const char *content;
    size_t transactions; /* to begin, one after another */
    bool break_off;      /* at the last look */
    struct client_login login;
};

struct session {
    const struct talk *talk;
    struct client client;
    struct mono now;
    struct buf sent;  /* not yet compared with the script */
    struct buf story; /* events not yet compared with the script */
    size_t begun;
    size_t content_used;
    uint8_t verdicts[RCPT_MAX];
};

static struct talk talk_of(size_t rcpt_count)
{
    static const char *const names[] = {"a@x", "b@x", "c@x", "d@x"};
    struct talk t = {.content = "Subject: x\r\n\r\n.dot\r\nend\r\n", .transactions = 1};

    client_config_defaults(&t.config);
    t.config.hostname = SLICE("me.example");
    t.config.skip_quit_response = false;
    for (size_t i = 0; i < rcpt_count; i++) {
        t.rcpts[i].address = slice_string(names[i]);
    }
    t.mail = (struct client_mail){.sender = SLICE("s@y"), .rcpt_count = rcpt_count};
    return t;
}

static const char *cause_name(enum client_cause cause)
{
    static const char *const names[] = {
        [CLIENT_CAUSE_REFUSED] = "refused", [CLIENT_CAUSE_LOST] = "lost",
        [CLIENT_CAUSE_TIMEOUT] = "timeout", [CLIENT_CAUSE_PROTOCOL] = "protocol",
        [CLIENT_CAUSE_TLS] = "tls",         [CLIENT_CAUSE_LOOP] = "loop",
        [CLIENT_CAUSE_LOGIN] = "login",     [CLIENT_CAUSE_BROKEN_OFF] = "broken_off",
    };

    return names[cause];
}

static void tell(struct session *s, const struct client_event *e)
{
    static const char *const outcomes[] = {"sent", "deferred", "bounced"};
    char status[STATUS_SIZE];

    switch (e->kind) {
    case CLIENT_READY:
        buf_add_string(&s->story, "=READY\n");
        return;
    case CLIENT_NEED_TLS:
        buf_add_string(&s->story, "=NEED_TLS\n");
        return;
    case CLIENT_NEED_CONTENT:
        return;
    case CLIENT_RCPT_VERDICT:
        buf_addf(&s->story, "=%zu %s %u %s %.*s%s%s\n", e->rcpt, outcomes[e->outcome], e->code,
                 status_print(e->status, status), SLICE_ARGS(e->text), e->dsn_passed ? " +dsn" : "",
                 e->too_many ? " +too_many" : "");
        return;
    case CLIENT_TRANSACTION_DONE:
        buf_addf(&s->story, "=DONE%s\n", e->reusable ? "" : " close");
        return;
    case CLIENT_FAILED:
        buf_addf(&s->story, "=FAILED %s %s %u %s %.*s%s%s%s\n", cause_name(e->cause),
                 outcomes[e->outcome], e->code, status_print(e->status, status),
                 SLICE_ARGS(e->text), e->site ? " +site" : "",
                 e->content_was_sent ? " +was_sent" : "",
                 e->retry_in_clear ? " +retry_in_clear" : "");
        for (size_t i = 0; i < s->talk->mail.rcpt_count && s->begun > 0; i++) {
            if (client_unresolved(&s->client, i)) {
                buf_addf(&s->story, "=%zu unresolved\n", i);
            }
        }
        return;
    case CLIENT_CLOSED:
        buf_add_string(&s->story, "=CLOSED\n");
        return;
    }
}

static void begin(struct session *s)
{
    struct client_mail mail = s->talk->mail;

    mail.rcpts = s->talk->rcpts;
    memset(s->verdicts, 0, sizeof(s->verdicts));
    s->content_used = 0;
    s->begun++;
    client_begin(&s->client, &mail, s->now);
}

static void drain(struct session *s)
{
    struct client_event e;
    struct buf *out = client_output(&s->client);
    bool more = true;

    while (more) {
        more = client_next(&s->client, s->now, &e);
        client_audit(&s->client);
        if (more) {
            tell(s, &e);
            if (e.kind == CLIENT_RCPT_VERDICT) {
                assert_int_equal(s->verdicts[e.rcpt]++, 0);
            }
            if (e.kind == CLIENT_NEED_CONTENT) {
                struct slice rest = slice_skip(slice_string(s->talk->content), s->content_used);

                s->content_used += client_content(&s->client, rest, true, s->now);
            }
            if ((e.kind == CLIENT_READY || (e.kind == CLIENT_TRANSACTION_DONE && e.reusable)) &&
                s->begun < s->talk->transactions) {
                begin(s);
            }
        }
        if (client_at_last_look(&s->client)) {
            if (s->talk->break_off) {
                client_break_off(&s->client);
                more = true;
            } else {
                client_pass_last_look(&s->client);
            }
        }
        client_audit(&s->client);
        if (buf_len(out) > 0) {
            buf_add(&s->sent, buf_slice(out));
            buf_consume(out, buf_len(out));
            more = true;
        }
    }
}

static void session_init(struct session *s, const struct talk *talk)
{
    *s = (struct session){.talk = talk, .now = {1000 * US_PER_S}};
    buf_init(&s->sent, 1000000);
    buf_init(&s->story, 1000000);
    client_init(&s->client, &talk->config, SLICE(HOST), s->now);
    if (talk->login.mechanisms != 0) {
        client_log_in(&s->client, &talk->login);
    }
}

static void session_fini(struct session *s)
{
    client_fini(&s->client);
    buf_fini(&s->sent);
    buf_fini(&s->story);
}

static void feed(struct session *s, struct slice bytes, size_t step)
{
    while (bytes.len > 0) {
        struct slice piece = slice_of(bytes.ptr, bytes.len < step ? bytes.len : step);
        size_t used = client_input(&s->client, piece, s->now);

        bytes = slice_skip(bytes, used);
        drain(s);
        assert_true(used > 0);
    }
}

/* Take one line off `from` and compare. */
static void want_line(struct buf *from, struct slice want, const char *end)
{
    struct slice have = buf_slice(from);
    char got[2000], wanted[2000];

    have.len = slice_find(have, '\n') < have.len ? slice_find(have, '\n') + 1 : have.len;
    snprintf(got, sizeof(got), "%.*s", SLICE_ARGS(have));
    snprintf(wanted, sizeof(wanted), "%.*s%s", SLICE_ARGS(want), end);
    assert_string_equal(got, wanted);
    buf_consume(from, have.len);
}

static void play_split(const struct talk *talk, const char *script, size_t step)
{
    struct session s;
    struct slice rest = slice_string(script);

    session_init(&s, talk);
    drain(&s);
    while (rest.len > 0) {
        struct slice line = slice_cut(&rest, '\n');
        struct slice body = slice_skip(line, 2);
        struct buf burst;

        if (slice_starts(line, SLICE("S:"))) {
            buf_init(&burst, 100000);
            for (;;) {
                buf_addf(&burst, "%.*s\r\n", SLICE_ARGS(body));
                if (!slice_starts(rest, SLICE("S:"))) {
                    break;
                }
                body = slice_skip(slice_cut(&rest, '\n'), 2);
            }
            feed(&s, buf_slice(&burst), step);
            buf_fini(&burst);
        } else if (slice_starts(line, SLICE("C:"))) {
            want_line(&s.sent, body, "\r\n");
        } else if (slice_starts(line, SLICE("="))) {
            want_line(&s.story, line, "\n");
        } else if (slice_equal(line, SLICE("!lost"))) {
            client_lost(&s.client);
            drain(&s);
        } else if (slice_equal(line, SLICE("!tls"))) {
            client_tls_started(&s.client, s.now);
            drain(&s);
        } else if (slice_equal(line, SLICE("!notls"))) {
            client_tls_failed(&s.client, SLICE("certificate\nexpired"));
            drain(&s);
        } else if (slice_equal(line, SLICE("!quit"))) {
            client_quit(&s.client, s.now);
            drain(&s);
        } else if (slice_starts(line, SLICE("!wait "))) {
            int64_t us = strtoll(line.ptr + 6, NULL, 10) * US_PER_S;

            /* Not a moment too early, and at the very moment. */
            assert_int_equal(client_deadline(&s.client).us, s.now.us + us);
            s.now.us += us - 1;
            client_expire(&s.client, s.now);
            drain(&s);
            assert_int_equal(buf_len(&s.story), 0);
            s.now.us++;
            drain(&s); /* time alone does nothing: a reply may wait in the socket */
            assert_int_equal(buf_len(&s.story), 0);
            client_expire(&s.client, s.now);
            drain(&s);
        } else if (slice_starts(line, SLICE("!pass "))) {
            s.now.us += strtoll(line.ptr + 6, NULL, 10) * US_PER_S;
        } else {
            fail_msg("what is '%.*s'?", SLICE_ARGS(line));
        }
    }
    want_line(&s.sent, SLICE(""), "");
    want_line(&s.story, SLICE(""), "");
    session_fini(&s);
}

static void play(const struct talk *talk, const char *script)
{
    for (size_t step = 1; step <= 40; step++) {
        play_split(talk, script, step);
    }
    play_split(talk, script, 10000);
}

#define PLAIN_HELLO                                                                                \
    "S:220 mx ESMTP\n"                                                                             \
    "C:EHLO me.example\n"                                                                          \
    "S:250 mx\n"                                                                                   \
    "=READY\n"
#define PIPE_HELLO                                                                                 \
    "S:220 mx ESMTP\n"                                                                             \
    "C:EHLO me.example\n"                                                                          \
    "S:250-mx\n"                                                                                   \
    "S:250 PIPELINING\n"                                                                           \
    "=READY\n"
#define CONTENT_LINES                                                                              \
    "C:Subject: x\n"                                                                               \
    "C:\n"                                                                                         \
    "C:..dot\n"                                                                                    \
    "C:end\n"                                                                                      \
    "C:.\n"

static void step_by_step_without_pipelining(void **state)
{
    struct talk t = talk_of(2);
    (void)state;

    play(&t, PLAIN_HELLO "C:MAIL FROM:<s@y>\n"
                         "S:250 2.1.0 Ok\n"
                         "C:RCPT TO:<a@x>\n"
                         "S:250 2.1.5 Ok\n"
                         "C:RCPT TO:<b@x>\n"
                         "S:250 2.1.5 Ok\n"
                         "C:DATA\n"
                         "S:354 go\n" CONTENT_LINES "S:250 2.0.0 Ok: queued as 1\n"
                         "=0 sent 250 2.0.0 250 2.0.0 Ok: queued as 1\n"
                         "=1 sent 250 2.0.0 250 2.0.0 Ok: queued as 1\n"
                         "=DONE\n"
                         "!quit\n"
                         "C:QUIT\n"
                         "S:221 bye\n"
                         "=CLOSED\n");
}

static void all_in_one_write_with_pipelining(void **state)
{
    struct talk t = talk_of(2);
    (void)state;

    play(&t, PIPE_HELLO "C:MAIL FROM:<s@y>\n"
                        "C:RCPT TO:<a@x>\n"
                        "C:RCPT TO:<b@x>\n"
                        "C:DATA\n"
                        "S:250 Ok\n"
                        "S:250 Ok\n"
                        "S:250 Ok\n"
                        "S:354 go\n" CONTENT_LINES "S:250 Ok\n"
                        "=0 sent 250 2.0.0 250 Ok\n"
                        "=1 sent 250 2.0.0 250 Ok\n"
                        "=DONE\n");
    t.config.pipelining = false;
    play(&t, PIPE_HELLO "C:MAIL FROM:<s@y>\n"
                        "S:250 Ok\n"
                        "C:RCPT TO:<a@x>\n");
}

static void recipients_get_verdicts_of_their_own(void **state)
{
    static const char *const wants[] = {
        "=0 bounced 550 5.1.1 host " HOST
        " said: 550-5.1.1 no 550 5.1.1 such user (in reply to RCPT TO command)\n",
        "=2 deferred 452 4.5.3 host " HOST
        " said: 452 full (in reply to RCPT TO command) +too_many\n",
    };
    struct talk t = talk_of(3);
    char script[4000];
    (void)state;

    snprintf(script, sizeof(script),
             PIPE_HELLO "C:MAIL FROM:<s@y>\n"
                        "C:RCPT TO:<a@x>\n"
                        "C:RCPT TO:<b@x>\n"
                        "C:RCPT TO:<c@x>\n"
                        "C:DATA\n"
                        "S:250 Ok\n"
                        "S:550-5.1.1 no\n"
                        "S:550 5.1.1 such user\n"
                        "S:250 Ok\n"
                        "S:452 full\n"
                        "S:354 go\n"
                        "%s%s" CONTENT_LINES "S:250 2.6.0 taken\n"
                        "=1 sent 250 2.6.0 250 2.6.0 taken\n"
                        "=DONE\n",
             wants[0], wants[1]);
    play(&t, script);
    snprintf(script, sizeof(script),
             PLAIN_HELLO "C:MAIL FROM:<s@y>\n"
                         "S:250 Ok\n"
                         "C:RCPT TO:<a@x>\n"
                         "S:550-5.1.1 no\n"
                         "S:550 5.1.1 such user\n"
                         "%s"
                         "C:RCPT TO:<b@x>\n"
                         "S:250 Ok\n"
                         "C:RCPT TO:<c@x>\n"
                         "S:452 full\n"
                         "%s"
                         "C:DATA\n"
                         "S:354 go\n" CONTENT_LINES "S:554 5.7.1 spam\n"
                         "=1 bounced 554 5.7.1 host " HOST
                         " said: 554 5.7.1 spam (in reply to end of DATA command)\n"
                         "=DONE\n",
             wants[0], wants[1]);
    play(&t, script);
}

static void a_refused_sender_settles_everybody(void **state)
{
    struct talk t = talk_of(2);
    (void)state;

    t.transactions = 2;
    play(&t, PIPE_HELLO "C:MAIL FROM:<s@y>\n"
                        "C:RCPT TO:<a@x>\n"
                        "C:RCPT TO:<b@x>\n"
                        "C:DATA\n"
                        "S:451 4.7.1 later\n"
                        "S:503 no sender\n"
                        "S:250 what?\n"
                        "S:503 no recipients\n"
                        "=0 deferred 451 4.7.1 host " HOST
                        " said: 451 4.7.1 later (in reply to MAIL FROM command)\n"
                        "=1 deferred 451 4.7.1 host " HOST
                        " said: 451 4.7.1 later (in reply to MAIL FROM command)\n"
                        "=DONE\n"
                        "C:MAIL FROM:<s@y>\n"
                        "C:RCPT TO:<a@x>\n"
                        "C:RCPT TO:<b@x>\n"
                        "C:DATA\n");
    play(&t, PLAIN_HELLO
         "C:MAIL FROM:<s@y>\n"
         "S:550 no\n"
         "=0 bounced 550 5.0.0 host " HOST " said: 550 no (in reply to MAIL FROM command)\n"
         "=1 bounced 550 5.0.0 host " HOST " said: 550 no (in reply to MAIL FROM command)\n"
         "=DONE\n"
         "C:MAIL FROM:<s@y>\n");
}

static void no_content_when_nobody_is_accepted(void **state)
{
    struct talk t = talk_of(1);
    (void)state;

    t.transactions = 2;
    play(&t, PLAIN_HELLO "C:MAIL FROM:<s@y>\n"
                         "S:250 Ok\n"
                         "C:RCPT TO:<a@x>\n"
                         "S:550 no\n"
                         "=0 bounced 550 5.0.0 host " HOST
                         " said: 550 no (in reply to RCPT TO command)\n"
                         "=DONE\n"
                         "C:RSET\n"
                         "S:250 Ok\n"
                         "C:MAIL FROM:<s@y>\n");
    play(&t, PIPE_HELLO "C:MAIL FROM:<s@y>\n"
                        "C:RCPT TO:<a@x>\n"
                        "C:DATA\n"
                        "S:250 Ok\n"
                        "S:550 no\n"
                        "S:354 go on then\n"
                        "=0 bounced 550 5.0.0 host " HOST
                        " said: 550 no (in reply to RCPT TO command)\n"
                        "C:.\n"
                        "S:554 no valid recipients\n"
                        "=DONE\n"
                        "C:MAIL FROM:<s@y>\n"
                        "C:RCPT TO:<a@x>\n"
                        "C:DATA\n");
    play(&t, PIPE_HELLO "C:MAIL FROM:<s@y>\n"
                        "C:RCPT TO:<a@x>\n"
                        "C:DATA\n"
                        "S:250 Ok\n"
                        "S:550 no\n"
                        "S:554 no valid recipients\n"
                        "=0 bounced 550 5.0.0 host " HOST
                        " said: 550 no (in reply to RCPT TO command)\n"
                        "=DONE\n"
                        "C:RSET\n"
                        "C:MAIL FROM:<s@y>\n"
                        "C:RCPT TO:<a@x>\n"
                        "C:DATA\n"
                        "S:250 Ok\n"
                        "S:250 Ok\n");
}

static void a_refused_rset_fails_the_session(void **state)
{
    struct talk t = talk_of(1);
    (void)state;

    t.transactions = 2;
    play(&t, PLAIN_HELLO "C:MAIL FROM:<s@y>\n"
                         "S:250 Ok\n"
                         "C:RCPT TO:<a@x>\n"
                         "S:550 no\n"
                         "=0 bounced 550 5.0.0 host " HOST
                         " said: 550 no (in reply to RCPT TO command)\n"
                         "=DONE\n"
                         "C:RSET\n"
                         "S:502 no\n"
                         "=FAILED refused deferred 502 4.0.0 host " HOST
                         " said: 502 no (in reply to RSET command)\n"
                         "=0 unresolved\n");
}

static void refused_data_settles_the_accepted(void **state)
{
    struct talk t = talk_of(2);
    (void)state;

    play(&t, PIPE_HELLO
         "C:MAIL FROM:<s@y>\n"
         "C:RCPT TO:<a@x>\n"
         "C:RCPT TO:<b@x>\n"
         "C:DATA\n"
         "S:250 Ok\n"
         "S:550 no\n"
         "S:250 Ok\n"
         "S:451 no\n"
         "=0 bounced 550 5.0.0 host " HOST " said: 550 no (in reply to RCPT TO command)\n"
         "=1 deferred 451 4.0.0 host " HOST " said: 451 no (in reply to DATA command)\n"
         "=DONE\n");
}

static void lmtp_answers_once_per_recipient(void **state)
{
    struct talk t = talk_of(3);
    (void)state;

    t.config.lmtp = true;
    play(&t,
         "S:220 mx LMTP\n"
         "C:LHLO me.example\n"
         "S:250-mx\n"
         "S:250-PIPELINING\n"
         "S:250 DSN\n"
         "=READY\n"
         "C:MAIL FROM:<s@y>\n"
         "C:RCPT TO:<a@x>\n"
         "C:RCPT TO:<b@x>\n"
         "C:RCPT TO:<c@x>\n"
         "C:DATA\n"
         "S:250 Ok\n"
         "S:250 Ok\n"
         "S:550 no\n"
         "S:250 Ok\n"
         "S:354 go\n"
         "=1 bounced 550 5.0.0 host " HOST
         " said: 550 no (in reply to RCPT TO command) +dsn\n" CONTENT_LINES "S:250 2.0.0 stored\n"
         "S:452 4.2.2 over quota\n"
         "=0 sent 250 2.0.0 250 2.0.0 stored +dsn\n"
         "=2 deferred 452 4.2.2 host " HOST
         " said: 452 4.2.2 over quota (in reply to end of DATA command) +dsn\n"
         "=DONE\n");
    play(&t,
         "S:220 mx LMTP\n"
         "C:LHLO me.example\n"
         "S:500 what?\n"
         "=FAILED refused bounced 500 5.0.0 host " HOST " refused to talk to me: 500 what? +site\n"
         "C:QUIT\n");
    t.mail.rcpt_count = 1;
    play(&t, "S:220 mx LMTP\n"
             "C:LHLO me.example\n"
             "S:250-mx\n"
             "S:250 PIPELINING\n"
             "=READY\n"
             "C:MAIL FROM:<s@y>\n"
             "C:RCPT TO:<a@x>\n"
             "C:DATA\n"
             "S:250 Ok\n"
             "S:550 no\n"
             "S:354 go\n"
             "=0 bounced 550 5.0.0 host " HOST " said: 550 no (in reply to RCPT TO command)\n"
             "=DONE close\n");
}

static void a_lost_lmtp_session_leaves_the_unanswered_in_doubt(void **state)
{
    struct talk t = talk_of(2);
    (void)state;

    t.config.lmtp = true;
    play(&t, "S:220 mx LMTP\n"
             "C:LHLO me.example\n"
             "S:250-mx\n"
             "S:250 PIPELINING\n"
             "=READY\n"
             "C:MAIL FROM:<s@y>\n"
             "C:RCPT TO:<a@x>\n"
             "C:RCPT TO:<b@x>\n"
             "C:DATA\n"
             "S:250 Ok\n"
             "S:250 Ok\n"
             "S:250 Ok\n"
             "S:354 go\n" CONTENT_LINES "S:250 stored\n"
             "!lost\n"
             "=0 sent 250 2.0.0 250 stored\n"
             "=FAILED lost deferred 0 4.4.2 lost connection with " HOST
             " while sending end of data -- message may be sent more than once +site +was_sent\n"
             "=1 unresolved\n");
}

static void greetings_may_refuse(void **state)
{
    struct talk t = talk_of(1);
    (void)state;

    play(&t, "S:421-4.3.2 too\n"
             "S:421 4.3.2 busy\n"
             "=FAILED refused deferred 421 4.3.2 host " HOST
             " refused to talk to me: 421-4.3.2 too 421 4.3.2 busy +site\n");
    play(&t, "S:554 5.7.1 go away\n"
             "=FAILED refused deferred 554 4.7.1 host " HOST
             " refused to talk to me: 554 5.7.1 go away +site\n"
             "C:QUIT\n");
    t.config.skip_5xx_greeting = false;
    play(&t, "S:554 5.7.1 go away\n"
             "=FAILED refused bounced 554 5.7.1 host " HOST
             " refused to talk to me: 554 5.7.1 go away +site\n"
             "C:QUIT\n");
    play(&t, "S:354 go\n"
             "=FAILED protocol deferred 354 4.5.0 remote protocol error in reply from " HOST
             " while receiving the initial server greeting: 354 go +site\n");
    play(&t, "S:SSH-2.0-OpenSSH\n"
             "=FAILED protocol deferred 0 4.5.0 remote protocol error in reply from " HOST
             " while receiving the initial server greeting: SSH-2.0-OpenSSH +site\n");
}

static void helo_is_the_way_back(void **state)
{
    struct talk t = talk_of(1);
    (void)state;

    play(&t, "S:220 mx\n"
             "C:EHLO me.example\n"
             "S:502 what?\n"
             "C:HELO me.example\n"
             "S:250 mx\n"
             "=READY\n"
             "C:MAIL FROM:<s@y>\n");
    play(&t,
         "S:220 mx\n"
         "C:EHLO me.example\n"
         "S:502 what?\n"
         "C:HELO me.example\n"
         "S:450 no\n"
         "=FAILED refused deferred 450 4.0.0 host " HOST " refused to talk to me: 450 no +site\n"
         "C:QUIT\n");
    play(&t,
         "S:220 mx\n"
         "C:EHLO me.example\n"
         "S:421 no\n"
         "=FAILED refused deferred 421 4.0.0 host " HOST " refused to talk to me: 421 no +site\n");
}

static void tls_follows_the_policy(void **state)
{
    struct talk t = talk_of(1);
    (void)state;

    t.config.tls = CLIENT_TLS_MAY;
    play(&t, "S:220 mx\n"
             "C:EHLO me.example\n"
             "S:250-mx\n"
             "S:250-DSN\n"
             "S:250 starttls\n"
             "C:STARTTLS\n"
             "S:220 go\n"
             "=NEED_TLS\n"
             "!tls\n"
             "C:EHLO me.example\n"
             "S:250-mx\n"
             "S:250 STARTTLS\n"
             "=READY\n"
             "C:MAIL FROM:<s@y>\n");
    play(&t, "S:220 mx\n"
             "C:EHLO me.example\n"
             "S:250-mx\n"
             "S:250 STARTTLS\n"
             "C:STARTTLS\n"
             "S:454 no\n"
             "=READY\n"
             "C:MAIL FROM:<s@y>\n");
    play(&t, "S:220 mx\n"
             "C:EHLO me.example\n"
             "S:250-mx\n"
             "S:250 STARTTLS\n"
             "C:STARTTLS\n"
             "S:220 go\n"
             "=NEED_TLS\n"
             "!notls\n"
             "=FAILED tls deferred 0 4.7.5 Cannot start TLS: handshake failure: "
             "certificate?expired +retry_in_clear\n");
    play(&t, "S:220 mx\n"
             "C:EHLO me.example\n"
             "S:250-mx\n"
             "S:250 STARTTLS\n"
             "C:STARTTLS\n"
             "S:220 go\n"
             "S:250 injected\n"
             "=NEED_TLS\n"
             "=FAILED protocol deferred 0 4.5.0 remote protocol error: host " HOST
             " sent more than its consent to TLS +site\n");
    play(&t, PLAIN_HELLO "C:MAIL FROM:<s@y>\n");
    play(&t,
         "S:220 mx\n"
         "C:EHLO me.example\n"
         "S:250-mx\n"
         "S:250 STARTTLS\n"
         "C:STARTTLS\n"
         "S:421 no\n"
         "=FAILED refused deferred 421 4.0.0 host " HOST " refused to talk to me: 421 no +site\n");
    play(&t, "S:220 mx\n"
             "C:EHLO me.example\n"
             "S:250-mx\n"
             "S:250 STARTTLS\n"
             "C:STARTTLS\n"
             "S:354 go\n"
             "=FAILED protocol deferred 354 4.5.0 remote protocol error in reply from " HOST
             " while receiving the STARTTLS response: 354 go +site\n");
    t.config.tls = CLIENT_TLS_VERIFY;
    play(&t, "S:220 mx\n"
             "C:EHLO me.example\n"
             "S:250-mx\n"
             "S:250 STARTTLS\n"
             "C:STARTTLS\n"
             "S:220 go\n"
             "=NEED_TLS\n"
             "!notls\n"
             "=FAILED tls deferred 0 4.7.5 Cannot start TLS: handshake failure: "
             "certificate?expired +site\n");
    play(&t, "S:220 mx\n"
             "C:EHLO me.example\n"
             "S:250-mx\n"
             "S:250 STARTTLS\n"
             "C:STARTTLS\n"
             "S:454 no\n"
             "=FAILED tls deferred 0 4.7.4 TLS is required, but host " HOST
             " refused to start TLS: 454 no +site\n"
             "C:QUIT\n");
    play(&t, "S:220 mx\n"
             "C:EHLO me.example\n"
             "S:250 mx\n"
             "=FAILED tls deferred 0 4.7.4 TLS is required, but was not offered by host " HOST
             " +site\n"
             "C:QUIT\n");
    play(&t, "S:220 mx\n"
             "C:EHLO me.example\n"
             "S:500 what?\n"
             "C:HELO me.example\n"
             "S:250 mx\n"
             "=FAILED tls deferred 0 4.7.4 TLS is required, but was not offered by host " HOST
             " +site\n"
             "C:QUIT\n");
}

#define AUTH_HELLO(offer)                                                                          \
    "S:220 mx\n"                                                                                   \
    "C:EHLO me.example\n"                                                                          \
    "S:250-mx\n"                                                                                   \
    "S:250 " offer "\n"
#define SCRAM_TALK                                                                                 \
    "C:AUTH SCRAM-SHA-256 biwsbj11c2VyLHI9ck9wck5HZndFYmVSV2diTkVrcU8=\n"                          \
    "S:334 "                                                                                       \
    "cj1yT3ByTkdmd0ViZVJXZ2JORWtxTyVodllEcFdVYTJSYVRDQWZ1eEZJbGopaE5sRiRrMCxzPVcyMlphSjBTTlk"      \
    "3c29Fc1VFamI2Z1E9PSxpPTQwOTY=\n"                                                              \
    "C:"                                                                                           \
    "Yz1iaXdzLHI9ck9wck5HZndFYmVSV2diTkVrcU8laHZZRHBXVWEyUmFUQ0FmdXhGSWxqKWhObEYkazAscD1kSHpiWmF"  \
    "wV0lrNGpVaE4rVXRlOXl0YWc5empmTUhnc3FtbWl6N0FuZFZRPQ==\n"
#define FAILED_LOGIN "SASL authentication failed; server " HOST

static struct talk talk_with_login(unsigned mechanisms)
{
    struct talk t = talk_of(1);

    t.login = (struct client_login){SLICE("user"), SLICE("pencil"), SLICE("rOprNGfwEbeRWgbNEkqO"),
                                    mechanisms};
    return t;
}

static void a_login_comes_before_the_first_mail(void **state)
{
    struct talk t = talk_with_login(SASL_MECHANISMS);
    (void)state;

    play(&t, AUTH_HELLO("AUTH LOGIN PLAIN") "C:AUTH PLAIN AHVzZXIAcGVuY2ls\n"
                                            "S:235 2.7.0 welcome\n"
                                            "=READY\n"
                                            "C:MAIL FROM:<s@y>\n");
    play(&t, AUTH_HELLO("AUTH=LOGIN") "C:AUTH LOGIN\n"
                                      "S:334 VXNlcm5hbWU6\n"
                                      "C:dXNlcg==\n"
                                      "S:334 UGFzc3dvcmQ6\n"
                                      "C:cGVuY2ls\n"
                                      "S:235 2.7.0 welcome\n"
                                      "=READY\n"
                                      "C:MAIL FROM:<s@y>\n");
    /* The dialogue of RFC 7677, whose server proves itself. */
    play(&t, AUTH_HELLO("AUTH PLAIN SCRAM-SHA-256") SCRAM_TALK
         "S:334 dj02cnJpVFJCaTIzV3BSUi93dHVwK21NaFVaVW4vZEI1bkxUSlJzamw5NUc0PQ==\n"
         "C:\n"
         "S:235 2.7.0 welcome\n"
         "=READY\n"
         "C:MAIL FROM:<s@y>\n");
    /* What is offered in the clear counts for nothing, and no password is shown there. */
    t.config.tls = CLIENT_TLS_VERIFY;
    play(&t, "S:220 mx\n"
             "C:EHLO me.example\n"
             "S:250-mx\n"
             "S:250-AUTH PLAIN\n"
             "S:250 STARTTLS\n"
             "C:STARTTLS\n"
             "S:220 go\n"
             "=NEED_TLS\n"
             "!tls\n"
             "C:EHLO me.example\n"
             "S:250-mx\n"
             "S:250 AUTH LOGIN\n"
             "C:AUTH LOGIN\n"
             "S:334 VXNlcm5hbWU6\n"
             "C:dXNlcg==\n");
    play(&t, AUTH_HELLO("AUTH PLAIN") "=FAILED tls deferred 0 4.7.4 TLS is required, but was not "
                                      "offered by host " HOST " +site\n"
                                      "C:QUIT\n");
}

static void a_login_that_fails_is_no_fault_of_the_mail(void **state)
{
    struct talk t = talk_with_login(SASL_MECHANISMS);
    (void)state;

    play(&t, AUTH_HELLO("AUTH PLAIN") "C:AUTH PLAIN AHVzZXIAcGVuY2ls\n"
                                      "S:535 5.7.8 Error: authentication failed\n"
                                      "=FAILED login deferred 535 4.7.8 " FAILED_LOGIN
                                      " said: 535 5.7.8 Error: authentication failed +site\n"
                                      "C:QUIT\n");
    play(&t, AUTH_HELLO("AUTH PLAIN") "C:AUTH PLAIN AHVzZXIAcGVuY2ls\n"
                                      "S:454 4.7.0 later\n"
                                      "=FAILED login deferred 454 4.7.0 " FAILED_LOGIN
                                      " said: 454 4.7.0 later +site\n"
                                      "C:QUIT\n");
    play(&t, AUTH_HELLO("AUTH PLAIN") "C:AUTH PLAIN AHVzZXIAcGVuY2ls\n"
                                      "S:421 4.3.2 bye\n"
                                      "=FAILED refused deferred 421 4.3.2 host " HOST
                                      " refused to talk to me: 421 4.3.2 bye +site\n");
    /* None is offered, or none that we may use. */
    play(&t, AUTH_HELLO("AUTH GSSAPI CRAM-MD5") "=FAILED login deferred 0 4.7.8 SASL "
                                                "authentication failed; cannot authenticate to "
                                                "server " HOST ": no mechanism available +site\n"
                                                "C:QUIT\n");
    /* The next mechanism, where this one is not for this user. */
    play(&t, AUTH_HELLO("AUTH PLAIN LOGIN") "C:AUTH PLAIN AHVzZXIAcGVuY2ls\n"
                                            "S:504 5.5.4 not for you\n"
                                            "C:AUTH LOGIN\n"
                                            "S:534 5.7.9 too weak\n"
                                            "=FAILED login deferred 534 4.7.8 " FAILED_LOGIN
                                            " said: 534 5.7.9 too weak +site\n"
                                            "C:QUIT\n");
    play(&t, AUTH_HELLO("AUTH PLAIN") "C:AUTH PLAIN AHVzZXIAcGVuY2ls\n"
                                      "!lost\n"
                                      "=FAILED lost deferred 0 4.4.2 lost connection with " HOST
                                      " while performing the AUTH exchange +site\n");
    play(&t, AUTH_HELLO("AUTH LOGIN") "C:AUTH LOGIN\n"
                                      "!wait 300\n"
                                      "=FAILED timeout deferred 0 4.4.2 conversation with " HOST
                                      " timed out while performing the AUTH exchange +site\n");
}

/* A server in the middle gets nothing from SCRAM that it could use, and no mail. */
static void a_server_has_to_know_the_password(void **state)
{
    struct talk t = talk_with_login(SASL_MECHANISMS);
    (void)state;

    play(&t, AUTH_HELLO("AUTH SCRAM-SHA-256") SCRAM_TALK
         "S:334 dj03cnJpVFJCaTIzV3BSUi93dHVwK21NaFVaVW4vZEI1bkxUSlJzamw5NUc0PQ==\n"
         "=FAILED login deferred 334 4.7.8 " FAILED_LOGIN
         " does not know the password, or does not speak SCRAM-SHA-256 +site\n"
         "C:QUIT\n");
    play(&t, AUTH_HELLO("AUTH SCRAM-SHA-256") SCRAM_TALK
         "S:235 2.7.0 come in\n"
         "=FAILED login deferred 235 4.7.8 " FAILED_LOGIN
         " accepts a login without knowing the password +site\n"
         "C:QUIT\n");
    play(&t, AUTH_HELLO("AUTH SCRAM-SHA-256") "C:AUTH SCRAM-SHA-256 "
                                              "biwsbj11c2VyLHI9ck9wck5HZndFYmVSV2diTkVrcU8=\n"
                                              "S:334 no base64\n"
                                              "=FAILED login deferred 334 4.7.8 " FAILED_LOGIN
                                              " does not know the password, or does not speak "
                                              "SCRAM-SHA-256 +site\n"
                                              "C:QUIT\n");
    play(&t, AUTH_HELLO("AUTH PLAIN") "C:AUTH PLAIN AHVzZXIAcGVuY2ls\n"
                                      "S:334 bW9yZT8=\n"
                                      "=FAILED login deferred 334 4.7.8 " FAILED_LOGIN
                                      " does not know the password, or does not speak PLAIN "
                                      "+site\n"
                                      "C:QUIT\n");
    play(&t, AUTH_HELLO("AUTH PLAIN") "C:AUTH PLAIN AHVzZXIAcGVuY2ls\n"
                                      "S:354 go on\n"
                                      "=FAILED login deferred 354 4.7.8 " FAILED_LOGIN
                                      " said: 354 go on +site\n"
                                      "C:QUIT\n");
}

static void mail_waits_when_a_login_is_missing(void **state)
{
    struct talk t = talk_of(1);
    (void)state;

    play(&t, AUTH_HELLO("AUTH PLAIN") "=READY\n"
                                      "C:MAIL FROM:<s@y>\n"
                                      "S:530 5.7.0 Authentication required\n"
                                      "=0 deferred 530 4.7.0 host " HOST
                                      " said: 530 5.7.0 Authentication required (in reply to MAIL "
                                      "FROM command)\n"
                                      "=DONE\n");
}

static void a_peer_with_our_own_name_is_a_loop(void **state)
{
    struct talk t = talk_of(1);
    (void)state;

    play(&t, "S:220 me.example\n"
             "C:EHLO me.example\n"
             "S:250 ME.example hello\n"
             "=READY\n"
             "C:MAIL FROM:<s@y>\n");
    t.config.detect_loop = true;
    play(&t, "S:220 me.example\n"
             "C:EHLO me.example\n"
             "S:250 ME.example hello\n"
             "=FAILED loop bounced 0 5.4.6 mail loops back to myself: host " HOST
             " has my own hostname +site\n"
             "C:QUIT\n");
}

#define FULL_HELLO                                                                                 \
    "S:220 mx\n"                                                                                   \
    "C:EHLO me.example\n"                                                                          \
    "S:250-mx\n"                                                                                   \
    "S:250-SIZE 1000\n"                                                                            \
    "S:250-8bitmime\n"                                                                             \
    "S:250-SMTPUTF8\n"                                                                             \
    "S:250-PIPELINING\n"                                                                           \
    "S:250 DSN\n"                                                                                  \
    "=READY\n"

static void parameters_are_sent_where_offered(void **state)
{
    struct talk t = talk_of(4);
    (void)state;

    t.mail.flags = ENVELOPE_8BIT | ENVELOPE_RET_HDRS;
    t.mail.size_bytes = 1000;
    t.mail.envid = SLICE("id+2B1");
    t.rcpts[0].notify = NOTIFY_SUCCESS | NOTIFY_DELAY;
    t.rcpts[0].orcpt = SLICE("rfc822;o+40x");
    t.rcpts[1].notify = NOTIFY_NEVER;
    t.rcpts[1].orcpt = SLICE("rfc822;o x");
    t.rcpts[2].notify = NOTIFY_FAILURE;
    t.rcpts[2].orcpt = SLICE("x\r\nRSET");
    play(&t, FULL_HELLO "C:MAIL FROM:<s@y> SIZE=1000 BODY=8BITMIME RET=HDRS ENVID=id+2B1\n"
                        "C:RCPT TO:<a@x> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;o+40x\n"
                        "C:RCPT TO:<b@x> NOTIFY=NEVER\n"
                        "C:RCPT TO:<c@x> NOTIFY=FAILURE\n"
                        "C:RCPT TO:<d@x>\n"
                        "C:DATA\n");
    play(&t, PIPE_HELLO "C:MAIL FROM:<s@y>\n"
                        "C:RCPT TO:<a@x>\n"
                        "C:RCPT TO:<b@x>\n"
                        "C:RCPT TO:<c@x>\n"
                        "C:RCPT TO:<d@x>\n"
                        "C:DATA\n");
    t.mail.rcpt_count = 1;
    t.mail.sender = SLICE("");
    t.mail.flags = ENVELOPE_SMTPUTF8 | ENVELOPE_RET_FULL;
    t.mail.envid = SLICE("bad id");
    t.rcpts[0].address = SLICE("\"a b>\\\"\"@x");
    play(&t, FULL_HELLO "C:MAIL FROM:<> SIZE=1000 SMTPUTF8 RET=FULL\n"
                        "C:RCPT TO:<\"a b>\\\"\"@x> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;o+40x\n"
                        "C:DATA\n");
}

static void a_message_too_large_bounces_here(void **state)
{
    struct talk t = talk_of(2);
    (void)state;

    t.mail.size_bytes = 1001;
    play(&t, FULL_HELLO
         "=0 bounced 0 5.3.4 message size 1001 exceeds size limit 1000 of server " HOST " +dsn\n"
         "=1 bounced 0 5.3.4 message size 1001 exceeds size limit 1000 of server " HOST " +dsn\n"
         "=DONE\n"
         "!quit\n"
         "C:QUIT\n"
         "!lost\n"
         "=CLOSED\n");
    play(&t, "S:220 mx\n"
             "C:EHLO me.example\n"
             "S:250-mx\n"
             "S:250 SIZE 0\n"
             "=READY\n"
             "C:MAIL FROM:<s@y> SIZE=1001\n");
}

static void utf8_addresses_need_smtputf8(void **state)
{
    struct talk t = talk_of(3);
    (void)state;

    t.rcpts[1].address = SLICE("\xc3\xbc@x");
    t.mail.flags = ENVELOPE_SMTPUTF8;
    play(&t, PIPE_HELLO "C:MAIL FROM:<s@y>\n"
                        "C:RCPT TO:<a@x>\n"
                        "C:RCPT TO:<c@x>\n"
                        "C:DATA\n"
                        "=1 bounced 0 5.6.7 SMTPUTF8 is required, but was not offered by host " HOST
                        "\n"
                        "S:250 Ok\n"
                        "S:250 Ok\n"
                        "S:550 no\n"
                        "S:354 go\n"
                        "=2 bounced 550 5.0.0 host " HOST
                        " said: 550 no (in reply to RCPT TO command)\n" CONTENT_LINES "S:250 Ok\n"
                        "=0 sent 250 2.0.0 250 Ok\n"
                        "=DONE\n");
    t.mail.sender = SLICE("\xc3\xbc@y");
    t.mail.rcpt_count = 1;
    play(&t, PIPE_HELLO "=0 bounced 0 5.6.7 SMTPUTF8 is required, but was not offered by host " HOST
                        "\n"
                        "=DONE\n");
    /* A domain alone goes with A-labels. */
    t.mail.sender = SLICE("s@b\xc3\xbc"
                          "cher.test");
    t.mail.flags = 0;
    t.rcpts[0].address = SLICE("a@B\xc3\x9c"
                               "CHER.test");
    play(&t, PIPE_HELLO "C:MAIL FROM:<s@xn--bcher-kva.test>\n"
                        "C:RCPT TO:<a@xn--bcher-kva.test>\n"
                        "C:DATA\n");
    t.rcpts[0].address = SLICE("a@x");
    t.mail.sender = SLICE("\xc3\xbc@y");
    play(&t, FULL_HELLO "C:MAIL FROM:<\xc3\xbc@y> SMTPUTF8\n"
                        "C:RCPT TO:<a@x>\n"
                        "C:DATA\n");
}

static void an_address_cannot_smuggle_a_command(void **state)
{
    static const struct {
        const char *address;
        size_t len;
    } table[] = {
        {"a@x>\r\nRSET", 10}, {"a@x> NOTIFY=NEVER", 17}, {"a\0b@x", 5}, {"\"a@x", 4}, {"", 0},
        {"<a@x", 4},          {"\"a\\\n\"@x", 7},
    };
    (void)state;

    for (size_t i = 0; i < COUNT(table); i++) {
        struct talk t = talk_of(2);

        t.rcpts[0].address = slice_of(table[i].address, table[i].len);
        play(&t, PIPE_HELLO "=0 bounced 0 5.1.3 bad address syntax\n"
                            "C:MAIL FROM:<s@y>\n"
                            "C:RCPT TO:<b@x>\n"
                            "C:DATA\n"
                            "S:250 Ok\n"
                            "S:250 Ok\n");
        if (table[i].len > 0) {
            t = talk_of(1);
            t.mail.sender = slice_of(table[i].address, table[i].len);
            play(&t, PIPE_HELLO "=0 bounced 0 5.1.7 bad sender address syntax\n"
                                "=DONE\n");
        }
    }
}

static void a_421_ends_the_session_anywhere(void **state)
{
    struct talk t = talk_of(3);
    (void)state;

    t.transactions = 2;
    play(&t, PIPE_HELLO "C:MAIL FROM:<s@y>\n"
                        "C:RCPT TO:<a@x>\n"
                        "C:RCPT TO:<b@x>\n"
                        "C:RCPT TO:<c@x>\n"
                        "C:DATA\n"
                        "S:250 Ok\n"
                        "S:250 Ok\n"
                        "S:550 no\n"
                        "S:421 4.3.2 bye\n"
                        "S:421 4.3.2 bye\n"
                        "=1 bounced 550 5.0.0 host " HOST
                        " said: 550 no (in reply to RCPT TO command)\n"
                        "=FAILED refused deferred 421 4.3.2 host " HOST
                        " said: 421 4.3.2 bye (in reply to RCPT TO command)\n"
                        "=0 unresolved\n"
                        "=2 unresolved\n");
    play(&t, PIPE_HELLO "C:MAIL FROM:<s@y>\n"
                        "C:RCPT TO:<a@x>\n"
                        "C:RCPT TO:<b@x>\n"
                        "C:RCPT TO:<c@x>\n"
                        "C:DATA\n"
                        "S:250 Ok\n"
                        "S:250 Ok\n"
                        "S:250 Ok\n"
                        "S:250 Ok\n"
                        "S:354 go\n" CONTENT_LINES "S:421 4.3.2 bye\n"
                        "=FAILED refused deferred 421 4.3.2 host " HOST
                        " said: 421 4.3.2 bye (in reply to end of DATA command)\n"
                        "=0 unresolved\n"
                        "=1 unresolved\n"
                        "=2 unresolved\n");
    t.transactions = 0;
    play(&t, PIPE_HELLO "S:421 timeout\n"
                        "=CLOSED\n");
    play(&t, PIPE_HELLO "S:junk\n"
                        "=CLOSED\n");
    play(&t, PIPE_HELLO "!lost\n"
                        "=CLOSED\n");
}

/* Everybody has been told by then: the transaction counts as done. */
static void a_failure_behind_the_last_verdict_only_costs_the_connection(void **state)
{
    struct talk t = talk_of(1);
    (void)state;

    play(&t, PIPE_HELLO "C:MAIL FROM:<s@y>\n"
                        "C:RCPT TO:<a@x>\n"
                        "C:DATA\n"
                        "S:250 Ok\n"
                        "S:550 no\n"
                        "S:421 bye\n"
                        "=0 bounced 550 5.0.0 host " HOST
                        " said: 550 no (in reply to RCPT TO command)\n"
                        "=DONE close\n");
}

static void replies_out_of_place_fail_the_session(void **state)
{
#define ENVELOPE                                                                                   \
    PIPE_HELLO "C:MAIL FROM:<s@y>\n"                                                               \
               "C:RCPT TO:<a@x>\n"                                                                 \
               "C:DATA\n"
#define PROTOCOL_ERROR(code, where)                                                                \
    "=FAILED protocol deferred " code " 4.5.0 remote protocol error in reply from " HOST           \
    " while " where " +site\n"                                                                     \
    "=0 unresolved\n"
    static const char *const scripts[] = {
        ENVELOPE "S:354 go\n" PROTOCOL_ERROR("354", "sending MAIL FROM: 354 go"),
        ENVELOPE "S:250 Ok\n"
                 "S:354 go\n" PROTOCOL_ERROR("354", "sending RCPT TO: 354 go"),
        ENVELOPE "S:250 Ok\n"
                 "S:250 Ok\n"
                 "S:250 Ok\n" PROTOCOL_ERROR("250", "sending DATA command: 250 Ok"),
        ENVELOPE "S:250 Ok\n"
                 "S:garbage\n" PROTOCOL_ERROR("0", "sending RCPT TO: garbage"),
        ENVELOPE "S:250 Ok\n"
                 "S:250-x\n"
                 "S:garbage\n" PROTOCOL_ERROR("0", "sending RCPT TO: 250-x garbage"),
        ENVELOPE
        "S:250 Ok\n"
        "S:250 Ok\n"
        "S:354 go\n" CONTENT_LINES "S:354 go\n"
        "=FAILED protocol deferred 354 4.5.0 remote protocol error in reply from " HOST
        " while sending end of data -- message may be sent more than once: 354 go +site +was_sent\n"
        "=0 unresolved\n",
        ENVELOPE "S:250 Ok\n"
                 "S:250 Ok\n"
                 "S:354 go\n" CONTENT_LINES "S:250 Ok\n"
                 "S:250 Ok again\n"
                 "=0 sent 250 2.0.0 250 Ok\n"
                 "=DONE\n"
                 "=CLOSED\n",
    };
    struct talk t = talk_of(1);
    (void)state;

    for (size_t i = 0; i < COUNT(scripts); i++) {
        play(&t, scripts[i]);
    }
}

static void every_phase_has_its_timeout_and_its_words(void **state)
{
#define TIMED_OUT(where)                                                                           \
    "=FAILED timeout deferred 0 4.4.2 conversation with " HOST " timed out while " where
    static const char *const scripts[] = {
        "!wait 300\n" TIMED_OUT("receiving the initial server greeting +site\n"),
        "!pass 100\n"
        "S:220 mx\n"
        "C:EHLO me.example\n"
        "!wait 300\n" TIMED_OUT("performing the EHLO handshake +site\n"),
        "S:220 mx\n"
        "C:EHLO me.example\n"
        "S:500 no\n"
        "C:HELO me.example\n"
        "!wait 300\n" TIMED_OUT("performing the HELO handshake +site\n"),
        PLAIN_HELLO "C:MAIL FROM:<s@y>\n"
                    "!wait 300\n" TIMED_OUT("sending MAIL FROM +site\n") "=0 unresolved\n",
        PLAIN_HELLO "C:MAIL FROM:<s@y>\n"
                    "S:250 Ok\n"
                    "C:RCPT TO:<a@x>\n"
                    "!wait 300\n" TIMED_OUT("sending RCPT TO +site\n") "=0 unresolved\n",
        PIPE_HELLO "C:MAIL FROM:<s@y>\n"
                   "C:RCPT TO:<a@x>\n"
                   "C:DATA\n"
                   "!pass 299\n"
                   "S:250 Ok\n"
                   "!pass 299\n"
                   "S:250 Ok\n"
                   "!wait 120\n" TIMED_OUT("sending DATA command +site\n") "=0 unresolved\n",
        PIPE_HELLO "C:MAIL FROM:<s@y>\n"
                   "C:RCPT TO:<a@x>\n"
                   "C:DATA\n"
                   "S:250 Ok\n"
                   "S:250 Ok\n"
                   "S:354 Ok\n" CONTENT_LINES "!wait 600\n" TIMED_OUT(
                       "sending end of data -- message may be sent more than once +site "
                       "+was_sent\n") "=0 unresolved\n",
    };
    struct talk t = talk_of(1);
    (void)state;

    for (size_t i = 0; i < COUNT(scripts); i++) {
        play(&t, scripts[i]);
    }
    t.transactions = 0;
    play(&t, PLAIN_HELLO "!pass 1000000\n"
                         "!quit\n"
                         "C:QUIT\n"
                         "!wait 300\n"
                         "=CLOSED\n");
    t.config.skip_quit_response = true;
    play(&t, PLAIN_HELLO "!quit\n"
                         "C:QUIT\n"
                         "=CLOSED\n");
    t.transactions = 2;
    play(&t, PLAIN_HELLO "C:MAIL FROM:<s@y>\n"
                         "S:250 Ok\n"
                         "C:RCPT TO:<a@x>\n"
                         "S:550 no\n"
                         "=0 bounced 550 5.0.0 host " HOST
                         " said: 550 no (in reply to RCPT TO command)\n"
                         "=DONE\n"
                         "C:RSET\n"
                         "!wait 20\n" TIMED_OUT("sending RSET +site\n") "=0 unresolved\n");
    t.config.tls = CLIENT_TLS_MAY;
    play(&t, "S:220 mx\n"
             "C:EHLO me.example\n"
             "S:250-mx\n"
             "S:250 STARTTLS\n"
             "C:STARTTLS\n"
             "!wait 300\n" TIMED_OUT("receiving the STARTTLS response +retry_in_clear\n"));
    play(&t, "S:220 mx\n"
             "C:EHLO me.example\n"
             "S:250-mx\n"
             "S:250 STARTTLS\n"
             "C:STARTTLS\n"
             "S:220 go\n"
             "=NEED_TLS\n"
             "!wait 300\n" TIMED_OUT("performing the TLS handshake +retry_in_clear\n"));
    play(&t, "S:220 mx\n"
             "C:EHLO me.example\n"
             "S:250-mx\n"
             "S:250 STARTTLS\n"
             "C:STARTTLS\n"
             "S:220 go\n"
             "=NEED_TLS\n"
             "!tls\n"
             "C:EHLO me.example\n"
             "!wait 300\n" TIMED_OUT("performing the EHLO handshake +retry_in_clear\n"));
    t.config.tls = CLIENT_TLS_VERIFY;
    play(&t, "S:220 mx\n"
             "C:EHLO me.example\n"
             "S:250-mx\n"
             "S:250 STARTTLS\n"
             "C:STARTTLS\n"
             "!wait 300\n" TIMED_OUT("receiving the STARTTLS response +site\n"));
}

static void a_lost_connection_is_told_with_its_phase(void **state)
{
#define LOST(where) "=FAILED lost deferred 0 4.4.2 lost connection with " HOST " while " where
    struct talk t = talk_of(1);
    (void)state;

    play(&t, "!lost\n" LOST("receiving the initial server greeting +site\n"));
    play(&t, PIPE_HELLO "C:MAIL FROM:<s@y>\n"
                        "C:RCPT TO:<a@x>\n"
                        "C:DATA\n"
                        "S:250 Ok\n"
                        "!lost\n" LOST("sending RCPT TO +site\n") "=0 unresolved\n");
    play(&t, PIPE_HELLO "C:MAIL FROM:<s@y>\n"
                        "C:RCPT TO:<a@x>\n"
                        "C:DATA\n"
                        "S:250 Ok\n"
                        "S:250 Ok\n"
                        "S:354 Ok\n" CONTENT_LINES
                        "!lost\n" LOST("sending end of data -- message may be sent more than once "
                                       "+site +was_sent\n") "=0 unresolved\n");
}

/* -- the last look -- */

#define BROKEN_OFF                                                                                 \
    "=FAILED broken_off deferred 0 4.3.2 delivery to " HOST                                        \
    " was broken off before the end of the message\n"

static void a_delivery_that_is_broken_off_has_no_end(void **state)
{
    struct talk t = talk_of(3);
    (void)state;

    t.break_off = true;
    t.content = "hello"; /* the line's end is sent, the dot is not */
    play(&t, PIPE_HELLO "C:MAIL FROM:<s@y>\n"
                        "C:RCPT TO:<a@x>\n"
                        "C:RCPT TO:<b@x>\n"
                        "C:RCPT TO:<c@x>\n"
                        "C:DATA\n"
                        "S:250 Ok\n"
                        "S:250 Ok\n"
                        "S:550 no\n"
                        "S:250 Ok\n"
                        "S:354 go\n"
                        "=1 bounced 550 5.0.0 host " HOST
                        " said: 550 no (in reply to RCPT TO command)\n" BROKEN_OFF "=0 unresolved\n"
                        "=2 unresolved\n");
    t.config.lmtp = true;
    play(&t, "S:220 mx\n"
             "C:LHLO me.example\n"
             "S:250 mx\n"
             "=READY\n"
             "C:MAIL FROM:<s@y>\n"
             "S:250 Ok\n"
             "C:RCPT TO:<a@x>\n"
             "S:250 Ok\n"
             "C:RCPT TO:<b@x>\n"
             "S:250 Ok\n"
             "C:RCPT TO:<c@x>\n"
             "S:450 full\n"
             "=2 deferred 450 4.0.0 host " HOST " said: 450 full (in reply to RCPT TO command)\n"
             "C:DATA\n"
             "S:354 go\n" BROKEN_OFF "=0 unresolved\n"
             "=1 unresolved\n");
}

static void a_message_that_nobody_gets_needs_no_look(void **state)
{
    struct talk t = talk_of(1);
    (void)state;

    t.break_off = true;
    play(&t, PIPE_HELLO "C:MAIL FROM:<s@y>\n"
                        "C:RCPT TO:<a@x>\n"
                        "C:DATA\n"
                        "S:250 Ok\n"
                        "S:550 no\n"
                        "S:354 go\n"
                        "=0 bounced 550 5.0.0 host " HOST
                        " said: 550 no (in reply to RCPT TO command)\n"
                        "C:.\n"
                        "S:554 no\n"
                        "=DONE\n");
}

/* -- content: the owner's side of it -- */

/* Bring a session to NEED_CONTENT. */
static void until_content(struct session *s, struct talk *t)
{
    struct client_event e;
    struct client_mail mail = t->mail;

    mail.rcpts = t->rcpts;
    session_init(s, t);
    static const char *const replies[] = {"220 mx\r\n", "250-mx\r\n250 PIPELINING\r\n"};
    for (size_t i = 0; i < COUNT(replies); i++) {
        assert_int_equal(client_input(&s->client, slice_string(replies[i]), s->now),
                         strlen(replies[i]));
        buf_clear(client_output(&s->client));
    }
    assert_true(client_next(&s->client, s->now, &e));
    assert_int_equal(e.kind, CLIENT_READY);
    client_begin(&s->client, &mail, s->now);
    assert_false(client_next(&s->client, s->now, &e));
    buf_clear(client_output(&s->client));
    struct slice in = SLICE("250 Ok\r\n250 Ok\r\n354 go\r\n");
    while (in.len > 0) {
        in = slice_skip(in, client_input(&s->client, in, s->now));
        assert_int_equal(client_next(&s->client, s->now, &e), in.len == 0);
    }
    assert_int_equal(e.kind, CLIENT_NEED_CONTENT);
}

static void content_is_stuffed_and_closed_under_every_split(void **state)
{
    static const struct {
        const char *in;
        const char *want;
    } table[] = {
        {"", ".\r\n"},
        {"a", "a\r\n.\r\n"},
        {"a\r\n", "a\r\n.\r\n"},
        {"a\r", "a\r\n.\r\n"},
        {".", "..\r\n.\r\n"},
        {".\r\n", "..\r\n.\r\n"},
        {"..\r\n.a\r\n", "...\r\n..a\r\n.\r\n"},
        {"a.b\r\n.\r\n.\r\n", "a.b\r\n..\r\n..\r\n.\r\n"},
        {"\r\n\r\n.", "\r\n\r\n..\r\n.\r\n"},
        {"a\n.\nb", "a\r\n..\r\nb\r\n.\r\n"},
        {"\n\n", "\r\n\r\n.\r\n"},
        {"a\r.b\r\n", "a\r.b\r\n.\r\n"},
        {"a\r\r\n.b", "a\r\r\n..b\r\n.\r\n"},
        {"a\r\n.\n.\r\n", "a\r\n..\r\n..\r\n.\r\n"},
    };
    (void)state;

    for (size_t i = 0; i < COUNT(table); i++) {
        for (size_t step = 1; step <= strlen(table[i].in) + 1; step++) {
            struct talk t = talk_of(1);
            struct session s;
            struct slice rest = slice_string(table[i].in);

            until_content(&s, &t);
            while (rest.len > 0) {
                struct slice piece = slice_of(rest.ptr, rest.len < step ? rest.len : step);

                assert_int_equal(client_content(&s.client, piece, false, s.now), piece.len);
                rest = slice_skip(rest, piece.len);
            }
            assert_int_equal(client_content(&s.client, rest, true, s.now), 0);
            assert_true(client_at_last_look(&s.client));
            client_pass_last_look(&s.client);
            assert_string_equal(buf_cstr(client_output(&s.client)), table[i].want);
            session_fini(&s);
        }
    }
}

/* Lines of dots and bare LFs double in size: the worst there is. */
static void content_waits_for_the_socket(void **state)
{
    static const char *const patterns[] = {".\r\n", "\n", "x", ".\n", "hello world\r\n"};
    (void)state;

    for (size_t i = 0; i < COUNT(patterns); i++) {
        struct talk t = talk_of(1);
        struct session s;
        struct buf content, got;
        struct client_event e;
        struct buf *out;
        size_t used = 0, rounds = 0;

        buf_init(&content, 1000000);
        buf_init(&got, 1000000);
        while (buf_len(&content) < 200000) {
            buf_add_string(&content, patterns[i]);
        }
        until_content(&s, &t);
        out = client_output(&s.client);
        do {
            struct slice rest = slice_skip(buf_slice(&content), used);

            used += client_content(&s.client, rest, true, s.now);
            assert_true(buf_len(out) <= CLIENT_OUTPUT_MAX);
            while (buf_len(out) > 0) {
                size_t len = buf_len(out) < 5000 ? buf_len(out) : 5000;

                buf_add(&got, slice_of(buf_slice(out).ptr, len));
                buf_consume(out, len);
                s.now.us += 100 * US_PER_S; /* slow, but it moves */
                if (client_next(&s.client, s.now, &e)) {
                    assert_int_equal(e.kind, CLIENT_NEED_CONTENT);
                    break;
                }
            }
            rounds++;
        } while (used < buf_len(&content));
        assert_true(rounds >= 6);
        assert_true(client_at_last_look(&s.client));
        client_pass_last_look(&s.client);
        buf_add(&got, buf_slice(out));
        assert_true(slice_ends_nocase(buf_slice(&got), SLICE("\r\n.\r\n")));
        assert_null(memmem(got.ptr, got.end - 5, "\r\n.\r\n", 5));
        session_fini(&s);
        buf_fini(&content);
        buf_fini(&got);
    }
}

/* The socket takes so much at a time: how many writes does it need? The look break_off_at (from 1)
 * stops it. */
static size_t write_slowly(size_t take, size_t break_off_at, struct buf *got)
{
    struct talk t = talk_of(1);
    struct session s;
    struct client_event e;
    struct buf *out;
    size_t looks = 0;

    until_content(&s, &t);
    out = client_output(&s.client);
    client_content(&s.client, SLICE("hello"), true, s.now);
    while (!client_is_flushed(&s.client)) {
        size_t len;

        assert_false(client_next(&s.client, s.now, &e));
        assert_true(client_at_last_look(&s.client));
        assert_true(client_at_last_look(&s.client)); /* asked again, it is the same look */
        assert_true(slice_find(buf_slice(out), '.') == buf_len(out));
        looks++;
        if (looks == break_off_at) {
            client_break_off(&s.client);
            client_audit(&s.client);
            assert_int_equal(buf_len(out), 0);
            assert_true(client_next(&s.client, s.now, &e));
            assert_int_equal(e.kind, CLIENT_FAILED);
            assert_int_equal(e.cause, CLIENT_CAUSE_BROKEN_OFF);
            assert_false(e.site || e.content_was_sent);
            assert_true(client_unresolved(&s.client, 0));
            break;
        }
        client_pass_last_look(&s.client);
        client_audit(&s.client);
        len = buf_len(out) < take ? buf_len(out) : take;
        buf_add(got, slice_of(buf_slice(out).ptr, len));
        buf_consume(out, len);
        client_audit(&s.client);
    }
    session_fini(&s);
    return looks;
}

static void each_write_of_the_dot_has_its_own_look(void **state)
{
    static const struct slice whole = {"hello\r\n.\r\n", 10};
    (void)state;

    for (size_t take = 1; take <= whole.len + 1; take++) {
        struct buf got;
        size_t writes;

        buf_init(&got, 1000);
        writes = write_slowly(take, 0, &got);
        assert_int_equal(writes, (whole.len + take - 1) / take);
        assert_true(slice_equal(buf_slice(&got), whole));
        for (size_t at = 1; at <= writes; at++) {
            buf_clear(&got);
            assert_int_equal(write_slowly(take, at, &got), at);
            assert_int_equal(buf_len(&got), (at - 1) * take); /* never all of it */
        }
        buf_fini(&got);
    }
}

static void a_socket_that_takes_nothing_times_out(void **state)
{
    struct talk t = talk_of(1);
    struct session s;
    struct client_event e;
    (void)state;

    until_content(&s, &t);
    client_content(&s.client, SLICE("hello"), true, s.now);
    s.now.us += t.config.smtp_data_xfer_timeout;
    client_expire(&s.client, s.now);
    assert_true(client_next(&s.client, s.now, &e));
    assert_int_equal(e.kind, CLIENT_FAILED);
    assert_int_equal(e.phase, CLIENT_PHASE_CONTENT);
    assert_false(e.content_was_sent);
    assert_int_equal(buf_len(client_output(&s.client)), 0); /* the dot must not leave any more */
    session_fini(&s);
}

static void an_answer_before_the_end_is_the_answer(void **state)
{
    static const struct {
        const char *reply;
        enum client_event_kind want;
        enum client_outcome want_outcome;
    } table[] = {
        {"552 5.3.4 too big\r\n", CLIENT_RCPT_VERDICT, CLIENT_BOUNCED},
        {"451 later\r\n", CLIENT_RCPT_VERDICT, CLIENT_DEFERRED},
        {"421 bye\r\n", CLIENT_FAILED, CLIENT_DEFERRED},
        {"250 fine\r\n", CLIENT_FAILED, CLIENT_DEFERRED},
        {"354 go\r\n", CLIENT_FAILED, CLIENT_DEFERRED},
        {"boo\r\n", CLIENT_FAILED, CLIENT_DEFERRED},
    };
    (void)state;

    for (size_t i = 0; i < COUNT(table); i++) {
        for (size_t last = 0; last < 2; last++) {
            struct talk t = talk_of(1);
            struct session s;
            struct client_event e;

            until_content(&s, &t);
            client_content(&s.client, SLICE("some text\r\n"), last == 1, s.now);
            client_input(&s.client, slice_string(table[i].reply), s.now);
            assert_true(client_next(&s.client, s.now, &e));
            assert_int_equal(e.kind, table[i].want);
            assert_int_equal(e.outcome, table[i].want_outcome);
            assert_false(e.content_was_sent);
            assert_int_equal(buf_len(client_output(&s.client)), 0);
            if (e.kind == CLIENT_RCPT_VERDICT) {
                assert_true(client_next(&s.client, s.now, &e));
                assert_int_equal(e.kind, CLIENT_TRANSACTION_DONE);
                assert_false(e.reusable);
            }
            /* Content that was being fetched meanwhile goes nowhere. */
            assert_int_equal(client_content(&s.client, SLICE("more"), true, s.now), 4);
            assert_int_equal(buf_len(client_output(&s.client)), 0);
            assert_false(client_next(&s.client, s.now, &e));
            session_fini(&s);
        }
    }
}

static void many_recipients_go_out_in_bounded_bursts(void **state)
{
    enum { COUNT_ = 20000 };
    struct talk t = talk_of(1);
    struct session s;
    struct client_event e;
    struct client_rcpt *rcpts = mem_array(COUNT_, sizeof(*rcpts));
    struct client_mail mail = {.sender = SLICE("s@y"), .rcpts = rcpts, .rcpt_count = COUNT_};
    struct slice hello = SLICE("220 mx\r\n250-mx\r\n250 PIPELINING\r\n");
    struct buf *out;
    size_t sent = 0, verdicts = 0, bursts = 0;
    bool begun = false, done = false;
    (void)state;

    for (size_t i = 0; i < COUNT_; i++) {
        rcpts[i].address = SLICE("somebody@example.com");
    }
    session_init(&s, &t);
    out = client_output(&s.client);
    while (hello.len > 0) {
        hello = slice_skip(hello, client_input(&s.client, hello, s.now));
        begun = client_next(&s.client, s.now, &e);
        buf_clear(out);
    }
    assert_true(begun && e.kind == CLIENT_READY);
    client_begin(&s.client, &mail, s.now);
    while (!done) {
        size_t commands = 0;

        assert_false(client_next(&s.client, s.now, &e));
        for (struct slice rest = buf_slice(out); rest.len > 0; commands++) {
            slice_cut(&rest, '\n');
        }
        assert_true(buf_len(out) <= CLIENT_OUTPUT_MAX);
        buf_clear(out);
        sent += commands;
        bursts++;
        while (commands-- > 0 && !done) {
            client_input(&s.client, SLICE("550 no\r\n"), s.now);
            while (client_next(&s.client, s.now, &e)) {
                verdicts += e.kind == CLIENT_RCPT_VERDICT;
                done = e.kind == CLIENT_TRANSACTION_DONE;
                assert_true(done || e.kind == CLIENT_RCPT_VERDICT);
            }
        }
    }
    client_audit(&s.client);
    assert_int_equal(verdicts, COUNT_);
    assert_true(sent < 1000); /* MAIL was refused: the long rest of the list was not sent */
    assert_int_equal(bursts, 1);
    session_fini(&s);
    mem_free(rcpts);
}

static void an_idle_session_holds_no_buffers(void **state)
{
    struct talk t = talk_of(1);
    struct session s;
    struct client_event e;
    bool more;
    (void)state;

    until_content(&s, &t);
    client_content(&s.client, SLICE("hello\r\n"), true, s.now);
    assert_true(client_at_last_look(&s.client));
    client_pass_last_look(&s.client);
    buf_consume(client_output(&s.client), buf_len(client_output(&s.client)));
    client_input(&s.client, SLICE("250 Ok\r\n"), s.now);
    do {
        more = client_next(&s.client, s.now, &e);
    } while (more && e.kind != CLIENT_TRANSACTION_DONE);
    assert_true(more && e.reusable);
    assert_null(s.client.out.ptr);
    assert_null(s.client.text.ptr);
    assert_null(s.client.reply.text.ptr);
    assert_null(s.client.marks);
    assert_true(sizeof(struct client) < 1024);
    session_fini(&s);
}

/* The owner goes on as long as input is used: an event without that would stay unseen. */
static void a_greeting_without_end_fails_at_its_limit(void **state)
{
    char block[REPLY_BYTES_MAX];
    struct client_config config;
    struct client_event e;
    struct mono now = {0};
    struct client c;
    (void)state;

    client_config_defaults(&config);
    config.hostname = SLICE("me.example");
    memset(block, 'x', sizeof block);
    memcpy(block, "220 ", 4);
    client_init(&c, &config, SLICE(HOST), now);
    assert_int_equal(client_input(&c, slice_of(block, sizeof block), now), sizeof block);
    assert_false(client_next(&c, now, &e));
    assert_int_equal(client_input(&c, SLICE("more\r\n"), now), 6);
    assert_true(client_next(&c, now, &e));
    assert_int_equal(e.kind, CLIENT_FAILED);
    assert_int_equal(e.cause, CLIENT_CAUSE_PROTOCOL);
    client_fini(&c);
}

UNIT_MAIN(cmocka_unit_test(a_greeting_without_end_fails_at_its_limit),
          cmocka_unit_test(step_by_step_without_pipelining),
          cmocka_unit_test(all_in_one_write_with_pipelining),
          cmocka_unit_test(recipients_get_verdicts_of_their_own),
          cmocka_unit_test(a_refused_sender_settles_everybody),
          cmocka_unit_test(no_content_when_nobody_is_accepted),
          cmocka_unit_test(a_refused_rset_fails_the_session),
          cmocka_unit_test(refused_data_settles_the_accepted),
          cmocka_unit_test(lmtp_answers_once_per_recipient),
          cmocka_unit_test(a_lost_lmtp_session_leaves_the_unanswered_in_doubt),
          cmocka_unit_test(greetings_may_refuse), cmocka_unit_test(helo_is_the_way_back),
          cmocka_unit_test(tls_follows_the_policy),
          cmocka_unit_test(a_login_comes_before_the_first_mail),
          cmocka_unit_test(a_login_that_fails_is_no_fault_of_the_mail),
          cmocka_unit_test(a_server_has_to_know_the_password),
          cmocka_unit_test(mail_waits_when_a_login_is_missing),
          cmocka_unit_test(a_peer_with_our_own_name_is_a_loop),
          cmocka_unit_test(parameters_are_sent_where_offered),
          cmocka_unit_test(a_message_too_large_bounces_here),
          cmocka_unit_test(utf8_addresses_need_smtputf8),
          cmocka_unit_test(an_address_cannot_smuggle_a_command),
          cmocka_unit_test(a_421_ends_the_session_anywhere),
          cmocka_unit_test(a_failure_behind_the_last_verdict_only_costs_the_connection),
          cmocka_unit_test(replies_out_of_place_fail_the_session),
          cmocka_unit_test(every_phase_has_its_timeout_and_its_words),
          cmocka_unit_test(a_lost_connection_is_told_with_its_phase),
          cmocka_unit_test(content_is_stuffed_and_closed_under_every_split),
          cmocka_unit_test(content_waits_for_the_socket),
          cmocka_unit_test(a_delivery_that_is_broken_off_has_no_end),
          cmocka_unit_test(a_message_that_nobody_gets_needs_no_look),
          cmocka_unit_test(each_write_of_the_dot_has_its_own_look),
          cmocka_unit_test(a_socket_that_takes_nothing_times_out),
          cmocka_unit_test(an_answer_before_the_end_is_the_answer),
          cmocka_unit_test(many_recipients_go_out_in_bounded_bursts),
          cmocka_unit_test(an_idle_session_holds_no_buffers))
