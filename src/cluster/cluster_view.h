/*
 * The queue of all nodes, read only: what `sluice' shows while no daemon runs, by a connection of
 * its own that changes nothing and on which nothing takes longer than 10 s.
 *
 * A message whose recipients lie in several partitions is shown as one, with the id that its client
 * was told. Mail that passes is shown as incoming.
 */
#ifndef CLUSTER_CLUSTER_VIEW_H
#define CLUSTER_CLUSTER_VIEW_H

#include "spool_engine.h"

/* As spool_scheme.open. */
int cluster_view_open(const char *where, const struct spool_options *options, struct buf *ret_error,
                      struct spool **ret_spool);

#endif
