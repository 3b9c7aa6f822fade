/*
 * Operations: requests of the control process to the queue process (WIRE_ASK), found by the member
 * "op". docs/api.md describes them. Operations that need only a spool are in listing.h. Other rooms
 * register theirs before the queue process begins.
 */
#ifndef QUEUE_OPERATION_H
#define QUEUE_OPERATION_H

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <jansson.h>

#include "buf.h"
#include "channel.h"
#include "wire.h"

struct inquiry;
struct queue;

/* Number of tables that can be registered. */
#define OPERATION_TABLES_MAX 8

struct operation {
    const char *op;

    /* Answers at once: puts the answer into *ret_answer and returns 200, or puts an error there and
     * returns its status, like listing_ask. */
    unsigned (*answer)(struct queue *q, const json_t *question, json_t **ret_answer);

    /* Answers with bytes, instead of `answer`: they go into *bytes, or a descriptor goes into
     * *ret_fd (-1 before the call). */
    unsigned (*bytes)(struct queue *q, const json_t *question, struct buf *bytes, int *ret_fd,
                      json_t **ret_answer);

    /* Answers later, instead of `answer`: returns 0 and calls operations_answer_later once with
     * `token`, or returns an error at once. */
    unsigned (*later)(struct queue *q, const json_t *question, uint64_t token, json_t **ret_answer);

    /* Plans an operation that concerns several nodes of a spool (inquiry.h); NULL if it concerns
     * this node only. Puts the question of each node into *in. Returns 0 to send the questions, 200
     * if *ret_answer is already complete, or an error. Each node, this one included, answers its
     * question with the functions above, for what it owns. */
    unsigned (*spread)(struct queue *q, const json_t *question, struct inquiry *in,
                       json_t **ret_answer);
};

/* Bits of tokens for questions between nodes: from another node, and from this node to itself. */
#define OPERATION_TOKEN_OTHER (UINT64_C(1) << 63)
#define OPERATION_TOKEN_SELF  (UINT64_C(1) << 62)

static inline bool operation_is_inner(uint64_t token)
{
    return (token & (OPERATION_TOKEN_OTHER | OPERATION_TOKEN_SELF)) != 0;
}

/* Registers a table, once; it is borrowed for the life of the process. */
void operations_register(const struct operation *operations, size_t count);

/* Answers a question for which `later` returned 0. Takes `answer`. Does nothing if the control
 * process has gone. */
void operations_answer_later(struct queue *q, uint64_t token, unsigned status, json_t *answer);

/* Questions that wait for data that the spool has not loaded. They are answered again when it is
 * loaded; after OPERATION_WAIT_US, or OPERATION_LOOKS_MAX attempts, with an error or the results so
 * far. */
#define OPERATIONS_WAIT_MAX 256
#define OPERATION_LOOKS_MAX 1000
#define OPERATION_WAIT_US   (30 * US_PER_S)
struct waiting_question {
    STAILQ_ENTRY(waiting_question) next;
    uint64_t token;
    struct wall asked; /* time of the question, to which ages refer in each attempt */
    struct mono until;
    uint64_t look; /* snapshot of the spool (spool_look_begin) */
    unsigned looks;
    char *json; /* owned */
    size_t len;
};
STAILQ_HEAD(waiting_questions, waiting_question);
void operations_at_hand(struct queue *q);
/* Answers the questions that have waited for too long. operations_wake_at returns when the next one
 * has. */
void operations_turn(struct queue *q);
struct mono operations_wake_at(const struct queue *q);
/* Drops the waiting questions of the control process, or all. */
void operations_drop(struct queue *q, bool all);

/* Answers a question of the control process. */
void operations_answer(struct queue *q, const struct wire_ask *ask);
/* Answers a question of another node; `json` may be anything. */
void operations_answer_inner(struct queue *q, uint64_t token, struct slice json);

#endif
