/*
 * Operations of the queue process for the dashboard:
 *
 *   "overview"   the values of "status", the oldest message of each state, destinations in trouble,
 *                and problems as texts
 *   "table"      destinations, on disk and in memory
 *   "classes"    classes of mail
 *
 * Answers are bounded, however much mail there is.
 */
#ifndef CONTROL_QUEUE_OVERVIEW_H
#define CONTROL_QUEUE_OVERVIEW_H

#include <jansson.h>

struct queue;

/* Adds the overview to an answer of "status". */
void overview_put(struct queue *q, json_t *status);

/* Returns this node's problems, as in "overview", leaving out those that all nodes share. */
json_t *overview_own_problems(struct queue *q);

/* Answers "table"; overview_classes answers "classes". Both return as listing_ask does. */
unsigned overview_table(struct queue *q, const json_t *question, json_t **ret_answer);
unsigned overview_classes(struct queue *q, const json_t *question, json_t **ret_answer);

#endif
