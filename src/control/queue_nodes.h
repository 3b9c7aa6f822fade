/*
 * Data in the memory of all nodes of a shared spool (spool_others.h). The node that gets the query
 * combines the answers of all nodes.
 *
 *     "cluster"                   a row for each node, sums, and the problems of each node
 *     "list", "count" of mail     messages in the memory of any node; a message in parts, which
 *      in the state "active"      may be at several nodes, is one
 *
 * A node that does not answer in time is named under "failed", with the data that are missing.
 * Answers of nodes are not trusted: a value that is not a valid number or text is left out.
 */
#ifndef CONTROL_QUEUE_NODES_H
#define CONTROL_QUEUE_NODES_H

#include <jansson.h>

struct inquiry;
struct queue;

/* Time for nodes to answer; pages of the dashboard and `sluice status` wait for it. */
#define NODES_US (3 * US_PER_S)

/* Adds the numbers of this node's memory, and its counts since the start, by name. */
void nodes_put_counts(const struct queue *q, json_t *object);

/* Answers "cluster" for this node alone. The other functions answer it for all nodes, and "list"
 * and "count" for this node and for all (operation.h). */
unsigned nodes_answer(struct queue *q, const json_t *question, json_t **ret_answer);
unsigned nodes_spread(struct queue *q, const json_t *question, struct inquiry *in,
                      json_t **ret_answer);
unsigned nodes_list(struct queue *q, const json_t *question, json_t **ret_answer);
unsigned nodes_list_spread(struct queue *q, const json_t *question, struct inquiry *in,
                           json_t **ret_answer);

#endif
