/*
 * The answers of the mailq protocols: what the queue process knows, asked a page at a time, in the
 * words of mailq_text.h.
 *
 *     MAILQ_ASK --> mailq_answer_begin --> question to the queue process
 *                      ^                        |
 *                      |                        v
 *             mailq_answer_go_on <-- progress: lines were given to the server's engine
 *
 * The next page is asked for when the session has sent enough of the one before, so neither a long
 * queue nor a slow client costs memory.
 */
#ifndef ZMAILER_MAILQ_ANSWER_H
#define ZMAILER_MAILQ_ANSWER_H

#include <stdbool.h>

#include "control.h"
#include "mailq_server.h"
#include "role.h"
#include "times.h"

struct mailq_answer;

/* From the loop: there is more to send. May free the answer. */
typedef void mailq_answer_progress(void *arg);

/* What answers are made of besides. All is borrowed. */
struct mailq_facts {
    struct role *role;
    struct control *control;
    struct wall started; /* the daemon */
    int64_t daemon_pid;
    struct mailq_counts counts;
};

/* For one session: `server` is its engine, borrowed as `facts` are. */
struct mailq_answer *mailq_answer_new(const struct mailq_facts *facts, struct mailq_server *server,
                                      mailq_answer_progress *progress, void *arg);
void mailq_answer_free(struct mailq_answer *a);

/* Begin to answer what `event` asks; ends with mailq_server_done, mailq_server_verdict or, when the
 * queue process goes away, mailq_server_failed. */
void mailq_answer_begin(struct mailq_answer *a, const struct mailq_event *event);

/* Ask for the next page if it is time. */
void mailq_answer_go_on(struct mailq_answer *a);

bool mailq_answer_is_busy(const struct mailq_answer *a);

/* Busy, and the queue process has been asked: `progress` will be called. */
bool mailq_answer_waits(const struct mailq_answer *a);

#endif
