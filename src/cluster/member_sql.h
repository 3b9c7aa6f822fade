/*
 * Statements by which a node's leases end, of the nodes themselves (member_request.c) and of
 * operators (cluster_nodes.c). $1 is its number. In this order: fence, node, lease.
 */
#ifndef CLUSTER_MEMBER_SQL_H
#define CLUSTER_MEMBER_SQL_H

/* Waits for what the node has under way. No life has had the number before, also where the row was
 * deleted, or set, by hand. */
#define MEMBER_SQL_RAISE_FENCE                                                                     \
    "INSERT INTO fence SELECT $1::smallint, coalesce((SELECT incarnation FROM node WHERE no = "    \
    "$1::smallint AND incarnation > 0), 0) + 1 ON CONFLICT (no) DO UPDATE SET incarnation = "      \
    "greatest(fence.incarnation + 1, excluded.incarnation)"

/* All its leases and wishes. */
#define MEMBER_SQL_FREE_LEASES                                                                     \
    "WITH l AS (SELECT p FROM lease WHERE node = $1 OR wanted = $1 ORDER BY p FOR UPDATE) "        \
    "UPDATE lease SET epoch = epoch + CASE WHEN node = $1 THEN 1 ELSE 0 END, "                     \
    "wanted = CASE WHEN node = $1 OR wanted = $1 THEN NULL ELSE wanted END, "                      \
    "node = CASE WHEN node = $1 THEN NULL ELSE node END FROM l WHERE lease.p = l.p"

#endif
