/*
 * Answers of the mailq protocols: requests pages from the queue process and formats them with
 * mailq_text.h.
 *
 *     MAILQ_ASK --> mailq_answer_begin --> question to the queue process
 *                      ^                        |
 *                      |                        v
 *             mailq_answer_go_on <-- progress: lines were given to the server's engine
 *
 * The next page is requested when the session has sent enough of the previous one, so neither a
 * long queue nor a slow client costs memory.
 */
#ifndef ZMAILER_MAILQ_ANSWER_H
#define ZMAILER_MAILQ_ANSWER_H

#include <stdbool.h>

#include "control.h"
#include "mailq_server.h"
#include "role.h"
#include "times.h"

struct mailq_answer;

/* Called from the event loop when there is more to send. May free the answer. */
typedef void mailq_answer_progress(void *arg);

/* Sources of answers next to the queue process. All pointers are borrowed. */
struct mailq_facts {
    struct role *role;
    struct control *control;
    struct wall started; /* start of the daemon */
    int64_t daemon_pid;
    struct mailq_counts counts;
};

/* Returns the answers of one session. `server` is the session's engine; it and `facts` are
 * borrowed. */
struct mailq_answer *mailq_answer_new(const struct mailq_facts *facts, struct mailq_server *server,
                                      mailq_answer_progress *progress, void *arg);
void mailq_answer_free(struct mailq_answer *a);

/* Begins the answer to the question of `event`. Ends with mailq_server_done, mailq_server_verdict
 * or, if the queue process ends, mailq_server_failed. */
void mailq_answer_begin(struct mailq_answer *a, const struct mailq_event *event);

/* Requests the next page if it is time. */
void mailq_answer_go_on(struct mailq_answer *a);

bool mailq_answer_is_busy(const struct mailq_answer *a);

/* Is a request to the queue process outstanding? Then `progress` will be called. */
bool mailq_answer_waits(const struct mailq_answer *a);

#endif
