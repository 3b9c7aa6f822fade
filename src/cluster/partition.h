/*
 * Partitions: destinations hash to them, and one node at a time runs those of a partition.
 */
#ifndef CLUSTER_PARTITION_H
#define CLUSTER_PARTITION_H

#include <stdint.h>

#include "spool.h"

#define PARTITIONS 256

/* The partition of a recipient: of its transport and next hop, or of its transport and `ring`, what
 * destinations of a transport share a limit by, unless that is empty; while it is not routed, of
 * its domain. Without regard to case. The same on every node, for ever. */
uint16_t partition_of(const struct spool_rcpt *r, struct slice ring);

#endif
