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
static const char *why_nowhere(bool has_clause, bool has_command)
{
    return !has_clause ? "no pattern matched" : !has_command ? "ConfBUG:NoCmdDefined!" : NULL;
}

/* The site of a route that the store has fixed. One that nobody serves is not remembered. */
static struct site *fixed_site(struct queue *q, const struct route *route, const char **ret_why)
{
    struct slice transport = slice_string(route->transport);
    struct site *site = NULL;
    struct policy policy;
    uint32_t index;

    for (index = 0; index < q->transport_count && site == NULL; index++) {
        if (slice_equal(slice_string(q->transports[index]), transport)) {
            site = pass_site_find(q, index, slice_string(route->destination));
        }
    }
    if (site != NULL) {
        *ret_why = why_nowhere(site->has_clause, site->has_command);
        return *ret_why == NULL ? site : NULL;
    }
    policy_for(q->conf, transport, slice_string(route->nexthop), &policy);
    *ret_why =
        why_nowhere(policy.ring != 0, policy.agent == CONF_AGENT_TA && policy.command[0] != '\0');
    if (*ret_why == NULL && !queue_transport_need(q, route->transport, &index)) {
        *ret_why = "too many channels";
    }
    return *ret_why == NULL ? pass_site(q, index, route->destination, route->nexthop) : NULL;
}

struct site *queue_route(struct queue *q, const struct active_msg *m, struct active_rcpt *r,
                         struct route *ret_route, const char **ret_why)
{
    struct slice nexthop;

    if (r->route_fixed) {
        nexthop = active_rcpt_nexthop(r);
        CHECK(nexthop.len <= ROUTE_NEXTHOP_MAX); /* SPOOL_ROUTE_MAX */
        ret_route->transport = active_rcpt_transport(r).ptr;
        for (size_t i = 0; i <= nexthop.len; i++) {
            ret_route->nexthop[i] = nexthop.ptr[i];
            ret_route->destination[i] = ascii_lower(nexthop.ptr[i]);
        }
        return fixed_site(q, ret_route, ret_why);
    }
    route_address(q->conf, slice_string(r->address), ret_route);
    if (r->route_stale) {
        store_route(q, m, r, ret_route);
    }
    if (!m->wanted) {
        queue_route_hold_back(q->conf, ret_route);
    }
    return pass_site(q, queue_transport(q, ret_route->transport), ret_route->destination,
                     ret_route->nexthop);
}
