/*
 * Part of a spool: what is known of destinations goes with their mail to another node.
 *
 * A node that gets a partition knows nothing of its destinations. Most of that is learnt again; two
 * things are handed over, as it harms others when they are forgotten: that a destination is dead
 * until a time, and that its rate delay runs. The engine asks the owner for them when a partition
 * is let go, and from time to time, so that they are there when this node dies; what another node
 * has left comes before any of the partition's mail can be claimed.
 *
 * And what a node keeps for a destination's next delivery (connections) it drops when its partition
 * leaves, so that the site has not both nodes' at once.
 *
 * A time is handed over as what was left of it, as no two clocks need agree. A spool of one node
 * lacks the part.
 */
#ifndef SPOOL_SPOOL_HANDOVER_H
#define SPOOL_SPOOL_HANDOVER_H

#include "spool.h"
#include "spool_others.h"

#define SPOOL_SUSPENSION_REASON_MAX 512
#define SPOOL_SUSPENSION_NAME_MAX   1024
/* A longer one is cut to this, whatever a node's parameters are. */
#define SPOOL_SUSPENSION_US_MAX (INT64_C(30) * 86400 * 1000000)

/* A destination that is suspended. Slices that are read last until the next call on the spool. */
struct spool_suspension {
    struct slice transport, nexthop; /* where its mail is routed: these say its partition */
    struct slice destination;        /* the owner's name of it: next hop, or mailbox@next hop */
    bool is_dead;                    /* else its rate delay runs */
    int64_t left_us;                 /* from now on; > 0 */
    uint32_t deaths;                 /* of a dead one: since a delivery ended well, at most 255 */
    struct slice reason;             /* of a dead one: why; any bytes */
};

/* The owner's: call `add` for each destination that is suspended now, in whichever partition. */
typedef void spool_tell_suspensions(void *arg,
                                    void (*add)(void *to, const struct spool_suspension *s),
                                    void *to);

/* Who is asked, until the spool is closed; NULL: no one. No effect without the part. */
void spool_hand_over_from(struct spool *sp, spool_tell_suspensions *tell, void *arg);

/* What other nodes have left, one after the other, in the partitions that have come. To be asked
 * after spool_commits_turn, and taken in before mail is claimed. False: there is no more, or the
 * part is missing. The same may come twice. Everything is in the limits above; transports that are
 * not known and times that are too long are the owner's to see to. */
bool spool_next_suspension(struct spool *sp, struct spool_suspension *ret);

/* Partitions have come, and what is parked there is known (spool_parked_keys). False: none since
 * this was asked last, or the part is missing. */
bool spool_partitions_came(struct spool *sp);

/* Partitions have begun to leave: nothing begins there any more. False: none since this was asked
 * last, or the part is missing. (Of a lease that is lost the lease page says enough.) */
bool spool_next_leaving(struct spool *sp, struct spool_places *ret);

/* The partition of a destination; 0 without the part. */
unsigned spool_partition_of(const struct spool *sp, struct slice transport, struct slice nexthop);

/* The part, as spool_engine.h wants it. */
struct spool_handover_part {
    void (*from)(struct spool *sp, spool_tell_suspensions *tell, void *arg);
    bool (*next)(struct spool *sp, struct spool_suspension *ret);
    bool (*came)(struct spool *sp);
    bool (*next_leaving)(struct spool *sp, struct spool_places *ret);
};

#endif
