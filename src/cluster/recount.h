/*
 * The counts of what waits (spool_totals), held against the database.
 *
 * A partition's mail is counted when it is gained, while others may still be inserting; from then
 * on the desk adds and takes away. So it is counted again, some partitions at a time, in one
 * snapshot of the database, which also says which of this node's batches it has, and what others
 * have told that none of these has taken note of. What the desk has is made to be of the same
 * moment: it has what each batch adds, of those under way, and of those that end before the answer.
 *
 *     of the desk: what ended before the question + each batch of the snapshot that had not
 *     of the snapshot: what is there - what has arrived and is told still
 *
 * What is in no batch is counted as often as its turn comes; what always is, less often, as the
 * tables of mail that passes have many rows then.
 *
 * The first such count is right whatever was there before. What a later one finds wrong is an error
 * of this program, or was done by hand: it is put right, and told.
 */
#ifndef CLUSTER_RECOUNT_H
#define CLUSTER_RECOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include <libpq-fe.h>

#include "arrivals.h"
#include "desk.h"

/* Others' batches may have looked at the leases so long before they commit. */
#define RECOUNT_AFTER_US (5 * INT64_C(1000000))
/* Between two counts of a partition that is in a batch whenever it is looked at. */
#define RECOUNT_BUSY_US (30 * INT64_C(1000000))

/* At once: so many partitions, and, but for the first of them, so many messages. After more of them
 * so many rounds are left out as they are as many messages. */
#define RECOUNT_PARTITIONS 32
#define RECOUNT_MESSAGES   20000
/* An answer that more batches have overtaken does not count. */
#define RECOUNT_BATCHES 1000

struct recount {
    struct desk *desk;               /* borrowed */
    const struct arrivals *arrivals; /* borrowed */
    int64_t gained_at[PARTITIONS];   /* us */
    int64_t asked_at[PARTITIONS];    /* us; 0: not yet */
    bool is_sure[PARTITIONS];        /* it was counted in one moment */
    unsigned next;                   /* to be looked at */
    uint64_t rests;                  /* rounds that are left out */
    unsigned asked;                  /* partitions that are asked for: */
    uint16_t p[RECOUNT_PARTITIONS];
    struct spool_totals stored[RECOUNT_PARTITIONS]; /* by batches that had ended then */
    uint32_t breaks;                                /* desk.breaks, then */
    int64_t *ended;            /* owned: numbers of batches that have ended since */
    struct spool_totals *adds; /* owned: what each of them has added to these partitions */
    size_t ended_count, ended_size;
    uint64_t drift; /* messages by which counts were wrong, since the start */
};

void recount_init(struct recount *r, struct desk *desk, const struct arrivals *arrivals);
void recount_fini(struct recount *r);

/* A partition was gained. */
void recount_gained(struct recount *r, unsigned p, int64_t now);
/* What others have told may be counted twice: no partition's count is sure. */
void recount_doubt(struct recount *r);

/* The question about the next partitions of node `no`, whose last batch that has begun has the
 * number `last`: the caller's; NULL: there is none. */
struct committer_batch *recount_ask(struct recount *r, int no, int64_t last, int64_t now);
/* The oldest batch under way is durable, and about to be forgotten. */
void recount_kept(struct recount *r);
/* The answer. By how many messages were counts wrong that were sure? They are right now. */
uint64_t recount_answer(struct recount *r, const PGresult *answer);

#endif
