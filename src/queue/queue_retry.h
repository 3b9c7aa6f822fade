/*
 * Destinations whose clause has an interval: their mail is tried again together, at the time that
 * dest_retry.h finds, and is given up at the age that expiry.h finds.
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

/* The key that mail is parked under which waits for a destination's time; to be freed. */
char *queue_retry_key(const struct queue *q, const struct destination *destination);
/* Is it the one destination that is served, if there is only one (-p)? */
bool queue_retry_is_served(const struct queue *q, const struct destination *destination);
/* May mail of this message go to its destination now? May wake what waits for it, as new mail
 * does. */
bool queue_retry_lets_go(struct queue *q, const struct active_msg *m,
                         const struct destination *destination);
/* Does the recipient stay behind, because its destination does not let it go, or for its age? It
 * is then put off, or given up. */
bool queue_retry_keeps(struct queue *q, struct active_msg *m, struct active_rcpt *r,
                       struct destination *destination);

/* An agent has said that nothing goes to the destination now: what is in memory is put off, too. */
void queue_retry_suspend(struct queue *q, const struct destination *destination, struct wall until,
                         struct slice reason);

/* SCHED_DEFER for a destination with a time of retry; false: it has none. */
bool queue_retry_defers(struct queue *q, struct active_msg *m, const struct sched_action *action);

/* So many recipients were tried, and the scheduler knows. `destination` may be NULL. */
void queue_retry_note(struct queue *q, struct destination *destination, size_t tried);

/* Forget times of retry of destinations that have no mail left. */
void queue_retry_turn(struct queue *q);

/* Mail for this destination ("nexthop" or "transport/nexthop") was requested: its wait is over. */
void queue_retry_request(struct queue *q, struct slice wanted);

/* Go on with keys of which not all was at hand when they were woken. */
void queue_retry_wake_again(struct queue *q);

/* Mail that has a route to nowhere is kept, and is looked at again after a reload. Settles it. */
void queue_stuck(struct queue *q, struct active_msg *m, uint32_t n, const struct route *route,
                 const char *why);
void queue_try_stuck(struct queue *q);

#endif
