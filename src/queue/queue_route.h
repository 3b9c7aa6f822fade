/*
 * Routes of recipients: from the tables of the configuration, or fixed in the store.
 *
 * Owns nothing.
 */
#ifndef QUEUE_QUEUE_ROUTE_H
#define QUEUE_QUEUE_ROUTE_H

#include "active.h"
#include "conf.h"
#include "destination.h"
#include "route.h"

struct queue;
struct intervention;

/* Finds the route of a recipient and applies the overrides of operators (`interventions.h`).
 * *ret_pause is the pause that keeps the recipient, or NULL. `counts`: the recipient is handled
 * now, not only examined. A changed route is stored. `m` determines whether the mail was requested.
 *
 * Returns NULL if a route that the store has fixed can't be used; *ret_why is the reason.
 * *ret_route is set even then; its transport lives as long as the recipient. */
struct destination *queue_route(struct queue *q, const struct active_msg *m, struct active_rcpt *r,
                                bool counts, struct route *ret_route, const char **ret_why,
                                struct intervention **ret_pause);

/* Replaces the route of mail for defer_transports, so that it is deferred until it is requested.
 * queue_route calls this for routes from the tables. */
void queue_route_hold_back(const struct conf *conf, struct route *route);

/* Requeues a message, as if it were submitted now. Its pending recipients go first to the process
 * that applies rules and filters, from which they return as a new message. If another system's
 * store fixes routes, it is requeued as that store does it. Returns 0 or a negative errno of the
 * spool. */
int queue_requeue(struct queue *q, const struct spool_message *m);

#endif
