/*
 * Interventions of all nodes of a cluster: said to any of them, kept in what the nodes have in
 * common (spool_shared.h), in force where its copy has them.
 *
 *     set      stored in a batch of the node that was asked; the store numbers it; each node finds
 *              it in its copy, lets mail in memory go through the gate anew, and says so with its
 *              lease; when the last has, the asked one answers. It tells its journal when it has
 *              found it itself
 *     cancel   likewise, by any node
 *     end      when its time is over, by the node that has the first partition: once
 *
 * What is answered is in force: a node that begins, comes back, or whose lease was over, reads all
 * before it delivers, and the others have said that they go by it. Those that have not after
 * INTERVENTION_SPREAD_US are named: such a node has heard of it by then, or its lease is over.
 *
 * So what holds is what is stored, on the asked node, too: there is one way in and one way out, and
 * two operators at two nodes do not undo what the other does. Its node and its caller stand in it,
 * for lists and the log; journals of other nodes do not have it.
 *
 * Where the tables have no place for them yet, each node's are its own, as where there is one. When
 * the tables are raised, and at a start after that, those that a node has of its own become ones of
 * all.
 *
 * What is stored may be anything: what can't be read, or is of a transport that this node does not
 * have, is not in force here, and is told in the log.
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

/* How long an operator waits for the database. */
#define INTERVENTION_SHARE_US (15 * US_PER_S)
/* .. and for the other nodes, then: longer than the lease of one lasts that hears of nothing. */
#define INTERVENTION_SPREAD_US (5 * US_PER_S)

/* Fields are private. */
struct intervention_share {
    struct shared_changes changes; /* under way */
    uint32_t last_token;
    uint64_t looks;    /* of the spool, as far as it was followed */
    uint64_t followed; /* changes of the copy then */
    uint64_t gone_by;  /* no mail goes on in memory as it did before so many of them */
    uint64_t *numbers; /* owned: of all that the copy had then, in their order */
    size_t number_count;
    uint64_t gains;     /* of partitions, likewise */
    struct mono own_at; /* when those of this node's own are to be handed over */
    bool is_cut;
};

void intervention_share_begin(struct queue *q);
void intervention_share_end(struct queue *q);

/* As interventions_set; takes the reference. */
unsigned intervention_share_set(struct queue *q, struct intervention *i, uint64_t token,
                                json_t **ret_answer);
/* `why`, for the log; `token` NULL: no operator has asked. 0, or the error of the spool, and
 * nothing was changed. */
int intervention_share_cancel(struct queue *q, struct intervention *i, const char *why,
                              const uint64_t *token);

/* Is it this node that ends what is over? */
bool intervention_share_ends(const struct queue *q);

/* Once a turn: follow the copy; then, when what follows from that has been done for this turn.
 * `is_in_force`: it has been done for all mail in memory. */
void intervention_share_turn(struct queue *q);
void intervention_share_end_turn(struct queue *q, bool is_in_force);

#endif
