/*
 * What all nodes have in common (spool_shared.h), in the table intervention, with its copy.
 *
 * A change is two statements of the node's batch, so it happens once, under the fence, and is on
 * the standby when it is told. The first counts cluster.interventions up and keeps that row locked
 * until the commit; so numbers are given in the order of commits, and who has read all up to one
 * number finds what is new above it. The count comes with each renewal of the lease, and those who
 * commit a change notify all nodes at once.
 *
 *     a renewal tells another count, or woken --> look: count, rows above ours, all numbers
 *          rows that are new join the copy, rows that are gone leave it; when there are
 *          more new ones than one look reads, the next follows
 *
 * Rows may say anything. A text that is too long is not fetched; when numbers below ours are new,
 * which no node gives, all is read anew. Bounded: SPOOL_SHARED_MAX texts; what is beyond is passed
 * over.
 */
#ifndef CLUSTER_SHARED_TEXTS_H
#define CLUSTER_SHARED_TEXTS_H

#include "committer.h"
#include "link.h"
#include "spool_shared.h"

/* Tables have them from this format on. */
#define SHARED_TEXTS_FORMAT 2
/* Rows of one look. */
#define SHARED_TEXTS_PAGE 500
/* A copy that is known to be older than this is too old to deliver by. */
#define SHARED_TEXTS_LATE_US (2 * INT64_C(1000000))
/* A look without a reason: a change by hand raises no count. */
#define SHARED_TEXTS_SWEEP_US (60 * INT64_C(1000000))

struct shared_texts;

/* Borrows what link_new borrows. Connects at once. */
struct shared_texts *shared_texts_new(int epoll_fd, const struct link_target *target);
void shared_texts_free(struct shared_texts *t); /* NULL is fine */

/* A new life of the node: what is known has to be looked at anew. */
void shared_texts_enter(struct shared_texts *t, int node, int64_t incarnation);
/* The same in this life, as its lease was over for a while: others did not wait for it then. */
void shared_texts_doubt(struct shared_texts *t);

/* When the epoll descriptor is readable. `format` of the tables and `count` are those of the last
 * renewal; `now`: us, of any clock that goes on. Never waits. */
void shared_texts_turn(struct shared_texts *t, int64_t format, int64_t count, int64_t now);
/* Another node has changed something, or this one. */
void shared_texts_woken(struct shared_texts *t);
/* Has a look ended since this was asked last? */
bool shared_texts_has_come(struct shared_texts *t);

/* Has it what was there when this life began, or can it have nothing yet, as the tables are old? */
bool shared_texts_is_current(const struct shared_texts *t);
/* Is nothing to be delivered, as too little is known? */
bool shared_texts_is_late(const struct shared_texts *t, int64_t now);
/* Why nothing is read; "": the database answers. */
const char *shared_texts_error(const struct shared_texts *t);

/* As spool_shared.h; changes join the batch. */
bool shared_texts_is_there(const struct shared_texts *t);
void shared_texts_put(const struct shared_texts *t, struct committer_batch *b, uint32_t token,
                      bool reroutes, struct slice text);
void shared_texts_remove(struct committer_batch *b, uint64_t number, bool reroutes);
uint64_t shared_texts_look(struct shared_texts *t);
uint64_t shared_texts_looks(const struct shared_texts *t);
uint64_t shared_texts_changes(const struct shared_texts *t);
uint64_t shared_texts_reroutes(const struct shared_texts *t);
bool shared_texts_next(const struct shared_texts *t, uint64_t after, struct spool_shared *ret);
bool shared_texts_is_cut(const struct shared_texts *t);

#endif
