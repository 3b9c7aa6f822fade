/*
 * What the dashboard asks of the queue process: "overview" (what "status" has, the oldest message
 * by state, the destinations in trouble, and what is wrong, in words), "table" (destinations, from
 * disk and memory) and "classes". Bounded answers, however much mail there is.
 */
#ifndef CONTROL_QUEUE_OVERVIEW_H
#define CONTROL_QUEUE_OVERVIEW_H

#include <jansson.h>

struct queue;

/* Add to what "status" has answered. */
void overview_put(struct queue *q, json_t *status);

/* What is wrong here, of what each node of several has its own: problems as in "overview". */
json_t *overview_own_problems(struct queue *q);

/* As listing_ask. */
unsigned overview_table(struct queue *q, const json_t *question, json_t **ret_answer);
unsigned overview_classes(struct queue *q, const json_t *question, json_t **ret_answer);

#endif
