/*
 * The lease under which this node delivers, where the spool is that of several nodes
 * (spool_lease.h): kept in a page that all processes that deliver see (lease_page.h).
 *
 * While it is over nothing is handed out and no decision is pulled from the scheduler; what is
 * under way ends before its last look, and comes back untried. Results are taken at all times.
 *
 * Owns the page. On a spool of one machine there is none, and the lease holds for ever.
 */
#ifndef QUEUE_NODE_LEASE_H
#define QUEUE_NODE_LEASE_H

#include <stdbool.h>

#include "lease_page.h"

struct channel;
struct queue;

struct node_lease {
    struct lease_page page;
    bool held;    /* at the last turn; for the log */
    bool is_lost; /* and what was begun under it has not ended */
};

/* When the spool is open. False, with a word in the log, when there can be no page. */
bool node_lease_begin(struct queue *q);
void node_lease_fini(struct node_lease *l);

/* In each turn, before decisions: what the spool says goes into the page. */
void node_lease_turn(struct queue *q);

/* It was taken away, and what was claimed was told: it is over until all that is under way ends. */
void node_lease_lost(struct queue *q);

/* The first frame to a process that delivers. */
void node_lease_give(const struct node_lease *l, struct channel *worker);

static inline bool node_lease_holds(const struct node_lease *l)
{
    return lease_holds(&l->page);
}

#endif
