/*
 * What `sluice node` does: look at the nodes of a cluster and say what is to become of them, over
 * the database alone, from any machine. Everything here waits for answers. The functions are as
 * those of cluster_tables.h.
 *
 * A node's word for being alive is a beat that moves. Nothing in the database says when it moved
 * last, as clocks are not compared; so these look more than once.
 */
#ifndef CLUSTER_CLUSTER_NODES_H
#define CLUSTER_CLUSTER_NODES_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

/* A line for each node, or JSON. Takes until all that should have moved their beat, 3 s at most. */
int cluster_nodes_list(const char *url, struct slice password, bool json, struct buf *out,
                       struct buf *ret_error);
/* Its partitions go to the others, now and in later lives, until undrain; it accepts mail. */
int cluster_node_drain(const char *url, struct slice password, const char *name, struct buf *out,
                       struct buf *ret_error);
/* 0: it has no partitions; -EAGAIN: it drains, and `out` says what is left; -ECANCELED: it has some
 * and does not drain, or no other node can take them. */
int cluster_node_left(const char *url, struct slice password, const char *name, struct buf *out,
                      struct buf *ret_error);
int cluster_node_undrain(const char *url, struct slice password, const char *name, struct buf *out,
                         struct buf *ret_error);
/* One that is stopped, or was silent while others would have taken it for dead: what it has goes to
 * the others, and its number to the next node that is new. -EBUSY: it runs. */
int cluster_node_remove(const char *url, struct slice password, const char *name, struct buf *out,
                        struct buf *ret_error);

#endif
