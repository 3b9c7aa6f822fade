/*
 * Part of a spool: it is several nodes' store, and this one may deliver while its lease holds.
 *
 * The engine renews the lease; what delivers asks until when it holds, again and again, directly
 * before what can't be undone (process/lease_page.h). A spool without the part has one owner, who
 * may deliver at all times.
 */
#ifndef SPOOL_SPOOL_LEASE_H
#define SPOOL_SPOOL_LEASE_H

#include "spool.h"

bool spool_has_lease(const struct spool *sp);

/* For how long it holds from now on, as far as is known; 0 or less: it is over. It grows with each
 * renewal, and is 0 once the node hears that its lease was taken away. US_FOREVER when
 * !spool_has_lease. */
int64_t spool_lease_left_us(const struct spool *sp);

/* How many nodes are up, as far as is known: at least 1. */
unsigned spool_lease_nodes(const struct spool *sp);

/* Its lease was taken away (SPOOL_EVENT_LOST without an id), and all that this node had begun under
 * it has ended: it may get another. */
void spool_lease_ended(struct spool *sp);

/* The part, as spool_engine.h wants it. */
struct spool_lease_part {
    int64_t (*left_us)(const struct spool *sp);
    void (*ended)(struct spool *sp);           /* NULL: it is never taken away */
    unsigned (*nodes)(const struct spool *sp); /* NULL: one */
};

#endif
