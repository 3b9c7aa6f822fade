/*
 * Decisions: carries out what the scheduler decides.
 *
 * Owns nothing.
 */
#ifndef QUEUE_QUEUE_DECIDE_H
#define QUEUE_QUEUE_DECIDE_H

struct queue;

/* Carries out decisions until there are no more. While results wait to be stored, or this node's
 * lease is over, nothing new starts. */
void queue_decide(struct queue *q);

#endif
