/*
 * Clients that send mail by HTTP: POST /v1/inject (docs/injection.md).
 *
 * Each has a request engine (inject/http.h) and a stream, and shares the rest with the sessions of
 * SMTP: places and memory (admission.h), settings, the channels to the queue and auth processes,
 * log quotas. A token proves that the client may send. The auth process has the tokens; this
 * process forgets a token after the query.
 *
 * A call is one message, or one for each of its recipients. Up to INJECT_AHEAD of these are at the
 * queue process at once, and the client is answered when the last is committed. A complete call is
 * carried out even if its client has gone.
 */
#ifndef RECEIVE_INJECT_SESSION_H
#define RECEIVE_INJECT_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "receive_session.h"

/* Maximum messages of a call that the queue process has and has not answered. */
#define INJECT_AHEAD 64u
/* Maximum messages of a call at filters at once, each with its own connections. */
#define INJECT_FILTERED 4u
/* Maximum refused recipients of a call with a log line each; the others are only counted. */
#define INJECT_REFUSALS_LOGGED 20u
/* Maximum bytes of the key of a call. */
#define INJECT_KEY_MAX 128u

struct inject_session;
struct inject_part;

struct inject_sessions {
    struct receive_sessions *all; /* shared state of all sessions; borrowed */
    LIST_HEAD(, inject_session) list;
    struct inject_session *walked; /* next session of a walk over `list`; NULL: none */
    struct inject_session *asked;  /* sessions that wait for the auth process; hash by token */
    struct inject_part *parts;     /* messages that the queue process has; hash by token */
};

void inject_sessions_init(struct inject_sessions *all, struct receive_sessions *shared);

/* Closes all connections at once, as inject_sessions_cut. */
void inject_sessions_fini(struct inject_sessions *all);

/* Begins a session, as receive_session_begin does. */
void inject_session_begin(struct inject_sessions *all, struct receive_settings *settings,
                          struct receive_origin *origin, int fd, const struct sockaddr *addr);

/* Handles a frame of the queue or auth process. Returns false if no client here waits for it. */
bool inject_sessions_frame(struct inject_sessions *all, const struct frame *frame);

/* Refuses all messages at the queue process, which is gone. The next function refuses all requests
 * that wait for the auth process. */
void inject_sessions_no_queue(struct inject_sessions *all);
void inject_sessions_no_auth(struct inject_sessions *all);

/* Ends idle sessions now and the others after their request; inject_sessions_cut closes all now. */
void inject_sessions_shutdown(struct inject_sessions *all);
void inject_sessions_cut(struct inject_sessions *all);

#endif
