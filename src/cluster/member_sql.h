/*
 * Statements that end a node's leases, for nodes (member_request.c) and operators
 * (cluster_nodes.c). $1 is the node's number. The order is: fence, node, lease.
 */
#ifndef CLUSTER_MEMBER_SQL_H
#define CLUSTER_MEMBER_SQL_H

/* Raises the incarnation, after waiting for the node's transactions. The new incarnation is above
 * all previous ones, even if the row was deleted or changed by hand. */
#define MEMBER_SQL_RAISE_FENCE                                                                     \
    "INSERT INTO fence SELECT $1::smallint, coalesce((SELECT incarnation FROM node WHERE no = "    \
    "$1::smallint AND incarnation > 0), 0) + 1 ON CONFLICT (no) DO UPDATE SET incarnation = "      \
    "greatest(fence.incarnation + 1, excluded.incarnation)"

/* Ends all leases and wishes of the node. */
#define MEMBER_SQL_FREE_LEASES                                                                     \
    "WITH l AS (SELECT p FROM lease WHERE node = $1 OR wanted = $1 ORDER BY p FOR UPDATE) "        \
    "UPDATE lease SET epoch = epoch + CASE WHEN node = $1 THEN 1 ELSE 0 END, "                     \
    "wanted = CASE WHEN node = $1 OR wanted = $1 THEN NULL ELSE wanted END, "                      \
    "node = CASE WHEN node = $1 THEN NULL ELSE node END FROM l WHERE lease.p = l.p"

/* Number of losses of acknowledged mail that operators have accepted, and number of the loss that a
 * node (node.status) has found. Values that were set by hand and are invalid count as 0. */
#define MEMBER_SQL_ACCEPTED                                                                        \
    "(SELECT coalesce(max(CASE WHEN encode(text, 'escape') ~ '^[0-9]{1,9}$' THEN encode(text, "    \
    "'escape')::bigint END), 0) FROM note WHERE name = 'losses accepted')"
#define MEMBER_SQL_LOST                                                                            \
    "CASE WHEN jsonb_typeof(status->'lost') = 'number' THEN "                                      \
    "least(greatest((status->>'lost')::numeric, 0), 1e9)::bigint ELSE 0 END"

#endif
