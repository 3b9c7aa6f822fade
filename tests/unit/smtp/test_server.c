#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "header.h"
#include "rng.h"
#include "server.h"

#define START ((struct mono){1000 * US_PER_S})
#define HELLO "EHLO c.example\r\n"
#define SAYS_HELLO                                                                                 \
    "S:220 mx.example ESMTP Sluice\n"                                                              \
    "S:250-mx.example\nS:250-PIPELINING\nS:250-SIZE 1000\nS:250-ETRN\nS:250-DSN\n"                 \
    "S:250-SMTPUTF8\nS:250-CHUNKING\nS:250-ENHANCEDSTATUSCODES\nS:250 8BITMIME\n[helo c.example]"

/* A session and the story it tells: events in brackets, replies with S:, content as it is. */
struct talk {
    struct server_config config;
    struct server *server;
    struct mono now;
    struct buf story;
    struct buf content;
    struct sasl_server login;
    bool closed;
    bool bare_lf; /* LF is a line end */
};

static void talk_begin(struct talk *t)
{
    *t = (struct talk){.now = START};
    server_config_default(&t->config);
    t->config.hostname = "mx.example";
    t->config.limits.message_bytes = 1000;
    t->config.limits.discard_bytes = 1000;
    buf_init(&t->story, 1 << 22);
    buf_init(&t->content, 1 << 22);
}

static void talk_end(struct talk *t)
{
    server_free(t->server);
    buf_fini(&t->story);
    buf_fini(&t->content);
    sasl_server_fini(&t->login);
}

static void tell_output(struct talk *t)
{
    struct slice out = buf_slice(server_output(t->server));
    size_t len = out.len;

    while (out.len > 0) {
        size_t lf = slice_find(out, '\n');

        assert_true(lf > 0 && lf < out.len && out.ptr[lf - 1] == '\r');
        assert_true(lf < 512);
        buf_addf(&t->story, "S:%.*s\n", (int)(lf - 1), out.ptr);
        out = slice_skip(out, lf + 1);
    }
    buf_consume(server_output(t->server), len);
}

/* The owner: says no to anything that has `no` in it, later to what has `later`. */
static struct server_reply verdict_on(struct slice text)
{
    if (memmem(text.ptr, text.len, "later", 5) != NULL) {
        return (struct server_reply){450, "4.7.1", SLICE("Come\r\nlater")};
    }
    if (memmem(text.ptr, text.len, "nobody", 6) != NULL) {
        return (struct server_reply){550, "5.1.1", SLICE("No such user")};
    }
    return SERVER_ACCEPT;
}

static void finish_message(struct talk *t, const struct server_event *event)
{
    struct server_reply replies[100] = {SERVER_ACCEPT};
    size_t count = t->config.lmtp ? event->message.recipients : 1;

    buf_addf(&t->story, "[message %u flags %u bytes %u]", event->message.recipients,
             event->message.flags, (unsigned)event->message.facts.bytes);
    buf_add(&t->story, buf_slice(&t->content));
    assert_int_equal(buf_len(&t->content), event->message.facts.bytes);
    buf_clear(&t->content);
    assert_true(count <= COUNT(replies));
    if (count > 1) {
        replies[1] = (struct server_reply){452, "4.2.2", SLICE("Full")};
    }
    server_message_done(t->server, replies, count);
}

/* The one login that is good: "ann" and "secret". */
static bool find_ann(void *arg, struct slice user, struct scram_secret *ret_secret)
{
    (void)arg;
    scram_derive(SLICE("secret"), (const uint8_t *)"salt", 4, SCRAM_ROUNDS_MIN, ret_secret);
    return slice_equal(user, SLICE("ann"));
}

static void take_login(struct talk *t, const struct server_auth *auth)
{
    struct buf challenge;
    enum sasl_result result;

    buf_init(&challenge, 1000);
    if (auth->first) {
        sasl_server_fini(&t->login);
        sasl_server_init(&t->login, auth->mechanism, SLICE("nonce"), find_ann, NULL);
    }
    result = sasl_server_take(&t->login, auth->has_message ? &auth->message : NULL, &challenge);
    buf_addf(&t->story, "[login %s]", sasl_mechanism_name(auth->mechanism));
    if (result == SASL_CHALLENGE) {
        server_challenge(t->server, buf_slice(&challenge));
    } else if (result == SASL_ACCEPTED) {
        server_login_done(t->server, SERVER_ACCEPT);
    } else {
        server_login_done(t->server,
                          (struct server_reply){535, "5.7.8", SLICE("Authentication failed")});
    }
    buf_fini(&challenge);
}

/* Feed `in` and write down all that happens until the engine wants more. */
static void talk_feed(struct talk *t, struct slice in)
{
    struct server_event event;
    size_t steps = 0;

    for (;;) {
        assert_true(++steps < 100000);
        server_next(t->server, t->now, &in, &event);
        server_audit(t->server);
        tell_output(t);
        switch (event.type) {
        case SERVER_NEED_INPUT:
            assert_int_equal(in.len, 0);
            return;
        case SERVER_NEED_ANSWER:
            return;
        case SERVER_NEED_OUTPUT:
            break;
        case SERVER_HELO:
            buf_addf(&t->story, "[helo %.*s]", SLICE_ARGS(server_helo(t->server)));
            break;
        case SERVER_MAIL:
            buf_addf(&t->story, "[mail <%.*s> flags %u size %u%s%.*s]",
                     SLICE_ARGS(event.mail.sender), event.mail.flags, (unsigned)event.mail.size,
                     event.mail.envid.len > 0 ? " envid " : "", SLICE_ARGS(event.mail.envid));
            server_answer(t->server, verdict_on(event.mail.sender));
            break;
        case SERVER_RCPT:
            buf_addf(&t->story, "[rcpt %u <%.*s> notify %u%s%.*s]", event.rcpt.index,
                     SLICE_ARGS(event.rcpt.recipient), event.rcpt.notify,
                     event.rcpt.orcpt.len > 0 ? " orcpt " : "", SLICE_ARGS(event.rcpt.orcpt));
            server_answer(t->server, verdict_on(event.rcpt.recipient));
            break;
        case SERVER_DATA:
            buf_clear(&t->content);
            server_answer(t->server, verdict_on(server_helo(t->server)));
            break;
        case SERVER_AUTH:
            take_login(t, &event.auth);
            break;
        case SERVER_ETRN:
            buf_addf(&t->story, "[etrn %.*s]", SLICE_ARGS(event.etrn));
            server_answer(t->server, SERVER_ACCEPT);
            break;
        case SERVER_CONTENT:
            assert_true(event.content.len > 0);
            buf_add(&t->content, event.content);
            break;
        case SERVER_MESSAGE:
            finish_message(t, &event);
            break;
        case SERVER_ABORT:
            buf_addf(&t->story, "[abort: %s]", event.reason);
            break;
        case SERVER_STARTTLS:
            buf_add_string(&t->story, "[starttls]");
            assert_int_equal(in.len, 0);
            return;
        case SERVER_CLOSE:
            buf_addf(&t->story, "[close: %s]", event.reason);
            t->closed = true;
            return;
        }
    }
}

/* The input in pieces of `piece` bytes; of random sizes when that is 0. */
static void talk_through(struct talk *t, struct slice in, size_t piece, struct rng *rng)
{
    t->server = server_new(&t->config, t->now);
    if (t->bare_lf) {
        server_accept_bare_lf(t->server);
    }
    talk_feed(t, SLICE(""));
    while (in.len > 0 && !t->closed) {
        size_t len = piece > 0 ? piece : 1 + (size_t)rng_below(rng, 40);
        char *copy;

        len = len < in.len ? len : in.len;
        copy = malloc(len); /* so that ASan sees who reads beyond the piece */
        memcpy(copy, in.ptr, len);
        talk_feed(t, slice_of(copy, len));
        free(copy);
        in = slice_skip(in, len);
    }
    if (!t->closed) {
        server_hangup(t->server, "gone");
        talk_feed(t, SLICE(""));
    }
}

struct dialogue {
    const char *in;
    const char *want;
};

/* Each dialogue in one piece, byte by byte and in random pieces. */
static void check_talks(const struct dialogue *dialogues, size_t count,
                        void (*adjust)(struct server_config *), bool bare_lf)
{
    struct rng rng;

    rng_init(&rng, 1);
    for (size_t i = 0; i < count; i++) {
        struct slice in = slice_string(dialogues[i].in);

        for (size_t round = 0; round < 12; round++) {
            struct talk t;
            size_t piece = round == 0 ? in.len : round == 1 ? 1 : 0;

            talk_begin(&t);
            if (adjust != NULL) {
                adjust(&t.config);
            }
            t.bare_lf = bare_lf;
            talk_through(&t, in, piece, &rng);
            assert_string_equal(buf_cstr(&t.story), dialogues[i].want);
            talk_end(&t);
        }
    }
}

static void check_dialogues(const struct dialogue *dialogues, size_t count,
                            void (*adjust)(struct server_config *))
{
    check_talks(dialogues, count, adjust, false);
}

#define MAIL_RCPT      HELLO "MAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\n"
#define SAYS_MAIL      "[mail <a@b.example> flags 0 size 0]S:250 2.1.0 Ok\n"
#define SAYS_RCPT      "[rcpt 0 <c@d.example> notify 0]S:250 2.1.5 Ok\n"
#define SAYS_MAIL_RCPT SAYS_HELLO SAYS_MAIL SAYS_RCPT
#define SAYS_354       "S:354 End data with <CR><LF>.<CR><LF>\n"
#define QUIT           "QUIT\r\n"
#define SAYS_BYE       "S:221 2.0.0 Bye\n[close: client sent QUIT]"

static void dialogues_tell_the_same_story_under_every_split(void **unused)
{
    static const struct dialogue dialogues[] = {
        {QUIT, "S:220 mx.example ESMTP Sluice\n" SAYS_BYE},
        {MAIL_RCPT "DATA\r\nA: b\r\n\r\n..x\r\n.\r\n" QUIT, SAYS_MAIL_RCPT SAYS_354
         "[message 1 flags 0 bytes 12]A: b\r\n\r\n.x\r\nS:250 2.0.0 Ok\n" SAYS_BYE},
        {MAIL_RCPT "DATA\r\n.\r\n" QUIT,
         SAYS_MAIL_RCPT SAYS_354 "[message 1 flags 0 bytes 0]S:250 2.0.0 Ok\n" SAYS_BYE},
        {MAIL_RCPT "DATA\r\nx\r\n.\r\nMAIL FROM:<>\r\nRSET\r\n" QUIT,
         SAYS_MAIL_RCPT SAYS_354 "[message 1 flags 0 bytes 3]x\r\nS:250 2.0.0 Ok\n"
                                 "[mail <> flags 0 size 0]S:250 2.1.0 Ok\n"
                                 "S:250 2.0.0 Ok\n[abort: client ended it with RSET]" SAYS_BYE},
        /* Smuggling: only CRLF.CRLF ends data, and bare line ends are refused by name. */
        {MAIL_RCPT "DATA\r\nx\n.\nMAIL FROM:<evil@b>\r\n.\r\n" QUIT, SAYS_MAIL_RCPT SAYS_354
         "S:550 5.6.11 Bare LF in content\n[abort: bare LF around the dot in content]"
         "[close: bare LF around the dot in content]"},
        {MAIL_RCPT "DATA\r\nx\n.\r\n", SAYS_MAIL_RCPT SAYS_354
         "S:550 5.6.11 Bare LF in content\n[abort: bare LF around the dot in content]"
         "[close: bare LF around the dot in content]"},
        {MAIL_RCPT "DATA\r\nx\r\n.\n", SAYS_MAIL_RCPT SAYS_354
         "S:550 5.6.11 Bare LF in content\n[abort: bare LF around the dot in content]"
         "[close: bare LF around the dot in content]"},
        {MAIL_RCPT "DATA\r\nx\n\n..\n\r\n.\r\n" QUIT, SAYS_MAIL_RCPT SAYS_354
         "S:550 5.6.11 Bare LF in content\n[abort: Bare LF in content]" SAYS_BYE},
        {MAIL_RCPT "BDAT 4 LAST\r\nx\n.\n" QUIT,
         SAYS_MAIL_RCPT "S:550 5.6.11 Bare LF in content\n[abort: Bare LF in content]" SAYS_BYE},
        {MAIL_RCPT "DATA\r\nx\r\n.\rQUIT\r\n\r\n.\r\n" QUIT, SAYS_MAIL_RCPT SAYS_354
         "S:550 5.6.11 Bare CR in content\n[abort: Bare CR in content]" SAYS_BYE},
        /* Order of commands. */
        {"MAIL FROM:<a@b.example>\r\n" HELLO "RCPT TO:<c@d.example>\r\nDATA\r\n" QUIT,
         "S:220 mx.example ESMTP Sluice\nS:503 5.5.1 Send HELO or EHLO first\n"
         "S:250-mx.example\nS:250-PIPELINING\nS:250-SIZE 1000\nS:250-ETRN\n"
         "S:250-DSN\nS:250-SMTPUTF8\nS:250-CHUNKING\nS:250-ENHANCEDSTATUSCODES\n"
         "S:250 8BITMIME\n[helo c.example]S:503 5.5.1 Send MAIL first\nS:503 5.5.1 Send MAIL "
         "first\n" SAYS_BYE},
        {MAIL_RCPT "MAIL FROM:<x@y.example>\r\n",
         SAYS_MAIL_RCPT "S:503 5.5.1 Sender was given already\n[abort: gone][close: gone]"},
        {HELLO "MAIL FROM:<nobody@b.example>\r\nMAIL FROM:<a@b.example>\r\n"
               "RCPT TO:<later@d.example>\r\nDATA\r\n" QUIT,
         SAYS_HELLO "[mail <nobody@b.example> flags 0 size 0]S:550 5.1.1 No such user\n" SAYS_MAIL
                    "[rcpt 0 <later@d.example> notify 0]S:450 4.7.1 Come??later\n"
                    "S:554 5.5.1 No valid recipients\n"
                    "S:221 2.0.0 Bye\n[abort: client sent QUIT][close: client sent QUIT]"},
        /* Parameters. */
        {HELLO "MAIL FROM:<a@b.example> SIZE=1001\r\n"
               "MAIL FROM:<a@b.example> SIZE=x\r\n"
               "MAIL FROM:<a@b.example> BODY=BINARYMIME\r\n"
               "MAIL FROM:<a@b.example> FOO=1\r\n"
               "MAIL FROM:<a@b.example> RET=FULL RET=HDRS\r\n"
               "MAIL FROM:<a@b.example> ENVID=a+2\r\n"
               "MAIL FROM:<\xc3\xa4@b.example>\r\n"
               "MAIL FROM:<a b@b.example>\r\n"
               "MAIL from: a@b.example body=8bitmime ret=hdrs envid=Q+2B size=99\r\n"
               "RCPT TO:<c@d.example> NOTIFY=NEVER,DELAY\r\n"
               "RCPT TO:<c@d.example> NOTIFY=DELAY,FAILURE ORCPT=rfc822;c@d.example\r\n"
               "RCPT TO:<postmaster>\r\n"
               "RCPT TO:<c>\r\n" QUIT,
         SAYS_HELLO "S:552 5.3.4 Message size exceeds fixed limit\n"
                    "S:501 5.5.4 Bad SIZE\n"
                    "S:501 5.5.4 BODY is neither 7BIT nor 8BITMIME\n"
                    "S:555 5.5.4 Parameter not recognized\n"
                    "S:501 5.5.4 Parameter given twice\n"
                    "S:501 5.5.4 ENVID is empty, too long or not xtext\n"
                    "S:553 5.6.7 Non-ASCII address needs SMTPUTF8\n"
                    "S:501 5.1.7 Bad sender address: Bad local part\n"
                    "[mail <a@b.example> flags 9 size 99 envid Q+2B]S:250 2.1.0 Ok\n"
                    "S:501 5.5.4 NOTIFY=NEVER stands alone\n"
                    "[rcpt 0 <c@d.example> notify 12 orcpt rfc822;c@d.example]S:250 2.1.5 Ok\n"
                    "[rcpt 1 <postmaster> notify 0]S:250 2.1.5 Ok\n"
                    "S:501 5.1.3 Bad recipient address: Address lacks a domain\n"
                    "S:221 2.0.0 Bye\n[abort: client sent QUIT][close: client sent QUIT]"},
        {HELLO
         "MAIL FROM:<a@b.example> SIZE=99999999999999999999\r\n"
         "MAIL FROM:<a@b.example> SIZE=999999999999999999999\r\n"
         "  MAIL FROM:<a@b.example> size=99\tRET=HDRS\r\n"
         "RCPT TO:<c@d.example> NOTIFY=,\r\n"
         "RCPT TO:<c@d.example> NOTIFY=DELAY,x\r\n"
         "RCPT TO:<c@d.example> NOTIFY=DELAY,,FAILURE,DELAY,\tORCPT=rfc822;c@d.example\r\n" QUIT,
         SAYS_HELLO "S:552 5.3.4 Message size exceeds fixed limit\n"
                    "S:501 5.5.4 Bad SIZE\n"
                    "[mail <a@b.example> flags 8 size 99]S:250 2.1.0 Ok\n"
                    "S:501 5.5.4 NOTIFY is empty\n"
                    "S:501 5.5.4 Bad word in NOTIFY\n"
                    "[rcpt 0 <c@d.example> notify 12 orcpt rfc822;c@d.example]S:250 2.1.5 Ok\n"
                    "S:221 2.0.0 Bye\n[abort: client sent QUIT][close: client sent QUIT]"},
        {HELLO "MAIL FROM:<\xc3\xa4@b.example> SMTPUTF8\r\nRSET\r\n" QUIT,
         SAYS_HELLO "[mail <\xc3\xa4@b.example> flags 2 size 0]S:250 2.1.0 Ok\n"
                    "S:250 2.0.0 Ok\n[abort: client ended it with RSET]" SAYS_BYE},
        /* Chunks. */
        {MAIL_RCPT "BDAT 3\r\na\r\nBDAT 0\r\nBDAT 4 LAST\r\n.\n\r\n" QUIT,
         SAYS_MAIL_RCPT "S:250 2.0.0 Ok, chunk received\nS:250 2.0.0 Ok, chunk received\n"
                        "S:550 5.6.11 Bare LF in content\n[abort: Bare LF in content]" SAYS_BYE},
        {MAIL_RCPT "BDAT 2\r\na\rBDAT 4 last\r\n\n.\r\n" QUIT,
         SAYS_MAIL_RCPT "S:250 2.0.0 Ok, chunk received\n"
                        "[message 1 flags 0 bytes 6]a\r\n.\r\nS:250 2.0.0 Ok\n" SAYS_BYE},
        {MAIL_RCPT "BDAT 0 LAST\r\n" QUIT,
         SAYS_MAIL_RCPT "[message 1 flags 0 bytes 0]S:250 2.0.0 Ok\n" SAYS_BYE},
        {HELLO "BDAT 6\r\nQUIT\r\n" QUIT, SAYS_HELLO "S:503 5.5.1 Send MAIL first\n" SAYS_BYE},
        {MAIL_RCPT "BDAT 3\r\na\r\nDATA\r\nRCPT TO:<x@y.example>\r\nRSET\r\n" QUIT,
         SAYS_MAIL_RCPT "S:250 2.0.0 Ok, chunk received\nS:503 5.5.1 Continue with BDAT\n"
                        "S:503 5.5.1 Content has begun\nS:250 2.0.0 Ok\n"
                        "[abort: client ended it with RSET]" SAYS_BYE},
        {MAIL_RCPT "BDAT x\r\n",
         SAYS_MAIL_RCPT "S:501 5.5.4 Syntax: BDAT size [LAST]\n"
                        "[abort: BDAT without a size][close: BDAT without a size]"},
        {MAIL_RCPT "BDAT 99999999999999999999\r\n",
         SAYS_MAIL_RCPT "S:501 5.5.4 Syntax: BDAT size [LAST]\n"
                        "[abort: BDAT without a size][close: BDAT without a size]"},
        /* The owner refuses content: for BDAT the octets are read all the same. */
        {"HELO later\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nBDAT 6 LAST\r\n"
         "QUIT\r\n" QUIT,
         "S:220 mx.example ESMTP Sluice\nS:250 mx.example\n[helo later]" SAYS_MAIL SAYS_RCPT
         "[abort: content was refused]S:450 4.7.1 Come??later\n" SAYS_BYE},
        {"HELO later\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\n" QUIT,
         "S:220 mx.example ESMTP Sluice\nS:250 mx.example\n[helo later]" SAYS_MAIL SAYS_RCPT
         "S:450 4.7.1 Come??later\n[abort: content was refused]" SAYS_BYE},
        /* The rest. */
        {HELLO "NOOP x\r\nVRFY a\r\nEXPN a\r\nHELP\r\nETRN #q\r\nFOO\r\nRSET 1\r\n\r\n" QUIT,
         SAYS_HELLO "S:250 2.0.0 Ok\nS:252 2.5.2 Cannot verify, but will accept the message and "
                    "try\nS:502 5.5.1 Lists are not expanded here\nS:214 2.0.0 See RFC 5321\n"
                    "[etrn #q]S:250 2.0.0 Queuing started\nS:500 5.5.2 Command not recognized\n"
                    "S:501 5.5.4 Command takes no argument\n"
                    "S:500 5.5.2 Command not recognized\n" SAYS_BYE},
        {"STARTTLS\r\nEHLO\r\nLHLO x\r\n" QUIT,
         "S:220 mx.example ESMTP Sluice\nS:502 5.5.1 STARTTLS is not offered\n"
         "S:501 5.5.4 Host name is missing, too long or not printable\n"
         "S:500 5.5.2 Command not recognized\n" SAYS_BYE},
        /* Not SMTP. */
        {"GET / HTTP/1.1\r\nHost: x\r\n", "S:220 mx.example ESMTP Sluice\n"
                                          "S:521 5.5.1 This is a mail server\n"
                                          "[close: client does not speak SMTP]"},
        {"PROXY TCP4 192.0.2.7 198.51.100.1 4711 25\r\n" HELLO,
         "S:220 mx.example ESMTP Sluice\n"
         "S:521 5.5.1 This is a mail server\n"
         "[close: client does not speak SMTP]"},
        {HELLO "Subject: x\r\n" QUIT, SAYS_HELLO "S:521 5.5.1 This is a mail server\n"
                                                 "[close: client does not speak SMTP]"},
        {HELLO "NOOP\nQUIT\r\n", SAYS_HELLO "S:521 5.5.2 Bare CR or LF in the command\n"
                                            "[close: bare CR or LF in a command]"},
        {HELLO "NO\rOP\r\n", SAYS_HELLO "S:521 5.5.2 Bare CR or LF in the command\n"
                                        "[close: bare CR or LF in a command]"},
        {"\x01\r\n" QUIT, "S:220 mx.example ESMTP Sluice\n"
                          "S:500 5.5.2 Control characters in the command\n" SAYS_BYE},
    };

    (void)unused;
    check_dialogues(dialogues, COUNT(dialogues), NULL);
}

static void lmtp(struct server_config *config)
{
    config->lmtp = true;
}

static void lmtp_answers_for_each_recipient(void **unused)
{
#define LMTP_HELLO                                                                                 \
    "S:250-mx.example\nS:250-PIPELINING\nS:250-SIZE 1000\nS:250-DSN\nS:250-SMTPUTF8\n"             \
    "S:250-CHUNKING\nS:250-ENHANCEDSTATUSCODES\nS:250 8BITMIME\n[helo c]"
#define LMTP_TWO                                                                                   \
    "LHLO c\r\nMAIL FROM:<>\r\nRCPT TO:<a@x.example>\r\nRCPT TO:<nobody@x.example>\r\n"            \
    "RCPT TO:<b@x.example>\r\n"
#define LMTP_SAYS_TWO                                                                              \
    "S:220 mx.example ESMTP Sluice\n" LMTP_HELLO "[mail <> flags 0 size 0]S:250 2.1.0 Ok\n"        \
    "[rcpt 0 <a@x.example> notify 0]S:250 2.1.5 Ok\n"                                              \
    "[rcpt 1 <nobody@x.example> notify 0]S:550 5.1.1 No such user\n"                               \
    "[rcpt 1 <b@x.example> notify 0]S:250 2.1.5 Ok\n"
    static const struct dialogue dialogues[] = {
        {"EHLO c\r\nHELO c\r\nETRN x\r\n" QUIT,
         "S:220 mx.example ESMTP Sluice\nS:500 5.5.2 Command not recognized in LMTP\n"
         "S:500 5.5.2 Command not recognized in LMTP\nS:500 5.5.2 Command not recognized in "
         "LMTP\n" SAYS_BYE},
        {LMTP_TWO "DATA\r\nx\r\n.\r\n" QUIT,
         LMTP_SAYS_TWO SAYS_354 "[message 2 flags 0 bytes 3]x\r\n"
                                "S:250 2.0.0 Ok\nS:452 4.2.2 Full\n" SAYS_BYE},
        {LMTP_TWO "DATA\r\nx\n\r\n.\r\n" QUIT,
         LMTP_SAYS_TWO SAYS_354 "S:550 5.6.11 Bare LF in content\nS:550 5.6.11 Bare LF in content\n"
                                "[abort: Bare LF in content]" SAYS_BYE},
        {LMTP_TWO "BDAT 2\r\nxyBDAT 2 LAST\r\n\r\n" QUIT,
         LMTP_SAYS_TWO "S:250 2.0.0 Ok, chunk received\n[message 2 flags 0 bytes 4]xy\r\n"
                       "S:250 2.0.0 Ok\nS:452 4.2.2 Full\n" SAYS_BYE},
        {"LHLO c\r\nMAIL FROM:<>\r\nDATA\r\nRSET\r\n" QUIT,
         "S:220 mx.example ESMTP Sluice\n" LMTP_HELLO "[mail <> flags 0 size 0]S:250 2.1.0 Ok\n"
         "S:503 5.5.1 No valid recipients\nS:250 2.0.0 Ok\n"
         "[abort: client ended it with RSET]" SAYS_BYE},
    };

    (void)unused;
    check_dialogues(dialogues, COUNT(dialogues), lmtp);
}

static void tight(struct server_config *config)
{
    config->limits.message_bytes = 20;
    config->limits.discard_bytes = 20;
    config->limits.recipients = 1;
    config->limits.errors = 3;
    config->limits.junk_commands = 1;
    config->limits.hops = 1;
    config->limits.header_bytes = 18;
    config->limits.messages = 1;
    config->limits.line_bytes = 14;
}

static void limits_are_refused_by_name(void **unused)
{
#define TIGHT_HELO                "HELO c\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\n"
#define TIGHT_HELLO               "S:220 mx.example ESMTP Sluice\nS:250 mx.example\n[helo c]"
#define TIGHT_SAYS                TIGHT_HELLO SAYS_MAIL SAYS_RCPT
#define CONTENT(bytes)            TIGHT_HELO "DATA\r\n" bytes "\r\n.\r\n" QUIT
#define SAYS_CONTENT(reply, text) TIGHT_SAYS SAYS_354 "S:" reply text "\n[abort: " text "]" SAYS_BYE
    static const struct dialogue dialogues[] = {
        {CONTENT("\r\n67890123\r\n56789012"), SAYS_CONTENT("552 5.3.4 ", "Message size exceeds "
                                                                         "fixed limit")},
        {CONTENT("a: 4567\r\nb: 34567\r\n"), SAYS_CONTENT("552 5.3.4 ", "Message size exceeds "
                                                                        "fixed limit")},
        {CONTENT("a: 4567890\r\nb: 67"), SAYS_CONTENT("552 5.3.4 ", "Header section is too large")},
        {CONTENT("\r\n345678901234567"), SAYS_CONTENT("554 5.6.0 ", "Line of content is too long")},
        {TIGHT_HELO "DATA\r\n1234567890\r\n1234567890\r\n1234567890\r\n1234567890\r\n.\r\n",
         TIGHT_SAYS SAYS_354 "S:421 4.3.0 Too much to discard\n"
                             "[abort: refused content does not end]"
                             "[close: refused content does not end]"},
        {TIGHT_HELO "RCPT TO:<e@f.example>\r\nRSET\r\nBDAT 21\r\n123456789012345678901",
         TIGHT_SAYS "S:452 4.5.3 Too many recipients\nS:250 2.0.0 Ok\n"
                    "[abort: client ended it with RSET]S:421 4.3.0 Too much to discard\n"
                    "[close: too many octets in refused chunks]"},
        {"A\r\nB\r\nC\r\nD\r\n",
         "S:220 mx.example ESMTP Sluice\nS:500 5.5.2 Command not recognized\n"
         "S:500 5.5.2 Command not recognized\nS:500 5.5.2 Command not recognized\n"
         "S:421 4.7.0 Too many errors\n[close: too many errors]"},
        {"NOOP\r\nNOOP\r\nNOOP\r\nNOOP\r\n",
         "S:220 mx.example ESMTP Sluice\nS:250 2.0.0 Ok\nS:250 2.0.0 Ok\nS:250 2.0.0 Ok\n"
         "S:421 4.7.0 Too many errors\n[close: too many errors]"},
        {TIGHT_HELO "DATA\r\n.\r\nMAIL FROM:<>\r\n",
         TIGHT_SAYS SAYS_354 "[message 1 flags 0 bytes 0]S:250 2.0.0 Ok\n"
                             "S:421 4.7.0 Too many messages in this session\n"
                             "[close: too many messages]"},
    };

    (void)unused;
    check_dialogues(dialogues, COUNT(dialogues), tight);
}

static void loops_are_stopped(void **unused)
{
    static const struct dialogue dialogues[] = {
        {MAIL_RCPT "DATA\r\nReceived: 1\r\nRECEIVED : 2\r\n\r\n.\r\n" QUIT,
         SAYS_MAIL_RCPT SAYS_354 "[message 1 flags 0 bytes 29]Received: 1\r\nRECEIVED : 2\r\n\r\n"
                                 "S:250 2.0.0 Ok\n" SAYS_BYE},
    };
    struct talk t;

    (void)unused;
    check_dialogues(dialogues, COUNT(dialogues), NULL);
    talk_begin(&t);
    t.config.limits.hops = 1;
    talk_through(&t, slice_string(dialogues[0].in), 1, NULL);
    assert_non_null(
        strstr(buf_cstr(&t.story), "S:554 5.4.6 Too many hops\n[abort: Too many hops]"));
    talk_end(&t);
}

static void keep_newlines(struct server_config *config)
{
    config->accept_bare_newlines = true;
}

static void bare_newlines_are_kept_when_told_so(void **unused)
{
    static const struct dialogue dialogues[] = {
        {MAIL_RCPT "DATA\r\na\nb\rc\r\r\n\xff\n.\r\n.\r\n" QUIT, SAYS_MAIL_RCPT SAYS_354
         "[message 1 flags 1 bytes 13]a\nb\rc\r\r\n\xff\n.\r\nS:250 2.0.0 Ok\n" SAYS_BYE},
    };

    (void)unused;
    check_dialogues(dialogues, COUNT(dialogues), keep_newlines);
}

static void clients_may_end_lines_with_lf_if_accepted(void **unused)
{
    static const struct dialogue dialogues[] = {
        {"EHLO c.example\nMAIL FROM:<a@b.example>\nRCPT TO:<c@d.example>\n"
         "DATA\nA: b\n\n..x\n.\nQUIT\n",
         SAYS_MAIL_RCPT SAYS_354
         "[message 1 flags 0 bytes 12]A: b\r\n\r\n.x\r\nS:250 2.0.0 Ok\n" SAYS_BYE},
        {MAIL_RCPT "DATA\r\nA: b\n\nx\n.\r\n" QUIT, SAYS_MAIL_RCPT SAYS_354
         "[message 1 flags 0 bytes 11]A: b\r\n\r\nx\r\nS:250 2.0.0 Ok\n" SAYS_BYE},
        {MAIL_RCPT "BDAT 3\nA:\nBDAT 4 LAST\nx\n.\n" QUIT,
         SAYS_MAIL_RCPT "S:250 2.0.0 Ok, chunk received\n"
                        "[message 1 flags 0 bytes 10]A:\r\nx\r\n.\r\nS:250 2.0.0 Ok\n" SAYS_BYE},
        {MAIL_RCPT "DATA\nx\ry\n.\n" QUIT,
         SAYS_MAIL_RCPT SAYS_354 "[message 1 flags 0 bytes 5]x y\r\nS:250 2.0.0 Ok\n" SAYS_BYE},
        {HELLO "NO\rOP\n", SAYS_HELLO "S:521 5.5.2 Bare CR or LF in the command\n"
                                      "[close: bare CR or LF in a command]"},
        {HELLO "NOOP\r\r\n", SAYS_HELLO "S:521 5.5.2 Bare CR or LF in the command\n"
                                        "[close: bare CR or LF in a command]"},
        {HELLO "\nNOOP\n" QUIT,
         SAYS_HELLO "S:500 5.5.2 Command not recognized\nS:250 2.0.0 Ok\n" SAYS_BYE},
    };

    (void)unused;
    check_talks(dialogues, COUNT(dialogues), NULL, true);
}

static void an_early_talker_is_refused(void **unused)
{
    struct talk t;

    (void)unused;
    talk_begin(&t);
    t.config.limits.greeting_delay_us = 5 * US_PER_S;
    t.server = server_new(&t.config, t.now);
    talk_feed(&t, SLICE(""));
    assert_string_equal(buf_cstr(&t.story), "");
    assert_int_equal(server_deadline(t.server).us, t.now.us + 5 * US_PER_S);
    talk_feed(&t, SLICE("E"));
    assert_string_equal(buf_cstr(&t.story), "S:554 5.5.1 You must wait for the greeting\n"
                                            "[close: client spoke too early]");
    talk_end(&t);
}

static void time_runs_out(void **unused)
{
    static const struct {
        const char *in;
        int64_t after_s;
        const char *want; /* at the end of the story */
    } cases[] = {
        {"", 299, "S:220 mx.example ESMTP Sluice\n"},
        {"", 300, "S:421 4.4.2 Timeout (smtpd_timeout)\n[close: timeout: smtpd_timeout]"},
        {HELLO "MAI", 300, "S:421 4.4.2 Timeout (smtpd_timeout)\n[close: timeout: smtpd_timeout]"},
        {MAIL_RCPT, 300,
         "S:421 4.4.2 Timeout (smtpd_timeout)\n[abort: timeout: smtpd_timeout]"
         "[close: timeout: smtpd_timeout]"},
        {MAIL_RCPT "DATA\r\nx", 99, SAYS_354},
        {MAIL_RCPT "DATA\r\nx", 100,
         "S:421 4.4.2 Timeout (smtpd_timeout)\n[abort: timeout: smtpd_timeout]"
         "[close: timeout: smtpd_timeout]"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct talk t;
        struct slice story;
        size_t len;

        talk_begin(&t);
        t.config.limits.content_us = 100 * US_PER_S;
        t.server = server_new(&t.config, t.now);
        talk_feed(&t, SLICE(""));
        talk_feed(&t, slice_string(cases[i].in));
        assert_true(server_deadline(t.server).us > t.now.us);
        t.now = mono_after(t.now, cases[i].after_s * US_PER_S);
        len = buf_len(&t.story);
        talk_feed(&t, SLICE("")); /* time alone does nothing: input may wait in the socket */
        assert_int_equal(buf_len(&t.story), len);
        server_expire(t.server);
        talk_feed(&t, SLICE(""));
        story = buf_slice(&t.story);
        assert_true(slice_ends_nocase(story, slice_string(cases[i].want)));
        talk_end(&t);
    }
}

/* As the owner does when the deadline has passed and no input is there. */
static void judge_time(struct talk *t)
{
    if (!t->closed && mono_reached(server_deadline(t->server), t->now)) {
        server_expire(t->server);
        talk_feed(t, SLICE(""));
    }
}

/* Send `piece` every `every_s` until the session is over: how long that takes, up to `most_s`. */
static int64_t drip(struct talk *t, const char *piece, int64_t every_s, int64_t most_s)
{
    int64_t seconds = 0;

    while (!t->closed && seconds < most_s) {
        seconds += every_s;
        t->now = mono_after(t->now, every_s * US_PER_S);
        talk_feed(t, slice_string(piece));
        judge_time(t);
    }
    return seconds;
}

#define TOO_SLOW(name) "[close: timeout: " name "]"

static void a_drip_of_bytes_gains_no_time(void **unused)
{
    static const struct {
        const char *start, *piece;
        int64_t every_s, least_s, most_s;
        const char *want; /* at the end of the story */
    } cases[] = {
        {HELLO, "x", 1, 300, 301, TOO_SLOW("smtpd_timeout")},
        /* 10 bytes a second are asked for. */
        {MAIL_RCPT "DATA\r\n", "x", 1, 333, 335, TOO_SLOW("smtpd_min_data_rate")},
        {MAIL_RCPT "DATA\r\n", "abc", 2, 352, 354, TOO_SLOW("smtpd_min_data_rate")},
        {MAIL_RCPT "BDAT 100000\r\n", "x", 1, 333, 335, TOO_SLOW("smtpd_min_data_rate")},
        {MAIL_RCPT "DATA\r\n", "ten bytes.", 1, 9999, 9999, ""},
        {MAIL_RCPT "DATA\r\n",
         "a pause of four minutes, and bytes that are worth as long"
         "a pause of four minutes, and bytes that are worth as long",
         10, 9990, 9990, ""},
        /* One chunk a minute is as slow, whatever chunks come to. */
        {MAIL_RCPT, "BDAT 1\r\nx", 60, 360, 480, TOO_SLOW("smtpd_min_data_rate")},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct talk t;
        int64_t seconds;

        talk_begin(&t);
        t.config.limits.content_rate_min = 10;
        t.config.limits.message_bytes = 10000000;
        t.server = server_new(&t.config, t.now);
        talk_feed(&t, SLICE(""));
        talk_feed(&t, slice_string(cases[i].start));
        seconds = drip(&t, cases[i].piece, cases[i].every_s, cases[i].most_s);
        assert_in_range(seconds, cases[i].least_s, cases[i].most_s);
        assert_true(slice_ends_nocase(buf_slice(&t.story), slice_string(cases[i].want)));
        talk_end(&t);
    }
}

static void much_content_at_once_buys_no_place_for_later(void **unused)
{
    struct talk t;
    struct buf much;

    (void)unused;
    talk_begin(&t);
    t.config.limits.message_bytes = 10000000;
    buf_init(&much, 1 << 20);
    for (int i = 0; i < 10000; i++) {
        buf_add_string(&much, "forty bytes of content and a few more..\r\n");
    }
    t.server = server_new(&t.config, t.now);
    talk_feed(&t, SLICE(""));
    talk_feed(&t, SLICE(MAIL_RCPT "DATA\r\n"));
    talk_feed(&t, buf_slice(&much)); /* 840 s worth of smtpd_min_data_rate */
    assert_in_range(drip(&t, "x", 100, 10000), 300, 400);
    talk_end(&t);
    buf_fini(&much);
}

/* The owner was stopped: what the client sent meanwhile is not late. */
static void what_is_there_counts_before_the_time_does(void **unused)
{
    static const struct {
        const char *start, *late;
    } cases[] = {
        {HELLO, "NOOP\r\n"},
        {HELLO "NO", "OP\r\n"},
        {MAIL_RCPT "DATA\r\nx", "\r\n.\r\n"},
        {MAIL_RCPT "BDAT 5 LAST\r\nx", "yz\r\n"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct talk t;

        talk_begin(&t);
        t.server = server_new(&t.config, t.now);
        talk_feed(&t, SLICE(""));
        talk_feed(&t, slice_string(cases[i].start));
        t.now = mono_after(t.now, 1000 * US_PER_S);
        talk_feed(&t, slice_string(cases[i].late));
        assert_false(t.closed);
        talk_end(&t);
    }
}

static void a_transaction_ends_in_time_and_a_session_lets_it(void **unused)
{
    static const struct {
        const char *start, *piece;
        int64_t every_s, least_s, most_s;
        const char *want;
    } cases[] = {
        /* The session may last for 1,000 s, the transaction for 5,000. */
        {HELLO, "NOOP\r\n", 100, 1000, 1000, TOO_SLOW("smtpd_session_timeout")},
        {MAIL_RCPT, "RCPT TO:<b@example.net>\r\n", 100, 1000, 1000,
         TOO_SLOW("smtpd_session_timeout")},
        {MAIL_RCPT "DATA\r\n", "some bytes", 100, 5000, 5100,
         TOO_SLOW("smtpd_transaction_timeout")},
        {MAIL_RCPT, "BDAT 5\r\nhello", 100, 5000, 5100, TOO_SLOW("smtpd_transaction_timeout")},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct talk t;
        int64_t seconds;

        talk_begin(&t);
        t.config.limits.content_rate_min = 0;
        t.config.limits.session_us = 1000 * US_PER_S;
        t.config.limits.transaction_us = 5000 * US_PER_S;
        t.config.limits.junk_commands = 1000;
        t.server = server_new(&t.config, t.now);
        talk_feed(&t, SLICE(""));
        talk_feed(&t, slice_string(cases[i].start));
        seconds = drip(&t, cases[i].piece, cases[i].every_s, 20000);
        assert_in_range(seconds, cases[i].least_s, cases[i].most_s);
        assert_true(slice_ends_nocase(buf_slice(&t.story), slice_string(cases[i].want)));
        talk_end(&t);
    }
}

static void who_has_to_go_is_told_where_there_is_room_for_words(void **unused)
{
    static const struct {
        const char *start, *want;
    } cases[] = {
        {HELLO, "S:421 4.3.2 busy\n[close: expelled]"},
        {HELLO "NO", "S:421 4.3.2 busy\n[close: expelled]"},
        {MAIL_RCPT "DATA\r\nx", "S:421 4.3.2 busy\n[abort: expelled][close: expelled]"},
        {MAIL_RCPT "BDAT 5\r\nx", "S:421 4.3.2 busy\n[abort: expelled][close: expelled]"},
    };

    (void)unused;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct talk t;

        talk_begin(&t);
        t.server = server_new(&t.config, t.now);
        talk_feed(&t, SLICE(""));
        talk_feed(&t, slice_string(cases[i].start));
        server_expel(t.server, "4.3.2", "busy", "expelled");
        talk_feed(&t, SLICE("more"));
        assert_true(slice_ends_nocase(buf_slice(&t.story), slice_string(cases[i].want)));
        server_expel(t.server, "4.3.2", "again", "again"); /* no effect */
        talk_end(&t);
    }
}

static void shutdown_waits_for_the_end_of_a_command(void **unused)
{
    struct talk t;

    (void)unused;
    talk_begin(&t);
    t.server = server_new(&t.config, t.now);
    talk_feed(&t, SLICE(""));
    talk_feed(&t, SLICE(MAIL_RCPT "DATA\r\nx\r\n"));
    server_shutdown(t.server);
    talk_feed(&t, SLICE(".\r\nNOOP\r\n"));
    assert_string_equal(buf_cstr(&t.story), SAYS_MAIL_RCPT SAYS_354
                        "[message 1 flags 0 bytes 3]x\r\nS:250 2.0.0 Ok\n"
                        "S:421 4.3.2 Shutting down\n[close: shutting down]");
    talk_end(&t);
}

#define SAYS_HELLO_AUTH                                                                            \
    "S:220 mx.example ESMTP Sluice\n"                                                              \
    "S:250-mx.example\nS:250-PIPELINING\nS:250-SIZE 1000\nS:250-ETRN\n"                            \
    "S:250-AUTH SCRAM-SHA-256 PLAIN LOGIN\nS:250-DSN\n"                                            \
    "S:250-SMTPUTF8\nS:250-CHUNKING\nS:250-ENHANCEDSTATUSCODES\nS:250 8BITMIME\n[helo c.example]"

static void offer_logins(struct server_config *config)
{
    config->login = SASL_MECHANISMS;
    config->login_in_clear = true;
    config->require_login = true;
    config->limits.login_failures = 2;
}

static void logins_go_through_under_every_split(void **unused)
{
    static const struct dialogue dialogues[] = {
        {HELLO "AUTH PLAIN AGFubgBzZWNyZXQ=\r\nMAIL FROM:<a@b.example>\r\nRSET\r\n" QUIT,
         SAYS_HELLO_AUTH "[login PLAIN]S:235 2.7.0 Authentication successful\n" SAYS_MAIL
                         "S:250 2.0.0 Ok\n[abort: client ended it with RSET]" SAYS_BYE},
        {HELLO "auth plain\r\nAGFubgBzZWNyZXQ=\r\nAUTH PLAIN\r\n" QUIT,
         SAYS_HELLO_AUTH "[login PLAIN]S:334 \n[login PLAIN]S:235 2.7.0 Authentication successful\n"
                         "S:503 5.5.1 Logged in already\n" SAYS_BYE},
        {HELLO "AUTH LOGIN\r\nYW5u\r\nc2VjcmV0\r\n" QUIT,
         SAYS_HELLO_AUTH "[login LOGIN]S:334 VXNlcm5hbWU6\n[login LOGIN]S:334 UGFzc3dvcmQ6\n"
                         "[login LOGIN]S:235 2.7.0 Authentication successful\n" SAYS_BYE},
        {HELLO "AUTH LOGIN YW5u\r\nc2VjcmV0\r\n" QUIT,
         SAYS_HELLO_AUTH "[login LOGIN]S:334 UGFzc3dvcmQ6\n"
                         "[login LOGIN]S:235 2.7.0 Authentication successful\n" SAYS_BYE},
        /* Not without a login, and only so many that fail. */
        {HELLO "MAIL FROM:<a@b.example>\r\nAUTH PLAIN AGFubgBzZWNyZXRz\r\n"
               "MAIL FROM:<a@b.example>\r\nAUTH PLAIN AGJvYgBzZWNyZXQ=\r\n",
         SAYS_HELLO_AUTH "S:530 5.7.0 Authentication required\n"
                         "[login PLAIN]S:535 5.7.8 Authentication failed\n"
                         "S:530 5.7.0 Authentication required\n"
                         "[login PLAIN]S:421 4.7.0 Too many failed logins\n"
                         "[close: too many failed logins]"},
        /* What is no login. */
        {HELLO "AUTH\r\nAUTH GSSAPI\r\nAUTH PLAIN A\r\nAUTH PLAIN =\r\nAUTH LOGIN\r\n*\r\n"
               "AUTH LOGIN\r\n!\r\n" QUIT,
         SAYS_HELLO_AUTH "S:504 5.5.4 Mechanism is not offered\n"
                         "S:504 5.5.4 Mechanism is not offered\n"
                         "S:501 5.5.2 Cannot decode the message of the login\n"
                         "[login PLAIN]S:535 5.7.8 Authentication failed\n"
                         "[login LOGIN]S:334 VXNlcm5hbWU6\nS:501 5.7.0 Login was cancelled\n"
                         "[login LOGIN]S:334 VXNlcm5hbWU6\n"
                         "S:501 5.5.2 Cannot decode the message of the login\n" SAYS_BYE},
        {"AUTH PLAIN AGFubgBzZWNyZXQ=\r\nHELO x\r\nAUTH PLAIN AGFubgBzZWNyZXQ=\r\n" QUIT,
         "S:220 mx.example ESMTP Sluice\nS:503 5.5.1 Send EHLO first\nS:250 mx.example\n[helo x]"
         "S:503 5.5.1 Send EHLO first\n" SAYS_BYE},
        {HELLO "AUTH LOGIN\r\nYW5u\nQUIT\r\n",
         SAYS_HELLO_AUTH "[login LOGIN]S:334 VXNlcm5hbWU6\n"
                         "S:521 5.5.2 Bare CR or LF in the command\n"
                         "[close: bare CR or LF in a command]"},
        /* Whose mail it is says the client, and is not believed. */
        {HELLO "AUTH PLAIN AGFubgBzZWNyZXQ=\r\nMAIL FROM:<a@b.example> AUTH=e+3Dmc2@x\r\n"
               "RCPT TO:<c@d.example>\r\nAUTH PLAIN\r\nMAIL FROM:<> AUTH=+\r\nRSET\r\n"
               "MAIL FROM:<a@b.example> AUTH=+\r\n" QUIT,
         SAYS_HELLO_AUTH "[login PLAIN]S:235 2.7.0 Authentication successful\n" SAYS_MAIL SAYS_RCPT
                         "S:503 5.5.1 Not within a mail transaction\n"
                         "S:503 5.5.1 Sender was given already\n"
                         "S:250 2.0.0 Ok\n[abort: client ended it with RSET]"
                         "S:501 5.5.4 AUTH is not xtext\n" SAYS_BYE},
    };

    (void)unused;
    check_dialogues(dialogues, COUNT(dialogues), offer_logins);
}

static void a_login_needs_tls(void **unused)
{
    struct talk t;

    (void)unused;
    talk_begin(&t);
    t.config.starttls = true;
    t.config.login = SASL_PLAIN;
    t.server = server_new(&t.config, t.now);
    talk_feed(&t, SLICE(""));
    talk_feed(&t, SLICE(HELLO "AUTH PLAIN AGFubgBzZWNyZXQ=\r\n"));
    assert_null(strstr(buf_cstr(&t.story), "250-AUTH"));
    assert_non_null(strstr(buf_cstr(&t.story), "S:538 5.7.11 Encryption is required"));
    talk_feed(&t, SLICE("STARTTLS\r\n"));
    server_tls_started(t.server, "TLSv1.3");
    buf_clear(&t.story);
    talk_feed(&t, SLICE(HELLO "AUTH SCRAM-SHA-256\r\nAUTH PLAIN AGFubgBzZWNyZXQ=\r\n"));
    assert_non_null(strstr(buf_cstr(&t.story), "S:250-AUTH PLAIN\n"));
    assert_non_null(strstr(buf_cstr(&t.story), "S:504 5.5.4 Mechanism is not offered\n"));
    assert_non_null(strstr(buf_cstr(&t.story), "S:235 2.7.0"));
    assert_true(server_is_logged_in(t.server));
    assert_string_equal(server_protocol(t.server), "ESMTPSA");
    talk_end(&t);
}

static void a_login_has_limits(void **unused)
{
    static char line[13000];
    struct talk t;

    (void)unused;
    memset(line, 'A', sizeof line);
    for (size_t len = 12288; len <= 12292; len += 4) {
        talk_begin(&t);
        offer_logins(&t.config);
        t.server = server_new(&t.config, t.now);
        talk_feed(&t, SLICE(""));
        talk_feed(&t, SLICE(HELLO "AUTH PLAIN\r\n"));
        buf_clear(&t.story);
        talk_feed(&t, slice_of(line, len));
        if (!t.closed) {
            talk_feed(&t, SLICE("\r\n"));
        }
        assert_string_equal(buf_cstr(&t.story),
                            len == 12288 ? "[login PLAIN]S:535 5.7.8 Authentication failed\n"
                                         : "S:500 5.5.6 Line of a login is too long\n"
                                           "[close: line of a login too long]");
        talk_end(&t);
    }
    talk_begin(&t);
    offer_logins(&t.config);
    t.server = server_new(&t.config, t.now);
    talk_feed(&t, SLICE(""));
    talk_feed(&t, SLICE(HELLO "AUTH LOGIN\r\nYW"));
    t.now = server_deadline(t.server);
    server_expire(t.server);
    talk_feed(&t, SLICE(""));
    assert_true(t.closed);
    assert_non_null(strstr(buf_cstr(&t.story), "smtpd_timeout"));
    talk_end(&t);
}

static void starttls_forgets_what_was_said_before(void **unused)
{
    struct talk t;

    (void)unused;
    talk_begin(&t);
    t.config.starttls = true;
    t.config.require_tls = true;
    t.server = server_new(&t.config, t.now);
    talk_feed(&t, SLICE(""));
    talk_feed(&t, SLICE(HELLO "MAIL FROM:<>\r\nSTARTTLS\r\nEHLO injected\r\nMAIL FROM:<x@y>\r\n"));
    assert_non_null(strstr(buf_cstr(&t.story), "S:250-STARTTLS\n"));
    assert_non_null(strstr(buf_cstr(&t.story), "S:530 5.7.0 Issue a STARTTLS command first\n"));
    assert_non_null(strstr(buf_cstr(&t.story), "S:220 Ready to start TLS\n[starttls]"));
    talk_feed(&t, SLICE("NOOP\r\n")); /* still in the clear: thrown away */
    server_tls_started(t.server, "TLSv1.3");
    assert_string_equal(server_protocol(t.server), "ESMTPS");
    assert_int_equal(server_helo(t.server).len, 0);
    buf_clear(&t.story);
    talk_feed(&t, SLICE("MAIL FROM:<>\r\nSTARTTLS\r\n" HELLO "MAIL FROM:<>\r\n"));
    assert_null(strstr(buf_cstr(&t.story), "injected"));
    assert_null(strstr(buf_cstr(&t.story), "S:250-STARTTLS\n"));
    assert_non_null(strstr(buf_cstr(&t.story), "S:503 5.5.1 Send HELO or EHLO first\n"
                                               "S:503 5.5.1 TLS is active already\n"));
    assert_non_null(strstr(buf_cstr(&t.story), "[mail <> flags 0 size 0]S:250 2.1.0 Ok\n"));
    talk_end(&t);
}

static void a_tls_handshake_must_end(void **unused)
{
    struct talk t;

    (void)unused;
    talk_begin(&t);
    t.config.starttls = true;
    t.server = server_new(&t.config, t.now);
    talk_feed(&t, SLICE(""));
    talk_feed(&t, SLICE("STARTTLS\r\n"));
    talk_feed(&t, SLICE(""));
    t.now = server_deadline(t.server);
    server_expire(t.server);
    talk_feed(&t, SLICE(""));
    assert_true(t.closed);
    talk_end(&t);
}

static void nothing_is_read_while_an_answer_is_outstanding(void **unused)
{
    struct talk t;
    struct server_event event;
    struct slice in = SLICE(HELLO "MAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\n"), left;

    (void)unused;
    talk_begin(&t);
    t.server = server_new(&t.config, t.now);
    talk_feed(&t, SLICE(""));
    server_next(t.server, t.now, &in, &event);
    assert_int_equal(event.type, SERVER_HELO);
    server_next(t.server, t.now, &in, &event);
    assert_int_equal(event.type, SERVER_MAIL);
    left = in;
    for (int i = 0; i < 3; i++) {
        server_next(t.server, t.now, &in, &event);
        assert_int_equal(event.type, SERVER_NEED_ANSWER);
        assert_int_equal(in.len, left.len);
        assert_int_equal(server_deadline(t.server).us, US_FOREVER);
    }
    server_answer(t.server, SERVER_ACCEPT);
    server_next(t.server, t.now, &in, &event);
    assert_int_equal(event.type, SERVER_RCPT);
    server_hangup(t.server, "gone");
    server_answer(t.server, SERVER_ACCEPT); /* too late, and harmless */
    server_next(t.server, t.now, &in, &event);
    assert_int_equal(event.type, SERVER_ABORT);
    server_next(t.server, t.now, &in, &event);
    assert_int_equal(event.type, SERVER_CLOSE);
    talk_end(&t);
}

static void a_commit_outlives_the_client(void **unused)
{
    struct talk t;
    struct server_event event;
    struct slice in = SLICE("DATA\r\nx\r\n.\r\n");
    struct server_reply ok = SERVER_ACCEPT;

    (void)unused;
    talk_begin(&t);
    t.server = server_new(&t.config, t.now);
    talk_feed(&t, SLICE(""));
    talk_feed(&t, SLICE(MAIL_RCPT));
    do {
        server_next(t.server, t.now, &in, &event);
        if (event.type == SERVER_DATA) {
            server_answer(t.server, SERVER_ACCEPT);
        }
    } while (event.type != SERVER_MESSAGE);
    server_hangup(t.server, "gone");
    server_next(t.server, t.now, &in, &event);
    assert_int_equal(event.type, SERVER_CLOSE); /* and no SERVER_ABORT */
    server_message_done(t.server, &ok, 1);
    assert_int_equal(server_stats(t.server).messages, 1);
    talk_end(&t);
}

static void a_client_that_does_not_read_is_not_heard(void **unused)
{
    struct talk t;
    struct server_event event;
    struct buf noops;
    struct slice in;

    (void)unused;
    talk_begin(&t);
    t.config.limits.junk_commands = 1 << 20;
    buf_init(&noops, 1 << 20);
    for (int i = 0; i < 10000; i++) {
        buf_add_string(&noops, "NOOP\r\n");
    }
    t.server = server_new(&t.config, t.now);
    talk_feed(&t, SLICE(""));
    in = buf_slice(&noops);
    server_next(t.server, t.now, &in, &event);
    assert_int_equal(event.type, SERVER_NEED_OUTPUT);
    assert_true(in.len > 0);
    assert_in_range(buf_len(server_output(t.server)), SERVER_OUTPUT_MAX, SERVER_OUTPUT_MAX + 512);
    t.now = server_deadline(t.server);
    server_expire(t.server);
    server_next(t.server, t.now, &in, &event);
    assert_int_equal(event.type, SERVER_CLOSE);
    talk_end(&t);
    buf_fini(&noops);
}

static void junk_is_bounded(void **unused)
{
    struct rng rng;

    (void)unused;
    rng_init(&rng, 2);
    for (int kind = 0; kind < 4; kind++) {
        struct talk t;
        char *junk = malloc(100000);

        for (size_t i = 0; i < 100000; i++) {
            junk[i] = kind == 0   ? 'x'
                      : kind == 1 ? '\0'
                      : kind == 2 ? (char)rng_below(&rng, 256)
                                  : "A\r\n"[i % 3];
        }
        talk_begin(&t);
        talk_through(&t, slice_of(junk, 100000), kind % 2 ? 4096 : 0, &rng);
        assert_true(t.closed);
        assert_true(buf_len(&t.story) < 2000);
        talk_end(&t);
        free(junk);
    }
}

UNIT_MAIN(cmocka_unit_test(logins_go_through_under_every_split),
          cmocka_unit_test(a_login_needs_tls), cmocka_unit_test(a_login_has_limits),
          cmocka_unit_test(dialogues_tell_the_same_story_under_every_split),
          cmocka_unit_test(lmtp_answers_for_each_recipient),
          cmocka_unit_test(limits_are_refused_by_name), cmocka_unit_test(loops_are_stopped),
          cmocka_unit_test(bare_newlines_are_kept_when_told_so),
          cmocka_unit_test(clients_may_end_lines_with_lf_if_accepted),
          cmocka_unit_test(an_early_talker_is_refused), cmocka_unit_test(time_runs_out),
          cmocka_unit_test(a_drip_of_bytes_gains_no_time),
          cmocka_unit_test(much_content_at_once_buys_no_place_for_later),
          cmocka_unit_test(what_is_there_counts_before_the_time_does),
          cmocka_unit_test(a_transaction_ends_in_time_and_a_session_lets_it),
          cmocka_unit_test(who_has_to_go_is_told_where_there_is_room_for_words),
          cmocka_unit_test(shutdown_waits_for_the_end_of_a_command),
          cmocka_unit_test(starttls_forgets_what_was_said_before),
          cmocka_unit_test(a_tls_handshake_must_end),
          cmocka_unit_test(nothing_is_read_while_an_answer_is_outstanding),
          cmocka_unit_test(a_commit_outlives_the_client),
          cmocka_unit_test(a_client_that_does_not_read_is_not_heard),
          cmocka_unit_test(junk_is_bounded))
