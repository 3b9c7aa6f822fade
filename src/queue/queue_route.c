#include "queue_route.h"

#include <string.h>

#include "check.h"
#include "clock.h"
#include "queue.h"
#include "wire.h"

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

/* Stores a copy of the route, which listings show and which determines the recipient's partition. A
 * failure only fails the batch; the commit reports it. */
static void store_route(struct queue *q, const struct active_msg *m, struct active_rcpt *r,
                        const struct route *route)
{
    (void)spool_set_route(q->spool, m->id, r->n, slice_string(route->transport),
                          slice_string(route->nexthop), queue_route_generation(q));
    r->route_stale = false;
}

/* Returns why a route has no agent; operators of transport agents search for these texts. */
static const char *why_nowhere(bool has_clause, bool has_command)
{
    return !has_clause ? "no pattern matched" : !has_command ? "ConfBUG:NoCmdDefined!" : NULL;
}

/* Returns the destination of a route that the store has fixed. A destination without an agent is
 * not created. */
static struct destination *fixed_destination(struct queue *q, const struct route *route,
                                             const char **ret_why)
{
    struct slice transport = slice_string(route->transport);
    struct destination *destination = NULL;
    struct policy policy;
    uint32_t index;

    if (transport_find(&q->transports, transport, &index)) {
        destination = destination_find(&q->destinations, index, slice_string(route->destination));
    }
    if (destination != NULL) {
        *ret_why = why_nowhere(destination->has_clause || destination->agent == CONF_AGENT_POSTFIX,
                               destination->has_command);
        return *ret_why == NULL ? destination : NULL;
    }
    policy_for(q->conf, transport, slice_string(route->nexthop), &policy);
    *ret_why = why_nowhere(policy.ring != 0 || policy.agent == CONF_AGENT_POSTFIX,
                           policy_starts_agents(&policy));
    if (*ret_why == NULL &&
        !transport_need(&q->transports, q->conf, q->sched, route->transport, &index)) {
        *ret_why = "too many channels";
    }
    return *ret_why == NULL ? destination_need(q, index, route->destination, route->nexthop) : NULL;
}

/* Applies the route of a rule at arrival. Its transport may no longer be declared; it may be
 * declared again later. */
static void route_by_rule(const struct queue *q, const struct active_msg *m,
                          const struct active_rcpt *r, struct route *ret_route)
{
    struct slice nexthop = active_rcpt_nexthop(r);
    const struct conf_transport *transport = conf_transport_find(q->conf, active_rcpt_transport(r));

    CHECK(nexthop.len <= ROUTE_NEXTHOP_MAX); /* SPOOL_ROUTE_MAX */
    if (transport != NULL && transport->policy.agent == CONF_AGENT_MILTER &&
        slice_equal(nexthop, WIRE_MILTER_REPORTS) && q->conf->non_smtpd_milters[0] == '\0') {
        /* A report waited for filters that are no longer configured. */
        route_address(q->conf, slice_string(m->sender), slice_string(r->address), ret_route);
        return;
    }
    if (transport == NULL) {
        nexthop = SLICE("4.3.5 the transport of a rule is no longer declared");
    }
    ret_route->transport = transport == NULL ? "retry" : transport->name;
    memcpy(ret_route->nexthop, nexthop.ptr, nexthop.len);
    ret_route->nexthop[nexthop.len] = '\0';
    route_destination(q->conf, slice_string(r->address), ret_route);
}

static struct intervention *intervene(struct queue *q, const struct active_msg *m,
                                      const struct active_rcpt *r, unsigned how,
                                      struct route *ret_route)
{
    return interventions_route(q, slice_string(m->sender), slice_string(m->its_class->name),
                               slice_string(r->address), ret_route, how);
}

struct destination *queue_route(struct queue *q, const struct active_msg *m, struct active_rcpt *r,
                                bool counts, struct route *ret_route, const char **ret_why,
                                struct intervention **ret_pause)
{
    unsigned how = counts ? INTERVENE_COUNT : 0;
    struct slice nexthop;

    *ret_pause = NULL;

    if (r->route_fixed && !conf_spool_routes(q->conf)) {
        route_by_rule(q, m, r, ret_route);
        *ret_pause = intervene(q, m, r, how | INTERVENE_FIXED, ret_route);
        if (!m->requested) {
            queue_route_hold_back(q->conf, ret_route);
        }
        return destination_need(q, transport_index(&q->transports, ret_route->transport),
                                ret_route->destination, ret_route->nexthop);
    }
    if (r->route_fixed) {
        nexthop = active_rcpt_nexthop(r);
        CHECK(nexthop.len <= ROUTE_NEXTHOP_MAX); /* SPOOL_ROUTE_MAX */
        ret_route->transport = active_rcpt_transport(r).ptr;
        for (size_t i = 0; i <= nexthop.len; i++) {
            ret_route->nexthop[i] = nexthop.ptr[i];
            ret_route->destination[i] = ascii_lower(nexthop.ptr[i]);
        }
        if (conf_spool_routes_by_mailbox(q->conf)) {
            route_destination(q->conf, slice_string(r->address), ret_route);
        }
        *ret_pause = intervene(q, m, r, how | (r->route_by_rule ? INTERVENE_FIXED : 0), ret_route);
        if (!slice_equal(slice_string(ret_route->transport), active_rcpt_transport(r)) ||
            !slice_equal(slice_string(ret_route->nexthop), nexthop)) {
            store_route(q, m, r, ret_route); /* agents get this route */
        }
        return fixed_destination(q, ret_route, ret_why);
    }
    route_address(q->conf, slice_string(m->sender), slice_string(r->address), ret_route);
    *ret_pause = intervene(q, m, r, how, ret_route);
    if (r->route_stale) {
        store_route(q, m, r, ret_route);
        r->moves = spool_lies_elsewhere(
            q->spool, m->id,
            &(struct spool_rcpt){.transport = slice_string(ret_route->transport),
                                 .nexthop = slice_string(ret_route->nexthop),
                                 .route_generation = queue_route_generation(q)});
    }
    if (!m->requested) {
        queue_route_hold_back(q->conf, ret_route);
    }
    return destination_need(q, transport_index(&q->transports, ret_route->transport),
                            ret_route->destination, ret_route->nexthop);
}

/* ---- requeue -------------------------------------------------------------------------------- */

#define REQUEUE_PAGE 200

int queue_requeue(struct queue *q, const struct spool_message *m)
{
    struct msg_id id = m->id;
    /* A message in parts has no recipients of its own. */
    bool has_rcpts = !m->gathers && !conf_spool_routes(q->conf);
    int rc = spool_requeue(q->spool, id, queue_clock_to_store(&q->clock, id, clock_wall()));
    size_t count = REQUEUE_PAGE;
    uint32_t after = 0;

    while (rc == 0 && has_rcpts && count == REQUEUE_PAGE) {
        struct spool_rcpt page[REQUEUE_PAGE];

        rc = spool_read_rcpts(q->spool, id, after, true, REQUEUE_PAGE, page, &count);
        for (size_t i = 0; rc == 0 && i < count; i++) { /* numbers stay valid, texts do not */
            after = page[i].n;
            rc = spool_set_route(q->spool, id, after, SLICE("milter"), WIRE_MILTER_REQUEUE,
                                 SPOOL_ROUTE_FIXED);
        }
    }
    return rc;
}
