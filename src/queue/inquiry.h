/*
 * An inquiry: a request of the control process that several nodes with a common spool must answer
 * (spool_others.h).
 *
 * Each node answers for its own partitions. The node that got the request sends a question to all
 * owners concerned, including itself, and combines their answers:
 *
 *     operation.spread --> inquiry: items, each with its open partitions
 *         open partitions: their owners get one question each, with the ids of their items
 *         an answer lists the partitions that its node owned then: these are no longer open
 *         an owner that dies is not waited for: the next owner of its partitions gets the question
 *     nothing is open, and the answers do not fit together --> operation.spread, again
 *     nothing is open, or INQUIRY_US are over --> operations_answer_later
 *
 * So a question may be carried out twice, and must allow that. No call waits; the queue process
 * continues meanwhile. Other nodes may send anything: an answer that can't be decoded counts as an
 * error.
 *
 * A question between nodes has the form of an API request, and may have members that the API
 * refuses: ids, and the filter that selected them. Its token marks it as inner
 * (operation_is_inner).
 */
#ifndef QUEUE_INQUIRY_H
#define QUEUE_INQUIRY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <jansson.h>

#include "spool_others.h"
#include "times.h"

struct queue;
struct operation;

/* Inquiries at a time; further ones are refused with 503. */
#define INQUIRIES_MAX 64
/* Time for the answers of owners: longer than it takes to replace a dead node. */
#define INQUIRY_US (15 * US_PER_S)
/* Wait before a node whose answer has left an item open gets another question. */
#define INQUIRY_AGAIN_US (300 * US_PER_MS)
/* Highest number of repetitions, INQUIRY_AGAIN_US apart, for mail that moves during the inquiry. */
#define INQUIRY_LOOKS_MAX 10

struct inquiry_item {
    char id[SPOOL_ID_TEXT_MAX]; /* id of a message; empty: about no message */
    struct spool_places open;   /* partitions for which no node has answered yet */
    uint64_t nodes;             /* nodes that must answer, whatever they own; bits */
    uint64_t asked;             /* nodes with an unanswered question about this item; bits */
};

struct inquiry {
    TAILQ_ENTRY(inquiry) next;
    uint64_t token; /* token of the control process */
    const struct operation *operation;
    json_t *put;                /* owned; the request */
    unsigned looks;             /* number of repetitions */
    uint64_t look;              /* snapshot of the current `spread` (spool_look_begin); 0: none */
    struct mono look_at;        /* time of the next `spread`; MONO_NEVER: it is done */
    json_t *question;           /* owned; the question to nodes */
    bool lists_ids;             /* a question has "ids", those of its items */
    struct inquiry_item *items; /* owned */
    size_t item_count, item_size;
    json_t *answer;                 /* owned; answers combined so far; an object */
    json_t *notes;                  /* owned; for the functions below; may be NULL */
    unsigned status;                /* HTTP status of `answer` */
    bool is_enough;                 /* no further answer is needed; set by `merge` */
    uint64_t heard;                 /* nodes that have answered; bits */
    uint32_t asks[SPOOL_NODES_MAX]; /* tokens of unanswered questions; 0: none */
    struct mono again[SPOOL_NODES_MAX];
    struct mono until;
    char why_not[400]; /* reason why a node could not be asked */

    /* Adds the answer of a node to in->answer. The node was asked about items with its bit in
     * `asked`. */
    void (*merge)(struct inquiry *in, int node, const char *name, unsigned status, json_t *answer);
    /* Handles an item for which answers are missing; `words` is the reason. */
    void (*failed)(struct inquiry *in, const struct inquiry_item *item, const char *words);
    /* Do the answers fit together? If not, their mail has moved meanwhile. NULL: always. */
    bool (*is_whole)(const struct inquiry *in);
    /* Completes the answer. NULL: nothing to do. */
    void (*finish)(struct inquiry *in);
};

TAILQ_HEAD(inquiry_list, inquiry);

/* A question from a node, itself included, that is being answered here. */
struct inner_question {
    TAILQ_ENTRY(inner_question) next;
    uint64_t token;
    struct spool_places own; /* partitions owned when it was carried out */
};
TAILQ_HEAD(inner_questions, inner_question);

struct inquiries {
    struct inquiry_list list;
    unsigned count;
    uint32_t last_token;
    struct inner_questions inner;
};

void inquiries_init(struct inquiries *is);
void inquiries_fini(struct queue *q);
/* Drops all inquiries, because the control process is gone. */
void inquiries_drop(struct queue *q);

/* Begins an inquiry with the items from operation->spread. Parameters and result as `later` of
 * operation.h. */
unsigned inquiry_begin(struct queue *q, const struct operation *operation, const json_t *question,
                       uint64_t token, json_t **ret_answer);

/* Adds an item, for operation->spread; `id` 0: about no message. */
struct inquiry_item *inquiry_add(struct inquiry *in, struct msg_id id);
/* Marks all partitions as open, or all nodes that are up. */
void inquiry_open_all(struct inquiry_item *item);
void inquiry_open_nodes(const struct queue *q, struct inquiry_item *item);
bool inquiry_item_is_open(const struct inquiry_item *item);

/* Adds a text to the member "failed" of the answer, which also has the answers of other nodes:
 * `words`, or the error in a node's answer. The last one is a function for inquiry.failed. */
void inquiry_add_failed(struct inquiry *in, const char *words);
void inquiry_add_refusal(struct inquiry *in, const char *name, const json_t *answer);
void inquiry_some_failed(struct inquiry *in, const struct inquiry_item *item, const char *words);

/* Handles the messages of other nodes, and sends due questions. Call it once per turn. */
void inquiries_turn(struct queue *q);
/* Returns the time of the next inquiries_turn, even without messages. */
struct mono inquiries_wake_at(const struct queue *q);

/* ---- for operation.c ------------------------------------------------------------------------- */

/* Notes the partitions of this node, because an inner question is carried out now. */
void inquiry_carried_out(struct queue *q, uint64_t token);
/* Sends the answer of an inner question; `answer` is taken. */
void inquiry_answer_inner(struct queue *q, uint64_t token, unsigned status, json_t *answer);

#endif
