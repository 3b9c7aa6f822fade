/*
 * Decisions: what the scheduler says is to be done is done.
 *
 * Owns nothing.
 */
#ifndef QUEUE_QUEUE_DECIDE_H
#define QUEUE_QUEUE_DECIDE_H

struct queue;

/* Act on what the scheduler has decided, until there is nothing. While results wait to be stored,
 * or this node's lease is over, nothing new starts. */
void queue_decide(struct queue *q);

#endif
