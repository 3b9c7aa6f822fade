/*
 * One connection to an SMTP or LMTP server: a stream and the engine that talks on it.
 *
 *   session_open --> CONNECTING --> (greeting, TLS ..) --> READY --session_begin--> transaction
 *                        |                                   ^                          |
 *                SESSION_UNREACHABLE                         +--------- done -----------+
 *                                                            |
 *                                                     session_rest: kept for the next one
 *
 * A session has one owner, who is told of events and ends it: with session_abort, or with
 * session_close, after which it sends QUIT on its own and vanishes. The owner is called from
 * sessions_run and from the loop, never from within a function it called, and may do anything in
 * the call.
 *
 * A turn that has something for the engine costs one send: output goes when the engine has no more
 * to say. The last look (client.h) is in front of the send that may carry a final dot: where the
 * lease is over by then, the engine's FAILED says CLIENT_CAUSE_BROKEN_OFF. The session is to be
 * aborted then: its TLS may hold a part of the dot.
 */
#ifndef DELIVER_SESSION_H
#define DELIVER_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "buf.h"
#include "client.h"
#include "dialogue.h"
#include "lease_page.h"
#include "mxlist.h"
#include "stream.h"
#include "times.h"
#include "tls.h"
#include "tls_policy.h"
#include "wire.h"

/* How long a server may take to let go of a connection we are done with. */
#define SESSION_QUIT_US (5 * US_PER_S)

#define SESSION_NONCE 32 /* printable bytes */

/* What is the same for all sessions of a destination; borrowed for their lives. */
struct session_settings {
    struct client_config config; /* but for its `tls` */
    struct tls_context *tls;     /* NULL: no session demands TLS */
    int64_t connect_timeout_us;
    union ip_address from4, from6;   /* sa_family 0: the system chooses */
    struct slice transport, nexthop; /* for those who watch */
};

/* Who we are to a next hop that wants to know; borrowed likewise. */
struct session_login {
    struct slice user, password;
};

enum session_event {
    SESSION_UNREACHABLE, /* no connection: session_why. Abort it */
    SESSION_TALK,        /* an event of the engine, but for CLIENT_NEED_TLS. After FAILED and CLOSED
                            abort or close it */
    SESSION_RESTED,      /* the time given to session_rest is over */
};

struct session;
struct sessions;

/* `talk` comes with SESSION_TALK. */
typedef void session_callback(void *arg, struct session *s, enum session_event event,
                              const struct client_event *talk);

/* Fields are private to session.c but for those of conncache.c. */
struct session {
    struct sessions *all;
    const struct session_settings *settings;
    const struct session_login *login; /* NULL: none */
    struct client_login client_login;  /* that, for the engine */
    struct client_config config;       /* that of the settings, with `tls` */
    struct tls_demand *demand;         /* one reference; NULL: none, a Unix socket */
    struct mono fits_until;            /* so long it meets what its destination demands */
    char nonce[SESSION_NONCE];
    struct stream *stream;
    struct client client;       /* once `talked` */
    session_callback *callback; /* NULL: without an owner, being closed */
    void *arg;
    char *relay;         /* owned: "host[address]:port" */
    char *host;          /* owned: the name alone */
    union ip_address to; /* sa_family 0: a Unix socket */
    size_t peer_len;
    struct mono opened;
    struct mono rest_until;
    uint32_t uses;
    bool want_tls; /* the engine waits for a handshake */
    bool is_tls;   /* the handshake is done */
    bool ended;    /* the peer sends no more */
    bool talked;   /* connected */
    bool idle;     /* the engine may begin a transaction, or quit */
    bool pumping;
    bool queued; /* in all->ready */
    bool dead;   /* to be freed at the end of pump() */
    /* For those who watch: */
    struct dialogue_end end;
    char id[WIRE_ID_MAX + 1]; /* of the message that it serves; empty: none */
    struct buf heard;         /* the beginning of a line */
    bool heard_secret;        /* a part of that is of a login */
    TAILQ_ENTRY(session) ready;
    LIST_ENTRY(session) in_all;
    /* conncache.c's */
    struct conncache_key *cached_under;
    TAILQ_ENTRY(session) cache_all, cache_key;
};

/* Told each time a session has vanished: its descriptor is free, its settings are not needed by it
 * any more. */
typedef void sessions_closed(void *arg, const struct session_settings *settings);

struct sessions *sessions_new(struct streams *streams, sessions_closed *closed, void *arg);

/* Tell that what is said; borrowed. */
void sessions_watch(struct sessions *all, struct dialogue *dialogue);

/* Messages are sent to their end only while this lease holds; borrowed. Without, always. */
void sessions_set_lease(struct sessions *all, const struct lease_page *lease);

/* Does it hold now? */
bool sessions_may_deliver(const struct sessions *all);

/* Cuts off what is left. NULL is fine. */
void sessions_free(struct sessions *all);

/* How many there are, those that are being closed included. */
size_t sessions_count(const struct sessions *all);

/* Work on the sessions that were given something to do; at the end of each turn. */
void sessions_run(struct sessions *all);

/* Where a session goes, and how; borrowed for the call but for `login`. */
struct session_to {
    const struct sockaddr *address;
    socklen_t address_len;
    const char *host;                  /* the name for texts */
    const char *detail;                /* what stands in brackets behind it */
    unsigned port;                     /* 0 for a Unix socket */
    struct tls_demand *demand;         /* NULL: no TLS */
    bool in_clear;                     /* no TLS, as the demand allows that and it has failed */
    const struct session_login *login; /* NULL: none */
};

/* Connect. */
struct session *session_open(struct sessions *all, const struct session_settings *settings,
                             const struct session_to *to, session_callback *callback, void *arg);

/* Does what the peer of this idle session has shown meet the demand? */
bool session_meets(const struct session *s, const struct tls_demand *demand);

/* Has it gone where a session like this would go, with equal settings and the same login? */
bool session_is_like(const struct session *s, const struct session_settings *settings,
                     const struct session_to *to);

/* Does the destination that the session serves find its demand met without a new lookup? */
bool session_fits(const struct session *s);

/* An idle session that is like that, and meets the demand, is one with these settings and this
 * login from now on. */
void session_adopt(struct session *s, const struct session_settings *settings,
                   const struct session_to *to);

/* Whose it is from now on. */
void session_set_owner(struct session *s, session_callback *callback, void *arg);

/* Which message it serves from now on; empty: none. */
void session_serve(struct session *s, struct slice id);

/* As client_begin; the session must be ready. */
void session_begin(struct session *s, const struct client_mail *mail);

/* Answer CLIENT_NEED_CONTENT, then or later; as client_content. */
size_t session_content(struct session *s, struct slice piece, bool last);

/* Nothing to do until `until`; then SESSION_RESTED. */
void session_rest(struct session *s, struct mono until);

/* Send QUIT if the engine can, and vanish. The session is taken. */
void session_close(struct session *s);

/* Cut the connection at once. The session is taken. NULL is fine. */
void session_abort(struct session *s);

/* Why there is no connection: an errno, and its text. */
int session_errno(const struct session *s);
const char *session_why(const struct session *s);

/* "host[address]:port". */
struct slice session_relay(const struct session *s);

/* Has the socket taken all that the engine has said so far, a message's final dot included? */
bool session_flushed(struct session *s);

/* Protocol and cipher, empty in clear; they last as long as the process. */
const char *session_tls_version(const struct session *s);
const char *session_tls_cipher(const struct session *s);

/* As tls_describe_certificate; nothing before a handshake. */
void session_describe_certificate(const struct session *s, struct buf *out);

/* What the peer has shown; WIRE_PROOF_NONE behind a Unix socket. */
enum wire_proof session_proof(const struct session *s);

/* Transactions begun on it. */
uint32_t session_uses(const struct session *s);

struct mono session_opened(const struct session *s);

#endif
