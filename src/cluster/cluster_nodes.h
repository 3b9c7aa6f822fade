/*
 * Commands of `sluice node`: list the nodes of a cluster, drain them and remove them. They need the
 * database only, and run on any machine. All functions wait for the database. Arguments and errors
 * are those of cluster_tables.h.
 *
 * A node is alive if its beat moves. The database does not store the time of the last beat, as
 * clocks are not compared; therefore these functions read the beats several times.
 */
#ifndef CLUSTER_CLUSTER_NODES_H
#define CLUSTER_CLUSTER_NODES_H

#include <stdbool.h>

#include <libpq-fe.h>

#include "buf.h"
#include "cluster_url.h"
#include "slice.h"

/* Prints a line for each node, or JSON. Waits until all nodes that should be alive have moved their
 * beat, at most 3 s. */
int cluster_nodes_list(const char *url, struct slice password, bool json, struct buf *out,
                       struct buf *ret_error);
/* Writes the names of the nodes that are alive to `names`, separated by commas. Waits for 3 s, or
 * until all nodes that should be alive have moved their beat. Returns false with the error in
 * *ret_error. */
bool cluster_nodes_alive(struct cluster_url *u, PGconn *conn, struct buf *names,
                         struct buf *ret_error);
/* Makes the other nodes take the partitions of the node, and keeps the node without partitions
 * until undrain, also after a restart. The node still accepts mail. */
int cluster_node_drain(const char *url, struct slice password, const char *name, struct buf *out,
                       struct buf *ret_error);
/* Returns 0 if the node has no partitions, and -EAGAIN if it drains, with the remaining work in
 * `out`. Returns -ECANCELED if it has partitions and does not drain, or if no other node can take
 * them. */
int cluster_node_left(const char *url, struct slice password, const char *name, struct buf *out,
                      struct buf *ret_error);
int cluster_node_undrain(const char *url, struct slice password, const char *name, struct buf *out,
                         struct buf *ret_error);
/* Removes a node that is stopped, or that was silent for as long as others wait before they take a
 * node for dead. The other nodes take its partitions, the next new node its number. Returns -EBUSY
 * if the node runs. */
int cluster_node_remove(const char *url, struct slice password, const char *name, struct buf *out,
                        struct buf *ret_error);

#endif
