/*
 * The receiving side of SMTP (RFC 5321) and LMTP (RFC 2033): one session, without I/O.
 *
 * The owner has a socket, a clock and storage for mail. It passes in bytes and the time, and gets
 * events, bytes to send and a deadline:
 *
 *     for (;;) {
 *         server_next(s, now, &in, &event);       uses bytes from the front of `in`
 *         act on event;
 *         send server_output(s);
 *         until SERVER_NEED_INPUT (read more), SERVER_NEED_ANSWER (answer at any time later),
 *         SERVER_NEED_OUTPUT (send first) or SERVER_CLOSE (send, close, server_free)
 *     }
 *     and again at server_deadline(s): look for input once more, server_expire(s), and the above.
 *
 * Back pressure is built in: the engine keeps only an unfinished command line (at most
 * limits.command_bytes). While it waits for an answer, or for its output to be sent, it uses no
 * input, so the owner's own input limit fills and TCP slows the client. A command is answered
 * before the next is read, so pipelined commands get replies in order.
 *
 *   GREETING --> IDLE --EHLO--> READY --MAIL--> IN MAIL --RCPT--> ... --DATA--> content --> READY
 *
 * A transaction begins when the owner accepts SERVER_MAIL. It ends in exactly one SERVER_MESSAGE,
 * or in exactly one SERVER_ABORT. After SERVER_MESSAGE the owner is responsible: it commits, then
 * calls server_message_done. If the client disconnects in between the commit continues, and at
 * worst the client sends the message again. No reply is sent to the client before
 * server_message_done.
 *
 * Slices in events last until the next call of any function here on the same session.
 * SERVER_CONTENT also needs the owner's input bytes to stay in place until then. All other borrowed
 * data (config) must outlive the session. `now` never goes backwards.
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
/* Amount of unsent output at which the engine stops reading input. */
#define SERVER_OUTPUT_MAX 16384
/* Longest text of a reply; longer ones are cut (RFC 5321, 4.5.3.1.5: 512 with code and CRLF). */
#define SERVER_TEXT_MAX 480

/* Limits of a session. A time of 0 is no limit. server_config_default() sets values that suit a
 * relay. */
struct server_limits {
    uint64_t message_bytes;    /* message_size_limit; 0 = none. Announced as SIZE */
    uint64_t header_bytes;     /* header_section_size_limit; then 552 5.3.4 */
    uint32_t command_bytes;    /* line_length_limit: longest command line, CRLF included; then 500
                                * 5.5.2 and close. The 512 of RFC 5321 plus the additions for SIZE,
                                * BODY, SMTPUTF8, RET, ENVID, NOTIFY and ORCPT are 1158 (RFC 3461,
                                * 6531) */
    uint64_t line_bytes;       /* longest line of content; then 554 5.6.0 */
    uint64_t discard_bytes;    /* bytes of refused content that are read and dropped; then 421 and
                                * close */
    uint32_t recipients;       /* smtpd_recipient_limit, per transaction; then 452 4.5.3 */
    uint32_t hops;             /* hopcount_limit: number of Received: fields; then 554 5.4.6 */
    uint32_t errors;           /* smtpd_hard_error_limit: number of refused commands; then 421
                                * 4.7.0 */
    uint32_t junk_commands;    /* smtpd_junk_command_limit: commands since the last message that do
                                * not advance a transaction (NOOP, RSET, VRFY, ETRN, ...); each
                                * further one counts as an error */
    uint32_t messages;         /* per session; then 421 4.7.0. 0 = no limit */
    uint32_t login_failures;   /* per session; then 421 4.7.0. 0 = no limit */
    int64_t greeting_delay_us; /* wait before the greeting, to detect clients that send too early; 0
                                * = none */
    int64_t command_us;        /* smtpd_timeout: from a reply to the end of the next command */
    int64_t handshake_us;      /* smtpd_starttls_timeout: the TLS handshake */
    int64_t content_us;        /* smtpd_timeout: maximum delay of content against its minimum rate,
                                * so also the longest silence */
    uint64_t content_rate_min; /* smtpd_min_data_rate: bytes per second; 0 = content_us limits
                                  silence only */
    int64_t transaction_us;    /* smtpd_transaction_timeout: from MAIL to the end of content */
    int64_t session_us;        /* whole session; checked between commands, so that content in
                                * transfer is still received (transaction_us limits that) */
};

/* Configuration common to all sessions of a listener; borrowed by each. */
struct server_config {
    const char *hostname;      /* our name, in greeting and EHLO reply */
    const char *banner;        /* text after the host name in the greeting, "ESMTP Sluice" */
    bool lmtp;                 /* LHLO instead of HELO and EHLO; a reply for each recipient */
    bool starttls;             /* offered until TLS is active */
    bool require_tls;          /* MAIL needs TLS: 530 5.7.0 */
    unsigned login;            /* mechanisms offered, of enum sasl_mechanism; 0: no AUTH */
    bool login_in_clear;       /* AUTH is allowed without TLS; else it is offered under TLS only,
                                * with 538 before */
    bool require_login;        /* MAIL needs a login: 530 5.7.0 */
    bool smtputf8;             /* offered */
    bool chunking;             /* offered */
    bool dsn;                  /* offered */
    bool etrn;                 /* offered (never in LMTP) */
    bool vrfy;                 /* VRFY is answered with 252; else 502 */
    bool accept_bare_newlines; /* content with bare CR or LF is kept unchanged instead of being
                                * refused with 550 5.6.11 (see server_accept_bare_lf) */
    bool accept_early_talkers; /* input before the greeting is not refused */
    bool accept_no_domain; /* addresses without a domain are accepted (postmaster always is); the
                                * owner completes them */
    bool strict_paths;     /* paths without <> are refused, and so are blanks after FROM: and
                                * TO: */
    struct server_limits limits;
};

/* Sets the defaults: everything is offered except STARTTLS, and limits are Postfix's where it has
 * them. */
void server_config_default(struct server_config *ret_config);

enum server_event_type {
    SERVER_NEED_INPUT,  /* all input was used */
    SERVER_NEED_ANSWER, /* the last event that needs an answer has none yet */
    SERVER_NEED_OUTPUT, /* some of server_output() must be sent first */

    SERVER_HELO, /* the client sent its name: server_helo(). For the log; needs no answer */

    /* Events that need server_answer(). */
    SERVER_MAIL, /* a sender: accept it? */
    SERVER_RCPT, /* a recipient: accept it? */
    SERVER_DATA, /* content follows: is there room for it? */
    SERVER_ETRN, /* a request to deliver the mail that waits for this destination */

    /* A message of a login. The owner answers with server_challenge or server_login_done, and must
     * not keep the bytes, which may be a password. */
    SERVER_AUTH,

    SERVER_CONTENT, /* a piece of the message, in order, never empty; needs no answer */
    SERVER_MESSAGE, /* the message is complete: commit it, then server_message_done() */
    SERVER_ABORT,   /* the transaction is over: drop all data of it. Needs no answer */

    SERVER_STARTTLS, /* 220 is in the output: send it, do the handshake, then server_tls_started().
                      * Input after STARTTLS was read and dropped; the owner must also drop all
                      * other input that it has read in the clear. */
    SERVER_CLOSE,    /* send the output, then close. Repeated by further calls. */
};

struct server_mail {
    struct slice sender; /* stored form (address.h); empty = null sender */
    struct slice envid;  /* ENVID as given, xtext; empty = none */
    uint64_t size;       /* SIZE as declared, 0 = not declared */
    unsigned flags;      /* of enum envelope_flag: 8BIT, SMTPUTF8, RET_FULL, RET_HDRS */
};

struct server_rcpt {
    struct slice recipient; /* stored form */
    struct slice orcpt;     /* ORCPT as given, `type;xtext`; empty = none */
    unsigned notify;        /* of enum notify */
    uint32_t index;         /* number of recipients accepted before in this transaction */
};

struct server_auth {
    bool first;                    /* whether a login begins; data of an earlier one is void */
    enum sasl_mechanism mechanism; /* one of the mechanisms offered */
    bool has_message;              /* false: the first message comes later, request it */
    struct slice message;
};

struct server_message {
    struct content_facts facts;
    unsigned flags;      /* of enum envelope_flag, now including 8BIT if seen */
    uint32_t recipients; /* number of accepted recipients */
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
                                        * as long as the session */
    };
};

/* Parts of a dialogue, for operators who watch it. */
enum server_said {
    SERVER_SAID_COMMAND,   /* from the client: a line */
    SERVER_SAID_LOGIN,     /* from the client: `text` may be shown, `bytes` more must not be
                            * shown */
    SERVER_SAID_UNKNOWN,   /* from the client: bytes that are not a command, and may belong to a
                            * login */
    SERVER_SAID_CONTENT,   /* from the client: bytes */
    SERVER_SAID_REPLY,     /* from this side: lines */
    SERVER_SAID_CHALLENGE, /* from this side, in a login: as SERVER_SAID_LOGIN */
};
/* Receives parts of the dialogue. Called from within functions of the engine; must not call any of
 * them. */
typedef void server_listener(void *arg, enum server_said said, struct slice text, size_t bytes);

/* A reply of the owner. Control characters in the text become `?`, so texts from elsewhere may be
 * passed. */
struct server_reply {
    unsigned code;      /* 2xx, 4xx, 5xx; 421 also closes. 0 = accept, with the engine's own text */
    const char *status; /* enhanced status code "5.7.1" of the same class; NULL = class.0.0 */
    struct slice text;  /* one line, cut at SERVER_TEXT_MAX */
};

#define SERVER_ACCEPT ((struct server_reply){0})

struct server;

/* Returns a session of a client that has just connected. */
struct server *server_new(const struct server_config *config, struct mono now);

/* Offers these mechanisms instead of the configuration's, if that has some. 0: no change. */
void server_offer_logins(struct server *s, unsigned mechanisms);

/* Accepts the greetings that devices send, from a client of our own: MAIL without HELO or EHLO
 * (except in LMTP), and names with blanks, control characters or bytes beyond ASCII, each of which
 * becomes '?'. */
void server_trust(struct server *s);

/* Takes LF without CR for a line end, too: in commands, in content, and around the dot that ends
 * content. In content, CR CR LF is a line end, too, and other CRs without LF become blanks.
 * Only for clients that do not pass on what others write: between two systems that differ
 * about line ends, content can hide commands. */
void server_accept_bare_lf(struct server *s);

/* Passes the dialogue to the listener while *wanted. All are borrowed for the session's life. */
void server_listen(struct server *s, const bool *wanted, server_listener *listener, void *arg);

/* Frees the session; NULL is allowed. */
void server_free(struct server *s);

/* Continues the session: uses bytes from the front of *in and returns one event. The owner repeats
 * the call after any event except SERVER_CLOSE and the three SERVER_NEED_ events. */
void server_next(struct server *s, struct mono now, struct slice *in,
                 struct server_event *ret_event);

/* Returns the bytes to send; the owner calls buf_consume() for the bytes that were sent. */
struct buf *server_output(struct server *s);

/* Returns the time to call server_expire and server_next without new input. MONO_NEVER while an
 * answer is outstanding; the TLS handshake must end within handshake_us. */
struct mono server_deadline(const struct server *s);

/* Makes the next server_next check the time, after the deadline has passed and the owner has looked
 * for input and found none. No other call checks the time: input that a client sent in time counts,
 * even if this process stood still when it arrived. */
void server_expire(struct server *s);

/* Answers SERVER_MAIL, _RCPT, _DATA or _ETRN. Any class other than 2xx refuses. */
void server_answer(struct server *s, struct server_reply reply);

/* Answers SERVER_AUTH with a request for another message. The challenge (up to 1,000 bytes) may be
 * empty. */
void server_challenge(struct server *s, struct slice challenge);

/* Answers SERVER_AUTH with the end of the login. A code of 0 accepts it with "235 2.7.0"; 4xx and
 * 5xx refuse it, 421 also closes. */
void server_login_done(struct server *s, struct server_reply reply);

/* Answers SERVER_MESSAGE: one reply in SMTP; in LMTP one for each accepted recipient, in order. A
 * code of 0 sends "250 2.0.0 Ok". */
void server_message_done(struct server *s, const struct server_reply *replies, size_t count);

/* Continues the session under TLS after the handshake of SERVER_STARTTLS succeeded. All earlier
 * state is forgotten (RFC 3207, 4.2). `description` ("TLSv1.3 with cipher ...") is copied. If the
 * handshake failed, call server_hangup instead. */
void server_tls_started(struct server *s, const char *description);

/* Marks a session that began with TLS; to be called before the first server_next. */
void server_tls_implicit(struct server *s, const char *description);

/* Ends the session because the client is gone or the owner is done with it: SERVER_ABORT if a
 * transaction was open, then SERVER_CLOSE with this reason (static text). */
void server_hangup(struct server *s, const char *reason);

/* Ends the session as server_hangup does, after a last reply if the protocol allows one: 421,
 * `status` and `text` (printable ASCII, at most SERVER_TEXT_MAX). */
void server_expel(struct server *s, const char *status, const char *text, const char *reason);

/* Ends the session with 421 4.3.2 at the next point between two commands, then SERVER_CLOSE. */
void server_shutdown(struct server *s);

/* Returns the HELO/EHLO/LHLO argument; empty before. */
struct slice server_helo(const struct server *s);

/* Has the client logged in? */
bool server_is_logged_in(const struct server *s);

/* Returns the protocol for the Received: field of the current transaction: "ESMTPS", "UTF8SMTP",
 * ... (header.h). */
const char *server_protocol(const struct server *s);

/* Returns the description passed to server_tls_started; empty without TLS. */
struct slice server_tls(const struct server *s);

/* Counts of a session, for the log line at its end. */
struct server_stats {
    uint64_t commands;
    uint64_t errors; /* commands refused by the engine or the owner */
    uint64_t mails;  /* MAIL accepted */
    uint64_t rcpts;  /* RCPT accepted */
    uint64_t rcpts_refused;
    uint64_t messages; /* SERVER_MESSAGE events */
    uint64_t bytes;    /* of content */
    bool quit;         /* whether the client sent QUIT */
};

struct server_stats server_stats(const struct server *s);

/* Aborts unless the session's invariants hold. For tests and fuzz targets. */
void server_audit(const struct server *s);

#endif
