/*
 * Facts about destinations (spool_handover.h) that move with their partition from node to node:
 * dead destinations with their times, and running rate delays. The scheduler has them
 * (sched_suspend). Idle connections for destinations of a partition that leaves are closed.
 */
#ifndef QUEUE_QUEUE_HANDOVER_H
#define QUEUE_QUEUE_HANDOVER_H

struct queue;

/* Registers the source of the facts with the spool, which uses it until it is closed. Called when
 * scheduler and transports exist. */
void queue_hand_over(struct queue *q);

/* Closes idle connections for destinations of other nodes, after the routing tables have
 * changed. */
void queue_leave_elsewhere(struct queue *q);

/* Takes over facts that have arrived, and closes idle connections for partitions that leave; in
 * each turn, before mail is claimed. No time is longer than this node's own parameters allow. */
void queue_take_over(struct queue *q);

#endif
