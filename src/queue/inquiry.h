/*
 * An inquiry: a question of the control process in which other nodes have a part, where several
 * share the spool (spool_others.h).
 *
 * Each node can do and knows what lies in its own partitions. So the one that was asked puts the
 * question to all owners concerned, itself among them, and puts the answers together:
 *
 *     operation.spread --> inquiry: items, each with the partitions that are open still
 *         open ones are asked of their owner: one question for a node, with the ids of its items
 *         its answer says which partitions it owned when it answered: these are not open any more
 *         an owner that dies is not waited for: its partitions are asked of who gets them
 *     nothing is open, and the answers do not make a whole --> operation.spread, again
 *     nothing is open, or INQUIRY_US are over --> operations_answer_later
 *
 * A question may so be carried out twice: each must be one that does no harm then. Nothing waits
 * here; the queue process goes on. What comes from other nodes may be anything: an answer that
 * makes no sense is one that says so.
 *
 * A question between nodes is one of the API, and may have what the API refuses (ids and the filter
 * that they were found by). Operations know it by its token (operation_is_inner).
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

/* More are told to come back. */
#define INQUIRIES_MAX 64
/* Until then owners must have answered: longer than it takes until a dead one is replaced. */
#define INQUIRY_US (15 * US_PER_S)
/* A node whose answer has left something open is asked again after this. */
#define INQUIRY_AGAIN_US (300 * US_PER_MS)
/* What moves while it is asked for is asked for anew after the same, so often. */
#define INQUIRY_LOOKS_MAX 10

struct inquiry_item {
    char id[SPOOL_ID_TEXT_MAX]; /* of a message; empty: it is about none */
    struct spool_places open;   /* no node has answered for these yet */
    uint64_t nodes;             /* or these nodes have not, whatever they own: a bit for each */
    uint64_t asked;             /* nodes that are being asked for it, likewise */
};

struct inquiry {
    TAILQ_ENTRY(inquiry) next;
    uint64_t token; /* the control process's */
    const struct operation *operation;
    json_t *put;                /* owned: the question, as it was put */
    unsigned looks;             /* how often whom to ask was found out */
    uint64_t look;              /* .. that it is being found out in (spool_look_begin); or 0 */
    struct mono look_at;        /* when it is to be found out again; MONO_NEVER: it is known */
    json_t *question;           /* owned: what nodes are asked */
    bool lists_ids;             /* with "ids", those of its items */
    struct inquiry_item *items; /* owned */
    size_t item_count, item_size;
    json_t *answer;                 /* owned: as far as it is known; an object */
    json_t *notes;                  /* owned: for the functions below; or NULL */
    unsigned status;                /* of that */
    bool is_enough;                 /* the rest need not be waited for; set by `merge` */
    uint64_t heard;                 /* nodes that have answered: a bit for each */
    uint32_t asks[SPOOL_NODES_MAX]; /* tokens of questions under way; 0: none */
    struct mono again[SPOOL_NODES_MAX];
    struct mono until;
    char why_not[400]; /* a node could not be asked */

    /* Take the answer of a node into in->answer. Items whose `asked` has its bit were asked. */
    void (*merge)(struct inquiry *in, int node, const char *name, unsigned status, json_t *answer);
    /* No node has answered for this item, or all of it; why, in words. */
    void (*failed)(struct inquiry *in, const struct inquiry_item *item, const char *words);
    /* Do the answers make a whole? False: what they are about has moved. NULL: they do. */
    bool (*is_whole)(const struct inquiry *in);
    /* All is there. NULL: nothing more is to be done. */
    void (*finish)(struct inquiry *in);
};

TAILQ_HEAD(inquiry_list, inquiry);

/* A question between nodes that is being answered here. */
struct inner_question {
    TAILQ_ENTRY(inner_question) next;
    uint64_t token;
    struct spool_places own; /* when it was carried out */
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
/* The control process has gone: they are not waited for. */
void inquiries_drop(struct queue *q);

/* Begin one, as `later` of operation.h: what operation->spread fills in. */
unsigned inquiry_begin(struct queue *q, const struct operation *operation, const json_t *question,
                       uint64_t token, json_t **ret_answer);

/* For operation->spread: an item; `id` 0: it is about no message. */
struct inquiry_item *inquiry_add(struct inquiry *in, struct msg_id id);
/* All partitions; all nodes that are up. */
void inquiry_open_all(struct inquiry_item *item);
void inquiry_open_nodes(const struct queue *q, struct inquiry_item *item);
bool inquiry_item_is_open(const struct inquiry_item *item);

/* What a node could not be asked for, in the member "failed" of the answer, beside what others have
 * said: in words; as an error that it has answered; as inquiry.failed. */
void inquiry_add_failed(struct inquiry *in, const char *words);
void inquiry_add_refusal(struct inquiry *in, const char *name, const json_t *answer);
void inquiry_some_failed(struct inquiry *in, const struct inquiry_item *item, const char *words);

/* Once a turn: what has come from other nodes, and what is to be asked now. */
void inquiries_turn(struct queue *q);
/* When to look again, though nothing comes. */
struct mono inquiries_wake_at(const struct queue *q);

/* ---- for operation.c ------------------------------------------------------------------------- */

/* An inner question is carried out now. */
void inquiry_carried_out(struct queue *q, uint64_t token);
/* Its answer, which is taken. */
void inquiry_answer_inner(struct queue *q, uint64_t token, unsigned status, json_t *answer);

#endif
