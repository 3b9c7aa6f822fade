/*
 * The engine as a node of its cluster: changes of the desk when partitions are gained and lost.
 *
 *     GAINED    The partition's mail is counted, and can be found and claimed. A second look
 *               follows, for mail that was being committed during the first one.
 *     DRAIN     No mail of the partition can be found or claimed. The queue returns claims
 *               that have no delivery in flight (SPOOL_EVENT_CHANGED). When nothing is open,
 *               the partition is let go.
 *     HURRY     Deliveries that are still in flight after a while are broken off where
 *               possible (SPOOL_EVENT_HURRY).
 *     GIVEN UP  Every commit fails. After the last one, the desk is cleared and the queue gets
 *               the ids that were claimed (SPOOL_EVENT_LOST). The node registers again by
 *               itself. It gets partitions, and may deliver, after everything that it had
 *               begun has ended (spool_lease_ended).
 *
 * An id is 64 * k + the node's number, so nodes create ids without requests to each other; it is
 * about the time in microseconds. No id is above the number that the last renewal has reserved,
 * where the next incarnation of the node begins.
 */
#ifndef CLUSTER_ENGINE_MEMBER_H
#define CLUSTER_ENGINE_MEMBER_H

#include <stdbool.h>
#include <stdint.h>

#include "conf.h"
#include "partition_set.h"
#include "spool_engine.h"

struct cluster_spool;
struct engine_member;

/* Time limit for a start: the node must register and get the partitions that are free. */
#define ENGINE_MEMBER_START_US (60 * US_PER_S)
/* Time limit for a start if the database answers but is unfit, as it has no standby for example. */
#define ENGINE_MEMBER_UNFIT_US (10 * US_PER_S)
/* Time limit for an end: the leases must be released. */
#define ENGINE_MEMBER_END_US (2 * US_PER_S)

/* Creates the node and begins to connect. `conf` is borrowed for the call; NULL for a node that
 * needs no standby. The hosts of the URL must have been looked up. */
struct engine_member *engine_member_new(struct cluster_spool *s, const struct conf *conf,
                                        uint64_t id_floor);
/* Waits until the node has registered. Returns 0; -EPROTO if the node can never register;
 * -ECANCELED if options->is_over returns true; -EIO after the time limit. */
int engine_member_wait(struct cluster_spool *s, const struct spool_options *options,
                       struct buf *ret_error);
/* Releases the leases if that is possible within ENGINE_MEMBER_END_US. The committer must have been
 * freed. */
void engine_member_leave(struct cluster_spool *s);
void engine_member_free(struct engine_member *m); /* NULL is allowed */

void engine_member_turn(struct cluster_spool *s);
bool engine_member_event(struct cluster_spool *s, struct spool_event *ret_event);

/* Is the node not registered, so that nothing may be sent? */
bool engine_member_is_out(const struct engine_member *m);
/* Is the database unfit, so that new mail must not be accepted? */
bool engine_member_is_unfit(const struct engine_member *m);
int engine_member_number(const struct engine_member *m);
struct msg_id engine_member_next_id(struct engine_member *m);
/* Has the last renewal reserved this id? */
bool engine_member_has_reserved(const struct engine_member *m, struct msg_id id);

/* Logs a change of the reason why mail can't be read; the reason is "" if it can be read. */
void engine_member_tell_reading(struct engine_member *m, const char *why_not);

/* Stores the number of the last durable commit, which the database must have from now on. Must be
 * called before the commit is reported. */
void engine_member_keep(struct cluster_spool *s);
/* Must nothing be sent, as the database may lack acknowledged changes? */
bool engine_member_must_hold(const struct engine_member *m);
/* Does the database lack changes that this node, or another one, has acknowledged? */
bool engine_member_lacks(const struct engine_member *m);
/* Returns the reason why the lease is not renewed, or an empty text. */
const char *engine_member_why(const struct engine_member *m);
/* Returns by how many microseconds this machine's clock is ahead of the nodes' common time; 0 if
 * the difference is small. engine_member_clock_us compares with the database's clock. */
int64_t engine_member_clock_off_us(const struct engine_member *m);
int64_t engine_member_clock_us(const struct engine_member *m);

/* Wakes the owners of these partitions after a commit. */
void engine_member_tell(struct engine_member *m, const struct partition_set *told);
/* Handles the failure of all commits, the oldest with `rc`. No batch may be open. */
void engine_member_failed(struct cluster_spool *s, int rc);

/* Implements spool_others.h. */
int engine_member_owner(const struct engine_member *m, unsigned partition);
int64_t engine_member_unowned_us(const struct engine_member *m, unsigned partition);
const char *engine_member_node_name(const struct engine_member *m, int node);
bool engine_member_node_is_up(const struct engine_member *m, int node);
/* Returns how often other nodes have taken over from this one. */
uint64_t engine_member_given_up(const struct engine_member *m);
bool engine_member_node_seen(const struct engine_member *m, int node, struct spool_node_facts *ret);
/* Stores facts for other nodes, which get them with the next renewal. */
void engine_member_tell_others(struct cluster_spool *s, const struct spool_node_words *words);
/* Implements spool_shared.h. */
void engine_member_go_by(struct cluster_spool *s, uint64_t changes);
uint64_t engine_member_watch(struct engine_member *m);
bool engine_member_find_behind(struct engine_member *m, uint64_t watch, uint64_t changes,
                               uint64_t *ret_nodes);
/* Returns the largest backlog of the nodes to which this node has recently given mail. */
uint64_t engine_member_others_behind(const struct engine_member *m);
/* Logs that totals were wrong by so many messages. */
void engine_member_tell_drift(struct engine_member *m, uint64_t messages);
/* Wakes a node for which the table `ask` has a row. */
void engine_member_notify_ask(struct engine_member *m, int node);

/* Implements spool_handover.h. */
bool engine_member_leaving(struct engine_member *m, struct partition_set *ret);
/* Implements spool_routes.h. */
void engine_member_route_by(struct engine_member *m, uint64_t fingerprint);
uint64_t engine_member_route(const struct engine_member *m); /* number of the tables, or 0 */
bool engine_member_routes_are_in_force(const struct engine_member *m);

/* Wakes all other nodes after a change of the shared texts. */
void engine_member_notify_texts(struct engine_member *m);
/* Returns how often partitions were gained. */
uint64_t engine_member_gains(const struct engine_member *m);

/* Implements spool_lease.h. */
unsigned engine_member_nodes_up(const struct engine_member *m);
int64_t engine_member_lease_left_us(const struct cluster_spool *s);
void engine_member_lease_ended(struct engine_member *m);

#endif
