/*
 * One session of a mailq server, without I/O: version 1, which dumps the queue and ends, or version
 * 2, which has logins and commands.
 *
 * The owner has the socket and can query the queue:
 *
 *     for (;;) {
 *         mailq_server_next(s, &in, &event);      takes bytes off the front of `in`
 *         NEED_INPUT   feed more
 *         NEED_OUTPUT  send mailq_server_output(s) first
 *         NEED_AUTH    mailq_server_auth() with the current auth file, for a login
 *         ASK          answer event.question: mailq_server_lines() as often as needed, then
 *                      mailq_server_done(); or mailq_server_verdict(); or mailq_server_failed()
 *         CLOSE        send the remaining output, close
 *     }
 *
 * Only one question is outstanding at a time, and no input is read meanwhile, so a client can't
 * make the owner work faster than the client reads. Lines are passed in pieces: while
 * mailq_server_is_full() the owner waits, so a dump of a large queue costs no memory.
 *
 * The owner enforces the time limit (MAILQ_SESSION_S in all) and the number of sessions. Slices in
 * events are valid until the next call on the same session.
 */
#ifndef ZMAILER_MAILQ_SERVER_H
#define ZMAILER_MAILQ_SERVER_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "mailq_auth.h"
#include "mailq_counters.h"
#include "slice.h"

#define MAILQ_LINE_MAX     16384 /* longest command in bytes; a longer one ends the session */
#define MAILQ_OUTPUT_MAX   65536 /* bytes of unsent output above which the session is full */
#define MAILQ_SESSION_S    90
#define MAILQ_SESSIONS_MAX 21
#define MAILQ_LOGINS_MAX   10 /* failed logins before the session ends */

struct mailq_server;

enum mailq_question {
    MAILQ_ASK_DUMP,          /* version 1: the whole dump, from "Vertices:" to the totals */
    MAILQ_ASK_TOTALS,        /* SHOW SNMP */
    MAILQ_ASK_RINGS,         /* SHOW QUEUE SHORT */
    MAILQ_ASK_THREADS,       /* SHOW QUEUE THREADS */
    MAILQ_ASK_THREAD_FIELDS, /* SHOW QUEUE THREADS2 */
    MAILQ_ASK_THREAD,        /* SHOW THREAD channel host */
    MAILQ_ASK_COUNTERS,      /* SHOW COUNTERS */
    /* The rest change something and are answered with a verdict. */
    MAILQ_ASK_ETRN,        /* start the mail that waits for `host` */
    MAILQ_ASK_KILL_MSG,    /* remove the message `id` */
    MAILQ_ASK_KILL_THREAD, /* remove the mail that waits for channel/host */
    MAILQ_ASK_REROUTE,     /* find new routes for the mail that waits for channel/host */
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
    struct slice channel, host; /* names in THREAD, KILL_THREAD and REROUTE; `host` also in ETRN */
    struct slice id;            /* message in KILL_MSG */
    struct slice rest;          /* words after the host in ETRN; for the log */
    struct slice user;          /* user of the session; for the log; empty in version 1 */
};

/* Makes a session of version 1. */
struct mailq_server *mailq_server_new_v1(void);
bool mailq_server_is_v1(const struct mailq_server *s);

/* Makes a session of version 2. `auth` decides whether the client is greeted; it is borrowed until
 * mailq_server_auth replaces it. `moment` is unique text for the challenge,
 * "SECONDS.MICROSECONDS.COUNTER". `nonce` is fresh random text for SCRAM, 16 to 200 printable bytes
 * without commas. The session counts in `counts`, which is borrowed, too. */
struct mailq_server *mailq_server_new(const struct mailq_auth *auth, const struct mailq_peer *peer,
                                      const char *moment, const char *nonce,
                                      struct mailq_counts *counts);
void mailq_server_free(struct mailq_server *s);

void mailq_server_next(struct mailq_server *s, struct buf *in, struct mailq_event *ret_event);

/* Sets the current auth file, after MAILQ_NEED_AUTH. `auth` is borrowed until the next call or the
 * session's end; the previous one is no longer used. */
void mailq_server_auth(struct mailq_server *s, const struct mailq_auth *auth);

/* Reports that the client will send nothing more. */
void mailq_server_input_ended(struct mailq_server *s);

/* Returns the unsent output; the owner consumes the bytes that it has sent. */
struct buf *mailq_server_output(struct mailq_server *s);
bool mailq_server_is_full(const struct mailq_server *s);

/* Appends whole lines of the answer, each with its line feed. */
void mailq_server_lines(struct mailq_server *s, struct slice lines);
/* Ends the answer. */
void mailq_server_done(struct mailq_server *s);

/* Answers a question that changes something. `done_something`: there was mail to change.
 * `under_way` is the number of recipients that were not rerouted because they are being
 * delivered. */
void mailq_server_verdict(struct mailq_server *s, bool done_something, uint64_t under_way);

/* Reports that no answer is available. An answer that was begun is ended as its grammar demands,
 * with a line about the failure where one is allowed. ZMailer's mailq waits for that end for ever,
 * even after the connection is closed. A session of version 2 goes on. */
void mailq_server_failed(struct mailq_server *s);

#endif
