/*
 * The counts of what waits (spool_totals), held against the database.
 *
 * A partition's mail is counted when it is gained, while others may still be inserting; from then
 * on the desk adds and takes away. So it is counted again, some partitions at a time, in a moment
 * in which nothing changes there: no batch has them, nothing that others have told is unread, and
 * until the answer no count changes. A partition that is never quiet is not counted again.
 *
 * The first such count is right whatever was there before. What a later one finds wrong is an error
 * of this program: it is put right, and told.
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

/* At once: so many partitions, and, but for the first of them, so many messages. */
#define RECOUNT_PARTITIONS 32
#define RECOUNT_MESSAGES   20000

struct recount {
    struct desk *desk;               /* borrowed */
    const struct arrivals *arrivals; /* borrowed */
    int64_t gained_at[PARTITIONS];   /* us */
    bool is_sure[PARTITIONS];        /* it was counted in a quiet moment */
    unsigned next;                   /* to be looked at */
    unsigned asked;                  /* partitions that are asked for: */
    uint16_t p[RECOUNT_PARTITIONS];
    uint32_t changes[RECOUNT_PARTITIONS]; /* of desk.changes, then */
    uint64_t drift;                       /* messages by which counts were wrong, since the start */
};

void recount_init(struct recount *r, struct desk *desk, const struct arrivals *arrivals);

/* A partition was gained. */
void recount_gained(struct recount *r, unsigned p, int64_t now);
/* What others have told may be counted twice: no partition's count is sure. */
void recount_doubt(struct recount *r);

/* The question about the next partitions of node `no` that are quiet: the caller's; NULL: there is
 * none. */
struct committer_batch *recount_ask(struct recount *r, int no, int64_t now);
/* Its answer. By how many messages were counts wrong that were sure? They are right now. */
uint64_t recount_answer(struct recount *r, const PGresult *answer);

#endif
