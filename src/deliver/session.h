/*
 * One connection to an SMTP or LMTP server: a stream, and the engine that speaks the protocol on
 * it.
 *
 *   session_open --> CONNECTING --> (greeting, TLS ..) --> READY --session_begin--> transaction
 *                        |                                   ^                          |
 *                SESSION_UNREACHABLE                         +--------- done -----------+
 *                                                            |
 *                                                     session_rest: kept for the next one
 *
 * A session has one owner, whose callback gets its events. The owner ends it with session_abort, or
 * with session_close, after which the session sends QUIT and frees itself. The callback runs from
 * sessions_run and from the loop, never inside a function that the owner called. It may call any
 * function.
 *
 * A turn sends once, when the engine has no more output to add. The last look (client.h) is
 * directly before a send that may carry a final dot. If the lease is over then, the engine's event
 * FAILED has the cause CLIENT_CAUSE_BROKEN_OFF. Then the owner must abort the session, because its
 * TLS may hold a part of the dot.
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
#include "failure.h"
#include "lease_page.h"
#include "mxlist.h"
#include "stream.h"
#include "times.h"
#include "tls.h"
#include "tls_policy.h"
#include "wire.h"

/* Time for the server to end a connection after QUIT. */
#define SESSION_QUIT_US (5 * US_PER_S)

#define SESSION_NONCE 32 /* printable bytes */

/* Settings shared by all sessions of a destination; borrowed for their lives. */
struct session_settings {
    struct client_config config; /* without its `tls` */
    struct tls_context *tls;     /* NULL: no session uses TLS */
    int64_t connect_timeout_us;
    union ip_address from4, from6;   /* sa_family 0: the system chooses */
    struct slice transport, nexthop; /* for watches */
};

/* Our login at a next hop; borrowed for the life of its sessions. */
struct session_login {
    struct slice user, password;
};

enum session_event {
    SESSION_UNREACHABLE, /* no connection (session_why); abort the session */
    /* an event of the engine except CLIENT_NEED_TLS; after FAILED and CLOSED abort or close it */
    SESSION_TALK,
    SESSION_RESTED, /* the time set by session_rest is over */
};

struct session;
struct sessions;

/* Receives the events of a session; `talk` is set for SESSION_TALK only. */
typedef void session_callback(void *arg, struct session *s, enum session_event event,
                              const struct client_event *talk);

/* All members are private to session.c, except the last block. */
struct session {
    struct sessions *all;
    const struct session_settings *settings;
    const struct session_login *login; /* NULL: none */
    struct client_login client_login;  /* `login` for the engine */
    struct client_config config;       /* config of the settings, with `tls` */
    struct tls_demand *demand;         /* one reference; NULL: a Unix socket, no demand */
    /* time until which it meets its destination's demand without a new lookup */
    struct mono fits_until;
    char nonce[SESSION_NONCE];
    struct stream *stream;
    sa_family_t bound_family;   /* of bind_address; AF_UNSPEC: not bound */
    struct client client;       /* valid if `talked` */
    session_callback *callback; /* NULL: no owner, is being closed */
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
    bool ended;    /* the peer has closed its direction */
    bool talked;   /* connected */
    bool idle;     /* the engine may begin a transaction or QUIT */
    bool pumping;
    bool queued; /* in all->ready */
    bool dead;   /* freed at the end of pump() */
    /* For watches: */
    struct dialogue_end end;
    char id[WIRE_ID_MAX + 1]; /* id of the current message; empty: none */
    struct buf heard;         /* beginning of an incomplete line */
    bool heard_secret;        /* part of `heard` belongs to a login */
    TAILQ_ENTRY(session) ready;
    LIST_ENTRY(session) in_all;
    /* members of conncache.c */
    struct conncache_key *cached_under;
    TAILQ_ENTRY(session) cache_all, cache_key;
};

/* Is called when a session has ended: its descriptor is free, and it no longer uses its
 * settings. */
typedef void sessions_closed(void *arg, const struct session_settings *settings);

struct sessions *sessions_new(struct streams *streams, sessions_closed *closed, void *arg);

/* Sends the dialogue of all sessions to `dialogue`; borrowed. */
void sessions_watch(struct sessions *all, struct dialogue *dialogue);

/* Sets the lease, which must be valid when the end of a message is sent; borrowed. Without a lease
 * messages are always sent. */
void sessions_set_lease(struct sessions *all, const struct lease_page *lease);

/* Is the lease valid now, or is there none? */
bool sessions_may_deliver(const struct sessions *all);

/* Cuts off the remaining sessions and frees all. NULL is fine. */
void sessions_free(struct sessions *all);

/* Returns the number of sessions, including those that are being closed. */
size_t sessions_count(const struct sessions *all);

/* Runs the sessions with new work; is called at the end of each turn. */
void sessions_run(struct sessions *all);

/* The peer of a session and how to reach it; borrowed for the call, except `login`. */
struct session_to {
    const struct sockaddr *address;
    socklen_t address_len;
    const char *host;                  /* name for texts */
    const char *detail;                /* text in brackets after the name */
    unsigned port;                     /* 0 for a Unix socket */
    struct tls_demand *demand;         /* NULL: no TLS */
    bool in_clear;                     /* no TLS: the demand permits that, and TLS has failed */
    const struct session_login *login; /* NULL: none */
};

/* Begins to connect; returns the session, which is never NULL. */
struct session *session_open(struct sessions *all, const struct session_settings *settings,
                             const struct session_to *to, session_callback *callback, void *arg);

/* Does the peer's proof on this idle session meet the demand? */
bool session_meets(const struct session *s, const struct tls_demand *demand);

/* Does the session have the same peer, equal settings and the same login as a new one would? */
bool session_is_like(const struct session *s, const struct session_settings *settings,
                     const struct session_to *to);

/* Does the session still meet its destination's demand without a new lookup? */
bool session_fits(const struct session *s);

/* Gives an idle session these settings and this login. The session must be like a new one
 * (session_is_like) and meet the demand. */
void session_adopt(struct session *s, const struct session_settings *settings,
                   const struct session_to *to);

/* Sets the owner. */
void session_set_owner(struct session *s, session_callback *callback, void *arg);

/* Sets the id of the message that the session serves; empty: none. */
void session_serve(struct session *s, struct slice id);

/* Begins a transaction, as client_begin; the session must be ready. */
void session_begin(struct session *s, const struct client_mail *mail);

/* Passes content after CLIENT_NEED_CONTENT, at once or later, as client_content. */
size_t session_content(struct session *s, struct slice piece, bool last);

/* Keeps the session idle until `until`; then the owner gets SESSION_RESTED. */
void session_rest(struct session *s, struct mono until);

/* Takes the session: sends QUIT if the engine can, and ends it. */
void session_close(struct session *s);

/* Takes the session and cuts its connection at once. NULL is fine. */
void session_abort(struct session *s);

/* Returns the reason why there is no connection: errno, and a text. */
int session_errno(const struct session *s);
const char *session_why(const struct session *s);
/* Returns the cause: a bind_address that is no address of this machine, or FAILURE_OURS. */
enum failure_cause session_unreachable_cause(const struct session *s);

/* Returns "host[address]:port". */
struct slice session_relay(const struct session *s);

/* Has the socket accepted all output of the engine so far, including a message's final dot? */
bool session_flushed(struct session *s);

/* Returns protocol and cipher, empty in clear; they last as long as the process. */
const char *session_tls_version(const struct session *s);
const char *session_tls_cipher(const struct session *s);

/* Describes the peer's certificate, as tls_describe_certificate; adds nothing before a
 * handshake. */
void session_describe_certificate(const struct session *s, struct buf *out);

/* Returns the peer's proof; WIRE_PROOF_NONE for a Unix socket. */
enum wire_proof session_proof(const struct session *s);

/* Returns the number of transactions begun on the session. */
uint32_t session_uses(const struct session *s);

struct mono session_opened(const struct session *s);

#endif
