/*
 * Spool engine `postgresql:`: one queue in a database for several nodes, with commits that end
 * later.
 *
 * The queue process works on the desk (desk.h), in memory. When a commit begins, the changes of the
 * batch become statements (rows.h), which the committer makes durable (committer.h). The node's
 * membership (engine_member.h) determines which partitions are on the desk.
 */
#ifndef CLUSTER_CLUSTER_SPOOL_H
#define CLUSTER_CLUSTER_SPOOL_H

#include <stdbool.h>

/* Registers the engine, so that spool_open accepts `postgresql:...`. */
void cluster_spool_register(void);

/* Is nothing left to read or to send? For tests. */
struct spool;
bool cluster_spool_is_idle(const struct spool *sp);
/* Makes the engine move mail out of unused fresh tables without a delay. For tests. */
void cluster_spool_move_at_once(struct spool *sp);

#endif
