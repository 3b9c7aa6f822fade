/*
 * The end of a message's pass: the scheduler has no entry of the message left. Its pending
 * recipients expire, are parked or are deferred; bounces and notices are made.
 *
 *   the scheduler is done with it --> pass_finish --> step in the batch --> pass_end_apply
 *                                         |
 *                                         +--> no attempt was made: unclaimed, as it was
 *
 * Owns nothing.
 */
#ifndef QUEUE_PASS_END_H
#define QUEUE_PASS_END_H

#include <stdint.h>

#include "active.h"
#include "batch.h"
#include "conf.h"
#include "spool.h"
#include "times.h"

struct queue;

/* Ends a pass: the message leaves memory. Takes `park_key`, under which the message must wait;
 * NULL: its deferred recipients determine how it waits. */
void pass_finish(struct queue *q, struct active_msg *m, char *park_key);

/* Applies a step of a batch to the spool. Returns 0 or the spool's negative errno. */
int pass_end_apply(struct queue *q, struct msg_id id, const struct pass_end *e);
int pass_put_off_apply(struct queue *q, struct msg_id id, const struct put_off *p);

/* Moves recipients of a message that is in no pass to the partitions of their routes. There they
 * are due at `due` at the latest; WALL_NEVER leaves their time as it is. Returns 0 or a negative
 * errno. */
int pass_move(struct queue *q, struct msg_id id, struct wall due);

/* Returns the lifetime of a message, counted from its creation. */
int64_t pass_lifetime_us(const struct conf *conf, const struct spool_message *m);

/* Returns when the report part of a message must be read again even without results of its parts:
 * at the time of the delay notice, or after the lifetime of a message. */
struct wall pass_report_due(const struct conf *conf, const struct spool_message *m);

/* Returns when a message parked now must be read again though its destination's share is still
 * full: after its back-off, and before a delay notice or its expiry is due. */
struct wall pass_parked_until(struct queue *q, const struct spool_message *m);

#endif
