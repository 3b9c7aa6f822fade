/*
 * The receiving side of SMTP (RFC 5321) and LMTP (RFC 2033): one session, without I/O.
 *
 * The owner has a socket, a clock and a place for mail. It gives bytes and the time, and gets
 * events, bytes to send and a deadline:
 *
 *     for (;;) {
 *         server_next(s, now, &in, &event);       takes bytes off the front of `in`
 *         act on event;
 *         send server_output(s);
 *         until SERVER_NEED_INPUT (feed more), SERVER_NEED_ANSWER (give it, whenever it is known),
 *         SERVER_NEED_OUTPUT (send first) or SERVER_CLOSE (send, close, server_free)
 *     }
 *     and again at server_deadline(s): look for input once more, server_expire(s), and the above.
 *
 * Back pressure is built in: the engine holds nothing but an unfinished command line (at most
 * limits.command_bytes). While it waits for an answer, or for its output to be sent, it takes no
 * input, so the owner's own input limit fills and TCP slows the client. A command is answered
 * before the next is read, so pipelined commands get replies in order.
 *
 *   GREETING --> IDLE --EHLO--> READY --MAIL--> IN MAIL --RCPT--> ... --DATA--> content --> READY
 *
 * A transaction begins when the owner accepts SERVER_MAIL. It ends in exactly one SERVER_MESSAGE,
 * or in exactly one SERVER_ABORT. After SERVER_MESSAGE the owner is responsible: it commits, then
 * calls server_message_done; if the client goes away meanwhile the commit goes on, and at worst
 * the client sends the message again. Nothing is said to the client before server_message_done.
 *
 * Slices in events last until the next call of any function here on the same session, except
 * SERVER_CONTENT, which also needs the owner's input bytes to stay where they are until then.
 * Everything else that is borrowed (config) must outlive the session. `now` never goes backwards.
 */
#ifndef SMTP_SERVER_H
#define SMTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "content.h"
#include "envelope.h"
#include "sasl.h"
#include "slice.h"
#include "times.h"

/* Longest HELO argument that is accepted. */
#define SERVER_HELO_MAX 255
/* The engine takes no input while this much output waits to be sent. */
#define SERVER_OUTPUT_MAX 16384
/* Longest text of a reply, longer ones are cut (RFC 5321, 4.5.3.1.5: 512 with code and CRLF). */
#define SERVER_TEXT_MAX 480

/* What a session may cost. A time of 0 is no limit. server_config_default() gives values that suit
 * a relay. */
struct server_limits {
    uint64_t message_bytes;    /* message_size_limit; 0 = none. Announced as SIZE */
    uint64_t header_bytes;     /* header_size_limit of the whole section; then 552 5.3.4 */
    uint32_t command_bytes;    /* line_length_limit: longest command line, CRLF included; then
                                  500 5.5.2 and close. 512 of RFC 5321 plus what SIZE, BODY,
                                  SMTPUTF8, RET, ENVID, NOTIFY and ORCPT may add are 1158 (RFC
                                  3461, 6531) */
    uint64_t line_bytes;       /* longest line of content; then 554 5.6.0 */
    uint64_t discard_bytes;    /* read and thrown away of what is already refused; then 421 and
                                  close */
    uint32_t recipients;       /* smtpd_recipient_limit, per transaction; then 452 4.5.3 */
    uint32_t hops;             /* hopcount_limit: Received: fields; then 554 5.4.6 */
    uint32_t errors;           /* smtpd_hard_error_limit: refused commands; then 421 4.7.0 */
    uint32_t junk_commands;    /* smtpd_junk_command_limit: commands that bring no mail nearer
                                  (NOOP, RSET, VRFY, ETRN, ...) since the last message; each
                                  further one counts as an error */
    uint32_t messages;         /* per session; then 421 4.7.0. 0 = no limit */
    uint32_t login_failures;   /* per session; then 421 4.7.0. 0 = no limit */
    int64_t greeting_delay_us; /* wait before the greeting, to catch early talkers; 0 = none */
    int64_t command_us;        /* smtpd_timeout: from a reply to the end of the next command */
    int64_t handshake_us;      /* smtpd_starttls_timeout: the TLS handshake */
    int64_t content_us;        /* smtpd_timeout: how far content may fall behind its rate, so also
                                  the longest silence */
    uint64_t content_rate_min; /* smtpd_min_data_rate: bytes per second; 0 = content_us limits
                                  silence only */
    int64_t transaction_us;    /* smtpd_transaction_timeout: from MAIL to the end of content */
    int64_t session_us;        /* the whole session; ends between commands, so content that is
                                  coming in still gets in (transaction_us limits that) */
};

/* What is the same for all sessions of a listener; borrowed by each. */
struct server_config {
    const char *hostname;      /* ours, in greeting and EHLO reply */
    const char *banner;        /* behind the host name in the greeting, "ESMTP Sluice" */
    bool lmtp;                 /* LHLO instead of HELO and EHLO; a reply for each recipient */
    bool starttls;             /* offered while TLS is not active */
    bool require_tls;          /* MAIL needs TLS: 530 5.7.0 */
    unsigned login;            /* mechanisms offered, of enum sasl_mechanism; 0: no AUTH */
    bool login_in_clear;       /* AUTH without TLS; else it is offered behind it, and 538 before */
    bool require_login;        /* MAIL needs a login: 530 5.7.0 */
    bool smtputf8;             /* offered */
    bool chunking;             /* offered */
    bool dsn;                  /* offered */
    bool etrn;                 /* offered (never in LMTP) */
    bool vrfy;                 /* answer VRFY with 252; else 502 */
    bool accept_bare_newlines; /* keep content with bare CR or LF as it is, instead of refusing
                                  it with 550 5.6.11 */
    bool accept_early_talkers; /* input before the greeting is no reason to refuse */
    bool accept_no_domain;     /* addresses without a domain (postmaster always may) */
    bool strict_paths;         /* refuse paths without <>, and blanks behind FROM: and TO: */
    struct server_limits limits;
};

/* Everything offered but STARTTLS, limits as Postfix's where it has them. */
void server_config_default(struct server_config *ret_config);

enum server_event_type {
    SERVER_NEED_INPUT,  /* all input has been used */
    SERVER_NEED_ANSWER, /* the answer to the last event that asked for one is outstanding */
    SERVER_NEED_OUTPUT, /* send some of server_output() first */

    SERVER_HELO, /* the client said who it is: server_helo(). For the log; needs no answer */

    /* These ask: server_answer(). */
    SERVER_MAIL, /* is this sender welcome? */
    SERVER_RCPT, /* and this recipient? */
    SERVER_DATA, /* content is about to come: is there room? */
    SERVER_ETRN, /* deliver what waits for this destination */

    /* A message of a login: answer with server_challenge or server_login_done, and do not keep the
     * bytes, which may be a password. */
    SERVER_AUTH,

    SERVER_CONTENT, /* a piece of the message, in order, never empty; needs no answer */
    SERVER_MESSAGE, /* the message is complete: commit it, then server_message_done() */
    SERVER_ABORT,   /* the transaction is off: drop what was kept of it. Needs no answer */

    SERVER_STARTTLS, /* 220 is in the output: send it, do the handshake, then server_tls_started().
                        What the client sent behind STARTTLS was taken and thrown away; the owner
                        throws away what else it has read in the clear. */
    SERVER_CLOSE,    /* send what is in the output, close. Comes again if called again. */
};

struct server_mail {
    struct slice sender; /* stored form (address.h); empty = null sender */
    struct slice envid;  /* ENVID as given, xtext; empty = none */
    uint64_t size;       /* SIZE as declared, 0 = not */
    unsigned flags;      /* of enum envelope_flag: 8BIT, SMTPUTF8, RET_FULL, RET_HDRS */
};

struct server_rcpt {
    struct slice recipient; /* stored form */
    struct slice orcpt;     /* ORCPT as given, `type;xtext`; empty = none */
    unsigned notify;        /* of enum notify */
    uint32_t index;         /* how many were accepted before in this transaction */
};

struct server_auth {
    bool first;                    /* a login begins; what is known of another one is void */
    enum sasl_mechanism mechanism; /* one of those offered */
    bool has_message;              /* false: the first one comes later, ask for it */
    struct slice message;
};

struct server_message {
    struct content_facts facts;
    unsigned flags;      /* of enum envelope_flag, now with what was seen: 8BIT */
    uint32_t recipients; /* accepted */
};

struct server_event {
    enum server_event_type type;
    union {
        struct server_mail mail;       /* SERVER_MAIL */
        struct server_rcpt rcpt;       /* SERVER_RCPT */
        struct slice content;          /* SERVER_CONTENT */
        struct server_message message; /* SERVER_MESSAGE */
        struct server_auth auth;       /* SERVER_AUTH */
        struct slice etrn;             /* SERVER_ETRN: the argument as given, printable */
        const char *reason;            /* SERVER_ABORT, SERVER_CLOSE: for the log; static or lasts
                                          as long as the session */
    };
};

/* What is said, for those who watch. */
enum server_said {
    SERVER_SAID_COMMAND,   /* by the client: a line */
    SERVER_SAID_LOGIN,     /* by the client: `text` may be shown, `bytes` more may not */
    SERVER_SAID_UNKNOWN,   /* by the client: bytes that are no command; they may be of a login */
    SERVER_SAID_CONTENT,   /* by the client: bytes */
    SERVER_SAID_REPLY,     /* by us: lines */
    SERVER_SAID_CHALLENGE, /* by us, of a login: as SERVER_SAID_LOGIN */
};
/* It is called from within functions of the engine, and calls none of them. */
typedef void server_listener(void *arg, enum server_said said, struct slice text, size_t bytes);

/* A verdict. Control characters in the text become `?`, so texts from elsewhere may be passed. */
struct server_reply {
    unsigned code;      /* 2xx, 4xx, 5xx; 421 also closes. 0 = accept, in the engine's words */
    const char *status; /* enhanced status code "5.7.1" of the same class; NULL = class.0.0 */
    struct slice text;  /* one line, cut at SERVER_TEXT_MAX */
};

#define SERVER_ACCEPT ((struct server_reply){0})

struct server;

/* A session of a client that has just connected. */
struct server *server_new(const struct server_config *config, struct mono now);

/* Offer these mechanisms in place of the configuration's, if that has some. 0: leave them. */
void server_offer_logins(struct server *s, unsigned mechanisms);

/* While *wanted, tell what is said. All are borrowed for the session's life. */
void server_listen(struct server *s, const bool *wanted, server_listener *listener, void *arg);

/* NULL is fine. */
void server_free(struct server *s);

/* Go on. Takes used bytes off the front of *in and reports one thing. While it returns anything but
 * the three SERVER_NEED_ and SERVER_CLOSE, call again. */
void server_next(struct server *s, struct mono now, struct slice *in,
                 struct server_event *ret_event);

/* Bytes to send; buf_consume() what was sent. */
struct buf *server_output(struct server *s);

/* When to call server_expire and server_next without new input. MONO_NEVER while an answer is
 * outstanding; the TLS handshake must end within handshake_us. */
struct mono server_deadline(const struct server *s);

/* The deadline has passed, and the owner has looked for input and found none: the next server_next
 * judges the time, no other does. What a client has sent in time counts, though this process stood
 * still when it came. */
void server_expire(struct server *s);

/* Answer SERVER_MAIL, _RCPT, _DATA or _ETRN. Any class other than 2xx refuses. */
void server_answer(struct server *s, struct server_reply reply);

/* Answer SERVER_AUTH: ask the client for another message. The challenge (up to 1,000 bytes) may be
 * empty. */
void server_challenge(struct server *s, struct slice challenge);

/* Answer SERVER_AUTH: the login is over. A code of 0 says that it is good, "235 2.7.0"; 4xx and 5xx
 * refuse it, 421 also closes. */
void server_login_done(struct server *s, struct server_reply reply);

/* Answer SERVER_MESSAGE: one reply in SMTP; in LMTP one for each accepted recipient, in order.
 * A code of 0 says "250 2.0.0 Ok". */
void server_message_done(struct server *s, const struct server_reply *replies, size_t count);

/* The handshake behind SERVER_STARTTLS succeeded. All that was said before is forgotten (RFC 3207,
 * 4.2). `description` ("TLSv1.3 with cipher ...") is copied. If it failed: server_hangup. */
void server_tls_started(struct server *s, const char *description);

/* The same for a session that began with TLS; to be called before the first server_next. */
void server_tls_implicit(struct server *s, const char *description);

/* The client is gone or the owner is done with it: SERVER_ABORT if a transaction was open, then
 * SERVER_CLOSE with this reason (static text). */
void server_hangup(struct server *s, const char *reason);

/* The same with a last word, where the protocol has room for one: 421 4.3.2 and `text` (printable
 * ASCII, at most SERVER_TEXT_MAX). */
void server_expel(struct server *s, const char *text, const char *reason);

/* 421 4.3.2 at the next point between two commands, then SERVER_CLOSE. */
void server_shutdown(struct server *s);

/* The HELO/EHLO/LHLO argument; empty before. */
struct slice server_helo(const struct server *s);

/* Has the client logged in? */
bool server_is_logged_in(const struct server *s);

/* For the Received: field of the current transaction: "ESMTPS", "UTF8SMTP", ... (header.h). */
const char *server_protocol(const struct server *s);

/* What server_tls_started was told; empty without TLS. */
struct slice server_tls(const struct server *s);

/* For the line in the log at the end of a session. */
struct server_stats {
    uint64_t commands;
    uint64_t errors; /* commands refused by the engine or the owner */
    uint64_t mails;  /* MAIL accepted */
    uint64_t rcpts;  /* RCPT accepted */
    uint64_t rcpts_refused;
    uint64_t messages; /* SERVER_MESSAGE events */
    uint64_t bytes;    /* of content */
    bool quit;         /* the client said QUIT */
};

struct server_stats server_stats(const struct server *s);

/* Abort unless the session's invariants hold. For tests and fuzz targets. */
void server_audit(const struct server *s);

#endif
