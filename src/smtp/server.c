/*
 * States, and their guarantees:
 *
 *   GREETING  no reply was sent; TLS may be active already
 *   COMMAND   a command line is being read; every earlier one has been answered
 *   ANSWER    the owner got an event (`asked`) and has not answered; nothing is read
 *   AUTH      a line of a login is being read, in answer to a challenge
 *   DATA      dotted content is being read
 *   CHUNK     `chunk_left` octets of a BDAT chunk are being read
 *   COMMIT    SERVER_MESSAGE was reported, server_message_done is outstanding; nothing is read
 *   TLS       220 was sent, the owner does the handshake; input is dropped
 *   CLOSING   final: SERVER_ABORT if one is due, then SERVER_CLOSE for ever
 *
 * `in_mail` is true from the acceptance of MAIL to the end of the transaction. Refused content is
 * read to its end, as the protocol has no other way to refuse it; `spoiled` is then set and no more
 * content is passed on. The reason is determined at the end, from all facts, so that it does not
 * depend on how the input was split.
 *
 * A time limit is checked where the engine would otherwise request input. A timer starts when the
 * engine first waits for something, and stops when that arrives. Content has an account instead: it
 * pays for the time that it took, at content_rate_min, and may be content_us in debt.
 */
#include "server.h"

#include <string.h>

#include "base64.h"
#include "check.h"
#include "command.h"
#include "header.h"
#include "mem.h"
#include "printable.h"

#define SERVER_MAGIC 0x534d5450u

/* Room beyond SERVER_OUTPUT_MAX for the output of one command: the longest is the EHLO reply, and
 * in LMTP a reply for each recipient. */
#define OUTPUT_RESERVE  4096
#define REPLY_LINE_MAX  512
#define TLS_TEXT_MAX    128
#define CHALLENGE_MAX   1000 /* in bytes; its base64 fits OUTPUT_RESERVE */
#define STATUS_TEXT_MAX 12
_Static_assert(SERVER_TEXT_MAX + STATUS_TEXT_MAX + 6 < REPLY_LINE_MAX, "a reply fits its line");

enum state {
    STATE_GREETING,
    STATE_COMMAND,
    STATE_ANSWER,
    STATE_AUTH,
    STATE_DATA,
    STATE_CHUNK,
    STATE_COMMIT,
    STATE_TLS,
    STATE_CLOSING,
};

struct server {
    unsigned magic;
    const struct server_config *config; /* borrowed */
    enum state state;

    /* The session. */
    char helo[SERVER_HELO_MAX];
    size_t helo_len;
    bool extended; /* EHLO or LHLO */
    bool trusted;  /* see server_trust */
    bool bare_lf;  /* see server_accept_bare_lf */
    bool tls;
    char tls_text[TLS_TEXT_MAX];
    size_t tls_text_len;
    bool logged_in;
    uint32_t login_failures;
    bool shutting_down;
    uint32_t errors;          /* since the last message */
    uint32_t junk;            /* junk commands since the last message */
    const char *close_reason; /* only in CLOSING */
    const char *abort_reason; /* reason of a SERVER_ABORT that is due */

    /* The command line. */
    struct buf line;
    bool line_secret; /* whether it may contain a password, so that its memory is overwritten */
    bool expiring;    /* whether server_expire was called, so that this call checks the time */
    bool line_done;   /* whether it was executed; it is kept for the slices in the last event */

    /* A login. */
    enum sasl_mechanism mechanism;
    unsigned mechanisms; /* offered */
    struct buf login;    /* a line of it, then the message */

    /* The transaction. */
    bool in_mail;
    unsigned mail_flags; /* of enum envelope_flag */
    uint32_t rcpts;
    struct buf address; /* stored form, for the last event */

    /* Content. */
    enum server_event_type asked; /* event that waits for its answer, in ANSWER */
    bool chunked;                 /* whether BDAT has begun in this transaction */
    bool chunk_last;
    uint64_t chunk_left;
    struct content content;
    bool spoiled;            /* whether the message will be refused, and no more content is passed
                              * on */
    bool chunk_refused;      /* whether the chunk belongs to no transaction; chunk_reply has the
                              * reason */
    uint64_t discarded;      /* bytes of refused chunks since the last message */
    struct buf chunk_reply;  /* whole reply for the end of a refused chunk */
    struct mono input_until; /* timers; MONO_NEVER while stopped: a command, or a TLS handshake */
    struct mono output_until;
    struct mono content_paid; /* time that the content so far has paid for; MONO_NEVER until content
                               * is read */
    struct mono silent_until; /* deadline for silence alone, to log the right reason */

    const bool *listener_wanted; /* borrowed, like the next two; NULL: no listener */
    server_listener *listener;
    void *listener_arg;

    struct mono transaction_until;
    struct mono session_until;
    struct mono wake;
    struct buf output;
    struct server_stats stats;
};

void server_config_default(struct server_config *ret_config)
{
    *ret_config = (struct server_config){
        .hostname = "localhost",
        .banner = "ESMTP Sluice",
        .smtputf8 = true,
        .chunking = true,
        .dsn = true,
        .etrn = true,
        .vrfy = true,
        .limits =
            {
                .message_bytes = 10240000,
                .header_bytes = 1 << 20,
                .command_bytes = 2048,
                .line_bytes = 1 << 20,
                .discard_bytes = 100 << 20,
                .recipients = 1000,
                .hops = 50,
                .errors = 20,
                .junk_commands = 100,
                .login_failures = 3,
                .command_us = 300 * US_PER_S,
                .handshake_us = 300 * US_PER_S,
                .content_us = 300 * US_PER_S,
                .content_rate_min = 500,
                .transaction_us = 6 * 3600 * US_PER_S,
                .session_us = 6 * 3600 * US_PER_S,
            },
    };
}

/* Output. */

static void reply_begin(struct server *s, unsigned code, const char *status)
{
    buf_addf(&s->output, "%u ", code);
    if (status != NULL) {
        buf_addf(&s->output, "%s ", status);
    }
}

/* Sends a reply with the engine's own text; `status` is NULL where RFC 2034 has none. */
static void reply(struct server *s, unsigned code, const char *status, const char *text)
{
    reply_begin(s, code, status);
    buf_add_string(&s->output, text);
    buf_add_string(&s->output, "\r\n");
    CHECK(!s->output.failed);
}

/* Appends a reply whose text may come from anywhere. */
static void add_foreign_reply(struct buf *out, const struct server_reply *foreign)
{
    size_t len = foreign->text.len < SERVER_TEXT_MAX ? foreign->text.len : SERVER_TEXT_MAX;
    unsigned class = foreign->code / 100;
    const char *status = foreign->status;
    char *room;

    CHECK(class == 2 || class == 4 || class == 5);
    if (status != NULL && strlen(status) < STATUS_TEXT_MAX && status[0] == (char)('0' + class)) {
        buf_addf(out, "%u %s ", foreign->code, status);
    } else {
        buf_addf(out, "%u %u.0.0 ", foreign->code, class);
    }
    room = buf_room(out, len);
    CHECK(room != NULL);
    if (len > 0) {
        memcpy(room, foreign->text.ptr, len);
        printable_fix(room, len);
    }
    buf_grew(out, len);
    buf_add_string(out, "\r\n");
    CHECK(!out->failed);
}

/* Ends the transaction; `reason` is for the SERVER_ABORT that follows if there was one. */
static void end_mail(struct server *s, const char *reason)
{
    if (s->in_mail) {
        s->abort_reason = reason;
    }
    s->in_mail = false;
    s->mail_flags = 0;
    s->rcpts = 0;
    s->chunked = false;
    s->spoiled = false;
    s->content_paid = MONO_NEVER;
    s->transaction_until = MONO_NEVER;
}

/* Ends the session: nothing more is read or sent. */
static void close_session(struct server *s, const char *reason)
{
    if (s->state == STATE_CLOSING) {
        return;
    }
    if (s->state == STATE_COMMIT) {
        s->in_mail = false; /* the message belongs to the owner, even if the client is gone */
    }
    end_mail(s, reason);
    s->state = STATE_CLOSING;
    s->close_reason = reason;
}

static void count_error(struct server *s)
{
    s->stats.errors++;
    s->errors++;
    if (s->config->limits.errors > 0 && s->errors >= s->config->limits.errors &&
        s->state != STATE_CLOSING) {
        reply(s, 421, "4.7.0", "Too many errors");
        close_session(s, "too many errors");
    }
}

/* Refuses a command. */
static void refuse(struct server *s, unsigned code, const char *status, const char *text)
{
    reply(s, code, status, text);
    count_error(s);
}

static void refuse_as(struct server *s, const struct refusal *refusal)
{
    reply_begin(s, refusal->code, refusal->status);
    buf_add_string(&s->output, refusal->text);
    if (refusal->detail != NULL) {
        buf_addf(&s->output, ": %s", refusal->detail);
    }
    buf_add_string(&s->output, "\r\n");
    CHECK(!s->output.failed);
    count_error(s);
}

/* Sends a reply with the reason and closes. */
static void dismiss(struct server *s, unsigned code, const char *status, const char *text,
                    const char *reason)
{
    reply(s, code, status, text);
    close_session(s, reason);
}

/* Time limits; their names are the parameters' names. */
enum timeout {
    TIMEOUT_SILENCE,
    TIMEOUT_RATE,
    TIMEOUT_TRANSACTION,
    TIMEOUT_SESSION,
};

static void time_out(struct server *s, enum timeout limit)
{
    static const struct {
        const char *text, *reason;
    } words[] = {
        {"Timeout (smtpd_timeout)", "timeout: smtpd_timeout"},
        {"Timeout, content is too slow (smtpd_min_data_rate)", "timeout: smtpd_min_data_rate"},
        {"Timeout, message takes too long (smtpd_transaction_timeout)",
         "timeout: smtpd_transaction_timeout"},
        {"Timeout, session lasts too long (smtpd_session_timeout)",
         "timeout: smtpd_session_timeout"},
    };

    dismiss(s, 421, "4.4.2", words[limit].text, words[limit].reason);
}

/* Commands. Each function executes one line and returns true if it has filled *event. */

static bool no_argument(struct server *s, struct slice argument)
{
    if (argument.len == 0) {
        return true;
    }
    refuse(s, 501, "5.5.4", "Command takes no argument");
    return false;
}

static bool ask(struct server *s, enum server_event_type type, struct server_event *event)
{
    s->asked = type;
    s->state = STATE_ANSWER;
    event->type = type;
    return true;
}

static void say_extensions(struct server *s)
{
    const struct server_config *config = s->config;

    buf_addf(&s->output, "250-%s\r\n250-PIPELINING\r\n250-SIZE %llu\r\n", config->hostname,
             (unsigned long long)config->limits.message_bytes);
    if (config->etrn && !config->lmtp) {
        buf_add_string(&s->output, "250-ETRN\r\n");
    }
    if (config->starttls && !s->tls) {
        buf_add_string(&s->output, "250-STARTTLS\r\n");
    }
    if (s->mechanisms != 0 && (s->tls || config->login_in_clear)) {
        buf_add_string(&s->output, "250-AUTH ");
        sasl_put_mechanisms(&s->output, s->mechanisms);
        buf_add_string(&s->output, "\r\n");
    }
    if (config->dsn) {
        buf_add_string(&s->output, "250-DSN\r\n");
    }
    if (config->smtputf8) {
        buf_add_string(&s->output, "250-SMTPUTF8\r\n");
    }
    if (config->chunking) {
        buf_add_string(&s->output, "250-CHUNKING\r\n");
    }
    buf_add_string(&s->output, "250-ENHANCEDSTATUSCODES\r\n250 8BITMIME\r\n");
    CHECK(!s->output.failed);
}

static bool greet(struct server *s, struct slice argument, bool extended,
                  struct server_event *event)
{
    if ((!command_helo_valid(argument) && (!s->trusted || argument.len == 0)) ||
        argument.len > SERVER_HELO_MAX) {
        refuse(s, 501, "5.5.4", "Host name is missing, too long or not printable");
        return false;
    }
    end_mail(s, "client greeted again");
    for (size_t i = 0; i < argument.len; i++) {
        s->helo[i] = command_helo_valid(slice_of(argument.ptr + i, 1)) ? argument.ptr[i] : '?';
    }
    s->helo_len = argument.len;
    s->extended = extended;
    if (extended) {
        say_extensions(s);
    } else {
        reply(s, 250, NULL, s->config->hostname);
    }
    event->type = SERVER_HELO;
    return true;
}

static bool do_ehlo(struct server *s, struct slice argument, struct server_event *event)
{
    return greet(s, argument, true, event);
}

static bool do_helo(struct server *s, struct slice argument, struct server_event *event)
{
    return greet(s, argument, false, event);
}

static struct command_rules rules_of(const struct server *s)
{
    return (struct command_rules){
        .smtputf8 = s->config->smtputf8,
        .dsn = s->config->dsn,
        .auth = s->config->login != 0,
        .no_domain = s->config->accept_no_domain,
        .strict_paths = s->config->strict_paths,
        .message_bytes = s->config->limits.message_bytes,
    };
}

static struct slice stored_form(struct server *s, const struct address *address)
{
    buf_clear(&s->address);
    CHECK(address_print(address, &s->address));
    return buf_slice(&s->address);
}

static bool do_mail(struct server *s, struct slice argument, struct server_event *event)
{
    struct command_rules rules = rules_of(s);
    struct command_mail mail;
    struct refusal refusal;

    if (s->helo_len == 0 && (!s->trusted || s->config->lmtp)) {
        refuse(s, 503, "5.5.1", s->config->lmtp ? "Send LHLO first" : "Send HELO or EHLO first");
        return false;
    }
    if (s->in_mail) {
        refuse(s, 503, "5.5.1", "Sender was given already");
        return false;
    }
    if (s->config->require_tls && !s->tls) {
        refuse(s, 530, "5.7.0", "Issue a STARTTLS command first");
        return false;
    }
    if (s->config->require_login && !s->logged_in) {
        refuse(s, 530, "5.7.0", "Authentication required");
        return false;
    }
    if (s->config->limits.messages > 0 && s->stats.messages >= s->config->limits.messages) {
        dismiss(s, 421, "4.7.0", "Too many messages in this session", "too many messages");
        return false;
    }
    refusal = command_parse_mail(argument, &rules, &mail);
    if (refusal.code != 0) {
        refuse_as(s, &refusal);
        return false;
    }
    s->mail_flags = mail.flags;
    event->mail = (struct server_mail){
        .sender = stored_form(s, &mail.sender),
        .envid = mail.envid,
        .size = mail.size,
        .flags = mail.flags,
    };
    return ask(s, SERVER_MAIL, event);
}

static bool do_rcpt(struct server *s, struct slice argument, struct server_event *event)
{
    struct command_rules rules = rules_of(s);
    struct command_rcpt rcpt;
    struct refusal refusal;

    if (!s->in_mail) {
        refuse(s, 503, "5.5.1", "Send MAIL first");
        return false;
    }
    if (s->chunked) {
        refuse(s, 503, "5.5.1", "Content has begun");
        return false;
    }
    refusal = command_parse_rcpt(argument, &rules, (s->mail_flags & ENVELOPE_SMTPUTF8) != 0, &rcpt);
    if (refusal.code != 0) {
        s->stats.rcpts_refused++;
        refuse_as(s, &refusal);
        return false;
    }
    if (s->rcpts >= s->config->limits.recipients) {
        /* Not an error of the client: it sends the rest in another transaction (RFC 5321,
         * 4.5.3.1.10). */
        s->stats.rcpts_refused++;
        reply(s, 452, "4.5.3", "Too many recipients");
        return false;
    }
    event->rcpt = (struct server_rcpt){
        .recipient = stored_form(s, &rcpt.recipient),
        .orcpt = rcpt.orcpt,
        .notify = rcpt.notify,
        .index = s->rcpts,
    };
    return ask(s, SERVER_RCPT, event);
}

static void content_begin(struct server *s, enum content_framing framing)
{
    content_init(&s->content, framing);
    if (s->bare_lf) {
        content_accept_bare_lf(&s->content);
    }
    s->spoiled = false;
    s->content_paid = MONO_NEVER;
}

static bool do_data(struct server *s, struct slice argument, struct server_event *event)
{
    if (!no_argument(s, argument)) {
        return false;
    }
    if (!s->in_mail || s->chunked) {
        refuse(s, 503, "5.5.1", s->in_mail ? "Continue with BDAT" : "Send MAIL first");
        return false;
    }
    if (s->rcpts == 0) {
        refuse(s, s->config->lmtp ? 503 : 554, "5.5.1", "No valid recipients");
        return false;
    }
    content_begin(s, CONTENT_DOTTED);
    return ask(s, SERVER_DATA, event);
}

/* Refuses a chunk. Its octets arrive nevertheless; the reply follows them. */
static void refuse_chunk(struct server *s, const struct server_reply *why)
{
    buf_clear(&s->chunk_reply);
    add_foreign_reply(&s->chunk_reply, why);
    s->chunk_refused = true;
    s->state = STATE_CHUNK;
}

static bool do_bdat(struct server *s, struct slice argument, struct server_event *event)
{
    const char *problem = NULL;

    if (!s->config->chunking) {
        /* The engine can't know whether octets follow, and how many. */
        dismiss(s, 502, "5.5.1", "BDAT is not offered", "BDAT although not offered");
        return false;
    }
    if (!command_parse_bdat(argument, &s->chunk_left, &s->chunk_last)) {
        dismiss(s, 501, "5.5.4", "Syntax: BDAT size [LAST]", "BDAT without a size");
        return false;
    }
    if (!s->in_mail) {
        problem = "Send MAIL first";
    } else if (s->rcpts == 0) {
        problem = "No valid recipients";
    }
    if (problem != NULL) {
        struct server_reply why = {503, "5.5.1", slice_string(problem)};

        refuse_chunk(s, &why);
        return false;
    }
    if (s->chunked) {
        s->state = STATE_CHUNK;
        return false;
    }
    s->chunked = true;
    content_begin(s, CONTENT_COUNTED);
    return ask(s, SERVER_DATA, event);
}

static bool do_rset(struct server *s, struct slice argument, struct server_event *event)
{
    (void)event; /* SERVER_ABORT follows from abort_reason */
    if (no_argument(s, argument)) {
        end_mail(s, "client ended it with RSET");
        reply(s, 250, "2.0.0", "Ok");
    }
    return false;
}

static bool do_noop(struct server *s, struct slice argument, struct server_event *event)
{
    (void)argument; /* RFC 5321, 4.1.1.9: ignored */
    (void)event;
    reply(s, 250, "2.0.0", "Ok");
    return false;
}

static bool do_vrfy(struct server *s, struct slice argument, struct server_event *event)
{
    (void)event;
    if (!s->config->vrfy) {
        refuse(s, 502, "5.5.1", "VRFY is disabled");
    } else if (argument.len == 0) {
        refuse(s, 501, "5.5.4", "Syntax: VRFY address");
    } else {
        reply(s, 252, "2.5.2", "Cannot verify, but will accept the message and try");
    }
    return false;
}

static bool do_expn(struct server *s, struct slice argument, struct server_event *event)
{
    (void)argument;
    (void)event;
    refuse(s, 502, "5.5.1", "Lists are not expanded here");
    return false;
}

static bool do_help(struct server *s, struct slice argument, struct server_event *event)
{
    (void)argument;
    (void)event;
    reply(s, 214, "2.0.0", "See RFC 5321");
    return false;
}

static bool do_quit(struct server *s, struct slice argument, struct server_event *event)
{
    (void)event;
    if (no_argument(s, argument)) {
        s->stats.quit = true;
        dismiss(s, 221, "2.0.0", "Bye", "client sent QUIT");
    }
    return false;
}

static bool do_starttls(struct server *s, struct slice argument, struct server_event *event)
{
    if (!no_argument(s, argument)) {
        return false;
    }
    if (s->tls || !s->config->starttls) {
        refuse(s, s->tls ? 503 : 502, "5.5.1",
               s->tls ? "TLS is active already" : "STARTTLS is not offered");
        return false;
    }
    if (s->in_mail) {
        refuse(s, 503, "5.5.1", "Not within a mail transaction");
        return false;
    }
    reply(s, 220, NULL, "Ready to start TLS");
    s->state = STATE_TLS;
    s->input_until = MONO_NEVER;
    event->type = SERVER_STARTTLS;
    return true;
}

static bool do_etrn(struct server *s, struct slice argument, struct server_event *event)
{
    if (!s->config->etrn) {
        refuse(s, 502, "5.5.1", "ETRN is not offered");
        return false;
    }
    if (s->helo_len == 0 || s->in_mail) {
        refuse(s, 503, "5.5.1",
               s->in_mail ? "Not within a mail transaction" : "Send HELO or EHLO first");
        return false;
    }
    if (!command_helo_valid(argument) || argument.len > ADDRESS_DOMAIN_MAX) {
        refuse(s, 501, "5.5.4", "Syntax: ETRN domain");
        return false;
    }
    event->etrn = argument;
    return ask(s, SERVER_ETRN, event);
}

/* A login (RFC 4954). */

/* Longest line that is needed, with its CRLF (RFC 4954, 4). */
#define LOGIN_LINE_MAX (12288 + 2)

/* Overwrites the data of a login. */
static void forget_login(struct server *s)
{
    buf_wipe(&s->login);
}

/* Passes a message of the client to the owner. Returns true if it has filled *event. */
static bool ask_login(struct server *s, bool first, const struct slice *base64,
                      struct server_event *event)
{
    buf_wipe(&s->login);
    /* Allocated in one piece, because a buffer that grows does not overwrite its old memory. */
    CHECK(buf_room(&s->login, SASL_MESSAGE_MAX) != NULL);
    if (base64 != NULL && !base64_get(*base64, &s->login)) {
        forget_login(s);
        refuse(s, 501, "5.5.2", "Cannot decode the message of the login");
        s->state = s->state == STATE_CLOSING ? STATE_CLOSING : STATE_COMMAND;
        return false;
    }
    event->auth = (struct server_auth){
        .first = first,
        .mechanism = s->mechanism,
        .has_message = base64 != NULL,
        .message = buf_slice(&s->login),
    };
    return ask(s, SERVER_AUTH, event);
}

static bool do_auth(struct server *s, struct slice argument, struct server_event *event)
{
    struct slice name = slice_cut(&argument, ' ');
    struct slice initial = slice_trim(argument);
    bool has_initial = initial.len > 0;
    unsigned mechanism = sasl_mechanisms(name) & s->mechanisms;

    s->line_secret = true;
    if (s->config->login == 0) {
        refuse(s, 502, "5.5.1", "AUTH is not offered");
    } else if (!s->extended || s->in_mail) {
        refuse(s, 503, "5.5.1", s->in_mail ? "Not within a mail transaction" : "Send EHLO first");
    } else if (s->logged_in) {
        refuse(s, 503, "5.5.1", "Logged in already");
    } else if (!s->tls && !s->config->login_in_clear) {
        refuse(s, 538, "5.7.11", "Encryption is required for a login");
    } else if (mechanism == 0) {
        refuse(s, 504, "5.5.4", "Mechanism is not offered");
    } else {
        s->mechanism = sasl_best(mechanism);
        if (slice_equal(initial, SLICE("="))) {
            initial = slice_of("", 0); /* an empty message, which differs from none */
        }
        return ask_login(s, true, has_initial ? &initial : NULL, event);
    }
    return false;
}

/* Processes a line that answers a challenge, without its CRLF. */
static bool take_login_line(struct server *s, struct slice line, struct server_event *event)
{
    struct buf base64;
    bool asked;

    s->state = STATE_COMMAND;
    if (slice_equal(line, SLICE("*"))) {
        forget_login(s);
        refuse(s, 501, "5.7.0", "Login was cancelled");
        return false;
    }
    /* The message is decoded into s->login, which held the line. */
    base64 = s->login;
    buf_init(&s->login, LOGIN_LINE_MAX);
    asked = ask_login(s, false, &line, event);
    buf_wipe(&base64);
    return asked;
}

enum command_kind {
    COMMAND_MAIL,   /* advances a transaction */
    COMMAND_JUNK,   /* limited by junk_commands */
    COMMAND_ONCE,   /* junk after the first time; SMTP only */
    COMMAND_LMTP,   /* junk after the first time; LMTP only */
    COMMAND_FOREIGN /* of another protocol */
};

static const struct command {
    const char *verb;
    bool (*run)(struct server *s, struct slice argument, struct server_event *event);
    enum command_kind kind;
} commands[] = {
    {"RCPT", do_rcpt, COMMAND_MAIL},
    {"MAIL", do_mail, COMMAND_MAIL},
    {"DATA", do_data, COMMAND_MAIL},
    {"BDAT", do_bdat, COMMAND_MAIL},
    {"EHLO", do_ehlo, COMMAND_ONCE},
    {"HELO", do_helo, COMMAND_ONCE},
    {"LHLO", do_ehlo, COMMAND_LMTP},
    {"QUIT", do_quit, COMMAND_MAIL},
    {"RSET", do_rset, COMMAND_JUNK},
    {"NOOP", do_noop, COMMAND_JUNK},
    {"STARTTLS", do_starttls, COMMAND_MAIL},
    {"AUTH", do_auth, COMMAND_MAIL},
    {"VRFY", do_vrfy, COMMAND_JUNK},
    {"EXPN", do_expn, COMMAND_JUNK},
    {"HELP", do_help, COMMAND_JUNK},
    {"ETRN", do_etrn, COMMAND_JUNK},
    /* Commands of a web browser that was made to connect here: its next lines may be anything. */
    {"GET", NULL, COMMAND_FOREIGN},
    {"POST", NULL, COMMAND_FOREIGN},
    {"PUT", NULL, COMMAND_FOREIGN},
    {"HEAD", NULL, COMMAND_FOREIGN},
    {"OPTIONS", NULL, COMMAND_FOREIGN},
    {"CONNECT", NULL, COMMAND_FOREIGN},
    /* The header of a proxy, whose address must not pass for the client's. */
    {"PROXY", NULL, COMMAND_FOREIGN},
};

static const struct command *find_command(const struct server *s, struct slice verb)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        const struct command *command = &commands[i];

        if (slice_equal_nocase(verb, slice_string(command->verb))) {
            bool known = command->kind != (s->config->lmtp ? COMMAND_ONCE : COMMAND_LMTP) &&
                         (command->run != do_etrn || !s->config->lmtp);
            return known ? command : NULL;
        }
    }
    return NULL;
}

static bool has_control(struct slice line)
{
    for (size_t i = 0; i < line.len; i++) {
        if (((unsigned char)line.ptr[i] < ' ' && line.ptr[i] != '\t') || line.ptr[i] == 127) {
            return true;
        }
    }
    return false;
}

/* Executes a line, without its CRLF. */
static bool run_line(struct server *s, struct slice line, struct server_event *event)
{
    struct slice verb, argument;
    const struct command *command;
    bool again;

    while (line.len > 0 && line.ptr[0] == ' ') { /* as Postfix does */
        line = slice_skip(line, 1);
    }
    verb = slice_of(line.ptr, slice_find(line, ' '));
    argument = slice_trim(slice_skip(line, verb.len));
    s->stats.commands++;
    if (has_control(line)) {
        refuse(s, 500, "5.5.2", "Control characters in the command");
        return false;
    }
    command = find_command(s, verb);
    /* A header line in place of a command: the client smuggles, or is out of step. */
    if ((command != NULL && command->kind == COMMAND_FOREIGN) ||
        (verb.len > 1 && verb.ptr[verb.len - 1] == ':')) {
        dismiss(s, 521, "5.5.1", "This is a mail server", "client does not speak SMTP");
        return false;
    }
    if (command == NULL) {
        refuse(s, 500, "5.5.2",
               s->config->lmtp ? "Command not recognized in LMTP" : "Command not recognized");
        return false;
    }
    again = s->helo_len > 0 && (command->kind == COMMAND_ONCE || command->kind == COMMAND_LMTP);
    if (command->kind == COMMAND_JUNK || again) {
        if (s->junk >= s->config->limits.junk_commands) {
            count_error(s);
            if (s->state == STATE_CLOSING) {
                return false;
            }
        } else {
            s->junk++;
        }
    }
    return command->run(s, argument, event);
}

/* Waiting. */

static bool need(struct server *s, struct server_event *event, enum server_event_type type,
                 struct mono wake)
{
    event->type = type;
    s->wake = wake;
    return true;
}

/* The time is checked only after the owner has looked for input and found none (server_expire). */
static bool too_late(const struct server *s, struct mono deadline, struct mono now)
{
    return s->expiring && mono_reached(deadline, now);
}

/* Starts the timer unless it runs. Returns true if it has expired. */
static bool timer_expired(const struct server *s, struct mono *timer, struct mono now,
                          int64_t limit_us)
{
    if (timer->us == US_FOREVER && limit_us > 0) {
        *timer = mono_after(now, limit_us);
    }
    return too_late(s, *timer, now);
}

/* Accounts for `bytes` of content that arrived. They pay for time that has passed, never for time
 * to come. Otherwise a client could send much at once and then keep its connection with a drip. */
static void content_pay(struct server *s, struct mono now, size_t bytes)
{
    uint64_t rate = s->config->limits.content_rate_min;
    int64_t worth_us = INT64_MAX;

    if (s->content_paid.us == US_FOREVER) {
        return;
    }
    if (rate > 0) {
        worth_us = (int64_t)(bytes * (uint64_t)US_PER_S / rate); /* no overflow: `bytes` is one
                                                                  * read */
    }
    s->content_paid = mono_min(now, mono_after(s->content_paid, worth_us));
    s->silent_until = mono_after(now, s->config->limits.content_us);
}

/* Returns the time at which the content is too late. */
static struct mono content_until(const struct server *s)
{
    int64_t content_us = s->config->limits.content_us;

    return content_us > 0 ? mono_after(s->content_paid, content_us) : MONO_NEVER;
}

static void content_time_out(struct server *s, struct mono now)
{
    bool silent = s->config->limits.content_rate_min == 0 || mono_reached(s->silent_until, now);

    time_out(s, silent ? TIMEOUT_SILENCE : TIMEOUT_RATE);
}

static bool read_greeting(struct server *s, struct mono now, struct slice *in,
                          struct server_event *event)
{
    bool early = in->len > 0 && !s->config->accept_early_talkers;

    if (s->shutting_down) {
        dismiss(s, 421, "4.3.2", "Shutting down", "shutting down");
    } else if (early) {
        dismiss(s, 554, "5.5.1", "You must wait for the greeting", "client spoke too early");
    } else if (in->len == 0 && s->config->limits.greeting_delay_us > 0 &&
               !timer_expired(s, &s->input_until, now, s->config->limits.greeting_delay_us)) {
        return need(s, event, SERVER_NEED_INPUT, s->input_until);
    } else {
        buf_addf(&s->output, "220 %s %s\r\n", s->config->hostname, s->config->banner);
        s->input_until = MONO_NEVER;
        s->state = STATE_COMMAND;
    }
    return false;
}

/* Appends the next piece of the command line. Returns true if the line is complete. */
static bool gather_line(struct server *s, struct slice *in)
{
    size_t lf = slice_find(*in, '\n');
    bool complete = lf < in->len;
    size_t len = complete ? lf + 1 : in->len;

    if (!buf_add(&s->line, slice_of(in->ptr, len))) { /* longer than command_bytes */
        buf_clear(&s->line);
        dismiss(s, 500, "5.5.2", "Line too long", "command line too long");
        return false;
    }
    *in = slice_skip(*in, len);
    return complete;
}

/* Removes the end of a complete line. Returns false if the line has a bare CR or LF: a client that
 * sends such lines may have smuggled them in, and the rest can't be trusted. */
static bool cut_line_end(const struct server *s, struct slice *line)
{
    size_t cr = slice_find(*line, '\r');

    if (cr + 2 != line->len && !(s->bare_lf && cr == line->len)) {
        return false;
    }
    line->len = cr == line->len ? line->len - 1 : cr;
    return true;
}

static bool read_command(struct server *s, struct mono now, struct slice *in,
                         struct server_event *event)
{
    const struct server_limits *limits = &s->config->limits;
    /* Between two chunks content is in transfer. */
    struct mono session_until = s->chunked ? MONO_NEVER : s->session_until;
    struct slice line;

    if (s->line_done) {
        if (s->line_secret) {
            buf_wipe(&s->line);
        }
        buf_clear(&s->line);
        s->line_done = s->line_secret = false;
    }
    if (s->in_mail && s->transaction_until.us == US_FOREVER && limits->transaction_us > 0) {
        s->transaction_until = mono_after(now, limits->transaction_us);
    }
    if (buf_len(&s->line) == 0) {
        if (s->shutting_down) {
            dismiss(s, 421, "4.3.2", "Shutting down", "shutting down");
            return false;
        }
        if (too_late(s, session_until, now)) {
            time_out(s, TIMEOUT_SESSION);
            return false;
        }
    }
    if (in->len == 0) {
        if (timer_expired(s, &s->input_until, now, limits->command_us)) {
            time_out(s, TIMEOUT_SILENCE);
            return false;
        }
        if (too_late(s, s->transaction_until, now) || too_late(s, session_until, now)) {
            time_out(s, too_late(s, session_until, now) ? TIMEOUT_SESSION : TIMEOUT_TRANSACTION);
            return false;
        }
        if (too_late(s, content_until(s), now)) { /* chunks that are too slow in total */
            content_time_out(s, now);
            return false;
        }
        return need(s, event, SERVER_NEED_INPUT,
                    mono_min(mono_min(s->input_until, content_until(s)),
                             mono_min(s->transaction_until, session_until)));
    }
    if (!gather_line(s, in)) {
        return false;
    }
    s->input_until = MONO_NEVER;
    s->line_done = true;
    line = buf_slice(&s->line);
    if (!cut_line_end(s, &line)) {
        dismiss(s, 521, "5.5.2", "Bare CR or LF in the command", "bare CR or LF in a command");
        return false;
    }
    return run_line(s, line, event);
}

/* Reads the line that answers a challenge. */
static bool read_login(struct server *s, struct mono now, struct slice *in,
                       struct server_event *event)
{
    size_t lf = slice_find(*in, '\n');
    bool complete = lf < in->len;
    struct slice line;

    if (in->len == 0) {
        if (!timer_expired(s, &s->input_until, now, s->config->limits.command_us)) {
            return need(s, event, SERVER_NEED_INPUT, s->input_until);
        }
        time_out(s, TIMEOUT_SILENCE);
        return false;
    }
    if (buf_len(&s->login) + lf + complete > LOGIN_LINE_MAX ||
        !buf_add(&s->login, slice_of(in->ptr, lf + complete))) {
        forget_login(s);
        dismiss(s, 500, "5.5.6", "Line of a login is too long", "line of a login too long");
        return false;
    }
    *in = slice_skip(*in, lf + complete);
    if (!complete) {
        return false;
    }
    s->input_until = MONO_NEVER;
    line = buf_slice(&s->login);
    if (!cut_line_end(s, &line)) {
        forget_login(s);
        dismiss(s, 521, "5.5.2", "Bare CR or LF in the command", "bare CR or LF in a command");
        return false;
    }
    return take_login_line(s, line, event);
}

/* Content. */

/* Returns the reason to refuse the content so far, if any. */
static struct refusal content_refusal(const struct server *s)
{
    const struct server_limits *limits = &s->config->limits;
    const struct content_facts *facts = &s->content.facts;

    if (limits->message_bytes > 0 && facts->bytes > limits->message_bytes) {
        return (struct refusal){552, "5.3.4", "Message size exceeds fixed limit", NULL};
    }
    if (limits->header_bytes > 0 && facts->header_bytes > limits->header_bytes) {
        return (struct refusal){552, "5.3.4", "Header section is too large", NULL};
    }
    if (limits->hops > 0 && facts->received > limits->hops) {
        return (struct refusal){554, "5.4.6", "Too many hops", NULL};
    }
    if (limits->line_bytes > 0 && facts->longest_line > limits->line_bytes) {
        return (struct refusal){554, "5.6.0", "Line of content is too long", NULL};
    }
    if (!s->config->accept_bare_newlines && (facts->flags & CONTENT_BARE_LF) != 0) {
        return (struct refusal){550, "5.6.11", "Bare LF in content", NULL};
    }
    if (!s->config->accept_bare_newlines && (facts->flags & CONTENT_BARE_CR) != 0) {
        return (struct refusal){550, "5.6.11", "Bare CR in content", NULL};
    }
    return REFUSAL_NONE;
}

/* Returns the number of final replies: LMTP has one for each recipient. */
static uint32_t final_replies(const struct server *s)
{
    bool each = s->config->lmtp && (!s->chunked || s->chunk_last);

    return each ? s->rcpts : 1;
}

static void refuse_message(struct server *s, const struct refusal *refusal)
{
    uint32_t count = final_replies(s);

    for (uint32_t i = 0; i < count; i++) {
        reply(s, refusal->code, refusal->status, refusal->text);
    }
    end_mail(s, refusal->text);
    s->state = STATE_COMMAND;
    count_error(s);
}

/* Ends the message after all content was read. */
static bool message_complete(struct server *s, struct server_event *event)
{
    struct refusal refusal;

    content_finish(&s->content);
    refusal = content_refusal(s);
    CHECK(!s->spoiled || refusal.code != 0); /* else a message with a gap would be accepted */
    if (refusal.code != 0) {
        refuse_message(s, &refusal);
        return false;
    }
    s->mail_flags &= ~(unsigned)ENVELOPE_8BIT; /* most clients declare 8BITMIME for all mail */
    if ((s->content.facts.flags & CONTENT_8BIT) != 0) {
        s->mail_flags |= ENVELOPE_8BIT;
    }
    s->stats.messages++;
    s->state = STATE_COMMIT;
    event->type = SERVER_MESSAGE;
    event->message = (struct server_message){
        .facts = s->content.facts,
        .flags = s->mail_flags,
        .recipients = s->rcpts,
    };
    return true;
}

/* Returns true, with an event, if there is no content to read. The time is checked only then:
 * content that arrived in time but stayed in the socket while this process was busy is not late. */
static bool content_waits(struct server *s, struct mono now, const struct slice *in,
                          struct server_event *event)
{
    struct mono until;

    if (s->content_paid.us == US_FOREVER) {
        s->content_paid = now;
        s->silent_until = mono_after(now, s->config->limits.content_us);
    }
    if (in->len > 0) {
        return false;
    }
    until = content_until(s);
    if (too_late(s, until, now)) {
        content_time_out(s, now);
        return false;
    }
    if (too_late(s, s->transaction_until, now)) {
        time_out(s, TIMEOUT_TRANSACTION);
        return false;
    }
    return need(s, event, SERVER_NEED_INPUT, mono_min(until, s->transaction_until));
}

/* Passes input to the scanner. Returns true if there is content for the owner; sets *ret_end at the
 * end of DATA. */
static bool scan(struct server *s, struct slice in, size_t *ret_used, bool *ret_end,
                 struct server_event *event)
{
    const struct server_limits *limits = &s->config->limits;
    struct slice content;

    *ret_end = content_feed(&s->content, in, ret_used, &content);
    s->stats.bytes += content.len;
    if (!s->spoiled) {
        s->spoiled = content_refusal(s).code != 0;
    }
    if (s->spoiled) {
        uint64_t bytes = s->content.facts.bytes;

        if (bytes > limits->message_bytes &&
            bytes - limits->message_bytes > limits->discard_bytes) {
            dismiss(s, 421, "4.3.0", "Too much to discard", "refused content does not end");
        }
        return false;
    }
    event->type = SERVER_CONTENT;
    event->content = content;
    return content.len > 0;
}

/* Has the content a line of one dot whose neighbours end with LF? The client may have ended the
 * content with it and wait for a reply, or something may be smuggled in. */
static bool has_false_end(const struct server *s)
{
    return !s->config->accept_bare_newlines && (s->content.facts.flags & CONTENT_FALSE_END) != 0 &&
           s->state == STATE_DATA;
}

/* Refuses the message at once, and closes: what follows may be content or commands. */
static void refuse_false_end(struct server *s)
{
    const uint32_t count = final_replies(s);

    for (uint32_t i = 0; i < count; i++) {
        reply(s, 550, "5.6.11", "Bare LF in content");
    }
    close_session(s, "bare LF around the dot in content");
}

static bool read_data(struct server *s, struct mono now, struct slice *in,
                      struct server_event *event)
{
    bool handed_out, end;
    size_t used;

    if (content_waits(s, now, in, event)) {
        return true;
    }
    if (s->state == STATE_CLOSING) {
        return false;
    }
    handed_out = scan(s, *in, &used, &end, event);
    content_pay(s, now, used);
    *in = slice_skip(*in, used);
    if (has_false_end(s)) {
        refuse_false_end(s);
        return false;
    }
    return end ? message_complete(s, event) : handed_out;
}

/* Ends a chunk whose octets were all read. */
static bool chunk_complete(struct server *s, struct server_event *event)
{
    struct refusal refusal;

    s->state = STATE_COMMAND;
    if (s->chunk_refused) {
        s->chunk_refused = false;
        s->content_paid = MONO_NEVER;
        CHECK(buf_add(&s->output, buf_slice(&s->chunk_reply)));
        count_error(s);
        return false;
    }
    if (s->chunk_last) {
        return message_complete(s, event);
    }
    refusal = content_refusal(s);
    if (refusal.code != 0) {
        refuse_message(s, &refusal);
        return false;
    }
    reply(s, 250, "2.0.0", "Ok, chunk received");
    return false;
}

static bool discard_chunk(struct server *s, struct slice *in, size_t len)
{
    *in = slice_skip(*in, len);
    s->chunk_left -= len;
    s->discarded += len;
    if (s->discarded > s->config->limits.discard_bytes) {
        dismiss(s, 421, "4.3.0", "Too much to discard", "too many octets in refused chunks");
    }
    return false;
}

static bool read_chunk(struct server *s, struct mono now, struct slice *in,
                       struct server_event *event)
{
    size_t used, len;
    bool handed_out, end;

    if (s->chunk_left == 0) {
        return chunk_complete(s, event);
    }
    if (content_waits(s, now, in, event)) {
        return true;
    }
    if (s->state == STATE_CLOSING) {
        return false;
    }
    len = in->len < s->chunk_left ? in->len : (size_t)s->chunk_left;
    if (s->chunk_refused) {
        content_pay(s, now, len);
        return discard_chunk(s, in, len);
    }
    handed_out = scan(s, slice_of(in->ptr, len), &used, &end, event);
    content_pay(s, now, used);
    *in = slice_skip(*in, used);
    s->chunk_left -= used;
    return handed_out;
}

/* The session. */

/* Does one step; returns true if it has filled *event. */
static bool step(struct server *s, struct mono now, struct slice *in, struct server_event *event)
{
    if (s->abort_reason != NULL) {
        event->type = SERVER_ABORT;
        event->reason = s->abort_reason;
        s->abort_reason = NULL;
        return true;
    }
    if (s->state != STATE_CLOSING && buf_len(&s->output) >= SERVER_OUTPUT_MAX) {
        if (!timer_expired(s, &s->output_until, now, s->config->limits.command_us)) {
            return need(s, event, SERVER_NEED_OUTPUT, s->output_until);
        }
        close_session(s, "timeout: smtpd_timeout, client does not read our replies");
        return false;
    }
    s->output_until = MONO_NEVER;
    switch (s->state) {
    case STATE_GREETING:
        return read_greeting(s, now, in, event);
    case STATE_COMMAND:
        return read_command(s, now, in, event);
    case STATE_ANSWER:
    case STATE_COMMIT:
        return need(s, event, SERVER_NEED_ANSWER, MONO_NEVER);
    case STATE_AUTH:
        return read_login(s, now, in, event);
    case STATE_DATA:
        return read_data(s, now, in, event);
    case STATE_CHUNK:
        return read_chunk(s, now, in, event);
    case STATE_TLS:
        *in = slice_skip(*in, in->len);
        if (!timer_expired(s, &s->input_until, now, s->config->limits.handshake_us)) {
            return need(s, event, SERVER_NEED_ANSWER, s->input_until);
        }
        close_session(s, "timeout: smtpd_starttls_timeout");
        return false;
    case STATE_CLOSING:
        event->reason = s->close_reason;
        return need(s, event, SERVER_CLOSE, MONO_NEVER);
    }
    UNREACHABLE("a state that is none");
}

struct server *server_new(const struct server_config *config, struct mono now)
{
    struct server *s = mem_new(sizeof *s);
    size_t lmtp_replies = config->lmtp ? (size_t)config->limits.recipients * REPLY_LINE_MAX : 0;

    CHECK(strlen(config->hostname) <= SERVER_HELO_MAX);
    CHECK(strlen(config->banner) <= SERVER_TEXT_MAX);
    s->magic = SERVER_MAGIC;
    s->config = config;
    s->mechanisms = config->login;
    s->state = STATE_GREETING;
    s->wake = now;
    s->session_until =
        config->limits.session_us > 0 ? mono_after(now, config->limits.session_us) : MONO_NEVER;
    s->input_until = s->output_until = s->content_paid = s->transaction_until = MONO_NEVER;
    buf_init(&s->line, config->limits.command_bytes);
    buf_init(&s->address, ADDRESS_MAX);
    buf_init(&s->login, LOGIN_LINE_MAX);
    buf_init(&s->chunk_reply, REPLY_LINE_MAX);
    buf_init(&s->output, SERVER_OUTPUT_MAX + OUTPUT_RESERVE + lmtp_replies);
    return s;
}

void server_offer_logins(struct server *s, unsigned mechanisms)
{
    CHECK(s->magic == SERVER_MAGIC);
    CHECK((mechanisms & ~(unsigned)SASL_MECHANISMS) == 0);
    if (s->config->login != 0 && mechanisms != 0) {
        s->mechanisms = mechanisms;
    }
}

void server_trust(struct server *s)
{
    CHECK(s->magic == SERVER_MAGIC);
    s->trusted = true;
}

void server_accept_bare_lf(struct server *s)
{
    CHECK(s->magic == SERVER_MAGIC);
    s->bare_lf = true;
}

void server_free(struct server *s)
{
    if (s == NULL) {
        return;
    }
    CHECK(s->magic == SERVER_MAGIC);
    buf_wipe(&s->line);
    buf_wipe(&s->login);
    buf_fini(&s->address);
    buf_fini(&s->chunk_reply);
    buf_fini(&s->output);
    s->magic = 0;
    mem_free(s);
}

/* Listener. */

static bool is_watched(const struct server *s)
{
    return s->listener_wanted != NULL && *s->listener_wanted;
}

/* Passes on the replies that were added to the output since `before`. */
static void tell_replies(struct server *s, size_t before)
{
    if (is_watched(s) && buf_len(&s->output) > before) {
        s->listener(s->listener_arg, SERVER_SAID_REPLY, slice_skip(buf_slice(&s->output), before),
                    0);
    }
}

/* Passes on a line if it is a command. Other lines are hidden, because they may belong to a refused
 * AUTH. */
static void tell_command(struct server *s, struct slice line)
{
    struct slice verb = slice_of(line.ptr, slice_find(line, ' ')), rest;
    const struct command *command = find_command(s, verb);

    if (command == NULL || command->run == NULL) {
        s->listener(s->listener_arg, SERVER_SAID_UNKNOWN, SLICE(""), line.len);
        return;
    }
    if (command->run != do_auth) {
        s->listener(s->listener_arg, SERVER_SAID_COMMAND, line, line.len);
        return;
    }
    rest = slice_trim(slice_skip(line, verb.len));
    rest.len = slice_find(rest, ' ');
    if (sasl_mechanisms(rest) != 0) { /* a known mechanism, possibly after several blanks */
        verb.len = (size_t)(rest.ptr - line.ptr) + rest.len;
    }
    s->listener(s->listener_arg, SERVER_SAID_LOGIN, verb, line.len - verb.len);
}

/* Passes on the input that a step used, and its replies. */
static void tell_step(struct server *s, enum state state, size_t taken, size_t before)
{
    if (taken > 0 && state == STATE_COMMAND && s->line_done) {
        tell_command(s, buf_slice(&s->line));
    } else if (taken > 0 && (state == STATE_DATA || state == STATE_CHUNK)) {
        s->listener(s->listener_arg, SERVER_SAID_CONTENT, SLICE(""), taken);
    } else if (taken > 0 && state == STATE_AUTH) {
        s->listener(s->listener_arg, SERVER_SAID_LOGIN, SLICE(""), taken);
    }
    tell_replies(s, before);
}

void server_listen(struct server *s, const bool *wanted, server_listener *listener, void *arg)
{
    CHECK(s->magic == SERVER_MAGIC);
    s->listener_wanted = wanted;
    s->listener = listener;
    s->listener_arg = arg;
}

void server_next(struct server *s, struct mono now, struct slice *in,
                 struct server_event *ret_event)
{
    bool done;

    CHECK(s->magic == SERVER_MAGIC);
    do {
        enum state state = s->state;
        size_t left = in->len, before = buf_len(&s->output);

        done = step(s, now, in, ret_event);
        if (is_watched(s)) {
            tell_step(s, state, left - in->len, before);
        }
    } while (!done);
    s->expiring = false;
    if (ret_event->type == SERVER_STARTTLS) {
        *in = slice_skip(*in, in->len); /* RFC 3207, 4: input that was not sent under TLS */
    }
}

struct buf *server_output(struct server *s)
{
    return &s->output;
}

struct mono server_deadline(const struct server *s)
{
    return s->wake;
}

void server_expire(struct server *s)
{
    s->expiring = true;
}

static bool reply_accepts(const struct server_reply *foreign)
{
    return foreign->code == 0 || foreign->code / 100 == 2;
}

/* Sends the owner's reply, or `ok` if that has code 0. */
static void pass_on(struct server *s, const struct server_reply *foreign,
                    const struct server_reply *ok)
{
    add_foreign_reply(&s->output, foreign->code == 0 ? ok : foreign);
    if (foreign->code == 421) {
        close_session(s, "refused with 421");
    } else if (foreign->code / 100 == 5) {
        count_error(s); /* 4xx is not the client's fault */
    }
}

/* Processes the owner's answer to SERVER_DATA. */
static void answer_data(struct server *s, const struct server_reply *foreign)
{
    if (reply_accepts(foreign)) {
        if (s->chunked) {
            s->state = STATE_CHUNK;
        } else {
            reply(s, 354, NULL, "End data with <CR><LF>.<CR><LF>");
            s->state = STATE_DATA;
        }
        return;
    }
    if (s->chunked && foreign->code != 421) {
        refuse_chunk(s, foreign);
        end_mail(s, "content was refused");
        return;
    }
    end_mail(s, "content was refused");
    pass_on(s, foreign, NULL);
}

void server_answer(struct server *s, struct server_reply foreign)
{
    const struct server_reply ok_mail = {250, "2.1.0", SLICE("Ok")};
    const struct server_reply ok_rcpt = {250, "2.1.5", SLICE("Ok")};
    const struct server_reply ok_etrn = {250, "2.0.0", SLICE("Queuing started")};
    size_t before = buf_len(&s->output);

    CHECK(s->magic == SERVER_MAGIC);
    if (s->state == STATE_CLOSING) {
        return; /* the answer is too late */
    }
    CHECK(s->state == STATE_ANSWER);
    s->state = STATE_COMMAND;
    if (s->asked == SERVER_MAIL) {
        s->in_mail = reply_accepts(&foreign);
        s->stats.mails += s->in_mail;
        pass_on(s, &foreign, &ok_mail);
    } else if (s->asked == SERVER_RCPT) {
        bool accepted = reply_accepts(&foreign);
        s->rcpts += accepted;
        s->stats.rcpts += accepted;
        s->stats.rcpts_refused += !accepted;
        pass_on(s, &foreign, &ok_rcpt);
    } else if (s->asked == SERVER_DATA) {
        answer_data(s, &foreign);
    } else {
        CHECK(s->asked == SERVER_ETRN);
        pass_on(s, &foreign, &ok_etrn);
    }
    tell_replies(s, before);
}

void server_challenge(struct server *s, struct slice challenge)
{
    size_t before = buf_len(&s->output);

    CHECK(s->magic == SERVER_MAGIC && challenge.len <= CHALLENGE_MAX);
    forget_login(s);
    if (s->state == STATE_CLOSING) {
        return;
    }
    CHECK(s->state == STATE_ANSWER && s->asked == SERVER_AUTH);
    (void)buf_add_string(&s->output, "334 ");
    base64_put(&s->output, challenge);
    (void)buf_add_string(&s->output, "\r\n");
    CHECK(!s->output.failed && buf_room(&s->login, LOGIN_LINE_MAX) != NULL);
    s->state = STATE_AUTH;
    if (is_watched(s)) {
        s->listener(s->listener_arg, SERVER_SAID_CHALLENGE, SLICE("334"),
                    buf_len(&s->output) - before - strlen("334"));
    }
}

void server_login_done(struct server *s, struct server_reply foreign)
{
    const struct server_reply ok = {235, "2.7.0", SLICE("Authentication successful")};
    size_t before = buf_len(&s->output);

    CHECK(s->magic == SERVER_MAGIC);
    forget_login(s);
    if (s->state == STATE_CLOSING) {
        return;
    }
    CHECK(s->state == STATE_ANSWER && s->asked == SERVER_AUTH);
    s->state = STATE_COMMAND;
    s->logged_in = reply_accepts(&foreign);
    if (!s->logged_in && foreign.code != 421 && foreign.code / 100 == 5 &&
        ++s->login_failures == s->config->limits.login_failures) {
        dismiss(s, 421, "4.7.0", "Too many failed logins", "too many failed logins");
    } else {
        pass_on(s, &foreign, &ok);
    }
    tell_replies(s, before);
}

void server_message_done(struct server *s, const struct server_reply *replies, size_t count)
{
    const struct server_reply ok = {250, "2.0.0", SLICE("Ok")};
    size_t before = buf_len(&s->output);
    bool accepted = false;

    CHECK(s->magic == SERVER_MAGIC);
    if (s->state == STATE_CLOSING) {
        return; /* the client has disconnected */
    }
    CHECK(s->state == STATE_COMMIT);
    CHECK(count == final_replies(s));
    for (size_t i = 0; i < count; i++) {
        accepted = accepted || reply_accepts(&replies[i]);
    }
    s->in_mail = false;
    end_mail(s, NULL);
    s->state = STATE_COMMAND;
    if (accepted) {
        s->errors = 0;
        s->junk = 0;
        s->discarded = 0;
    }
    for (size_t i = 0; i < count; i++) {
        add_foreign_reply(&s->output, replies[i].code == 0 ? &ok : &replies[i]);
    }
    tell_replies(s, before);
    if (!accepted && replies[0].code == 421) {
        close_session(s, "refused with 421");
    }
}

static void tls_begin(struct server *s, const char *description)
{
    size_t len = strlen(description);

    s->tls = true;
    s->logged_in = false;
    s->tls_text_len = len < TLS_TEXT_MAX ? len : TLS_TEXT_MAX;
    memcpy(s->tls_text, description, s->tls_text_len);
}

void server_tls_started(struct server *s, const char *description)
{
    CHECK(s->magic == SERVER_MAGIC);
    if (s->state == STATE_CLOSING) {
        return;
    }
    CHECK(s->state == STATE_TLS);
    CHECK(!s->in_mail);
    tls_begin(s, description);
    s->helo_len = 0;
    s->extended = false;
    s->input_until = MONO_NEVER;
    s->state = STATE_COMMAND;
}

void server_tls_implicit(struct server *s, const char *description)
{
    CHECK(s->magic == SERVER_MAGIC);
    CHECK(s->state == STATE_GREETING);
    tls_begin(s, description);
}

void server_hangup(struct server *s, const char *reason)
{
    CHECK(s->magic == SERVER_MAGIC);
    close_session(s, reason);
}

void server_expel(struct server *s, const char *status, const char *text, const char *reason)
{
    size_t before = buf_len(&s->output);

    CHECK(s->magic == SERVER_MAGIC);
    if (s->state == STATE_GREETING || s->state == STATE_COMMAND || s->state == STATE_DATA ||
        s->state == STATE_CHUNK) {
        reply(s, 421, status, text);
        tell_replies(s, before);
    }
    close_session(s, reason);
}

void server_shutdown(struct server *s)
{
    CHECK(s->magic == SERVER_MAGIC);
    s->shutting_down = true;
}

struct slice server_helo(const struct server *s)
{
    return slice_of(s->helo, s->helo_len);
}

const char *server_protocol(const struct server *s)
{
    return header_protocol(s->config->lmtp, s->extended, s->tls, s->logged_in,
                           (s->mail_flags & ENVELOPE_SMTPUTF8) != 0);
}

bool server_is_logged_in(const struct server *s)
{
    return s->logged_in;
}

struct slice server_tls(const struct server *s)
{
    return slice_of(s->tls_text, s->tls_text_len);
}

struct server_stats server_stats(const struct server *s)
{
    return s->stats;
}

void server_audit(const struct server *s)
{
    CHECK(s->magic == SERVER_MAGIC);
    CHECK(!s->output.failed);
    CHECK((s->close_reason != NULL) == (s->state == STATE_CLOSING));
    CHECK(s->rcpts <= s->config->limits.recipients);
    CHECK(s->in_mail || s->rcpts == 0);
    CHECK(s->state != STATE_AUTH || (!s->in_mail && !s->logged_in));
    CHECK(s->in_mail || !s->chunked);
    if (s->state == STATE_DATA || s->state == STATE_COMMIT) {
        CHECK(s->in_mail && s->rcpts > 0);
    }
    if (s->state == STATE_CHUNK && !s->chunk_refused) {
        CHECK(s->in_mail && s->chunked);
    }
    if (s->state == STATE_CLOSING || s->state == STATE_TLS || s->state == STATE_GREETING) {
        CHECK(!s->in_mail);
    }
}
