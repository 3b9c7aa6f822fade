/*
 * Read-only view of the queue of all nodes, for `sluice' while no daemon runs. Its connection
 * changes nothing, and no statement takes longer than 10 s.
 *
 * A message in parts is shown as one message with the id that its client got. Mail in passage is
 * shown as incoming.
 */
#ifndef CLUSTER_CLUSTER_VIEW_H
#define CLUSTER_CLUSTER_VIEW_H

#include "spool_engine.h"

/* Opens the view; implements the `open` function of struct spool_scheme. */
int cluster_view_open(const char *where, const struct spool_options *options, struct buf *ret_error,
                      struct spool **ret_spool);

#endif
