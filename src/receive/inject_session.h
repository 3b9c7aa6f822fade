/*
 * Clients that send mail by HTTP: POST /v1/inject (docs/injection.md).
 *
 * One request engine (inject/http.h) and one stream for each; the rest is what SMTP's sessions
 * have, with them: places and memory (admission.h), settings, the channels to the queue and auth
 * processes, log quotas. A client proves with a token that it may send; the auth process knows
 * tokens, this one forgets each when it has asked.
 *
 * A call is one message, or one for each of its recipients. Of these some are on their way to the
 * queue process at once (INJECT_AHEAD), and the client is answered when the last is committed. A
 * call whose client has gone is carried out all the same: all of it had come.
 */
#ifndef RECEIVE_INJECT_SESSION_H
#define RECEIVE_INJECT_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "receive_session.h"

/* Messages of a call that the queue process has and has not answered. */
#define INJECT_AHEAD 64u
/* Of these, filters look at so many at once, each with connections of its own. */
#define INJECT_FILTERED 4u
/* Refused recipients of a call that are logged one by one; of more, their number. */
#define INJECT_REFUSALS_LOGGED 20u
/* Longest key of a call, in bytes. */
#define INJECT_KEY_MAX 128u

struct inject_session;
struct inject_part;

struct inject_sessions {
    struct receive_sessions *all; /* borrowed: what is shared */
    LIST_HEAD(, inject_session) list;
    struct inject_session *walked; /* in `list`: the next of a walk; NULL: there is none */
    struct inject_session *asked;  /* those that wait for the auth process; a hash by token */
    struct inject_part *parts;     /* messages that the queue process has; a hash by token */
};

void inject_sessions_init(struct inject_sessions *all, struct receive_sessions *shared);

/* Cuts off what is left. */
void inject_sessions_fini(struct inject_sessions *all);

/* As receive_session_begin. */
void inject_session_begin(struct inject_sessions *all, struct receive_settings *settings,
                          struct receive_origin *origin, int fd, const struct sockaddr *addr);

/* A frame of the queue or the auth process. False: it is not for a client of ours. */
bool inject_sessions_frame(struct inject_sessions *all, const struct frame *frame);

/* The queue process, or the auth process, is gone: no question will be answered. */
void inject_sessions_no_queue(struct inject_sessions *all);
void inject_sessions_no_auth(struct inject_sessions *all);

/* End the idle ones, the others after their request. */
void inject_sessions_shutdown(struct inject_sessions *all);
void inject_sessions_cut(struct inject_sessions *all);

#endif
