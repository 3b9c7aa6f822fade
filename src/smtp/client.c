/*
 * Method of a transaction. Two cursors walk the same list of commands,
 *
 *     RSET?  MAIL  RCPT 0  RCPT 1 .. RCPT n-1  DATA
 *
 * one for sending (send_step, send_rcpt), one for receiving (recv_step, recv_rcpt). Without
 * PIPELINING the sender waits for the receiver at each step; with it, the sender runs ahead until
 * the output buffer is full enough. There is no other difference.
 *
 * Events are not queued. A reply settles a range of recipients (verdict_next..verdict_end), whose
 * verdicts are then returned one by one, and at most one further event is `pending` after them.
 * While an event waits no input is read, so the reply that the texts quote stays in place.
 */
#include "client.h"

#include <stdarg.h>
#include <string.h>

#include "address.h"
#include "base64.h"
#include "check.h"
#include "envelope.h"
#include "idn.h"
#include "mem.h"
#include "printable.h"
#include "xtext.h"

/* Amount of output that waits for the socket, below which commands and content are produced. */
#define OUTPUT_LOW (CLIENT_OUTPUT_MAX / 2)
/* Longest command: a path, an ENVID or ORCPT, and the other parameters. */
#define COMMAND_MAX (ADDRESS_MAX + DSN_ORCPT_MAX + 200)
#define HOST_MAX    400
#define TEXT_MAX    (REPLY_TEXT_MAX + 2 * HOST_MAX + 200)
/* Maximum of bytes after the last byte of content: a missing CRLF, then the final dot. */
#define CONTENT_TAIL_MAX 5
/* Maximum of bytes that folding adds to a part of the output. */
#define FOLDED_MORE_MAX                                                                            \
    (LONG_LINES_HELD_MAX + LONG_LINES_BREAK_MAX * (1 + CLIENT_OUTPUT_MAX / LONG_LINES_WISHED))

_Static_assert(OUTPUT_LOW + COMMAND_MAX <= CLIENT_OUTPUT_MAX, "a command always fits");
_Static_assert(DSN_ENVID_MAX <= DSN_ORCPT_MAX, "MAIL is no longer than RCPT");

enum state {
    GREETING, /* connected */
    HELLO,    /* EHLO or LHLO sent */
    HELO,     /* EHLO was refused, HELO sent */
    STARTTLS, /* the command was sent */
    TLS,      /* the owner does the handshake */
    AUTH,     /* a message of the login was sent */
    IDLE,
    ENVELOPE, /* up to the reply to DATA */
    CONTENT,  /* 354 was received, the final dot was not sent */
    FINAL,    /* the final dot was sent, or the peer answered before it */
    QUITTING,
    ENDED,
};

enum step {
    STEP_RSET,
    STEP_MAIL,
    STEP_RCPT,
    STEP_DATA,
    STEP_NONE, /* only for sending: nothing more to send */
};

enum pending {
    PENDING_NONE,
    PENDING_READY,
    PENDING_TLS,
    PENDING_DONE,
    PENDING_FAILED,
    PENDING_CLOSED,
};

enum mark {
    MARK_SKIPPED = 1 << 0,  /* no RCPT is sent for this one, which was refused locally */
    MARK_ACCEPTED = 1 << 1, /* RCPT got 2xx */
    MARK_SETTLED = 1 << 2,  /* the verdict was reported */
};

/* Kind of the content's last byte. */
enum content_prev {
    PREV_OTHER,
    PREV_CR,
    PREV_LINE_END,
};

static const struct {
    const char *command; /* words after "in reply to" */
    const char *doing;   /* words after "while" */
} phases[] = {
    [CLIENT_PHASE_GREETING] = {"connection", "receiving the initial server greeting"},
    [CLIENT_PHASE_EHLO] = {"EHLO command", "performing the EHLO handshake"},
    [CLIENT_PHASE_HELO] = {"HELO command", "performing the HELO handshake"},
    [CLIENT_PHASE_LHLO] = {"LHLO command", "performing the LHLO handshake"},
    [CLIENT_PHASE_STARTTLS] = {"STARTTLS command", "receiving the STARTTLS response"},
    [CLIENT_PHASE_AUTH] = {"AUTH command", "performing the AUTH exchange"},
    [CLIENT_PHASE_IDLE] = {"nothing", "waiting for the next message"},
    [CLIENT_PHASE_RSET] = {"RSET command", "sending RSET"},
    [CLIENT_PHASE_MAIL] = {"MAIL FROM command", "sending MAIL FROM"},
    [CLIENT_PHASE_RCPT] = {"RCPT TO command", "sending RCPT TO"},
    [CLIENT_PHASE_DATA] = {"DATA command", "sending DATA command"},
    [CLIENT_PHASE_CONTENT] = {"message content", "sending message body"},
    [CLIENT_PHASE_FINAL] = {"end of DATA command",
                            "sending end of data -- message may be sent more than once"},
    [CLIENT_PHASE_QUIT] = {"QUIT command", "sending QUIT command"},
};

/* End of a message. */
static const struct slice final_dot = {".\r\n", 3};

static const struct status bad_address = {STATUS_PERMANENT, 1, 3};
static const struct status bad_sender = {STATUS_PERMANENT, 1, 7};
static const struct status too_large = {STATUS_PERMANENT, 3, 4};
static const struct status loops_back = {STATUS_PERMANENT, 4, 6};
static const struct status too_many_rcpts = {STATUS_TRANSIENT, 5, 3};
static const struct status no_utf8 = {STATUS_PERMANENT, 6, 7};
static const struct status no_conversion = {STATUS_PERMANENT, 6, 3};
static const struct status bad_connection = {STATUS_TRANSIENT, 4, 2};
static const struct status bad_protocol = {STATUS_TRANSIENT, 5, 0};
static const struct status tls_required = {STATUS_TRANSIENT, 7, 4};
static const struct status tls_broken = {STATUS_TRANSIENT, 7, 5};
static const struct status no_login = {STATUS_TRANSIENT, 7, 8};
static const struct status login_wanted = {STATUS_TRANSIENT, 7, 0};
static const struct status broken_off = {STATUS_TRANSIENT, 3, 2};

const char *client_phase_name(enum client_phase phase)
{
    return phases[phase].command;
}

void client_config_defaults(struct client_config *config)
{
    *config = (struct client_config){
        .pipelining = true,
        .skip_5xx_greeting = true,
        .skip_quit_response = true,
        .smtp_helo_timeout = 300 * US_PER_S,
        .smtp_starttls_timeout = 300 * US_PER_S,
        .smtp_mail_timeout = 300 * US_PER_S,
        .smtp_rcpt_timeout = 300 * US_PER_S,
        .smtp_data_init_timeout = 120 * US_PER_S,
        .smtp_data_xfer_timeout = 180 * US_PER_S,
        .smtp_data_done_timeout = 600 * US_PER_S,
        .smtp_rset_timeout = 20 * US_PER_S,
        .smtp_quit_timeout = 300 * US_PER_S,
    };
}

/* -- the current phase ------------------------------------------------------------------------- */

static bool in_transaction(const struct client *c)
{
    return c->state == ENVELOPE || c->state == CONTENT || c->state == FINAL;
}

static bool verdicts_wait(const struct client *c)
{
    return c->verdict_next < c->verdict_end;
}

bool client_is_flushed(const struct client *c)
{
    return buf_len(&c->out) == 0 && (c->dot_left == 0 || c->dot_in_out);
}

static bool pipelines(const struct client *c)
{
    return c->config->pipelining && (c->offers & CLIENT_OFFERS_PIPELINING) != 0;
}

/* Returns the command whose reply comes next. Recipients that were never sent get no reply. */
static enum step awaited(struct client *c)
{
    if (c->recv_step != STEP_RCPT) {
        return c->recv_step;
    }
    while (c->recv_rcpt < c->send_rcpt && (c->marks[c->recv_rcpt] & MARK_SKIPPED) != 0) {
        c->recv_rcpt++;
    }
    return c->recv_rcpt < c->send_rcpt ? STEP_RCPT : STEP_DATA;
}

static enum client_phase envelope_phase(struct client *c)
{
    switch (awaited(c)) {
    case STEP_RSET:
        return CLIENT_PHASE_RSET;
    case STEP_MAIL:
        return CLIENT_PHASE_MAIL;
    case STEP_RCPT:
        return CLIENT_PHASE_RCPT;
    case STEP_DATA:
        return CLIENT_PHASE_DATA;
    case STEP_NONE:
        break;
    }
    UNREACHABLE("only the sender runs out of steps");
}

static enum client_phase current_phase(struct client *c)
{
    switch ((enum state)c->state) {
    case GREETING:
        return CLIENT_PHASE_GREETING;
    case HELLO:
        return c->config->lmtp ? CLIENT_PHASE_LHLO : CLIENT_PHASE_EHLO;
    case HELO:
        return CLIENT_PHASE_HELO;
    case STARTTLS:
    case TLS:
        return CLIENT_PHASE_STARTTLS;
    case AUTH:
        return CLIENT_PHASE_AUTH;
    case IDLE:
        return CLIENT_PHASE_IDLE;
    case ENVELOPE:
        return envelope_phase(c);
    case CONTENT:
        return CLIENT_PHASE_CONTENT;
    case FINAL:
        /* Until the dot is written, the peer cannot have accepted the message. */
        return client_is_flushed(c) ? CLIENT_PHASE_FINAL : CLIENT_PHASE_CONTENT;
    case QUITTING:
    case ENDED:
        return CLIENT_PHASE_QUIT;
    }
    UNREACHABLE("a state beyond the enum");
}

static int64_t phase_timeout(const struct client_config *config, enum client_phase phase)
{
    switch (phase) {
    case CLIENT_PHASE_GREETING:
    case CLIENT_PHASE_EHLO:
    case CLIENT_PHASE_HELO:
    case CLIENT_PHASE_LHLO:
    case CLIENT_PHASE_AUTH:
        return config->smtp_helo_timeout;
    case CLIENT_PHASE_STARTTLS:
        return config->smtp_starttls_timeout;
    case CLIENT_PHASE_IDLE:
        return US_FOREVER;
    case CLIENT_PHASE_RSET:
        return config->smtp_rset_timeout;
    case CLIENT_PHASE_MAIL:
        return config->smtp_mail_timeout;
    case CLIENT_PHASE_RCPT:
        return config->smtp_rcpt_timeout;
    case CLIENT_PHASE_DATA:
        return config->smtp_data_init_timeout;
    case CLIENT_PHASE_CONTENT:
        return config->smtp_data_xfer_timeout;
    case CLIENT_PHASE_FINAL:
        return config->smtp_data_done_timeout;
    case CLIENT_PHASE_QUIT:
        return config->smtp_quit_timeout;
    }
    UNREACHABLE("a phase beyond the enum");
}

/* Restarts the timeout of the current phase. */
static void rearm(struct client *c, struct mono now)
{
    c->deadline = mono_after(now, phase_timeout(c->config, current_phase(c)));
}

static void enter(struct client *c, enum state state, struct mono now)
{
    CHECK(c->state != ENDED);
    c->state = (uint8_t)state;
    rearm(c, now);
}

/* Drops output that must no longer be sent. */
static void forget_output(struct client *c)
{
    buf_clear(&c->out);
    c->dot_left = 0;
}

/* Ends the dialogue. If the unsent end of a message were still written, a message would be
 * delivered that is about to be reported as failed. */
static void end(struct client *c)
{
    c->state = ENDED;
    c->deadline = MONO_NEVER;
    forget_output(c);
}

/* -- events for the owner
 * ------------------------------------------------------------------------- */

static void text_set(struct client *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void text_set(struct client *c, const char *format, ...)
{
    va_list args;

    buf_clear(&c->text);
    va_start(args, format);
    CHECK(buf_addv(&c->text, format, args));
    va_end(args);
}

/* Sets the text to the peer's reply as the reason, in Postfix's wording. */
static void text_quote(struct client *c, enum client_phase phase)
{
    struct slice said = reply_text(&c->reply);

    text_set(c, "host %.*s said: %.*s (in reply to %s)", SLICE_ARGS(c->host), SLICE_ARGS(said),
             client_phase_name(phase));
}

/* Settles recipients from..to-1, unless they are settled already, with `status`. The text is
 * set. */
static void settle(struct client *c, size_t from, size_t to, enum client_phase phase,
                   struct status status)
{
    CHECK(!verdicts_wait(c));
    c->too_many = false;
    c->verdict_next = (uint32_t)from;
    c->verdict_end = (uint32_t)to;
    c->phase = (uint8_t)phase;
    c->status = status;
    c->outcome = status.class == STATUS_SUCCESS     ? CLIENT_SENT
                 : status.class == STATUS_PERMANENT ? CLIENT_BOUNCED
                                                    : CLIENT_DEFERRED;
}

bool client_reply_is_about_login(unsigned code)
{
    return code == 530 || code == 534 || code == 535 || code == 538;
}

/* Settles recipients from..to-1 by the last reply. */
static void settle_by_reply(struct client *c, size_t from, size_t to, enum client_phase phase)
{
    c->has_reply = true;
    c->code = c->reply.code;
    settle(c, from, to, phase,
           client_reply_is_about_login(c->reply.code) ? login_wanted : c->reply.status);
    if (c->outcome == CLIENT_SENT) {
        buf_clear(&c->text); /* the reply itself is the text */
    } else {
        text_quote(c, phase);
    }
}

/* Settles recipients from..to-1, which are refused locally. The text is set. */
static void settle_locally(struct client *c, size_t from, size_t to, enum client_phase phase,
                           struct status status)
{
    c->has_reply = false;
    c->code = 0;
    settle(c, from, to, phase, status);
}

/* Ends the session. The text is set. If each recipient already has a verdict, the transaction is
 * reported as done, and only the connection as not reusable. */
static void fail(struct client *c, enum client_phase phase, enum client_cause cause,
                 struct status status)
{
    bool is_reply = cause == CLIENT_CAUSE_REFUSED || cause == CLIENT_CAUSE_PROTOCOL ||
                    cause == CLIENT_CAUSE_LOGIN;
    bool polite = (c->state <= STARTTLS || c->state == AUTH) && buf_len(&c->out) == 0 &&
                  reply_is_idle(&c->reply) &&
                  (cause == CLIENT_CAUSE_REFUSED || cause == CLIENT_CAUSE_LOOP ||
                   cause == CLIENT_CAUSE_TLS || cause == CLIENT_CAUSE_LOGIN) &&
                  c->reply.code != 421;

    CHECK(!verdicts_wait(c) && c->pending == PENDING_NONE);
    c->phase = (uint8_t)phase;
    c->cause = (uint8_t)cause;
    c->status = status;
    c->outcome = status.class == STATUS_PERMANENT ? CLIENT_BOUNCED : CLIENT_DEFERRED;
    c->has_reply = is_reply && c->reply.state == REPLY_COMPLETE;
    c->code = c->has_reply ? c->reply.code : 0;
    c->reusable = false;
    c->pending = in_transaction(c) && c->unsettled == 0 ? PENDING_DONE : PENDING_FAILED;
    end(c);
    if (polite) {
        CHECK(buf_add(&c->out, SLICE("QUIT\r\n")));
    }
}

/* Ends the session with a failure of the site or of the way to it. */
static void fail_site(struct client *c, enum client_cause cause, struct status status)
{
    enum client_phase phase = current_phase(c);

    c->site = true;
    c->content_was_sent = phase == CLIENT_PHASE_FINAL;
    fail(c, phase, cause, status);
}

static const char *doing(struct client *c)
{
    return c->state == TLS ? "performing the TLS handshake" : phases[current_phase(c)].doing;
}

/* Ends the session because of the connection. From STARTTLS to the reply to the second EHLO TLS may
 * be the cause; where it is optional, the session is tried without TLS before the site counts as
 * failed. */
static void fail_connection(struct client *c, enum client_cause cause)
{
    bool tls = c->state == STARTTLS || c->state == TLS || (c->state == HELLO && c->secure);

    c->retry_in_clear = tls && c->config->tls == CLIENT_TLS_MAY;
    fail_site(c, cause, bad_connection);
    c->site = !c->retry_in_clear;
}

static void fail_lost(struct client *c)
{
    text_set(c, "lost connection with %.*s while %s", SLICE_ARGS(c->host), doing(c));
    fail_connection(c, CLIENT_CAUSE_LOST);
}

static void fail_timeout(struct client *c)
{
    text_set(c, "conversation with %.*s timed out while %s", SLICE_ARGS(c->host), doing(c));
    fail_connection(c, CLIENT_CAUSE_TIMEOUT);
}

static void fail_protocol(struct client *c)
{
    struct slice said = reply_text(&c->reply);

    text_set(c, "remote protocol error in reply from %.*s while %s: %.*s", SLICE_ARGS(c->host),
             phases[current_phase(c)].doing, SLICE_ARGS(said));
    fail_site(c, CLIENT_CAUSE_PROTOCOL, bad_protocol);
}

/* Ends the session because the peer refuses all mail. */
static void fail_refused(struct client *c, struct status status)
{
    struct slice said = reply_text(&c->reply);

    text_set(c, "host %.*s refused to talk to me: %.*s", SLICE_ARGS(c->host), SLICE_ARGS(said));
    fail_site(c, CLIENT_CAUSE_REFUSED, status);
}

/* Ends the session because the peer ends it in the middle of a transaction, or because the peer
 * refuses RSET. The peer did so in reply to a command, so nothing is in doubt, unless LMTP
 * recipients still wait for their replies. */
static void fail_transaction(struct client *c)
{
    enum client_phase phase = current_phase(c);

    text_quote(c, phase);
    c->site = false;
    c->content_was_sent = phase == CLIENT_PHASE_FINAL && c->config->lmtp && c->unsettled > 1;
    /* The reply was not about the mail, whatever its class: 4xx for 421, and for a refused RSET. */
    fail(c, phase, CLIENT_CAUSE_REFUSED, status_repair(c->reply.status, STATUS_TRANSIENT));
}

static void closed(struct client *c)
{
    end(c);
    c->pending = PENDING_CLOSED;
}

/* -- handshake --------------------------------------------------------------------------------- */

static void send_hello(struct client *c, const char *verb, enum state state, struct mono now)
{
    c->offers = 0;
    c->mechanisms = 0;
    c->size_limit = 0;
    CHECK(buf_addf(&c->out, "%s %.*s\r\n", verb, SLICE_ARGS(c->config->hostname)));
    enter(c, state, now);
}

static void send_ehlo(struct client *c, struct mono now)
{
    send_hello(c, c->config->lmtp ? "LHLO" : "EHLO", HELLO, now);
}

static void on_greeting(struct client *c, struct mono now)
{
    struct status status = c->reply.status;

    switch (c->reply.code / 100) {
    case 2:
        send_ehlo(c, now);
        return;
    case 5:
        if (c->config->skip_5xx_greeting) {
            status.class = STATUS_TRANSIENT;
        }
        fail_refused(c, status);
        return;
    case 4:
        fail_refused(c, status);
        return;
    default:
        fail_protocol(c);
    }
}

/* Processes one line of the reply to EHLO or LHLO. */
static void on_hello_line(struct client *c)
{
    static const struct {
        const char *keyword;
        enum client_offer offer;
    } table[] = {
        {"PIPELINING", CLIENT_OFFERS_PIPELINING},
        {"SIZE", CLIENT_OFFERS_SIZE},
        {"8BITMIME", CLIENT_OFFERS_8BITMIME},
        {"SMTPUTF8", CLIENT_OFFERS_SMTPUTF8},
        {"DSN", CLIENT_OFFERS_DSN},
        {"STARTTLS", CLIENT_OFFERS_STARTTLS},
        {"ENHANCEDSTATUSCODES", CLIENT_OFFERS_STATUSCODES},
    };
    struct slice rest = slice_trim(reply_line(&c->reply));
    struct slice word = slice_cut(&rest, ' ');

    if (c->reply.lines == 1) {
        c->names_itself_us = slice_equal_nocase(word, c->config->hostname);
        return;
    }
    if (slice_equal_nocase(word, SLICE("AUTH"))) {
        c->mechanisms |= (uint8_t)sasl_mechanisms(rest);
    } else if (slice_starts_nocase(word, SLICE("AUTH="))) { /* servers older than RFC 2554 */
        c->mechanisms |= (uint8_t)(sasl_mechanisms(slice_skip(word, 5)) | sasl_mechanisms(rest));
    }
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (slice_equal_nocase(word, slice_string(table[i].keyword))) {
            unsigned long long limit = 0;

            c->offers |= (uint8_t)table[i].offer;
            if (table[i].offer == CLIENT_OFFERS_SIZE &&
                slice_number(slice_trim(rest), UINT64_MAX, &limit)) {
                c->size_limit = limit; /* 0, and no number at all: no fixed limit (RFC 1870) */
            }
        }
    }
}

static void ready(struct client *c, struct mono now)
{
    enter(c, IDLE, now);
    reply_fini(&c->reply);
    c->pending = PENDING_READY;
}

/* ---- login ---- */

static void end_login(struct client *c)
{
    if (c->sasl != NULL) {
        sasl_client_fini(c->sasl);
        mem_free(c->sasl);
        c->sasl = NULL;
        buf_wipe(&c->out); /* it contained the password */
    }
}

/* Ends the session. The text is set. The failure is about the login, not about the mail, and will
 * be the same for other mail with this login. */
static void fail_login(struct client *c, struct status status)
{
    end_login(c);
    fail_site(c, CLIENT_CAUSE_LOGIN, status);
}

static void send_login_message(struct client *c, struct slice message)
{
    CHECK(buf_len(&c->out) + message.len / 3 * 4 + 6 <= CLIENT_OUTPUT_MAX);
    if (message.len == 0 && c->state != AUTH) {
        CHECK(buf_add_byte(&c->out, '=')); /* an empty message in the command itself (RFC 4954,
                                            * 4) */
    }
    base64_put(&c->out, message);
    CHECK(buf_add(&c->out, SLICE("\r\n")));
}

/* Begins a login with the best mechanism that is left. */
static void log_in(struct client *c, struct mono now)
{
    enum sasl_mechanism mechanism = sasl_best(c->mechanisms & c->login->mechanisms);
    struct buf message;

    if (mechanism == 0) {
        text_set(c,
                 "SASL authentication failed; cannot authenticate to server %.*s: no mechanism "
                 "available",
                 SLICE_ARGS(c->host));
        reply_fini(&c->reply);
        fail_login(c, no_login);
        return;
    }
    c->sasl = mem_new(sizeof *c->sasl);
    sasl_client_init(c->sasl, mechanism, c->login->user, c->login->password, c->login->nonce);
    buf_init(&message, SASL_MESSAGE_MAX);
    CHECK(buf_room(&message, SASL_USER_MAX + SASL_PASSWORD_MAX + 2) != NULL &&
          buf_room(&c->out, 2 * (SASL_USER_MAX + SASL_PASSWORD_MAX)) != NULL); /* in one piece */
    CHECK(buf_addf(&c->out, "AUTH %s", sasl_mechanism_name(mechanism)));
    if (sasl_client_speaks_first(c->sasl)) {
        CHECK(buf_add_byte(&c->out, ' '));
        CHECK(sasl_client_answer(c->sasl, slice_of("", 0), &message));
        send_login_message(c, buf_slice(&message));
    } else {
        CHECK(buf_add(&c->out, SLICE("\r\n")));
    }
    buf_wipe(&message);
    enter(c, AUTH, now);
}

static void on_challenge(struct client *c, struct mono now)
{
    struct buf challenge, message;
    struct slice text = slice_trim(reply_line(&c->reply));

    buf_init(&challenge, SASL_MESSAGE_MAX);
    buf_init(&message, SASL_MESSAGE_MAX);
    CHECK(buf_room(&message, SASL_PASSWORD_MAX) != NULL);
    if (base64_get(text, &challenge) &&
        sasl_client_answer(c->sasl, buf_slice(&challenge), &message)) {
        send_login_message(c, buf_slice(&message));
        enter(c, AUTH, now);
    } else {
        text_set(c,
                 "SASL authentication failed; server %.*s does not know the password, or does "
                 "not speak %s",
                 SLICE_ARGS(c->host), sasl_mechanism_name(c->sasl->mechanism));
        fail_login(c, no_login);
    }
    buf_wipe(&message);
    buf_fini(&challenge);
}

static void on_auth(struct client *c, struct mono now)
{
    struct slice said = reply_text(&c->reply);

    if (c->reply.code == 421) {
        end_login(c);
        fail_refused(c, c->reply.status);
    } else if (c->reply.code == 334) {
        on_challenge(c, now);
    } else if (c->reply.code == 504 || c->reply.code == 534) {
        /* The mechanism is not available for this user, whatever the password. */
        c->mechanisms &= (uint8_t)~c->sasl->mechanism;
        if ((c->mechanisms & c->login->mechanisms) != 0) {
            end_login(c);
            log_in(c, now);
        } else {
            text_set(c, "SASL authentication failed; server %.*s said: %.*s", SLICE_ARGS(c->host),
                     SLICE_ARGS(said));
            fail_login(c, no_login);
        }
    } else if (c->reply.code / 100 != 2) {
        text_set(c, "SASL authentication failed; server %.*s said: %.*s", SLICE_ARGS(c->host),
                 SLICE_ARGS(said));
        fail_login(c, c->reply.code / 100 == 4 ? c->reply.status : no_login);
    } else if (!sasl_client_accepted(c->sasl)) {
        text_set(c,
                 "SASL authentication failed; server %.*s accepts a login without knowing the "
                 "password",
                 SLICE_ARGS(c->host));
        fail_login(c, no_login);
    } else {
        end_login(c);
        ready(c, now);
    }
}

void client_log_in(struct client *c, const struct client_login *login)
{
    CHECK(c->state == GREETING && c->login == NULL);
    c->login = login;
}

/* Continues once the session is as secure as required, or as it can be. */
static void after_tls(struct client *c, struct mono now)
{
    if (c->login != NULL) {
        log_in(c, now);
    } else {
        ready(c, now);
    }
}

/* Continues once the extensions are known: is the session secure enough? */
static void after_hello(struct client *c, struct mono now)
{
    bool required = c->config->tls == CLIENT_TLS_ENCRYPT || c->config->tls == CLIENT_TLS_VERIFY;

    if (c->config->detect_loop && c->names_itself_us) {
        text_set(c, "mail loops back to myself: host %.*s has my own hostname",
                 SLICE_ARGS(c->host));
        fail_site(c, CLIENT_CAUSE_LOOP, loops_back);
    } else if (c->secure || c->config->tls == CLIENT_TLS_NONE) {
        after_tls(c, now);
    } else if ((c->offers & CLIENT_OFFERS_STARTTLS) != 0) {
        CHECK(buf_add(&c->out, SLICE("STARTTLS\r\n")));
        enter(c, STARTTLS, now);
    } else if (required) {
        text_set(c, "TLS is required, but was not offered by host %.*s", SLICE_ARGS(c->host));
        fail_site(c, CLIENT_CAUSE_TLS, tls_required);
    } else {
        after_tls(c, now);
    }
}

static void on_hello(struct client *c, struct mono now)
{
    switch (c->reply.code / 100) {
    case 2:
        after_hello(c, now);
        return;
    case 4:
    case 5:
        if (c->reply.code == 421 || c->state == HELO || c->config->lmtp || c->secure) {
            fail_refused(c, c->reply.status);
        } else {
            send_hello(c, "HELO", HELO, now);
        }
        return;
    default:
        fail_protocol(c);
    }
}

static void on_starttls(struct client *c, struct mono now)
{
    struct slice said = reply_text(&c->reply);

    if (c->reply.code / 100 == 3) {
        fail_protocol(c);
    } else if (c->reply.code / 100 == 2) {
        /* Offers in the clear are void. */
        c->offers = 0;
        c->mechanisms = 0;
        c->size_limit = 0;
        enter(c, TLS, now);
        reply_fini(&c->reply);
        c->pending = PENDING_TLS;
    } else if (c->reply.code == 421) {
        fail_refused(c, c->reply.status);
    } else if (c->config->tls == CLIENT_TLS_MAY) {
        after_tls(c, now);
    } else {
        text_set(c, "TLS is required, but host %.*s refused to start TLS: %.*s",
                 SLICE_ARGS(c->host), SLICE_ARGS(said));
        fail_site(c, CLIENT_CAUSE_TLS, tls_required);
    }
}

void client_tls_started(struct client *c, struct mono now)
{
    CHECK(c->state == TLS && c->pending == PENDING_NONE);
    c->secure = true;
    send_ehlo(c, now);
}

void client_tls_failed(struct client *c, struct slice why)
{
    CHECK(c->state == TLS && c->pending == PENDING_NONE);
    text_set(c, "Cannot start TLS: handshake failure");
    if (why.len > 0) {
        CHECK(buf_add(&c->text, SLICE(": ")) && printable_add(&c->text, why, HOST_MAX));
    }
    c->retry_in_clear = c->config->tls == CLIENT_TLS_MAY;
    fail_site(c, CLIENT_CAUSE_TLS, tls_broken);
    c->site = !c->retry_in_clear; /* not before the session was tried without TLS */
}

/* -- a transaction: sending -------------------------------------------------------------------- */

/* Can these bytes be an address in a command, without ending it or adding to it? Stored addresses
 * were checked when they were received; this is the last check before they are sent. */
static bool address_safe(struct slice address)
{
    bool quoted = false;

    if (address.len > ADDRESS_MAX) {
        return false;
    }
    for (size_t i = 0; i < address.len; i++) {
        unsigned char byte = (unsigned char)address.ptr[i];

        if (byte < 0x20 || byte == 0x7f) {
            return false;
        }
        if (quoted && byte == '\\' && i + 1 < address.len) {
            i++;
            if ((unsigned char)address.ptr[i] < 0x20 || address.ptr[i] == 0x7f) {
                return false;
            }
        } else if (byte == '"') {
            quoted = !quoted;
        } else if (!quoted && (byte == ' ' || byte == '<' || byte == '>')) {
            return false;
        }
    }
    return !quoted;
}

/* Is this "type;value", printable and without blanks? A value of type utf-8 may be raw UTF-8 (RFC
 * 6533). */
static bool orcpt_safe(const struct client *c, struct slice orcpt)
{
    if (orcpt.len == 0 || orcpt.len > DSN_ORCPT_MAX || slice_find(orcpt, ';') == orcpt.len) {
        return false;
    }
    for (size_t i = 0; i < orcpt.len; i++) {
        unsigned char byte = (unsigned char)orcpt.ptr[i];

        if (byte <= 0x20 || byte == 0x7f || (byte >= 0x80 && !c->utf8)) {
            return false;
        }
    }
    return true;
}

/* Returns the address as the peer can take it: without SMTPUTF8 with A-labels, in `room` then. */
static struct slice peers_form(const struct client *c, struct slice address, char room[ADDRESS_MAX])
{
    return (c->offers & CLIENT_OFFERS_SMTPUTF8) != 0 ? address
                                                     : idn_address(address, room, ADDRESS_MAX);
}

/* Can the peer take an address in its form? */
static bool sendable(const struct client *c, struct slice form)
{
    return (c->offers & CLIENT_OFFERS_SMTPUTF8) != 0 || address_is_ascii(form);
}

static void say_no_utf8(struct client *c)
{
    text_set(c, "SMTPUTF8 is required, but was not offered by host %.*s", SLICE_ARGS(c->host));
}

static void send_mail(struct client *c)
{
    const struct client_mail *mail = &c->mail;
    char room[ADDRESS_MAX];
    struct slice sender = peers_form(c, mail->sender, room);

    CHECK(buf_addf(&c->out, "MAIL FROM:<%.*s>", SLICE_ARGS(sender)));
    if (mail->size_bytes > 0 && (c->offers & CLIENT_OFFERS_SIZE) != 0) {
        CHECK(buf_addf(&c->out, " SIZE=%llu", (unsigned long long)mail->size_bytes));
    }
    if ((mail->flags & ENVELOPE_8BIT) != 0 && (c->offers & CLIENT_OFFERS_8BITMIME) != 0) {
        CHECK(buf_add(&c->out, SLICE(" BODY=8BITMIME")));
    }
    if (c->utf8) {
        CHECK(buf_add(&c->out, SLICE(" SMTPUTF8")));
    }
    if ((c->offers & CLIENT_OFFERS_DSN) != 0) {
        if ((mail->flags & (ENVELOPE_RET_FULL | ENVELOPE_RET_HDRS)) != 0) {
            CHECK(buf_add_string(&c->out, (mail->flags & ENVELOPE_RET_FULL) != 0 ? " RET=FULL"
                                                                                 : " RET=HDRS"));
        }
        if (mail->envid.len > 0 && mail->envid.len <= DSN_ENVID_MAX && xtext_valid(mail->envid)) {
            CHECK(buf_addf(&c->out, " ENVID=%.*s", SLICE_ARGS(mail->envid)));
        }
    }
    CHECK(buf_add(&c->out, SLICE("\r\n")));
}

static void add_notify(struct client *c, unsigned notify)
{
    static const struct {
        enum notify bit;
        const char *name;
    } table[] = {{NOTIFY_SUCCESS, "SUCCESS"}, {NOTIFY_FAILURE, "FAILURE"}, {NOTIFY_DELAY, "DELAY"}};
    const char *separator = " NOTIFY=";

    if ((notify & NOTIFY_NEVER) != 0) {
        CHECK(buf_add(&c->out, SLICE(" NOTIFY=NEVER"))); /* no other word may follow it (RFC 3461,
                                                          * 4.1) */
        return;
    }
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if ((notify & table[i].bit) != 0) {
            CHECK(buf_addf(&c->out, "%s%s", separator, table[i].name));
            separator = ",";
        }
    }
}

static void send_rcpt(struct client *c, const struct client_rcpt *rcpt, struct slice form)
{
    CHECK(buf_addf(&c->out, "RCPT TO:<%.*s>", SLICE_ARGS(form)));
    if ((c->offers & CLIENT_OFFERS_DSN) != 0) {
        add_notify(c, rcpt->notify);
        if (orcpt_safe(c, rcpt->orcpt)) {
            CHECK(buf_addf(&c->out, " ORCPT=%.*s", SLICE_ARGS(rcpt->orcpt)));
        }
    }
    CHECK(buf_add(&c->out, SLICE("\r\n")));
}

static void expect_reply(struct client *c, struct mono now)
{
    if (c->outstanding++ == 0) {
        rearm(c, now);
    }
}

/* Sends RCPT for the next recipient, or refuses the recipient locally. */
static void send_next_rcpt(struct client *c, struct mono now)
{
    uint32_t i = c->send_rcpt++;
    char room[ADDRESS_MAX];
    struct slice form = peers_form(c, c->mail.rcpts[i].address, room);
    struct status status = bad_address;

    if (form.len > 0 && address_safe(form)) {
        if (sendable(c, form)) {
            send_rcpt(c, &c->mail.rcpts[i], form);
            c->rcpts_open++;
            expect_reply(c, now);
            return;
        }
        status = no_utf8;
        say_no_utf8(c);
    } else {
        text_set(c, "bad address syntax");
    }
    c->marks[i] |= MARK_SKIPPED;
    settle_locally(c, i, i + 1, CLIENT_PHASE_RCPT, status);
}

static void send_one(struct client *c, struct mono now)
{
    switch ((enum step)c->send_step) {
    case STEP_RSET:
        CHECK(buf_add(&c->out, SLICE("RSET\r\n")));
        c->send_step = STEP_MAIL;
        expect_reply(c, now);
        return;
    case STEP_MAIL:
        send_mail(c);
        c->send_step = STEP_RCPT;
        expect_reply(c, now);
        return;
    case STEP_RCPT:
        if (c->send_rcpt < c->mail.rcpt_count) {
            send_next_rcpt(c, now);
        } else {
            /* No DATA if all recipients were refused (RFC 2920 would allow it). */
            c->send_step = c->rcpts_open > 0 ? STEP_DATA : STEP_NONE;
        }
        return;
    case STEP_DATA:
        CHECK(buf_add(&c->out, SLICE("DATA\r\n")));
        c->send_step = STEP_NONE;
        expect_reply(c, now);
        return;
    case STEP_NONE:
        break;
    }
    UNREACHABLE("nothing more to send");
}

/* Ends the transaction: each recipient has a verdict and no reply is due. */
static void done(struct client *c, struct mono now)
{
    CHECK(c->unsettled == 0);
    c->pending = PENDING_DONE;
    c->dot_left = 0;
    if (c->reusable) {
        enter(c, IDLE, now);
    } else {
        end(c);
    }
    mem_free(c->marks);
    c->marks = NULL;
    reply_fini(&c->reply);
    buf_fini(&c->text);
    if (buf_len(&c->out) == 0) {
        buf_fini(&c->out);
    }
}

/* Does everything that is possible without the peer. Stops as soon as an event waits. */
static void advance(struct client *c, struct mono now)
{
    while (c->state == ENVELOPE && c->send_step != STEP_NONE && !verdicts_wait(c) &&
           (c->outstanding == 0 || pipelines(c)) && buf_len(&c->out) < OUTPUT_LOW) {
        send_one(c, now);
    }
    if (verdicts_wait(c)) {
        return;
    }
    if ((c->state == ENVELOPE && c->send_step == STEP_NONE && c->outstanding == 0) ||
        (c->state == FINAL && c->outstanding == 0)) {
        done(c, now);
    } else if (c->state == QUITTING && c->config->skip_quit_response && buf_len(&c->out) == 0) {
        closed(c);
    }
}

void client_begin(struct client *c, const struct client_mail *mail, struct mono now)
{
    char room[ADDRESS_MAX];
    struct slice sender = peers_form(c, mail->sender, room);

    CHECK(c->state == IDLE && c->pending == PENDING_NONE);
    CHECK(mail->rcpt_count >= 1 && mail->rcpt_count <= CLIENT_RCPTS_MAX);
    c->mail = *mail;
    c->marks = mem_array(mail->rcpt_count, 1);
    c->send_rcpt = c->recv_rcpt = c->rcpts_open = c->outstanding = 0;
    c->verdict_next = c->verdict_end = 0;
    c->unsettled = (uint32_t)mail->rcpt_count;
    c->reusable = true;
    c->accepted = false;
    c->utf8 = (c->offers & CLIENT_OFFERS_SMTPUTF8) != 0 &&
              ((mail->flags & ENVELOPE_SMTPUTF8) != 0 || !address_is_ascii(mail->sender));
    for (size_t i = 0; !c->utf8 && i < mail->rcpt_count; i++) {
        c->utf8 =
            (c->offers & CLIENT_OFFERS_SMTPUTF8) != 0 && !address_is_ascii(mail->rcpts[i].address);
    }
    c->send_step = c->rset_needed ? STEP_RSET : STEP_MAIL;
    c->recv_step = c->send_step;
    enter(c, ENVELOPE, now);

    if (!address_safe(sender)) {
        text_set(c, "bad sender address syntax");
        settle_locally(c, 0, mail->rcpt_count, CLIENT_PHASE_MAIL, bad_sender);
    } else if (!sendable(c, sender)) {
        say_no_utf8(c);
        settle_locally(c, 0, mail->rcpt_count, CLIENT_PHASE_MAIL, no_utf8);
    } else if (c->size_limit > 0 && mail->size_bytes > c->size_limit) {
        text_set(c, "message size %llu exceeds size limit %llu of server %.*s",
                 (unsigned long long)mail->size_bytes, (unsigned long long)c->size_limit,
                 SLICE_ARGS(c->host));
        settle_locally(c, 0, mail->rcpt_count, CLIENT_PHASE_MAIL, too_large);
    } else {
        return;
    }
    c->send_step = STEP_NONE; /* refused locally: nothing is sent */
}

/* -- a transaction: receiving ------------------------------------------------------------------ */

static void on_mail(struct client *c)
{
    c->recv_step = STEP_RCPT;
    if (c->reply.code / 100 == 2) {
        c->rset_needed = true;
        return;
    }
    c->rcpts_open = 0;
    c->send_step = STEP_NONE;
    settle_by_reply(c, 0, c->mail.rcpt_count, CLIENT_PHASE_MAIL);
}

/* Does the site take no more recipients in this transaction (RFC 5321, 4.5.3.1.10)? The same codes
 * also mean a full mailbox or disk, which the enhanced status distinguishes. */
static bool is_too_many(const struct client *c)
{
    const struct reply *r = &c->reply;
    bool about_number = !r->status_sent || (r->status.subject == 5 && r->status.detail == 3);

    return c->accepted && (r->code == 452 || r->code == 552) && about_number;
}

static void on_rcpt(struct client *c)
{
    uint32_t i = c->recv_rcpt++;

    if ((c->marks[i] & MARK_SETTLED) != 0) {
        return; /* MAIL was refused, so the reply to a pipelined RCPT does not matter */
    }
    if (c->reply.code / 100 == 2) {
        c->marks[i] |= MARK_ACCEPTED;
        c->accepted = true;
        return;
    }
    c->rcpts_open--;
    if (is_too_many(c)) {
        c->reply.status = too_many_rcpts;
        settle_by_reply(c, i, i + 1, CLIENT_PHASE_RCPT);
        c->too_many = true;
        return;
    }
    settle_by_reply(c, i, i + 1, CLIENT_PHASE_RCPT);
}

static void begin_content(struct client *c)
{
    bool is_8bit = (c->mail.flags & ENVELOPE_8BIT) != 0;

    c->content_prev = PREV_LINE_END;
    c->content_asked = false;
    c->long_lines = (struct long_lines){0};
    downgrade_free(c->downgrade);
    c->downgrade = is_8bit && (c->offers & CLIENT_OFFERS_8BITMIME) == 0 ? downgrade_new() : NULL;
}

static void on_data(struct client *c, struct mono now)
{
    switch (c->reply.code / 100) {
    case 3:
        if (c->rcpts_open > 0) {
            begin_content(c);
            enter(c, CONTENT, now);
        } else if (c->config->lmtp) {
            c->reusable = false; /* the number of replies to an empty message can't be known */
        } else {
            /* RFC 2920, 3.1: all were refused, yet a pipelined DATA was accepted. */
            CHECK(buf_add(&c->out, final_dot)); /* without a last look, because no recipient gets
                                                 * it */
            c->outstanding = 1;
            enter(c, FINAL, now);
        }
        return;
    case 4:
    case 5:
        c->rcpts_open = 0;
        settle_by_reply(c, 0, c->mail.rcpt_count, CLIENT_PHASE_DATA);
        return;
    default:
        fail_protocol(c);
    }
}

static void on_envelope(struct client *c, struct mono now)
{
    enum step step = awaited(c);

    if (c->outstanding == 0) {
        fail_protocol(c);
        return;
    }
    if (c->reply.code == 421) {
        fail_transaction(c);
        return;
    }
    if (c->reply.code / 100 == 3 && step != STEP_DATA) {
        fail_protocol(c);
        return;
    }
    c->outstanding--;
    switch (step) {
    case STEP_RSET:
        if (c->reply.code / 100 != 2) {
            fail_transaction(c);
            return;
        }
        c->recv_step = STEP_MAIL;
        c->rset_needed = false;
        break;
    case STEP_MAIL:
        on_mail(c);
        break;
    case STEP_RCPT:
        on_rcpt(c);
        break;
    case STEP_DATA:
        on_data(c, now);
        break;
    case STEP_NONE:
        UNREACHABLE("only the sender runs out of steps");
    }
    if (c->state == ENVELOPE && c->outstanding > 0) {
        rearm(c, now);
    }
}

/* Processes a reply before the end of the content. A refusal is the peer's reply to the message:
 * more content would be wasted, and without the final dot the connection can't be used again. */
static void on_early_reply(struct client *c, struct mono now)
{
    if (c->reply.code == 421) {
        fail_transaction(c);
    } else if (c->reply.code / 100 == 4 || c->reply.code / 100 == 5) {
        forget_output(c);
        c->reusable = false;
        enter(c, FINAL, now);
        settle_by_reply(c, 0, c->mail.rcpt_count, CLIENT_PHASE_CONTENT);
    } else {
        fail_protocol(c);
    }
}

static void on_final(struct client *c, struct mono now)
{
    size_t to = c->mail.rcpt_count;

    if (c->outstanding == 0 || c->reply.code / 100 == 3) {
        fail_protocol(c);
        return;
    }
    if (c->reply.code == 421) {
        fail_transaction(c);
        return;
    }
    /* A reply before the final dot was written still counts, but the dot must not be sent into the
     * next transaction. */
    if (!client_is_flushed(c)) {
        if (c->reply.code / 100 == 2 && c->unsettled > 0) {
            fail_protocol(c);
            return;
        }
        forget_output(c);
        c->reusable = false;
    }
    c->outstanding--;
    c->rset_needed = false;
    if (c->unsettled == 0) {
        return; /* the empty message after all recipients were refused */
    }
    if (c->config->lmtp) {
        while ((c->marks[c->recv_rcpt] & (MARK_ACCEPTED | MARK_SETTLED)) != MARK_ACCEPTED) {
            c->recv_rcpt++;
            CHECK(c->recv_rcpt < c->mail.rcpt_count);
        }
        to = c->recv_rcpt + 1;
    } else {
        c->recv_rcpt = 0;
    }
    settle_by_reply(c, c->recv_rcpt, to, CLIENT_PHASE_FINAL);
    if (c->outstanding > 0) {
        rearm(c, now);
    }
}

static void on_reply(struct client *c, struct mono now)
{
    switch ((enum state)c->state) {
    case GREETING:
        on_greeting(c, now);
        return;
    case HELLO:
    case HELO:
        on_hello(c, now);
        return;
    case STARTTLS:
        on_starttls(c, now);
        return;
    case AUTH:
        on_auth(c, now);
        return;
    case ENVELOPE:
        on_envelope(c, now);
        return;
    case CONTENT:
        on_early_reply(c, now);
        return;
    case FINAL:
        on_final(c, now);
        return;
    case IDLE: /* "421 timeout, closing", or a peer that is out of step */
    case QUITTING:
        closed(c);
        return;
    case TLS:
    case ENDED:
        break;
    }
    UNREACHABLE("no replies are read in this state");
}

size_t client_input(struct client *c, struct slice in, struct mono now)
{
    enum reply_event event;
    size_t used = 0;

    if (c->state == ENDED) {
        return in.len;
    }
    if (in.len == 0 || verdicts_wait(c) || c->pending != PENDING_NONE) {
        return 0;
    }
    if (c->state == TLS) {
        text_set(c, "remote protocol error: host %.*s sent more than its consent to TLS",
                 SLICE_ARGS(c->host));
        fail_site(c, CLIENT_CAUSE_PROTOCOL, bad_protocol);
        return in.len;
    }
    do {
        size_t len;

        c->reply.tolerant = !pipelines(c);
        c->reply.greets = c->state == GREETING;
        event = reply_feed(&c->reply, slice_skip(in, used), &len);
        used += len;
        if ((event == REPLY_LINE || event == REPLY_DONE) && c->state == HELLO) {
            on_hello_line(c);
        }
    } while (event == REPLY_LINE);

    if (event == REPLY_DONE) {
        on_reply(c, now);
    } else if (event == REPLY_BAD) {
        if (c->state == IDLE || c->state == QUITTING) {
            closed(c);
        } else {
            fail_protocol(c);
        }
        used = in.len; /* the rest can't be parsed; and 0 would mean that nothing happened */
    }
    return used;
}

/* -- content ----------------------------------------------------------------------------------- */

/* Appends lines in wire form, which must fit even if every byte becomes two. Copies long runs at
 * once: memchr finds the line ends, and only a dot after one, or a bare LF, interrupts a run. */
static void add_lines(struct client *c, struct slice in)
{
    const char *run = in.ptr, *at = in.ptr, *end_of_in = in.ptr + in.len;
    bool ok = true;

    while (at < end_of_in) {
        if (c->content_prev == PREV_LINE_END && *at == '.') {
            ok &= buf_add(&c->out, slice_of(run, (size_t)(at - run)));
            ok &= buf_add_byte(&c->out, '.');
            run = at;
        }
        const char *lf = memchr(at, '\n', (size_t)(end_of_in - at));

        if (lf == NULL) {
            c->content_prev = end_of_in[-1] == '\r' ? PREV_CR : PREV_OTHER;
            break;
        }
        if (lf == at ? c->content_prev != PREV_CR : lf[-1] != '\r') {
            ok &= buf_add(&c->out, slice_of(run, (size_t)(lf - run)));
            ok &= buf_add_byte(&c->out, '\r');
            run = lf;
        }
        c->content_prev = PREV_LINE_END;
        at = lf + 1;
    }
    ok &= buf_add(&c->out, slice_of(run, (size_t)(end_of_in - run)));
    CHECK(ok);
}

/* Appends content with too long lines folded. */
static void add_folded(struct client *c, struct slice in)
{
    struct slice part;

    while (long_lines_next(&c->long_lines, &in, &c->folded, &part)) {
        add_lines(c, part);
    }
}

/* Appends content as the peer can take it. */
static void add_content(struct client *c, struct slice in)
{
    if (c->downgrade != NULL) {
        downgrade_add(c->downgrade, in, &c->converted);
        add_folded(c, buf_slice(&c->converted));
        buf_clear(&c->converted);
    } else {
        add_folded(c, in);
    }
}

static void end_content(struct client *c)
{
    if (c->downgrade != NULL) {
        downgrade_finish(c->downgrade, &c->converted);
        add_folded(c, buf_slice(&c->converted));
        buf_clear(&c->converted);
    }
    buf_clear(&c->folded);
    long_lines_finish(&c->long_lines, &c->folded);
    add_lines(c, buf_slice(&c->folded));
    if (c->content_prev != PREV_LINE_END) {
        CHECK(buf_add_string(&c->out, c->content_prev == PREV_CR ? "\n" : "\r\n"));
    }
}

/* Refuses the message because its content can't be converted. The final dot is never sent. */
static void refuse_unfit(struct client *c, struct mono now)
{
    forget_output(c);
    c->reusable = false;
    enter(c, FINAL, now);
    text_set(c,
             "8-bit content of a signed part can't be converted, and 8BITMIME was not offered by "
             "host %.*s",
             SLICE_ARGS(c->host));
    settle_locally(c, 0, c->mail.rcpt_count, CLIENT_PHASE_CONTENT, no_conversion);
}

/* Returns how much content is certain to fit. */
static size_t content_room(const struct client *c)
{
    size_t room = (CLIENT_OUTPUT_MAX - CONTENT_TAIL_MAX - buf_len(&c->out)) / 2;

    room -= room < FOLDED_MORE_MAX ? room : FOLDED_MORE_MAX;
    if (c->downgrade != NULL) {
        room -= room < DOWNGRADE_SIZE(0) ? room : DOWNGRADE_SIZE(0);
        room /= DOWNGRADE_SIZE(1) - DOWNGRADE_SIZE(0);
    }
    return room;
}

size_t client_content(struct client *c, struct slice piece, bool last, struct mono now)
{
    size_t used = 0;

    if (c->state != CONTENT) {
        return piece.len; /* the peer answered early, or is gone, since the request */
    }
    c->content_asked = false;
    while (used < piece.len) {
        size_t room = content_room(c);
        size_t len = piece.len - used < room ? piece.len - used : room;

        /* Each round fills a part of the room; stop before the rounds get tiny. */
        if (len < piece.len - used && len < 256) {
            break;
        }
        add_content(c, slice_of(piece.ptr + used, len));
        used += len;
    }
    if (used == piece.len && last) {
        end_content(c);
    }
    if (c->downgrade != NULL && downgrade_unfit(c->downgrade)) {
        refuse_unfit(c, now);
        return piece.len;
    }
    if (used == piece.len && last) {
        c->dot_left = (uint8_t)final_dot.len;
        c->dot_in_out = false;
        c->recv_rcpt = 0;
        c->outstanding = c->config->lmtp ? c->rcpts_open : 1;
        enter(c, FINAL, now);
    }
    rearm(c, now);
    c->out_seen = buf_len(&c->out);
    return used;
}

/* -- the last look ----------------------------------------------------------------------------- */

/* Removes from the output those bytes of the dot that the socket did not accept. */
static void hold_dot(struct client *c)
{
    size_t len = buf_len(&c->out) < c->dot_left ? buf_len(&c->out) : c->dot_left;

    buf_truncate(&c->out, buf_len(&c->out) - len);
    c->out_seen -= len;
    c->dot_left = (uint8_t)len;
    c->dot_in_out = false;
}

bool client_at_last_look(struct client *c)
{
    if (c->dot_in_out && c->dot_left > 0) {
        hold_dot(c);
    }
    return c->dot_left > 0 && !verdicts_wait(c) && c->pending == PENDING_NONE;
}

void client_pass_last_look(struct client *c)
{
    CHECK(c->state == FINAL && c->dot_left > 0 && !c->dot_in_out);
    CHECK(buf_add(&c->out, slice_skip(final_dot, final_dot.len - c->dot_left)));
    c->out_seen += c->dot_left;
    c->dot_in_out = true;
}

void client_break_off(struct client *c)
{
    CHECK(c->state == FINAL && c->dot_left > 0 && !c->dot_in_out);
    text_set(c, "delivery to %.*s was broken off before the end of the message",
             SLICE_ARGS(c->host));
    c->site = c->content_was_sent = false;
    fail(c, CLIENT_PHASE_CONTENT, CLIENT_CAUSE_BROKEN_OFF, broken_off);
}

/* -- events ------------------------------------------------------------------------------------ */

static bool next_verdict(struct client *c, struct client_event *ret_event)
{
    while (verdicts_wait(c)) {
        uint32_t i = c->verdict_next++;
        struct slice said = c->has_reply ? reply_text(&c->reply) : slice_of("", 0);

        if ((c->marks[i] & MARK_SETTLED) != 0) {
            continue;
        }
        c->marks[i] |= MARK_SETTLED;
        c->unsettled--;
        *ret_event = (struct client_event){
            .kind = CLIENT_RCPT_VERDICT,
            .phase = c->phase,
            .outcome = c->outcome,
            .rcpt = i,
            .code = c->code,
            .status = c->status,
            .text = c->outcome == CLIENT_SENT ? said : buf_slice(&c->text),
            .reply = said,
            .too_many = c->too_many,
            .dsn_passed = (c->offers & CLIENT_OFFERS_DSN) != 0,
        };
        return true;
    }
    return false;
}

static bool next_pending(struct client *c, struct client_event *ret_event)
{
    enum pending pending = c->pending;

    *ret_event = (struct client_event){.kind = CLIENT_CLOSED};
    c->pending = PENDING_NONE;
    switch (pending) {
    case PENDING_NONE:
        return false;
    case PENDING_READY:
        ret_event->kind = CLIENT_READY;
        return true;
    case PENDING_TLS:
        ret_event->kind = CLIENT_NEED_TLS;
        return true;
    case PENDING_DONE:
        ret_event->kind = CLIENT_TRANSACTION_DONE;
        ret_event->reusable = c->reusable;
        ret_event->dsn_passed = (c->offers & CLIENT_OFFERS_DSN) != 0;
        return true;
    case PENDING_FAILED:
        *ret_event = (struct client_event){
            .kind = CLIENT_FAILED,
            .phase = c->phase,
            .outcome = c->outcome,
            .cause = c->cause,
            .code = c->code,
            .status = c->status,
            .text = buf_slice(&c->text),
            .reply = c->has_reply ? reply_text(&c->reply) : slice_of("", 0),
            .site = c->site,
            .content_was_sent = c->content_was_sent,
            .retry_in_clear = c->retry_in_clear,
        };
        return true;
    case PENDING_CLOSED:
        return true;
    }
    UNREACHABLE("a pending event beyond the enum");
}

/* Restarts the timeout if the socket accepted bytes since the last call. */
static void note_progress(struct client *c, struct mono now)
{
    if ((c->state == CONTENT || c->state == FINAL) && buf_len(&c->out) < c->out_seen) {
        c->out_seen = buf_len(&c->out);
        rearm(c, now);
    }
}

static void on_lost(struct client *c)
{
    if (c->state == IDLE || c->state == QUITTING) {
        closed(c);
    } else if (c->state != ENDED) {
        fail_lost(c);
    }
}

bool client_next(struct client *c, struct mono now, struct client_event *ret_event)
{
    if (next_verdict(c, ret_event) || next_pending(c, ret_event)) {
        return true;
    }
    advance(c, now);
    if (!verdicts_wait(c) && c->pending == PENDING_NONE) {
        note_progress(c, now);
        if (c->lost) {
            on_lost(c);
        }
    }
    if (next_verdict(c, ret_event) || next_pending(c, ret_event)) {
        return true;
    }
    if (c->state == CONTENT && !c->content_asked && buf_len(&c->out) < OUTPUT_LOW) {
        c->content_asked = true;
        *ret_event = (struct client_event){.kind = CLIENT_NEED_CONTENT};
        return true;
    }
    return false;
}

/* -- the rest ---------------------------------------------------------------------------------- */

void client_init(struct client *c, const struct client_config *config, struct slice host,
                 struct mono now)
{
    CHECK(host.len <= HOST_MAX && config->hostname.len <= HOST_MAX);
    *c = (struct client){.config = config, .host = host, .state = GREETING};
    reply_init(&c->reply);
    buf_init(&c->out, CLIENT_OUTPUT_MAX);
    buf_init(&c->text, TEXT_MAX);
    buf_init(&c->folded, CLIENT_OUTPUT_MAX);
    buf_init(&c->converted, CLIENT_OUTPUT_MAX);
    rearm(c, now);
}

void client_fini(struct client *c)
{
    end_login(c);
    reply_fini(&c->reply);
    buf_fini(&c->out);
    buf_fini(&c->text);
    buf_fini(&c->folded);
    buf_fini(&c->converted);
    downgrade_free(c->downgrade);
    mem_free(c->marks);
    c->marks = NULL;
}

struct buf *client_output(struct client *c)
{
    return &c->out;
}

struct mono client_deadline(const struct client *c)
{
    return c->deadline;
}

void client_expire(struct client *c, struct mono now)
{
    if (verdicts_wait(c) || c->pending != PENDING_NONE) {
        return; /* an event that waits may end the session */
    }
    note_progress(c, now);
    if (c->state == ENDED || !mono_reached(c->deadline, now)) {
        return;
    }
    if (c->state == IDLE || c->state == QUITTING) {
        closed(c);
    } else {
        fail_timeout(c);
    }
}

void client_lost(struct client *c)
{
    c->lost = true;
}

void client_quit(struct client *c, struct mono now)
{
    CHECK(c->state == IDLE || c->state == ENDED);
    if (c->state == IDLE) {
        CHECK(buf_add(&c->out, SLICE("QUIT\r\n")));
        enter(c, QUITTING, now);
    }
}

bool client_unresolved(const struct client *c, size_t rcpt)
{
    if (c->marks == NULL) {
        return false;
    }
    CHECK(rcpt < c->mail.rcpt_count);
    return (c->marks[rcpt] & MARK_SETTLED) == 0;
}

bool client_is_logging_in(const struct client *c)
{
    return c->state == AUTH;
}

void client_audit(const struct client *c)
{
    size_t unsettled = 0;

    CHECK(c->state <= ENDED && c->send_step <= STEP_NONE && c->recv_step < STEP_NONE);
    CHECK(buf_len(&c->out) <= CLIENT_OUTPUT_MAX && !c->out.failed && !c->text.failed);
    CHECK(c->verdict_next <= c->verdict_end);
    CHECK(c->dot_left == 0 || (c->state == FINAL && c->dot_left <= final_dot.len));
    CHECK(!in_transaction(c) || c->marks != NULL);
    CHECK(c->state != IDLE || (c->marks == NULL && c->deadline.us == US_FOREVER));
    if (c->marks == NULL) {
        return;
    }
    CHECK(c->recv_rcpt <= c->mail.rcpt_count && c->send_rcpt <= c->mail.rcpt_count);
    CHECK(c->verdict_end <= c->mail.rcpt_count && c->rcpts_open <= c->send_rcpt);
    for (size_t i = 0; i < c->mail.rcpt_count; i++) {
        unsettled += (c->marks[i] & MARK_SETTLED) == 0;
        CHECK((c->marks[i] & (MARK_SKIPPED | MARK_ACCEPTED)) != (MARK_SKIPPED | MARK_ACCEPTED));
    }
    CHECK(unsettled == c->unsettled);
}
