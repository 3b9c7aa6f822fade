/*
 * The sessions of the role receive: what clients say, and what they are told.
 *
 * One protocol engine (smtp/server.h) and one stream for each, one draft of a message, and at most
 * one question to another process at a time. admission.h says which client may have a session,
 * and which one loses it to another. receive.c has the sockets that they come from and the channel
 * to the queue process.
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

/* Where sessions come from; outlives its listener while there are some. */
struct receive_origin {
    unsigned refs;
    char *url; /* owned */
    bool lmtp;
    bool submission; /* clients have to log in */
    bool http;       /* inject_session.h has its clients */
    bool tls_first;
};

struct receive_origin *receive_origin_new(struct slice url);
void receive_origin_unref(struct receive_origin *origin);

/* Lines of log that clients can cause as often as they like: of a limit that turns clients away,
 * or drops them, of sessions that brought no message, and of logins that failed. So many are
 * logged in a minute. */
enum receive_quota {
    RECEIVE_QUOTA_REFUSED,
    RECEIVE_QUOTA_DROPPED = RECEIVE_QUOTA_REFUSED + ADMISSION_LIMITS,
    RECEIVE_QUOTA_SESSIONS = RECEIVE_QUOTA_DROPPED + ADMISSION_LIMITS,
    RECEIVE_QUOTA_LOGINS, /* that failed */
    RECEIVE_QUOTAS        /* how many there are */
};
/* Bytes on their way to another process beyond which nothing new is asked of it. */
#define RECEIVE_WAITING_MAX   (CHANNEL_OUTPUT_MAX / 4)
#define RECEIVE_LIMIT_LINES   10
#define RECEIVE_SESSION_LINES 300

/* What all sessions of the process share. */
struct receive_sessions {
    struct role *role;
    struct streams *streams;
    struct channel *queue; /* borrowed; NULL: there is no queue process now */
    struct channel *auth;  /* borrowed; NULL: there is no auth process now */
    unsigned mechanisms;   /* that it offers; 0: not known yet */
    struct wire_flow flow; /* what the queue process said last */
    struct dialogue dialogue;
    LIST_HEAD(, receive_session) list;
    uint64_t count;                /* with those of inject_session.h */
    struct receive_session *asked; /* those that wait for one of these; a hash by token */
    struct admission admission;
    struct log_quota quotas[RECEIVE_QUOTAS];
    struct event *quota_timer; /* tells what was not logged */
    uint64_t last_token;
    struct draft_budget budget; /* the owner sets its max */
    struct filter_hub hub;
    struct rule_set *rules; /* borrowed: of the configuration */
    struct callouts *callouts;
    struct buf text; /* scratch, like the next four */
    struct buf rule;
    struct buf line;
    struct buf trace;
    struct buf trace_rest;
};

void receive_sessions_init(struct receive_sessions *all, struct role *role);

/* Cuts off what is left. */
void receive_sessions_fini(struct receive_sessions *all);

/* A client has connected: begin a session, perhaps in the place of another one, or turn it away.
 * `fd` is taken, the settings and the origin get a reference each. */
void receive_session_begin(struct receive_sessions *all, struct receive_settings *settings,
                           struct receive_origin *origin, int fd, const struct sockaddr *addr);

/* The queue process is a new one, or gone (NULL). Clients that wait for an answer get 451. */
void receive_sessions_set_queue(struct receive_sessions *all, struct channel *queue);

/* The same of the auth process. Clients that log in get 454. */
void receive_sessions_set_auth(struct receive_sessions *all, struct channel *auth);

/* Act on a frame of the auth process, likewise. */
bool receive_sessions_auth_frame(struct receive_sessions *all, const struct frame *frame);

/* Act on a frame of the queue process. False: it is none that it may send. */
bool receive_sessions_frame(struct receive_sessions *all, const struct frame *frame);

/* ---- the end --------------------------------------------------------------------------------- */

/* Send the idle ones away with 421, the others as soon as their message is done. When the role is
 * stopping, role_exit is called at the end of the last one. */
void receive_sessions_shutdown(struct receive_sessions *all);

/* End all of them now, without a word. */
void receive_sessions_cut(struct receive_sessions *all);

#endif
