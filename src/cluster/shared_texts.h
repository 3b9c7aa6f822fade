/*
 * Shared texts: a copy of the texts that all nodes have in common (spool_shared.h), in the table
 * `intervention`.
 *
 * A change is two statements of the node's batch, so it happens once, under the fence, and is on
 * the standby before it is reported. The first statement raises `cluster.interventions` and keeps
 * that row locked until the commit. So numbers are given in the order of commits, and after reading
 * all rows up to a number, only higher ones are new. Each renewal reads the count, and a node that
 * commits a change notifies all nodes at once.
 *
 * a renewal has another count, or woken --> look: count, rows above the last number, all numbers
 *    new rows are added to the copy, missing ones are removed; if there are more new rows than
 *    a look reads, the next look follows
 *
 * Rows are not trusted. A text that is too long is not read. If new numbers below the last one
 * exist, which no node gives, everything is read again. At most SPOOL_SHARED_MAX texts are read.
 */
#ifndef CLUSTER_SHARED_TEXTS_H
#define CLUSTER_SHARED_TEXTS_H

#include "committer.h"
#include "link.h"
#include "spool_shared.h"

/* First format of the tables with shared texts. */
#define SHARED_TEXTS_FORMAT 2
/* Number of rows that a look reads. */
#define SHARED_TEXTS_PAGE 500
/* Age after which a copy that is known to be out of date is too old for deliveries. */
#define SHARED_TEXTS_LATE_US (2 * INT64_C(1000000))
/* Time between looks without a reason, as a change by hand does not raise the count. */
#define SHARED_TEXTS_SWEEP_US (60 * INT64_C(1000000))

struct shared_texts;

/* Creates the object and begins to connect. Borrows what link_new borrows. */
struct shared_texts *shared_texts_new(int epoll_fd, const struct link_target *target);
void shared_texts_free(struct shared_texts *t); /* NULL is allowed */

/* Begins a new incarnation of the node; the copy is not current until the next look has ended. */
void shared_texts_enter(struct shared_texts *t, int node, int64_t incarnation);
/* Makes the copy not current after the lease had ended for a while, as other nodes did not wait for
 * this one then. */
void shared_texts_doubt(struct shared_texts *t);

/* Does the work that is due without waiting; must be called when the epoll descriptor is readable.
 * `format` and `count` are those of the last renewal. `now`: microseconds of any clock that is
 * never set. */
void shared_texts_turn(struct shared_texts *t, int64_t format, int64_t count, int64_t now);
/* Requests a look, as this or another node has changed a text. */
void shared_texts_woken(struct shared_texts *t);
/* Has a look ended since the last call? */
bool shared_texts_has_come(struct shared_texts *t);

/* Does the copy contain all texts that existed when this incarnation began? Also true if the tables
 * have no shared texts. */
bool shared_texts_is_current(const struct shared_texts *t);
/* Must nothing be delivered, as the copy may be out of date? */
bool shared_texts_is_late(const struct shared_texts *t, int64_t now);
/* Returns the reason why nothing can be read, or "". */
const char *shared_texts_error(const struct shared_texts *t);

/* Implements spool_shared.h; changes are added to the batch. */
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
