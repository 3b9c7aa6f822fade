/*
 * What is handed over of destinations with their partition (spool_handover.h), in the table
 * lease_note: those that are dead until a time, and rate delays that run.
 *
 *   once a minute, while there is something to note   in a batch of the committer
 *   a partition is let go, or all are                 in the transaction that does it
 *   a partition has come                              read together with the count of its mail
 *
 * Each time all notes of the partitions concerned are written anew, with what is left of their
 * times: so those of a node that was killed are at most a minute old, and the new owner, who starts
 * what was left when it reads, waits for at most that much longer than the old one would have. What
 * is left is no clock's time. `until` is, by the writer's clock, and only says which notes are of
 * no more use: after HANDOVER_PAST_US, more than clocks should differ, they are not followed and
 * are deleted (housekeeper.h).
 *
 * Tables of a format before HANDOVER_FORMAT lack the columns: then nothing is handed over.
 *
 * Bounds: HANDOVER_PARTITION_MAX notes of a partition, HANDOVER_MAX at a time; beyond them those
 * that end first are left out. What is read may be anything: a row that makes no sense, or belongs
 * to a partition that is not ours, is passed over.
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
    const struct spool *base;     /* borrowed: says where destinations lie */
    const struct finder *finder;  /* borrowed: which partitions are ours */
    spool_tell_suspensions *tell; /* NULL: none is there */
    void *arg;
    bool has_table;                        /* its owner's to set: the tables have the format */
    struct partition_set noted;            /* of ours: those that may have rows */
    struct partition_set writing, written; /* a commit under way writes those, rows for these */
    int64_t next_at;            /* us: when it is to be looked whether there is something to note */
    bool is_wanted;             /* there is */
    unsigned under_way;         /* commits up to the one with notes; 0: none has some */
    struct handover_note *read; /* owned: what has come, the next one first */
    struct handover_note *given; /* owned: that was given out last */
};

void handover_init(struct handover *h, const struct spool *base, const struct finder *finder);
void handover_fini(struct handover *h);

/* Look whether a batch with notes is due. `now` is any clock that goes on. */
void handover_turn(struct handover *h, int64_t now);
bool handover_is_wanted(const struct handover *h);

/* A batch is begun: the notes join it when they are due. `commits` are under way then, with it. */
void handover_join(struct handover *h, struct committer_batch *b, unsigned commits);
/* The oldest commit has ended; with `failed`, all have. */
void handover_ended(struct handover *h, bool failed);
/* Are notes under way? Then no partition may be let go: they would be written after it. */
bool handover_is_under_way(const struct handover *h);

/* The statements that write the notes of `partitions`, all of which are let go. NULL: there is
 * nothing to write. */
struct committer_batch *handover_of(struct handover *h, const struct partition_set *partitions);

/* Asks for the notes of partitions, $1: an array of smallint, $2: unused; and its answer. */
extern const char handover_sql[];
void handover_answer(struct handover *h, const PGresult *r);

/* As spool_handover.h. */
bool handover_next(struct handover *h, struct spool_suspension *ret);

#endif
