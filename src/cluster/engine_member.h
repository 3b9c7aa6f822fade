/*
 * The engine as a node of its cluster: what becomes of the desk when partitions come and go.
 *
 *   GAINED      the partition's mail is counted, and found from then on; a second look follows, for
 *               what was being committed when the first was made
 *   DRAIN       nothing of it is found or claimed any more; the queue gives back what is claimed
 *               and not under way (SPOOL_EVENT_CHANGED); when nothing is open it is let go
 *   HURRY       what is under way there, after a while, is broken off where it can be
 *               (SPOOL_EVENT_HURRY)
 *   GIVEN UP    every commit fails; when the last has, the desk is cleared and the queue told what
 *               was claimed (SPOOL_EVENT_LOST). The node registers anew by itself. It gets
 *               partitions, and may deliver, when all that it had begun has ended
 *               (spool_lease_ended).
 *
 * Ids are 64 * k + the node's number, so each node gives its own without asking, and about the time
 * in microseconds. None is above what the last renewal has reserved: a later life of the node
 * begins there.
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

/* How long a start waits for the node to register and to get what partitions are free. */
#define ENGINE_MEMBER_START_US (60 * US_PER_S)
/* .. for a database that answers and is not as it should be (it has no standby, ..) */
#define ENGINE_MEMBER_UNFIT_US (10 * US_PER_S)
/* .. and an end for its leases to be given back. */
#define ENGINE_MEMBER_END_US (2 * US_PER_S)

/* `conf` is borrowed for the call; NULL: a node that needs no standby. The URL was looked up. */
struct engine_member *engine_member_new(struct cluster_spool *s, const struct conf *conf,
                                        uint64_t id_floor);
/* Wait until the node has registered. -EPROTO: it never can; -ECANCELED: options->is_over. */
int engine_member_wait(struct cluster_spool *s, const struct spool_options *options,
                       struct buf *ret_error);
/* Give the leases back, if that can be done soon. The committer has gone. */
void engine_member_leave(struct cluster_spool *s);
void engine_member_free(struct engine_member *m); /* NULL is fine */

void engine_member_turn(struct cluster_spool *s);
bool engine_member_event(struct cluster_spool *s, struct spool_event *ret_event);

/* Nothing may be sent: the node is not registered. */
bool engine_member_is_out(const struct engine_member *m);
/* New mail can't be accepted: the database is not what it should be. */
bool engine_member_is_unfit(const struct engine_member *m);
int engine_member_number(const struct engine_member *m);
struct msg_id engine_member_next_id(struct engine_member *m);
/* May this id be given? */
bool engine_member_has_reserved(const struct engine_member *m, struct msg_id id);

/* Why mail can't be read; "": it can. Said when that changes. */
void engine_member_tell_reading(struct engine_member *m, const char *why_not);

/* A commit is durable: owners of these partitions are woken. */
void engine_member_tell(struct engine_member *m, const struct partition_set *told);
/* All commits have failed, the oldest with `rc`, and nothing is open. */
void engine_member_failed(struct cluster_spool *s, int rc);

/* As spool_others.h. */
int engine_member_owner(const struct engine_member *m, unsigned partition);
int64_t engine_member_unowned_us(const struct engine_member *m, unsigned partition);
const char *engine_member_node_name(const struct engine_member *m, int node);
bool engine_member_node_is_up(const struct engine_member *m, int node);
/* How often its lease was taken away. */
uint64_t engine_member_given_up(const struct engine_member *m);
bool engine_member_node_seen(const struct engine_member *m, int node, struct spool_node_facts *ret);
/* Others are told with the next renewal. */
void engine_member_tell_others(struct cluster_spool *s, const struct spool_node_words *words);
/* As spool_shared.h. */
void engine_member_go_by(struct cluster_spool *s, uint64_t changes);
uint64_t engine_member_watch(struct engine_member *m);
bool engine_member_find_behind(struct engine_member *m, uint64_t watch, uint64_t changes,
                               uint64_t *ret_nodes);
/* The most that one has of those to which this node has given mail of late. */
uint64_t engine_member_others_behind(const struct engine_member *m);
/* Counts of what waits were wrong, by so many messages. */
void engine_member_tell_drift(struct engine_member *m, uint64_t messages);
/* There is something in the table ask for that node. */
void engine_member_notify_ask(struct engine_member *m, int node);

/* As spool_handover.h. */
bool engine_member_leaving(struct engine_member *m, struct partition_set *ret);
/* As spool_routes.h. */
void engine_member_route_by(struct engine_member *m, uint64_t fingerprint);
uint64_t engine_member_route(const struct engine_member *m); /* the number of the tables, or 0 */
bool engine_member_routes_are_in_force(const struct engine_member *m);

/* All other nodes are told that the table intervention has changed. */
void engine_member_notify_texts(struct engine_member *m);
/* How often partitions have come. */
uint64_t engine_member_gains(const struct engine_member *m);

/* As spool_lease.h. */
unsigned engine_member_nodes_up(const struct engine_member *m);
int64_t engine_member_lease_left_us(const struct cluster_spool *s);
void engine_member_lease_ended(struct engine_member *m);

#endif
