/*
 * One session of a mailq server, without I/O: version 1, which dumps the queue and ends, or
 * version 2, which asks for a login and answers commands.
 *
 * The owner has the socket and knows the queue:
 *
 *     for (;;) {
 *         mailq_server_next(s, &in, &event);      takes bytes off the front of `in`
 *         NEED_INPUT   feed more
 *         NEED_OUTPUT  send mailq_server_output(s) first
 *         NEED_AUTH    mailq_server_auth() with the auth file as it is now: the client logs in
 *         ASK          answer event.question: mailq_server_lines() as often as needed, then
 *                      mailq_server_done(); or mailq_server_verdict(); or mailq_server_failed()
 *         CLOSE        send what is left, close
 *     }
 *
 * One question is outstanding at a time and no input is taken meanwhile, so a client can't make the
 * owner work faster than it reads. Lines are given in pieces: while mailq_server_is_full() the
 * owner waits, so a dump of a large queue costs no memory.
 *
 * What a session may cost in time (MAILQ_SESSION_S in all) is the owner's to watch, as is the
 * number of sessions. Slices in events last until the next call on the same session.
 */
#ifndef ZMAILER_MAILQ_SERVER_H
#define ZMAILER_MAILQ_SERVER_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "mailq_auth.h"
#include "mailq_counters.h"
#include "slice.h"

#define MAILQ_LINE_MAX     16384 /* bytes of a command; a longer one ends the session */
#define MAILQ_OUTPUT_MAX   65536 /* the session is full when more than this waits to be sent */
#define MAILQ_SESSION_S    90
#define MAILQ_SESSIONS_MAX 21
#define MAILQ_LOGINS_MAX   10 /* failed ones; then the session ends */

struct mailq_server;

enum mailq_question {
    MAILQ_ASK_DUMP,          /* version 1: everything, from "Vertices:" to the totals */
    MAILQ_ASK_TOTALS,        /* SHOW SNMP */
    MAILQ_ASK_RINGS,         /* SHOW QUEUE SHORT */
    MAILQ_ASK_THREADS,       /* SHOW QUEUE THREADS */
    MAILQ_ASK_THREAD_FIELDS, /* SHOW QUEUE THREADS2 */
    MAILQ_ASK_THREAD,        /* SHOW THREAD channel host */
    MAILQ_ASK_COUNTERS,      /* SHOW COUNTERS */
    /* These change something and are answered with a verdict. */
    MAILQ_ASK_ETRN,        /* start what waits for `host` */
    MAILQ_ASK_KILL_MSG,    /* remove the message `id` */
    MAILQ_ASK_KILL_THREAD, /* remove what waits for channel/host */
    MAILQ_ASK_REROUTE,     /* find new routes for what waits for channel/host */
};

enum mailq_event_type {
    MAILQ_NEED_INPUT,
    MAILQ_NEED_OUTPUT,
    MAILQ_NEED_AUTH,
    MAILQ_ASK,
    MAILQ_CLOSE,
};

struct mailq_event {
    enum mailq_event_type type;
    enum mailq_question question;
    struct slice channel, host; /* of THREAD, KILL_THREAD, REROUTE; host of ETRN */
    struct slice id;            /* of KILL_MSG */
    struct slice rest;          /* of ETRN: what stands behind the host; for the log */
    struct slice user;          /* who asks; for the log. Empty in version 1 */
};

/* A session of version 1. */
struct mailq_server *mailq_server_new_v1(void);
bool mailq_server_is_v1(const struct mailq_server *s);

/* A session of version 2. `auth` says whether the client is greeted; it is borrowed until
 * mailq_server_auth gives another. `moment` makes the
 * challenge, "SECONDS.MICROSECONDS.COUNTER", and must not come twice; `nonce` is fresh random text
 * for SCRAM, 16 to 200 printable bytes without commas. What the session counts goes to `counts`,
 * borrowed, too. */
struct mailq_server *mailq_server_new(const struct mailq_auth *auth, const struct mailq_peer *peer,
                                      const char *moment, const char *nonce,
                                      struct mailq_counts *counts);
void mailq_server_free(struct mailq_server *s);

void mailq_server_next(struct mailq_server *s, struct buf *in, struct mailq_event *ret_event);

/* After MAILQ_NEED_AUTH: who may log in. Borrowed until the next time, or the session's end; what
 * was borrowed before is not used any more. */
void mailq_server_auth(struct mailq_server *s, const struct mailq_auth *auth);

/* The client has sent all it ever will. */
void mailq_server_input_ended(struct mailq_server *s);

/* What is to be sent; the owner consumes what was. */
struct buf *mailq_server_output(struct mailq_server *s);
bool mailq_server_is_full(const struct mailq_server *s);

/* Whole lines of the answer, each with its line feed. */
void mailq_server_lines(struct mailq_server *s, struct slice lines);
/* All of them have been given. */
void mailq_server_done(struct mailq_server *s);

/* The answer to a question that changes something: was there anything to do it to? So many
 * recipients were not rerouted because they are being delivered. */
void mailq_server_verdict(struct mailq_server *s, bool done_something, uint64_t under_way);

/* No answer can come any more. What was begun is ended as its grammar demands, with a line that
 * says so where one can stand, because ZMailer's mailq waits for that end for ever, even when the
 * connection is closed. A session of version 2 goes on. */
void mailq_server_failed(struct mailq_server *s);

#endif
