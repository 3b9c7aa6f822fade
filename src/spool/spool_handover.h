/*
 * Part of a spool: facts about destinations go with their mail to another node.
 *
 * A node that gets a partition knows nothing of its destinations, and learns most facts again. Two
 * facts are handed over, as other sites suffer when they are lost: that a destination is dead until
 * a time, and that its rate delay is running. The engine collects them from the spool's user when
 * it releases a partition, and from time to time, so that they survive the death of this node.
 * Facts that another node has left are loaded before any mail of the partition can be claimed.
 *
 * When a partition leaves, the node also closes its cached connections to the partition's
 * destinations, so that a site does not have connections of both nodes at once.
 *
 * A time is handed over as the remaining time, because the clocks of two nodes may differ. A spool
 * of one node lacks this part.
 */
#ifndef SPOOL_SPOOL_HANDOVER_H
#define SPOOL_SPOOL_HANDOVER_H

#include "spool.h"
#include "spool_others.h"

#define SPOOL_SUSPENSION_REASON_MAX 512
#define SPOOL_SUSPENSION_NAME_MAX   1024
/* Limit of the remaining time, whatever the nodes' parameters are; longer times are cut. */
#define SPOOL_SUSPENSION_US_MAX (INT64_C(30) * 86400 * 1000000)

/* A destination that is suspended. Slices that are read last until the next call on the spool. */
struct spool_suspension {
    struct slice transport, nexthop; /* route of its mail, which determines its partition */
    struct slice destination;        /* the scheduler's name of it: next hop, or mailbox@next hop */
    bool is_dead;                    /* dead; else its rate delay is running */
    int64_t left_us;                 /* remaining time; > 0 */
    uint32_t deaths;                 /* for a dead one: number of deaths since a delivery ended
                                      * well, at most 255 */
    struct slice reason;             /* for a dead one: the reason; any bytes */
};

/* A callback of the spool's user: calls `add` for each destination that is suspended now, in any
 * partition. */
typedef void spool_tell_suspensions(void *arg,
                                    void (*add)(void *to, const struct spool_suspension *s),
                                    void *to);

/* Registers this callback until the spool is closed; NULL = none. No effect without the part. */
void spool_hand_over_from(struct spool *sp, spool_tell_suspensions *tell, void *arg);

/* Returns the next fact that other nodes have left in partitions that have arrived; false if there
 * is no more, or the part is missing. Call it after spool_commits_turn, and apply all facts before
 * claiming mail. The same fact may be returned twice. Everything is within the limits above; the
 * caller checks for unknown transports and for times that are too long. */
bool spool_next_suspension(struct spool *sp, struct spool_suspension *ret);

/* Have partitions arrived since the last call, with the keys of their parked mail
 * (spool_parked_keys)? False if the part is missing. */
bool spool_partitions_came(struct spool *sp);

/* Returns the partitions that began to leave since the last call: no delivery begins there any
 * longer. False: none, or the part is missing. (A lost lease needs no such call; the lease page
 * stops deliveries.) */
bool spool_next_leaving(struct spool *sp, struct spool_places *ret);

/* Returns the partition of a destination; 0 without the part. */
unsigned spool_partition_of(const struct spool *sp, struct slice transport, struct slice nexthop);

/* Functions of an engine with this part. */
struct spool_handover_part {
    void (*from)(struct spool *sp, spool_tell_suspensions *tell, void *arg);
    bool (*next)(struct spool *sp, struct spool_suspension *ret);
    bool (*came)(struct spool *sp);
    bool (*next_leaving)(struct spool *sp, struct spool_places *ret);
};

#endif
