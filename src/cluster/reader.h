/*
 * Questions to the database, one after the other, over lost connections.
 *
 * A question is some statements without effect, sent at once and answered in order. When the
 * connection is lost before all of it was answered it is asked again, whole, so that the same
 * answers may come twice. A statement that the database refuses counts as a lost connection, and so
 * does an answer of another form: nothing else is asked before it is right.
 */
#ifndef CLUSTER_READER_H
#define CLUSTER_READER_H

#include <stdbool.h>

#include <libpq-fe.h>

#include "committer.h"

/* Between two tries to connect. */
#define READER_AGAIN_US (200 * INT64_C(1000))
/* Questions that are sent and not answered. */
#define READER_SENT_MAX 4

/* A server that ends, or stands by now, refuses a statement, too: for a moment. */
#define READER_REFUSALS 5

struct reader;

struct reader_owner {
    /* Is the answer of another form than it should be, as a table is? Then say which, in `words` of
     * LINK_ERROR_MAX. NULL: any is taken. */
    bool (*misfits)(void *arg, void *question, unsigned n, const PGresult *result, char *words);
    /* The answer to the n-th statement of a question, from 0; lasts for the call. */
    void (*answer)(void *arg, void *question, unsigned n, const PGresult *result);
    /* All was answered, or the reader ends before (`answered` false): the question is forgotten. */
    void (*end)(void *arg, void *question, bool answered);
    /* Statements that are asked often, to be prepared (link_prepare); NULL behind the last; NULL:
     * none. */
    const char *const *prepared;
};

/* Borrows what link_new borrows. Connects at once. */
struct reader *reader_new(int epoll_fd, const struct link_target *target,
                          const struct reader_owner *owner, void *arg);
void reader_free(struct reader *r); /* NULL is fine */

/* Ask. Takes the statements; `question` is the owner's name for it, which comes with answers. */
void reader_ask(struct reader *r, struct committer_batch *statements, void *question);
/* How many have not ended. */
unsigned reader_count(const struct reader *r);

/* When the epoll descriptor is readable. Never waits. */
void reader_turn(struct reader *r);

bool reader_is_up(const struct reader *r);
const char *reader_error(const struct reader *r); /* of the last connection; or "" */

/* Why nothing can be asked, or the oldest question not be answered, READER_REFUSALS times one after
 * the other; or "". A server that is away is no reason. */
const char *reader_refusal(const struct reader *r);

#endif
