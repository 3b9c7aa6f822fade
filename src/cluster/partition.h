/*
 * Partitions: a hash assigns each destination to one, and one node at a time works on a partition.
 */
#ifndef CLUSTER_PARTITION_H
#define CLUSTER_PARTITION_H

#include <stdint.h>

#include "spool.h"

#define PARTITIONS 256

/* Returns the partition of a recipient, without regard to case, the same on every node for ever. It
 * is calculated from transport and next hop, or from transport and `ring` if that is not empty;
 * `ring` names destinations with a common limit. For an unrouted recipient it is calculated from
 * the domain. */
uint16_t partition_of(const struct spool_rcpt *r, struct slice ring);

#endif
