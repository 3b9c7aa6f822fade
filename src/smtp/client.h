/*
 * The client's side of an SMTP or LMTP session: greeting, handshake, any number of transactions.
 *
 * Without I/O: the owner has the socket, TLS, DNS and the clock. It moves bytes and drains events:
 *
 *     client_init                                         after connecting
 *     in bytes  -> used = client_input; drain; the rest   (no input is read while events wait)
 *     drain:       while (client_next(c, now, &event)) act on it
 *     out bytes -> if client_at_last_look: client_pass_last_look, or client_break_off and drain;
 *                  client_output; buf_consume the bytes written to the socket; drain
 *     at client_deadline, if there is no input: client_expire; drain
 *
 *   GREETING -> HELLO -> (HELO) -> IDLE <-> ENVELOPE -> CONTENT -> FINAL -> IDLE
 *                 |  ^     |        |
 *                 v  |     v        +--> QUITTING --> ENDED        any failure --> ENDED
 *              STARTTLS    AUTH
 *                 |  ^
 *                 v  |
 *                 TLS
 *
 * Promise: in a transaction every recipient gets exactly one VERDICT, unless the session ends in
 * FAILED: recipients with client_unresolved then got none, and may be tried elsewhere. A refusal by
 * the peer is a VERDICT even if it is temporary (4xx), except for 421, which ends the session.
 * Anything that shows that the two sides no longer mean the same command (an unexpected reply, 354
 * out of place, 2xx to DATA, no SMTP at all) is FAILED, never a bounce.
 *
 * Last look. The peer accepts the message when it has received the final dot. So the owner must
 * decide directly before each write that could carry the dot. The dot is not in the output until
 * client_pass_last_look, which appends it after all other output. If the socket does not accept all
 * of the dot, its rest is held back again. So when a write has carried the dot, the look was
 * directly before that write; bytes that the kernel still has to send then can't be recalled. An
 * owner with no reason to look passes at once: then one write carries content and dot. (There is no
 * BDAT: CHUNKING is not used.)
 *
 * Wording of texts follows Postfix, because people and log analysers know it.
 *
 * Content changes only where the peer could not take it: 8-bit content is converted for a peer
 * without 8BITMIME (downgrade.h), and too long lines are folded (long_lines.h).
 *
 * Memory: a few hundred bytes while idle; in a transaction a byte per recipient, the reply being
 * read, and up to CLIENT_OUTPUT_MAX bytes of output.
 */
#ifndef SMTP_CLIENT_H
#define SMTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "downgrade.h"
#include "long_lines.h"
#include "reply.h"
#include "sasl.h"
#include "slice.h"
#include "status.h"
#include "times.h"

/* Maximum of bytes that wait for the socket; one less than a power of two, for the buffer's NUL. */
#define CLIENT_OUTPUT_MAX (32 * 1024 - 1)
/* Maximum of recipients of one transaction. */
#define CLIENT_RCPTS_MAX 100000

enum client_tls {
    CLIENT_TLS_NONE,    /* never STARTTLS (also right if TLS was started before SMTP) */
    CLIENT_TLS_MAY,     /* use TLS if offered */
    CLIENT_TLS_ENCRYPT, /* send no mail without TLS */
    CLIENT_TLS_VERIFY,  /* as CLIENT_TLS_ENCRYPT here; the owner's handshake checks the
                         * certificate */
};

/* Configuration shared by many sessions; timeouts in microseconds. See client_config_defaults. */
struct client_config {
    struct slice hostname; /* argument of EHLO; borrowed */
    bool lmtp;             /* LHLO, and one final reply per recipient */
    enum client_tls tls;
    bool pipelining;           /* use PIPELINING if offered */
    bool skip_5xx_greeting;    /* treat a 5xx greeting as temporary */
    bool skip_quit_response;   /* report CLOSED as soon as QUIT is written */
    bool detect_loop;          /* fail with 5.4.6 if the peer greets with our own hostname */
    int64_t smtp_helo_timeout; /* greeting, EHLO, HELO, LHLO */
    int64_t smtp_starttls_timeout;
    int64_t smtp_mail_timeout;
    int64_t smtp_rcpt_timeout;
    int64_t smtp_data_init_timeout;
    int64_t smtp_data_xfer_timeout;
    int64_t smtp_data_done_timeout;
    int64_t smtp_rset_timeout;
    int64_t smtp_quit_timeout;
};

/* Login at the peer; borrowed for the session's life. No mail is sent without it: a peer that does
 * not offer a login, or refuses it, is a temporary FAILED, since the mail is not at fault. */
struct client_login {
    struct slice user, password; /* as for sasl_client_init */
    struct slice nonce;
    unsigned
        mechanisms; /* mechanisms allowed, of enum sasl_mechanism; the best one offered is used */
};

enum client_offer {
    CLIENT_OFFERS_PIPELINING = 1 << 0,
    CLIENT_OFFERS_SIZE = 1 << 1,
    CLIENT_OFFERS_8BITMIME = 1 << 2,
    CLIENT_OFFERS_SMTPUTF8 = 1 << 3,
    CLIENT_OFFERS_DSN = 1 << 4,
    CLIENT_OFFERS_STARTTLS = 1 << 5,
    CLIENT_OFFERS_STATUSCODES = 1 << 6, /* ENHANCEDSTATUSCODES */
};

struct client_rcpt {
    struct slice address; /* without the angle brackets */
    struct slice orcpt;   /* "rfc822;xtext" as written; empty: none */
    unsigned notify;      /* of enum notify */
};

/* One transaction. */
struct client_mail {
    struct slice sender; /* empty: the null sender */
    struct slice envid;  /* xtext as written; empty: none */
    unsigned flags;      /* of enum envelope_flag */
    uint64_t size_bytes; /* size of the content in wire form, before dots are doubled; 0: not
                          * known */
    const struct client_rcpt *rcpts;
    size_t rcpt_count; /* 1..CLIENT_RCPTS_MAX */
};

enum client_event_kind {
    CLIENT_READY,            /* the handshake is done; client_begin or client_quit may be called */
    CLIENT_NEED_TLS,         /* do the handshake, then client_tls_started or client_tls_failed */
    CLIENT_NEED_CONTENT,     /* call client_content, now or a little later (smtp_data_xfer_timeout
                              * runs); repeated after each call */
    CLIENT_RCPT_VERDICT,     /* rcpt, outcome, code, status, text, reply, dsn_passed */
    CLIENT_TRANSACTION_DONE, /* every recipient has a verdict; reusable, dsn_passed */
    CLIENT_FAILED,           /* the session is over, and recipients may be left without a verdict;
                              * see the fields */
    CLIENT_CLOSED,           /* the session is over, and no transaction was open */
};

enum client_outcome {
    CLIENT_SENT,
    CLIENT_DEFERRED,
    CLIENT_BOUNCED,
};

/* Point of the session at which an event happened. */
enum client_phase {
    CLIENT_PHASE_GREETING,
    CLIENT_PHASE_EHLO,
    CLIENT_PHASE_HELO,
    CLIENT_PHASE_LHLO,
    CLIENT_PHASE_STARTTLS, /* the command and the owner's handshake */
    CLIENT_PHASE_AUTH,
    CLIENT_PHASE_IDLE, /* between transactions */
    CLIENT_PHASE_RSET,
    CLIENT_PHASE_MAIL,
    CLIENT_PHASE_RCPT,
    CLIENT_PHASE_DATA,
    CLIENT_PHASE_CONTENT,
    CLIENT_PHASE_FINAL, /* from the final dot to its reply */
    CLIENT_PHASE_QUIT,
};

enum client_cause {
    CLIENT_CAUSE_REFUSED, /* the peer refused, or replied 421 */
    CLIENT_CAUSE_LOST,    /* connection lost */
    CLIENT_CAUSE_TIMEOUT,
    CLIENT_CAUSE_PROTOCOL,   /* the peer's reply was not valid at this point */
    CLIENT_CAUSE_TLS,        /* TLS is required but not available, or the handshake failed */
    CLIENT_CAUSE_LOGIN,      /* a login is required but not available or refused, or the peer lacks
                              * the password */
    CLIENT_CAUSE_LOOP,       /* the peer is this system */
    CLIENT_CAUSE_BROKEN_OFF, /* client_break_off: the peer has not received the end of the
                              * message */
};

/* An event. Fields that a kind's comment does not name are zero. Slices last until the next
 * call. */
struct client_event {
    enum client_event_kind kind;
    enum client_phase phase;     /* VERDICT: phase of the answered command; FAILED: phase of the
                                  * failure */
    enum client_outcome outcome; /* VERDICT, FAILED; in FAILED never SENT, and BOUNCED if the
                                  * failure is permanent */
    enum client_cause cause;     /* FAILED */
    size_t rcpt;                 /* VERDICT: index into client_mail.rcpts */
    unsigned code;               /* VERDICT, FAILED: the peer's reply code; 0 if this side
                                  * decided */
    struct status status;        /* VERDICT, FAILED */
    struct slice text;           /* VERDICT, FAILED: text in the parentheses of a log line */
    struct slice reply;          /* VERDICT, FAILED: the peer's own words only; may be empty */
    bool reusable;               /* DONE: another client_begin may follow; else close */
    bool dsn_passed;             /* VERDICT, DONE: the peer offers DSN and got the DSN parameters of
                                  * all recipients; if not, success notices are left to us */
    bool site;                   /* FAILED: the failure concerns the site, not the mail (and counts
                                  * for the concurrency window) */
    bool content_was_sent;       /* FAILED: all content was written and no reply was received: if it
                                  * is sent again, some recipients may get it twice */
    bool too_many;               /* VERDICT: the site takes this recipient in another transaction,
                                  * after those of this one (RFC 5321, 4.5.3.1.10) */
    bool retry_in_clear;         /* FAILED: TLS was optional: connect again with CLIENT_TLS_NONE */
};

/* A session. Fields are private to client.c. */
struct client {
    const struct client_config *config;
    const struct client_login *login; /* NULL: none */
    struct sasl_client *sasl;         /* owned; during AUTH only */
    struct slice host;
    struct reply reply;
    struct buf out;
    struct long_lines long_lines;
    struct downgrade *downgrade; /* owned; NULL: the peer takes the content's octets */
    struct buf folded;           /* output of long_lines, and of downgrade; empty between calls */
    struct buf converted;
    struct buf text;         /* text of the verdicts or the failure being reported */
    struct client_mail mail; /* current transaction; slices and array borrowed */
    uint8_t *marks;          /* one per recipient of the transaction: enum mark */
    struct mono deadline;
    uint64_t size_limit;   /* announced by the peer; 0: none */
    size_t out_seen;       /* bytes in `out` at the last check of progress */
    uint32_t send_rcpt;    /* recipients before this one were sent or skipped */
    uint32_t recv_rcpt;    /* recipients before this one were answered or skipped */
    uint32_t rcpts_open;   /* recipients sent and not refused */
    uint32_t unsettled;    /* recipients whose verdict was not reported yet */
    uint32_t outstanding;  /* number of replies that are due */
    uint32_t verdict_next; /* first recipient of the range whose verdicts are reported now */
    uint32_t verdict_end;  /* end of that range; settled recipients in it are skipped */
    struct status status;  /* of the verdicts or failure being reported, like the members below */
    uint16_t code;
    uint8_t outcome;
    uint8_t phase;
    uint8_t cause;
    uint8_t offers;     /* of enum client_offer */
    uint8_t mechanisms; /* of enum sasl_mechanism: offered, and not refused since */
    uint8_t state;
    uint8_t send_step;
    uint8_t recv_step;
    uint8_t pending; /* event to report after the verdicts */
    uint8_t content_prev;
    uint8_t dot_left; /* bytes of the final dot's line not written to the socket yet */
    bool dot_in_out;  /* whether these are at the end of `out`: the last look was passed */
    bool has_reply;   /* whether the peer's reply is the reason */
    bool accepted;    /* whether the peer has accepted a recipient of this transaction */
    bool too_many;    /* whether the verdicts are about too many recipients */
    bool site;
    bool content_was_sent;
    bool retry_in_clear;
    bool reusable;
    bool content_asked;   /* whether NEED_CONTENT was reported and not answered */
    bool rset_needed;     /* whether the peer may still be in a transaction */
    bool utf8;            /* whether the transaction uses SMTPUTF8 */
    bool secure;          /* whether STARTTLS was done */
    bool lost;            /* whether client_lost was called */
    bool names_itself_us; /* whether the peer greeted with our own hostname */
};

/* Sets every default as in Postfix; the owner sets hostname, which is left empty. */
void client_config_defaults(struct client_config *config);

/* Starts a session on a new connection, by waiting for the greeting. `host` names the peer in
 * texts, as "mx.example[192.0.2.1]"; it and *config are borrowed for the session's life. */
void client_init(struct client *c, const struct client_config *config, struct slice host,
                 struct mono now);

/* Requires a login before the first mail. To be called directly after client_init, or not at
 * all. */
void client_log_in(struct client *c, const struct client_login *login);

/* Releases all memory; allowed in any state. */
void client_fini(struct client *c);

/* Reads bytes from the peer. Returns the number of bytes used: up to the end of one reply (all if
 * the input is not a reply), and none while events wait. So the owner drains and then passes the
 * rest. After NEED_TLS the owner passes the rest, too, before the handshake: any bytes that a peer
 * (or an attacker between) sent after its consent to TLS make the session fail. */
size_t client_input(struct client *c, struct slice in, struct mono now);

/* Returns the next event; false if there is none. */
bool client_next(struct client *c, struct mono now, struct client_event *ret_event);

/* Returns the output. The owner consumes the bytes that the socket accepted and keeps the rest
 * here; otherwise back pressure and the check for a stalled transfer do not work. After FAILED the
 * output may contain a final QUIT that is worth one write and no wait. */
struct buf *client_output(struct client *c);

/* Returns the time at which the owner must drain at the latest. */
struct mono client_deadline(const struct client *c);

/* Turns the timeout into an event after the deadline has passed, if the owner has looked for input
 * and found none. No other call checks the time: after this process stood still, a reply that
 * arrived before is in time, and a delivery that the peer confirmed is not repeated. */
void client_expire(struct client *c, struct mono now);

/* Ends the session after the connection ended, in any way: end of file, reset, failed write. */
void client_lost(struct client *c);

/* Continues or ends the session after the owner's TLS handshake. `why` goes into the text
 * ("certificate has expired"); may be empty. */
void client_tls_started(struct client *c, struct mono now);
void client_tls_failed(struct client *c, struct slice why);

/* Starts a transaction, after READY, or DONE with `reusable`. The struct is copied; its slices and
 * array are borrowed until DONE or, after FAILED, until client_fini. */
void client_begin(struct client *c, const struct client_mail *mail, struct mono now);

/* Sends content in wire form (lines end in CRLF), after NEED_CONTENT. Returns the number of bytes
 * used: all, except under back pressure; the rest follows after the next NEED_CONTENT. `last`: the
 * message ends with this piece, if all of the piece is used. Dots are doubled here and a missing
 * end of line is added; a bare LF is sent as CRLF, so that no content can contain its own end. */
size_t client_content(struct client *c, struct slice piece, bool last, struct mono now);

/* Is the final dot next, after the present output? To be called directly before each write; false
 * while events wait. */
bool client_at_last_look(struct client *c);

/* Allows the final dot into the next write, which must follow now. Only at the last look. */
void client_pass_last_look(struct client *c);

/* Breaks off the delivery: FAILED follows, and no recipient without a verdict gets the message from
 * this session. The owner then cuts the connection. Only at the last look. */
void client_break_off(struct client *c);

/* Is nothing left to be written, the final dot included? */
bool client_is_flushed(const struct client *c);

/* Sends QUIT; CLOSED follows. Only between transactions or before the first one (READY, DONE). */
void client_quit(struct client *c, struct mono now);

/* Is this recipient of the transaction without a verdict, after FAILED? False without a
 * transaction. */
bool client_unresolved(const struct client *c, size_t rcpt);

/* Is a login being exchanged at present, which must not be shown? */
bool client_is_logging_in(const struct client *c);

/* Is the reply code about the login, not about the mail: "Authentication required", "credentials
 * invalid" (RFC 4954, 6)? An operator can correct the login, and the mail waits for that. */
bool client_reply_is_about_login(unsigned code);

/* Returns the phase as in "in reply to RCPT TO command"; for logs. */
const char *client_phase_name(enum client_phase phase);

/* Aborts unless the invariants hold. */
void client_audit(const struct client *c);

#endif
