/*
 * Where a recipient goes: by the tables of the configuration, or where its store says.
 */
#include "queue.h"

#include <string.h>

#include "check.h"

void queue_route_hold_back(const struct conf *conf, struct route *route)
{
    static const char reason[] = "4.3.2 deferred transport";

    for (size_t i = 0; i < conf->defer_transports.count; i++) {
        if (strcmp(conf->defer_transports.items[i], route->transport) == 0) {
            route->transport = "retry";
            (void)strcpy(route->nexthop, reason); /* far below their sizes */
            (void)strcpy(route->destination, reason);
            return;
        }
    }
}

/* The spool's copy of the route is for those who look at the queue. It is of no other use, so a
 * failure costs nothing but the batch, which the commit will report. */
static void store_route(struct queue *q, const struct active_msg *m, struct active_rcpt *r,
                        const struct route *route)
{
    (void)spool_set_route(q->spool, m->id, r->n, slice_string(route->transport),
                          slice_string(route->nexthop), q->conf->route_generation);
    r->route_stale = false;
}

/* ZMailer's words for these are what its operators look for. */
static const char *why_nowhere(struct queue *q, const struct route *route)
{
    struct slice transport = slice_string(route->transport);
    struct policy policy;

    if (conf_transport_find(q->conf, transport) == NULL) {
        policy_for(q->conf, transport, slice_string(route->nexthop), &policy);
        return policy.ring == 0 ? "no pattern matched" : "ConfBUG:NoCmdDefined!";
    }
    return pass_site(q, queue_transport(q, route->transport), route->destination, route->nexthop)
                   ->has_command
               ? NULL
               : "ConfBUG:NoCmdDefined!";
}

static const char *fixed_route(struct queue *q, const struct active_rcpt *r, struct route *route)
{
    struct slice nexthop = active_rcpt_nexthop(r);

    CHECK(nexthop.len <= ROUTE_NEXTHOP_MAX); /* SPOOL_ROUTE_MAX */
    route->transport = active_rcpt_transport(r).ptr;
    memcpy(route->nexthop, nexthop.ptr, nexthop.len + 1);
    for (size_t i = 0; i <= nexthop.len; i++) {
        route->destination[i] = ascii_lower(nexthop.ptr[i]);
    }
    return why_nowhere(q, route);
}

const char *queue_route(struct queue *q, const struct active_msg *m, struct active_rcpt *r,
                        struct route *ret_route)
{
    if (r->route_fixed) {
        return fixed_route(q, r, ret_route);
    }
    route_address(q->conf, slice_string(r->address), ret_route);
    if (r->route_stale) {
        store_route(q, m, r, ret_route);
    }
    if (!m->wanted) {
        queue_route_hold_back(q->conf, ret_route);
    }
    return NULL;
}
