/*
 * Operation "metrics" of the queue process: what "status" has, and beside it what only monitoring
 * asks for. metrics.h makes text of it.
 */
#ifndef CONTROL_QUEUE_MEASURES_H
#define CONTROL_QUEUE_MEASURES_H

#include <jansson.h>

struct queue;

/* Add "outcomes", "delays", "commit_time", "batch_steps", "oldest" (by state, when its oldest
 * message arrived), "named" (the destinations of metrics_destinations), "cpu_seconds" and
 * "heap_bytes" to what "status" has answered. */
void measures_put(struct queue *q, json_t *status);

/* When the oldest message of each state arrived, by its name; no member: there is none. */
json_t *measures_oldest(struct queue *q);

/* CPU time and memory from malloc of the process that calls. */
void measures_put_process(json_t *object);

#endif
