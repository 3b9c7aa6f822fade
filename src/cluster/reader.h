/*
 * Reader: queries, one after the other, despite lost connections.
 *
 * A question is a group of statements without side effects, which are sent at once and answered in
 * their order. If the connection is lost before all answers, the whole question is sent again, so
 * an answer may come twice. A statement that the database refuses, or a result of another form than
 * expected, counts as a lost connection; no later question is sent before that is repaired.
 */
#ifndef CLUSTER_READER_H
#define CLUSTER_READER_H

#include <stdbool.h>

#include <libpq-fe.h>

#include "committer.h"

/* Time between two attempts to connect. */
#define READER_AGAIN_US (200 * INT64_C(1000))
/* Number of questions in flight. */
#define READER_SENT_MAX 4

/* Number of refusals in a row that are reported, as a server that stops or becomes a standby also
 * refuses statements for a moment. */
#define READER_REFUSALS 5

struct reader;

struct reader_owner {
    /* Has the result another form than expected, as the table is wrong? If so, writes the fault to
     * `words` of LINK_ERROR_MAX bytes. NULL: all results are accepted. */
    bool (*misfits)(void *arg, void *question, unsigned n, const PGresult *result, char *words);
    /* Receives the result of the n-th statement of a question, from 0; valid during the call. */
    void (*answer)(void *arg, void *question, unsigned n, const PGresult *result);
    /* Ends a question: `answered` is false if the reader is freed before all answers. */
    void (*end)(void *arg, void *question, bool answered);
    /* Frequent statements, which are prepared (link_prepare). Ends with NULL; NULL for none. */
    const char *const *prepared;
};

/* Creates the reader and begins to connect. Borrows what link_new borrows. */
struct reader *reader_new(int epoll_fd, const struct link_target *target,
                          const struct reader_owner *owner, void *arg);
void reader_free(struct reader *r); /* NULL is allowed */

/* Sends a question; takes the statements. `question` is passed to the callbacks. */
void reader_ask(struct reader *r, struct committer_batch *statements, void *question);
/* Returns the number of questions that have not ended. */
unsigned reader_count(const struct reader *r);

/* Handles the connection without waiting; must be called when the epoll descriptor is readable. */
void reader_turn(struct reader *r);

bool reader_is_up(const struct reader *r);
const char *reader_error(const struct reader *r); /* error of the last connection, or "" */

/* Returns the reason why the oldest question, or the connection, was refused READER_REFUSALS times
 * in a row, or "". A server that is away is not a refusal. */
const char *reader_refusal(const struct reader *r);

#endif
