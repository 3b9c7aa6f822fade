/*
 * This node's lease, on a spool that several nodes share (spool_lease.h). It is kept in a page that
 * all delivering processes map (lease_page.h).
 *
 * When the lease is over, the queue process begins no delivery and makes no decision of the
 * scheduler. Deliveries in flight end before their last look and return untried. Results are
 * accepted at all times.
 *
 * Owns the page. On a spool of one machine there is no page, and the lease is always valid.
 */
#ifndef QUEUE_NODE_LEASE_H
#define QUEUE_NODE_LEASE_H

#include <stdbool.h>

#include "lease_page.h"

struct channel;
struct queue;

struct node_lease {
    struct lease_page page;
    bool held;    /* lease valid at the last turn; used to log changes */
    bool is_lost; /* lease taken away; deliveries begun under it have not ended */
};

/* Makes the page, when the spool is open. Returns false, and logs the error, if the memory can't be
 * had. */
bool node_lease_begin(struct queue *q);
void node_lease_fini(struct node_lease *l);

/* Copies the lease from the spool to the page; called in each turn before decisions. Also divides
 * the limits again when the number of nodes has changed. */
void node_lease_turn(struct queue *q);

/* Records that the lease was taken away and its mail was dropped. The lease is over until the
 * deliveries of that mail have ended. */
void node_lease_lost(struct queue *q);

/* Sends the page to a delivering process, as its first frame. */
void node_lease_give(const struct node_lease *l, struct channel *worker);

static inline bool node_lease_holds(const struct node_lease *l)
{
    return lease_holds(&l->page);
}

#endif
