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

/* Until when it holds, as far as is known: a time of the process's clock of intervals that moves
 * with each renewal, and goes back (to 0) when the node hears that its lease was taken away.
 * MONO_NEVER when !spool_has_lease. */
struct mono spool_lease_until(const struct spool *sp);

/* The part, as spool_engine.h wants it. */
struct spool_lease_part {
    struct mono (*until)(const struct spool *sp);
};

#endif
