/*
 * The end of a message's pass: nothing of it is in the scheduler any more. What is left of it is
 * given up, reported, parked or deferred.
 *
 *   the scheduler is done with it --> pass_finish --> step in the batch --> pass_end_apply
 *                                         |
 *                                         +--> nothing happened to it: it is given back as it was
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

/* The scheduler is done with it: it leaves memory. `park_key` is taken: the message is to wait
 * under it. NULL: what was deferred says how it waits. */
void pass_finish(struct queue *q, struct active_msg *m, char *park_key);

/* Apply such a step to the spool. 0 or negative errno of it. */
int pass_end_apply(struct queue *q, struct msg_id id, const struct pass_end *e);
int pass_put_off_apply(struct queue *q, struct msg_id id, const struct put_off *p);

/* Recipients of a message that is in no pass go to the partitions of their routes, where they are
 * due at `due` at the latest; WALL_NEVER: as they are. */
int pass_move(struct queue *q, struct msg_id id, struct wall due);

/* How long a message is kept at most, from its creation on. */
int64_t pass_lifetime_us(const struct conf *conf, const struct spool_message *m);

/* When the report part of a message in parts is to be looked at though nothing was given to it:
 * when its sender is to be told of a delay. */
struct wall pass_report_due(const struct conf *conf, const struct spool_message *m);

/* When a message that is parked now is to be looked at again though its share is still taken: its
 * time to be tried again, and no later than its sender is to be told something. */
struct wall pass_parked_until(struct queue *q, const struct spool_message *m);

#endif
