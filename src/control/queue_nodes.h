/*
 * Where several nodes share the spool (spool_others.h): what they have in memory, put together of
 * what each says of its own, whichever is asked.
 *
 *     "cluster"                   a row for each node that there is, sums, what is wrong where
 *     "list", "count" of mail     messages that are in the memory of any node; one in parts, which
 *      in the state "active"      may be at several, is one
 *
 * A node that does not answer in time is named under "failed", with what is missing therefore.
 * Answers of nodes may be anything; what is no number, or no text, of ours is left out.
 */
#ifndef CONTROL_QUEUE_NODES_H
#define CONTROL_QUEUE_NODES_H

#include <jansson.h>

struct inquiry;
struct queue;

/* What nodes have to answer within, as pages of the dashboard and `sluice status` wait for it. */
#define NODES_US (3 * US_PER_S)

/* The numbers of this node's memory, and since its start, by name. */
void nodes_put_counts(const struct queue *q, json_t *object);

/* As operation.h. */
unsigned nodes_answer(struct queue *q, const json_t *question, json_t **ret_answer);
unsigned nodes_spread(struct queue *q, const json_t *question, struct inquiry *in,
                      json_t **ret_answer);
unsigned nodes_list(struct queue *q, const json_t *question, json_t **ret_answer);
unsigned nodes_list_spread(struct queue *q, const json_t *question, struct inquiry *in,
                           json_t **ret_answer);

#endif
