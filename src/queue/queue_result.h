/*
 * Results of deliveries: decoded, checked against what was handed out, and settled (settlement.h).
 *
 * Owns nothing.
 */
#ifndef QUEUE_QUEUE_RESULT_H
#define QUEUE_QUEUE_RESULT_H

#include <stdbool.h>

#include "active.h"
#include "slice.h"
#include "wire.h"

struct worker_process;
struct queue;

/* The body of a WIRE_RESULT frame. False: it does not decode, or does not fit what the agent has
 * been given. */
bool queue_take_result(struct queue *q, const struct worker_process *agent, struct slice body);

/* The same of agents that the queue process talks to by itself: each recipient of the delivery has
 * its verdict. */
void queue_delivery_ended(struct queue *q, struct delivery *d, const struct wire_result *m);

/* A delivery ended without a word from its agent. The recipients are deferred, not tried at once: a
 * message that makes an agent crash must not do so again and again. */
void queue_delivery_crashed(struct queue *q, struct delivery *d, const char *why);

/* What was handed out comes back as it was: it is not settled, so the next pass finds it. */
void queue_delivery_untried(struct queue *q, struct delivery *d);

/* The same, where it can go out again at once: it goes back to its place in the scheduler. */
void queue_delivery_returned(struct queue *q, struct delivery *d);

/* Its transport needs no agent: the verdict is in the next hop, or in the transport's nature. */
void queue_delivery_here(struct queue *q, struct delivery *d);

#endif
