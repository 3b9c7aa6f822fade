/*
 * Recount: compares the totals of waiting mail (spool_totals) with the database.
 *
 * A partition's mail is counted when it is gained, while other nodes may still insert; later
 * changes are added by the desk. So it is counted again, some partitions at a time, in one snapshot
 * of the database. The snapshot also shows which of this node's batches it contains, and which
 * arrivals none of these batches has deleted. For the comparison the desk's totals of the same
 * moment are calculated, from what each batch adds: batches in flight, and batches that end before
 * the answer.
 *
 * desk: batches that had ended before the question + other batches that the snapshot contains
 * snapshot: stored mail - arrivals that were not deleted
 *
 * Partitions that are in no batch are counted whenever their turn comes. Partitions that always are
 * in one are counted less often, as the fresh tables have many rows then.
 *
 * The first recount corrects any total. A difference that a later one finds is a fault of this
 * program, or a change by hand: it is corrected and logged.
 */
#ifndef CLUSTER_RECOUNT_H
#define CLUSTER_RECOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include <libpq-fe.h>

#include "arrivals.h"
#include "desk.h"

/* Time from gaining a partition to its recount: longer than a batch of another node takes from its
 * look at the leases to its commit. */
#define RECOUNT_AFTER_US (5 * INT64_C(1000000))
/* Time between two recounts of a partition that always is in a batch. */
#define RECOUNT_BUSY_US (30 * INT64_C(1000000))

/* Limits of a recount: number of partitions, and number of messages, except for the first
 * partition. For each further RECOUNT_MESSAGES a round is skipped. */
#define RECOUNT_PARTITIONS 32
#define RECOUNT_MESSAGES   20000
/* Number of batches that may end before the answer; after more the answer is ignored. */
#define RECOUNT_BATCHES 1000

struct recount {
    struct desk *desk;               /* borrowed */
    const struct arrivals *arrivals; /* borrowed */
    int64_t gained_at[PARTITIONS];   /* microseconds */
    int64_t asked_at[PARTITIONS];    /* microseconds; 0 if never */
    bool is_sure[PARTITIONS];        /* whether it was recounted before */
    unsigned next;                   /* next partition to check */
    uint64_t rests;                  /* number of rounds to skip */
    unsigned asked;                  /* number of partitions in this recount, which follow */
    uint16_t p[RECOUNT_PARTITIONS];
    struct spool_totals stored[RECOUNT_PARTITIONS]; /* totals by batches that had ended */
    uint32_t breaks;                                /* value of desk.breaks at the question */
    int64_t *ended;            /* owned; numbers of batches that have ended since */
    struct spool_totals *adds; /* owned; what each of them has added to these partitions */
    size_t ended_count, ended_size;
    uint64_t drift; /* messages by which totals were wrong since the start */
};

void recount_init(struct recount *r, struct desk *desk, const struct arrivals *arrivals);
void recount_fini(struct recount *r);

/* Notes that a partition was gained. */
void recount_gained(struct recount *r, unsigned p, int64_t now);
/* Makes all totals uncertain, as arrivals may be counted twice. */
void recount_doubt(struct recount *r);

/* Returns the query for the next partitions of node `no`, which the caller owns; NULL if none is
 * due. `last` is the number of the last batch that has begun. */
struct committer_batch *recount_ask(struct recount *r, int no, int64_t last, int64_t now);
/* Notes that the oldest batch in flight is durable; must be called before the desk ends it. */
void recount_kept(struct recount *r);
/* Reads the answer and corrects the totals. Returns by how many messages totals were wrong that
 * were certain. */
uint64_t recount_answer(struct recount *r, const PGresult *answer);

#endif
