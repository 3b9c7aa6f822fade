/*
 * Results of deliveries: decodes them, checks them against the deliveries, and settles them
 * (settlement.h).
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

/* Handles the body of a WIRE_RESULT frame. Returns false if it does not decode, or does not fit a
 * delivery that the agent has. */
bool queue_take_result(struct queue *q, const struct worker_process *agent, struct slice body);

/* Handles the result of an agent without a process; each recipient of the delivery has a
 * verdict. */
void queue_delivery_ended(struct queue *q, struct delivery *d, const struct wire_result *m);

/* Ends a delivery without a result. Its recipients are deferred, and not tried at once, so that a
 * message which makes an agent crash does not do so again and again. */
void queue_delivery_crashed(struct queue *q, struct delivery *d, const char *why);

/* Ends a delivery untried: its recipients are not settled, so the next pass finds them. */
void queue_delivery_untried(struct queue *q, struct delivery *d);

/* Returns an untried delivery to its place in the scheduler, from which it can begin again at
 * once. */
void queue_delivery_returned(struct queue *q, struct delivery *d);

/* Ends the delivery of an entry whose recipients another message has taken (WIRE_SUBMIT,
 * `replaces`), after the commit; or continues it, if the commit was undone. Does nothing if the
 * delivery has ended meanwhile. */
void queue_delivery_replaced(struct queue *q, uint64_t entry);
void queue_delivery_not_replaced(struct queue *q, uint64_t entry, bool is_agent_lost);
/* Does the message wait for a commit that replaces its recipients? Until then it must not
 * change. */
bool queue_is_replaced(struct queue *q, struct msg_id id);

/* Ends a delivery of a transport without agents: the verdict is in the next hop, or follows from
 * the kind of transport. */
void queue_delivery_here(struct queue *q, struct delivery *d);

#endif
