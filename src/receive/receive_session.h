/*
 * Sessions of the role receive with clients of SMTP and LMTP.
 *
 * Each has a protocol engine (smtp/server.h), a stream, a draft of a message, and at most one open
 * question to another process. admission.h decides which client gets a session, and which loses it
 * to another. receive.c has the listeners and the channels to the queue and auth processes.
 */
#ifndef RECEIVE_RECEIVE_SESSION_H
#define RECEIVE_RECEIVE_SESSION_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "admission.h"
#include "buf.h"
#include "channel.h"
#include "dialogue.h"
#include "draft.h"
#include "filter_hub.h"
#include "log_quota.h"
#include "receive_settings.h"
#include "role.h"
#include "slice.h"
#include "wire.h"

struct receive_session;
struct rule_set;
struct callouts;
struct event;
struct streams;

/* Listener of sessions. Exists as long as the listener or one of its sessions. */
struct receive_origin {
    unsigned refs;
    char *url; /* owned */
    bool lmtp;
    bool submission; /* true if clients must log in */
    bool http;       /* true for clients of inject_session.h */
    bool tls_first;
};

struct receive_origin *receive_origin_new(struct slice url);
void receive_origin_unref(struct receive_origin *origin);

/* Kinds of log lines that clients can cause at will: refusals and drops by a limit, sessions
 * without a message, failed logins, missing headers of proxies. Each has a quota per minute. */
enum receive_quota {
    RECEIVE_QUOTA_REFUSED,
    RECEIVE_QUOTA_DROPPED = RECEIVE_QUOTA_REFUSED + ADMISSION_LIMITS,
    RECEIVE_QUOTA_SESSIONS = RECEIVE_QUOTA_DROPPED + ADMISSION_LIMITS,
    RECEIVE_QUOTA_LOGINS,  /* failed logins */
    RECEIVE_QUOTA_HEADERS, /* connections without the header of a proxy (proxy_client.h) */
    RECEIVE_QUOTAS         /* number of quotas */
};
/* Waiting bytes to another process above which it gets no new request. */
#define RECEIVE_WAITING_MAX   (CHANNEL_OUTPUT_MAX / 4)
#define RECEIVE_LIMIT_LINES   10
#define RECEIVE_SESSION_LINES 300

/* State that all sessions of the process share. */
struct receive_sessions {
    struct role *role;
    struct streams *streams;
    struct channel *queue; /* borrowed; NULL: no queue process now */
    struct channel *auth;  /* borrowed; NULL: no auth process now */
    unsigned mechanisms;   /* mechanisms that the auth process offers; 0: not known yet */
    struct wire_flow flow; /* last state that the queue process reported */
    struct dialogue dialogue;
    LIST_HEAD(, receive_session) list;
    uint64_t count;                /* number of sessions, with those of inject_session.h */
    struct receive_session *asked; /* sessions that wait for queue or auth process; hash by token */
    struct receive_session *walked_list, *walked_asked; /* next session of a walk; NULL: none */
    struct admission admission;
    struct log_quota quotas[RECEIVE_QUOTAS];
    struct event *quota_timer; /* timer to log the number of lines left out */
    uint64_t last_token;
    struct draft_budget budget; /* max is set by the owner */
    struct filter_hub hub;
    struct rule_set *rules; /* rules of the configuration; borrowed */
    struct callouts *callouts;
    struct buf text; /* scratch buffers, also the next four */
    struct buf rule;
    struct buf line;
    struct buf trace;
    struct buf trace_rest;
};

void receive_sessions_init(struct receive_sessions *all, struct role *role);

/* Closes all sessions at once, and frees the shared state. */
void receive_sessions_fini(struct receive_sessions *all);

/* Begins a session for a new client, perhaps in the place of another, or turns the client away.
 * Takes ownership of `fd`; takes a reference to settings and origin. `known`: the address is that
 * of the client, and not that of a proxy before it; otherwise it gives no right to relay. */
void receive_session_begin(struct receive_sessions *all, struct receive_settings *settings,
                           struct receive_origin *origin, int fd, const struct sockaddr *addr,
                           bool known);

/* Sets a new queue process, or NULL if it is gone. Clients that wait for an answer get 451. */
void receive_sessions_set_queue(struct receive_sessions *all, struct channel *queue);

/* Sets a new auth process, or NULL if it is gone. Clients that wait for a login get 454. */
void receive_sessions_set_auth(struct receive_sessions *all, struct channel *auth);

/* Handles a frame of the auth process. Returns false if the frame is invalid. */
bool receive_sessions_auth_frame(struct receive_sessions *all, const struct frame *frame);

/* Handles a frame of the queue process. Returns false if the frame is invalid. */
bool receive_sessions_frame(struct receive_sessions *all, const struct frame *frame);

/* ---- the end --------------------------------------------------------------------------------- */

/* Disconnects idle clients with 421, and the others after their message. If the role is stopping,
 * the end of the last session calls role_exit. */
void receive_sessions_shutdown(struct receive_sessions *all);

/* Closes all sessions at once, without a reply. */
void receive_sessions_cut(struct receive_sessions *all);

#endif
