/*
 * Destinations whose clause has an interval: their mail is tried again together, at the time that
 * dest_retry.h computes, and expires at the age that expiry.h computes.
 *
 * Owns nothing; a destination owns its time.
 */
#ifndef QUEUE_QUEUE_RETRY_H
#define QUEUE_QUEUE_RETRY_H

#include <stdbool.h>
#include <stddef.h>

#include "active.h"
#include "destination.h"
#include "route.h"
#include "scheduler.h"
#include "slice.h"
#include "times.h"

struct queue;

/* Returns the key of parked mail that waits for a destination's time; the caller frees it. */
char *queue_retry_key(const struct queue *q, const struct destination *destination);
/* Is the destination served? With deliver_only (-p) only matching ones are. */
bool queue_retry_is_served(const struct queue *q, const struct destination *destination);
/* Does mail of this message go to its destination now? May also wake the mail that waits for the
 * destination, as new mail does. */
bool queue_retry_lets_go(struct queue *q, const struct active_msg *m,
                         const struct destination *destination);
/* Is the recipient kept from the scheduler, because its destination must wait, or because of its
 * age? It is then deferred or expires here. */
bool queue_retry_keeps(struct queue *q, struct active_msg *m, struct active_rcpt *r,
                       struct destination *destination);

/* Postpones a destination after an agent's report that no mail must go there now; its mail in
 * memory is deferred, too. */
void queue_retry_suspend(struct queue *q, const struct destination *destination, struct wall until,
                         struct slice reason);

/* Handles SCHED_DEFER for a destination with an interval. Returns false if it has none. */
bool queue_retry_defers(struct queue *q, struct active_msg *m, const struct sched_action *action);

/* Counts recipients that were tried, after the scheduler has their results. `destination` may be
 * NULL. */
void queue_retry_note(struct queue *q, struct destination *destination, size_t tried);

/* Drops the retry times of destinations that have no mail left. */
void queue_retry_turn(struct queue *q);

/* Ends the wait of a destination ("nexthop" or "transport/nexthop") whose mail was requested. */
void queue_retry_request(struct queue *q, struct slice wanted);

/* Repeats the wake of keys for which the spool had not loaded all mail. */
void queue_retry_wake_again(struct queue *q);

/* Settles a recipient whose route has no usable agent: parks the recipient until a reload, with the
 * reason `why`. */
void queue_stuck(struct queue *q, struct active_msg *m, uint32_t n, const struct route *route,
                 const char *why);
void queue_try_stuck(struct queue *q);

#endif
