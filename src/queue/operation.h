/*
 * Operations: what the control process can ask of the queue process (WIRE_ASK), by "op" of the
 * question. docs/api.md describes them. Those that need no more than a spool are in listing.h; the
 * others are registered before the queue process begins, by those who know the answers.
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

/* Tables that can be registered. */
#define OPERATION_TABLES_MAX 8

struct operation {
    const char *op;

    /* The answer is *ret_answer, or, when the status that is returned is not 200, an error; as
     * listing_ask. */
    unsigned (*answer)(struct queue *q, const json_t *question, json_t **ret_answer);

    /* In its place, when the answer has bytes beside it: in *bytes, or in *ret_fd (-1 before). */
    unsigned (*bytes)(struct queue *q, const json_t *question, struct buf *bytes, int *ret_fd,
                      json_t **ret_answer);

    /* In its place, when the answer may come later: 0, and operations_answer_later is called once
     * with `token`, or an error at once. */
    unsigned (*later)(struct queue *q, const json_t *question, uint64_t token, json_t **ret_answer);

    /* Other nodes may have a part in it, where several share the spool (inquiry.h): what is asked
     * of whom, into *in. 0: it goes on; 200: the answer, as no other has to be asked; else an
     * error. What is asked of a node, this one included, is answered by the functions above, of
     * what it owns. */
    unsigned (*spread)(struct queue *q, const json_t *question, struct inquiry *in,
                       json_t **ret_answer);
};

/* Tokens of questions that are not the control process's, but between nodes: put by another, by
 * this one to itself. */
#define OPERATION_TOKEN_OTHER (UINT64_C(1) << 63)
#define OPERATION_TOKEN_SELF  (UINT64_C(1) << 62)

static inline bool operation_is_inner(uint64_t token)
{
    return (token & (OPERATION_TOKEN_OTHER | OPERATION_TOKEN_SELF)) != 0;
}

/* The table is borrowed for good. Once for each. */
void operations_register(const struct operation *operations, size_t count);

/* The answer to a question whose `later` was 0; `answer` is taken. Where the control process is not
 * there any more nothing happens. */
void operations_answer_later(struct queue *q, uint64_t token, unsigned status, json_t *answer);

/* Questions that wait for what the spool has not at hand: they are answered anew then, and after
 * that time with what there is: an error, or what was done so far. */
#define OPERATIONS_WAIT_MAX 256
#define OPERATION_LOOKS_MAX 1000
#define OPERATION_WAIT_US   (30 * US_PER_S)
struct waiting_question {
    STAILQ_ENTRY(waiting_question) next;
    uint64_t token;
    struct wall asked; /* ages are as of then: the same is asked of the spool with each look */
    struct mono until;
    uint64_t look; /* of the spool (spool_look_begin) */
    unsigned looks;
    char *json; /* owned */
    size_t len;
};
STAILQ_HEAD(waiting_questions, waiting_question);
void operations_at_hand(struct queue *q);
/* Answer those that have waited for too long; operations_wake_at says when the next one has. */
void operations_turn(struct queue *q);
struct mono operations_wake_at(const struct queue *q);
/* Those of the control process are forgotten, or all. */
void operations_drop(struct queue *q, bool all);

/* Answer one question of the control process. */
void operations_answer(struct queue *q, const struct wire_ask *ask);
/* Answer one between nodes; `json` may be anything. */
void operations_answer_inner(struct queue *q, uint64_t token, struct slice json);

#endif
