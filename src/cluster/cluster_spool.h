/*
 * The engine `postgresql:`: one queue of several nodes in a database, with commits that end later.
 *
 * What the queue process sees is the desk (desk.h), in memory. When a commit begins, what the batch
 * has changed becomes statements (rows.h), which the committer makes durable (committer.h). Which
 * partitions of the queue are on the desk the node's membership says (engine_member.h).
 */
#ifndef CLUSTER_CLUSTER_SPOOL_H
#define CLUSTER_CLUSTER_SPOOL_H

#include <stdbool.h>

/* From now on spool_open knows `postgresql:...`. */
void cluster_spool_register(void);

/* Has all come that was asked for, and been sent what can be? For tests. */
struct spool;
bool cluster_spool_is_idle(const struct spool *sp);
/* Mail in a fresh table that is not in use is moved without a wait. For tests. */
void cluster_spool_move_at_once(struct spool *sp);

#endif
