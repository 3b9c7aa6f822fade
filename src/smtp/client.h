/*
 * The client's side of an SMTP or LMTP session: greeting, handshake, any number of transactions.
 *
 * Sans-I/O: the owner has the socket, TLS, DNS and the clock. It moves bytes and drains events:
 *
 *     client_init                                         the connection is there
 *     in bytes  -> used = client_input; drain; the rest   (input is not taken while events wait)
 *     drain:       while (client_next(c, now, &event)) act on it
 *     out bytes -> if client_at_last_look: client_pass_last_look, or client_break_off and drain;
 *                  client_output; buf_consume what the socket took; drain
 *     at client_deadline, when no input is there: client_expire; drain
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
 * FAILED: those for whom client_unresolved then holds got none, and may be tried elsewhere. A
 * refusal by the peer is a VERDICT even when it says "later" (4xx), but for 421, which ends the
 * session. Everything that shows that the two sides no longer mean the same command (a reply that
 * was not asked for, 354 out of place, 2xx to DATA, no SMTP at all) is FAILED, never a bounce.
 *
 * Last look. The final dot is what makes the peer take the message, so the owner is asked directly
 * before each write that could carry it: the dot is not in the output until client_pass_last_look,
 * stands there behind all that is before it, and what the socket does not take of it is held back
 * again. So when a write has carried the dot, the look was in front of that very write; what the
 * kernel still has to send then is beyond recall. An owner with no reason to look passes at once:
 * one write carries content and dot as ever. (There is no BDAT: CHUNKING is not used.)
 *
 * Wording of texts follows Postfix, because people and log analysers know it.
 *
 * A message with 8-bit content goes to a peer without 8BITMIME as it is ("just send 8"): converting
 * would break signatures, and such peers have been 8-bit clean for decades.
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
#include "reply.h"
#include "sasl.h"
#include "slice.h"
#include "status.h"
#include "times.h"

/* Most bytes that wait for the socket; one less than a power of two, for the buffer's NUL. */
#define CLIENT_OUTPUT_MAX (32 * 1024 - 1)
/* Most recipients of one transaction. */
#define CLIENT_RCPTS_MAX 100000

enum client_tls {
    CLIENT_TLS_NONE,    /* never STARTTLS (also right when TLS came before SMTP) */
    CLIENT_TLS_MAY,     /* use it where offered */
    CLIENT_TLS_ENCRYPT, /* no mail without it */
    CLIENT_TLS_VERIFY,  /* same for this engine; the owner's handshake checks the certificate */
};

/* Shared by many sessions; microseconds for the timeouts. client_config_defaults fills it in. */
struct client_config {
    struct slice hostname; /* what EHLO says; borrowed */
    bool lmtp;             /* LHLO, and one final reply per recipient */
    enum client_tls tls;
    bool pipelining;           /* use PIPELINING where offered */
    bool skip_5xx_greeting;    /* a 5xx greeting is temporary */
    bool skip_quit_response;   /* CLOSED as soon as QUIT is written */
    bool detect_loop;          /* a peer that calls itself by our hostname is us: 5.4.6 */
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

/* Who the peer is to know us as; borrowed for the session's life. No mail without it: a peer that
 * offers no login, or refuses it, is FAILED for now, since that is no fault of the mail. */
struct client_login {
    struct slice user, password; /* as sasl_client_init wants them */
    struct slice nonce;
    unsigned
        mechanisms; /* allowed ones, of enum sasl_mechanism; the best that is offered is used */
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
    unsigned notify;      /* enum notify */
};

/* One transaction. */
struct client_mail {
    struct slice sender; /* empty: the null sender */
    struct slice envid;  /* xtext as written; empty: none */
    unsigned flags;      /* enum envelope_flag */
    uint64_t size_bytes; /* of the content in wire form, before dots are doubled; 0: not known */
    const struct client_rcpt *rcpts;
    size_t rcpt_count; /* 1..CLIENT_RCPTS_MAX */
};

enum client_event_kind {
    CLIENT_READY,            /* handshake done; client_begin or client_quit may be called */
    CLIENT_NEED_TLS,         /* do the handshake, then client_tls_started or client_tls_failed */
    CLIENT_NEED_CONTENT,     /* call client_content, now or a little later (smtp_data_xfer_timeout
                                runs); asked again after each call */
    CLIENT_RCPT_VERDICT,     /* rcpt, outcome, code, status, text, reply, dsn_passed */
    CLIENT_TRANSACTION_DONE, /* every recipient has a verdict; reusable, dsn_passed */
    CLIENT_FAILED,           /* the session is over, some things unsaid; see the fields */
    CLIENT_CLOSED,           /* the session is over, nothing was under way */
};

enum client_outcome {
    CLIENT_SENT,
    CLIENT_DEFERRED,
    CLIENT_BOUNCED,
};

/* Where the talk was when something happened. */
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
    CLIENT_CAUSE_REFUSED, /* the peer said no, or 421 */
    CLIENT_CAUSE_LOST,    /* connection lost */
    CLIENT_CAUSE_TIMEOUT,
    CLIENT_CAUSE_PROTOCOL,   /* the peer's reply made no sense there */
    CLIENT_CAUSE_TLS,        /* required and not to be had, or the handshake failed */
    CLIENT_CAUSE_LOGIN,      /* wanted and not to be had, refused, or the peer knows no password */
    CLIENT_CAUSE_LOOP,       /* the peer is ourselves */
    CLIENT_CAUSE_BROKEN_OFF, /* client_break_off: the peer has no end of the message */
};

/* Fields that a kind's comment does not name are zero. Slices last until the next call. */
struct client_event {
    enum client_event_kind kind;
    enum client_phase phase;     /* VERDICT: the command that was answered; FAILED */
    enum client_outcome outcome; /* VERDICT; FAILED: SENT never, BOUNCED when permanent */
    enum client_cause cause;     /* FAILED */
    size_t rcpt;                 /* VERDICT: index into client_mail.rcpts */
    unsigned code;               /* VERDICT, FAILED: the peer's reply code; 0 when we decided */
    struct status status;        /* VERDICT, FAILED */
    struct slice text;           /* VERDICT, FAILED: as it stands in a log line's parentheses */
    struct slice reply;          /* VERDICT, FAILED: the peer's own words alone; may be empty */
    bool reusable;               /* DONE: another client_begin may follow; else close */
    bool dsn_passed;             /* VERDICT, DONE: the peer offers DSN and was given the wishes of
                                    all recipients; if not, reports of success are ours to make */
    bool site;                   /* FAILED: says something about the site, not about the mail
                                    (feeds the concurrency window) */
    bool content_was_sent;       /* FAILED: all content was written and no reply came: if it is
                                    sent again, some recipients may get it twice */
    bool retry_in_clear;         /* FAILED: TLS was optional: connect again with CLIENT_TLS_NONE */
};

/* Fields are private to client.c. */
struct client {
    const struct client_config *config;
    const struct client_login *login; /* NULL: none */
    struct sasl_client *sasl;         /* owned; during AUTH only */
    struct slice host;
    struct reply reply;
    struct buf out;
    struct buf text;         /* composed for the verdicts or the failure being reported */
    struct client_mail mail; /* of the current transaction; slices and array borrowed */
    uint8_t *marks;          /* of the transaction, one per recipient: enum mark */
    struct mono deadline;
    uint64_t size_limit;   /* announced by the peer; 0: none */
    size_t out_seen;       /* bytes in `out` when progress was last judged */
    uint32_t send_rcpt;    /* recipients before this one were sent, or skipped */
    uint32_t recv_rcpt;    /* recipients before this one were answered, or skipped */
    uint32_t rcpts_open;   /* sent and not refused: these keep the transaction going */
    uint32_t unsettled;    /* recipients whose verdict was not reported yet */
    uint32_t outstanding;  /* replies that are due */
    uint32_t verdict_next; /* verdicts to report: for verdict_next..verdict_end-1, as far as */
    uint32_t verdict_end;  /* not settled */
    struct status status;  /* of the verdicts or failure being reported, like those below */
    uint16_t code;
    uint8_t outcome;
    uint8_t phase;
    uint8_t cause;
    uint8_t offers;     /* enum client_offer */
    uint8_t mechanisms; /* of enum sasl_mechanism: offered, and not refused since */
    uint8_t state;
    uint8_t send_step;
    uint8_t recv_step;
    uint8_t pending; /* the event behind the verdicts */
    uint8_t content_prev;
    uint8_t dot_left; /* bytes of the final dot's line that the socket has not taken */
    bool dot_in_out;  /* these are in `out`, at its end: the last look was passed */
    bool has_reply;   /* the peer's reply is the reason */
    bool site;
    bool content_was_sent;
    bool retry_in_clear;
    bool reusable;
    bool content_asked;   /* NEED_CONTENT was reported and not answered */
    bool rset_needed;     /* the peer may still be in a transaction */
    bool utf8;            /* the transaction uses SMTPUTF8 */
    bool secure;          /* STARTTLS was done */
    bool lost;            /* client_lost was called */
    bool names_itself_us; /* the peer greeted with our own hostname */
};

/* Every default of Postfix; hostname is left empty for the owner to set. */
void client_config_defaults(struct client_config *config);

/* A connection was made; its greeting is awaited. `host` names the peer in texts, as
 * "mx.example[192.0.2.1]"; it and *config are borrowed for the session's life. */
void client_init(struct client *c, const struct client_config *config, struct slice host,
                 struct mono now);

/* Log in before the first mail. Right after client_init, or not at all. */
void client_log_in(struct client *c, const struct client_login *login);

/* Release what is held; allowed in any state. */
void client_fini(struct client *c);

/* Bytes from the peer. Returns how many were used, which is up to the end of one reply (all, when
 * it is none) and nothing while events wait; so drain and give the rest. After NEED_TLS, give the
 * rest, too, before the handshake: whatever a peer (or an attacker between) put behind its consent
 * to TLS fails the session. */
size_t client_input(struct client *c, struct slice in, struct mono now);

/* The next thing to know or do; false when there is none. */
bool client_next(struct client *c, struct mono now, struct client_event *ret_event);

/* What is to be sent: the owner consumes what the socket took, and keeps the rest here, or the
 * engine's back pressure and its judgement of a stalled transfer do not work. After FAILED it may
 * hold a parting QUIT that is worth one write and no wait. */
struct buf *client_output(struct client *c);

/* When to drain at the latest. */
struct mono client_deadline(const struct client *c);

/* The deadline has passed, and the owner has looked for input and found none: the timeout becomes
 * an event. No other call judges the time: after this process has stood still, a reply that came
 * meanwhile came in time, and a delivery that the peer has confirmed is not made again. */
void client_expire(struct client *c, struct mono now);

/* The end of the connection, whichever way: end of file, reset, failed write. */
void client_lost(struct client *c);

/* The owner's TLS handshake came out. `why` goes into the text ("certificate has expired"); may be
 * empty. */
void client_tls_started(struct client *c, struct mono now);
void client_tls_failed(struct client *c, struct slice why);

/* READY was seen, or DONE with `reusable`, and nothing since: start a transaction. The struct is
 * copied; what it points to is borrowed until DONE or, after FAILED, until client_fini. */
void client_begin(struct client *c, const struct client_mail *mail, struct mono now);

/* Content in wire form (lines end in CRLF), after NEED_CONTENT. Returns how much of it was taken:
 * all, but for back pressure; the rest is to be given after the next NEED_CONTENT. `last` says that
 * the message ends with this piece; it holds when all of the piece was taken. Dots are doubled here
 * and a missing end of line is added; a bare LF is sent as CRLF, so that no content can fake its
 * own end. */
size_t client_content(struct client *c, struct slice piece, bool last, struct mono now);

/* Directly before each write: is the final dot next, or behind what is in the output? While events
 * wait it is not. */
bool client_at_last_look(struct client *c);

/* It may: the next write, which has to come now, carries the final dot. Only at the last look. */
void client_pass_last_look(struct client *c);

/* It must not: FAILED follows, and no recipient without a verdict gets the message from this
 * session, which is of no more use: cut the connection. Only at the last look. */
void client_break_off(struct client *c);

/* Is nothing left to be written, the final dot included? */
bool client_is_flushed(const struct client *c);

/* Say goodbye; CLOSED follows. Only between transactions or before the first one (READY, DONE). */
void client_quit(struct client *c, struct mono now);

/* After FAILED: has this recipient of the transaction got no verdict? False without a
 * transaction. */
bool client_unresolved(const struct client *c, size_t rcpt);

/* What the peer offers (enum client_offer), from READY on; its size limit, 0 for none. */
unsigned client_offers(const struct client *c);
uint64_t client_size_limit(const struct client *c);

/* Is what is said at present a login, not to be shown? */
bool client_is_logging_in(const struct client *c);

/* Is the session encrypted by STARTTLS? */
bool client_is_secure(const struct client *c);

/* The phase as in "in reply to RCPT TO command"; for logs. */
const char *client_phase_name(enum client_phase phase);

/* Abort unless the invariants hold. */
void client_audit(const struct client *c);

#endif
