/*
 * Handover: states of destinations that move with their partition (spool_handover.h), as rows of
 * the table `lease_note`: destinations that are dead until a time, and rate delays that run.
 *
 *     once a minute, if there is something to note   in a batch of the committer
 *     partitions are let go                          in the transaction that releases the leases
 *     partitions are gained                          read together with the counts of their mail
 *
 * Each time, all notes of these partitions are written again with the remaining time. So notes of a
 * killed node are at most a minute old. The new owner waits at most that much longer, as the
 * remaining time starts when it reads the note. Remaining times do not depend on clocks. The column
 * `until` is of the writer's clock, and only shows which notes are out of date. After
 * HANDOVER_PAST_US, which is more than clocks should differ, notes are ignored, and the housekeeper
 * deletes them.
 *
 * Tables of a format before HANDOVER_FORMAT lack the columns; then nothing is handed over.
 *
 * Limits: HANDOVER_PARTITION_MAX notes of a partition, HANDOVER_MAX at a time; of more notes those
 * that end first are omitted. Rows are not trusted: invalid ones, and rows of partitions of other
 * nodes, are skipped.
 */
#ifndef CLUSTER_HANDOVER_H
#define CLUSTER_HANDOVER_H

#include <stdbool.h>
#include <stdint.h>

#include <libpq-fe.h>

#include "committer.h"
#include "finder.h"
#include "partition_set.h"
#include "spool_handover.h"
#include "text_pool.h"

#define HANDOVER_FORMAT        2
#define HANDOVER_PARTITION_MAX 1000
#define HANDOVER_MAX           10000
#define HANDOVER_EACH_US       (60 * INT64_C(1000000))
#define HANDOVER_PAST_US       (300 * INT64_C(1000000))

struct handover_note;

struct handover {
    const struct spool *base;     /* borrowed; calculates partitions of destinations */
    const struct finder *finder;  /* borrowed; knows the own partitions */
    spool_tell_suspensions *tell; /* NULL if there is no callback */
    void *arg;
    bool has_table;                        /* whether the tables have it; set by the owner */
    struct partition_set noted;            /* own partitions that may have rows */
    struct partition_set writing, written; /* partitions of the commit in flight; those with rows */
    int64_t next_at;             /* time of the next check for something to note, in microseconds */
    bool is_wanted;              /* whether notes should be written */
    unsigned under_way;          /* commits in flight up to the one with notes; 0 if none */
    struct handover_note *read;  /* owned; notes that were read, the next first */
    struct handover_note *given; /* owned; note that was returned last */
};

void handover_init(struct handover *h, const struct spool *base, const struct finder *finder);
void handover_fini(struct handover *h);

/* Checks whether a batch with notes is due. `now` is of any clock that is never set. */
void handover_turn(struct handover *h, int64_t now);
bool handover_is_wanted(const struct handover *h);

/* Adds the notes to the batch if they are due. `commits` is the number of commits in flight,
 * including this one. */
void handover_join(struct handover *h, struct committer_batch *b, unsigned commits);
/* Ends the oldest commit in flight, or all of them if `failed` is set. */
void handover_ended(struct handover *h, bool failed);
/* Are notes in flight? Then no partition may be let go, as the notes would be written after
 * that. */
bool handover_is_under_way(const struct handover *h);

/* Returns statements that write the notes of `partitions`, which are let go; NULL if there is
 * nothing to write. */
struct committer_batch *handover_of(struct handover *h, const struct partition_set *partitions);

/* Query for the notes of partitions. $1: array of smallint; $2: unused. */
extern const char handover_sql[];
void handover_answer(struct handover *h, const PGresult *r);

/* Implements spool_handover.h. */
bool handover_next(struct handover *h, struct spool_suspension *ret);

#endif
