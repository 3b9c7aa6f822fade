/*
 * Overrides of all nodes of a cluster: set at any node, stored in the common store
 * (spool_shared.h), and in force at a node once its copy has them.
 *
 *     set      stored in a batch of the node that got the request, and numbered by the store; each
 *              node finds it in its copy, routes mail in memory again, and publishes that with its
 *              lease; after the last node has done so, the first one answers. The first node's
 *              journal gets the event when its own copy has the override
 *     cancel   the same, at any node
 *     end      at the override's end time, by the owner of the first partition: once
 *
 * An override is in force when the request is answered: each node that may deliver has confirmed
 * it, and a node that starts, returns, or whose lease was over reads all overrides before it
 * delivers. The answer names the nodes that have not confirmed within INTERVENTION_SPREAD_US. By
 * then such a node has read the override, or its lease is over.
 *
 * The store alone decides what is in force, also at the node that got the request. So two operators
 * at two nodes do not undo each other's changes. An override has its node and caller, for lists and
 * the log; journals of other nodes do not have it.
 *
 * While the tables have no place for overrides, each node has its own, as without a cluster. When
 * the tables are upgraded, and at each later start, the node hands its own overrides over to the
 * store.
 *
 * A stored text may be anything: an unreadable one is in force as a pause (`interventions.h`). Each
 * has a checksum (intervention_seal), which older programs accept.
 */
#ifndef QUEUE_INTERVENTION_SHARE_H
#define QUEUE_INTERVENTION_SHARE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <jansson.h>

#include "times.h"

struct intervention;
struct queue;
struct shared_change;
TAILQ_HEAD(shared_changes, shared_change);

/* Time for the database's answer to an operator's request. */
#define INTERVENTION_SHARE_US (15 * US_PER_S)
/* Time for the confirmations of other nodes after that: longer than the lease of a node that reads
 * nothing. */
#define INTERVENTION_SPREAD_US (5 * US_PER_S)

/* Fields are private. */
struct intervention_share {
    struct shared_changes changes; /* not finished yet */
    uint32_t last_token;
    uint64_t looks;    /* comparisons of the copy (spool_shared_looks) already handled */
    uint64_t followed; /* changes of the copy (spool_shared_changes) already handled */
    uint64_t gone_by;  /* changes that are applied to all mail in memory */
    uint64_t *numbers; /* owned; numbers in the copy at the last comparison, sorted */
    size_t number_count;
    uint64_t gains;     /* gains of partitions (spool_gains) already handled */
    struct mono own_at; /* time of the next hand-over of this node's own overrides */
    bool is_cut;
};

void intervention_share_begin(struct queue *q);
void intervention_share_end(struct queue *q);

/* Sets an override, as interventions_set; takes the reference. */
unsigned intervention_share_set(struct queue *q, struct intervention *i, uint64_t token,
                                json_t **ret_answer);
/* Cancels an override. `why` is for the log; `token` NULL: no operator waits. Returns 0, or the
 * error of the spool, without a change. */
int intervention_share_cancel(struct queue *q, struct intervention *i, const char *why,
                              const uint64_t *token);

/* Does this node end the overrides whose time is over? */
bool intervention_share_ends(const struct queue *q);

/* Compares this node's overrides with the copy, before the turn's work on mail. The second function
 * continues changes, after that work. `is_in_force`: the work is done for all mail in memory. */
void intervention_share_turn(struct queue *q);
void intervention_share_end_turn(struct queue *q, bool is_in_force);

#endif
