/*
 * Operation "metrics" of the queue process: the values of "status", and further ones for monitoring
 * only. metrics.h prints them.
 */
#ifndef CONTROL_QUEUE_MEASURES_H
#define CONTROL_QUEUE_MEASURES_H

#include <jansson.h>

struct queue;

/* Adds to an answer of "status": "outcomes", "delays", "commit_time", "batch_steps", "oldest"
 * (arrival of the oldest message of each state), "named" (the destinations of
 * metrics_destinations), "cpu_seconds" and "heap_bytes". */
void measures_put(struct queue *q, json_t *status);

/* Returns the arrival of the oldest message of each state, by the name of the state, without states
 * that have no mail. */
json_t *measures_oldest(struct queue *q);

/* Adds the CPU time and the heap size of the calling process. */
void measures_put_process(json_t *object);

#endif
