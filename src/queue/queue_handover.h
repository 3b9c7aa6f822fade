/*
 * What is known of destinations goes with their partition to another node, and comes with one from
 * there (spool_handover.h): those that are dead until a time, and rate delays that run. The
 * scheduler has them (sched_suspend). Connections that are kept for destinations of a partition
 * that leaves are closed.
 */
#ifndef QUEUE_QUEUE_HANDOVER_H
#define QUEUE_QUEUE_HANDOVER_H

struct queue;

/* When scheduler and transports are there: the spool may ask for them until it is closed. */
void queue_hand_over(struct queue *q);

/* The routing tables are others: what is kept for destinations that lie at other nodes now. */
void queue_leave_elsewhere(struct queue *q);

/* In each turn, before mail is claimed: what has come, and what leaves. No time is longer than this
 * node's own parameters could have made it. */
void queue_take_over(struct queue *q);

#endif
