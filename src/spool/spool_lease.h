/*
 * Part of a spool: several nodes share the store, and this one may deliver while its lease holds.
 *
 * The engine renews the lease. The delivering processes read its end from the lease page, again and
 * again, directly before each act that can't be undone (process/lease_page.h). A spool without this
 * part has one owner, which may always deliver.
 */
#ifndef SPOOL_SPOOL_LEASE_H
#define SPOOL_SPOOL_LEASE_H

#include "spool.h"

bool spool_has_lease(const struct spool *sp);

/* Returns the remaining time of the lease, as far as is known; 0 or less: it is over. Each renewal
 * raises it, and it is 0 once the node has learned that its lease was taken away. US_FOREVER when
 * !spool_has_lease. */
int64_t spool_lease_left_us(const struct spool *sp);

/* Returns the number of nodes that are up, as far as is known: at least 1. */
unsigned spool_lease_nodes(const struct spool *sp);

/* Reports that all work begun under a lease that was taken away (SPOOL_EVENT_LOST without an id)
 * has ended. The node may then get another lease. */
void spool_lease_ended(struct spool *sp);

/* Returns the reason why the lease is not renewed; "" if it is renewed, or no reason is known. The
 * text lasts until the next spool_commits_turn. */
const char *spool_lease_why(const struct spool *sp);

/* Returns by how many microseconds this machine's wall clock is ahead of the time that most nodes
 * agree on; 0 if they agree, or there are no other nodes. Times in the spool follow the majority's
 * clock. */
int64_t spool_clock_off_us(const struct spool *sp);

/* Functions of an engine with this part. */
struct spool_lease_part {
    int64_t (*left_us)(const struct spool *sp);
    void (*ended)(struct spool *sp);                 /* NULL = it is never taken away */
    unsigned (*nodes)(const struct spool *sp);       /* NULL = 1 */
    const char *(*why)(const struct spool *sp);      /* NULL = "" */
    int64_t (*clock_off_us)(const struct spool *sp); /* NULL = 0 */
};

#endif
