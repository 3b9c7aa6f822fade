/*
 * Where a recipient goes: by the tables of the configuration, or where its store says.
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

/* Where a recipient goes, with what operators have decided of it (interventions.h): *ret_pause is
 * the pause that keeps it, or NULL. `counts`: it is handled now, not only looked at. Its route is
 * stored if that has changed. `m` says if it was asked for.
 * NULL when it goes nowhere: *ret_why then says why, which happens to routes that the store has
 * fixed; *ret_route is set all the same, its transport then lasting as long as the recipient. */
struct destination *queue_route(struct queue *q, const struct active_msg *m, struct active_rcpt *r,
                                bool counts, struct route *ret_route, const char **ret_why,
                                struct intervention **ret_pause);

/* What queue_route does with a route that was found by the table: mail of defer_transports is
 * deferred until it is asked for. */
void queue_route_hold_back(const struct conf *conf, struct route *route);

#endif
