/*
 * Messages in parts (spool_parts.h), in the tables: their statements, and which partition is whose
 * home.
 *
 *     message M, content        the whole; removed with the report part, by one statement
 *     part    (home, M)         the report part: kind 1, parts_left, gen
 *     part    (p, id)           a part: kind 0, message M
 *     recipient (p, id, n)      n is its number in M, so it may move from part to part
 *
 * All rows of a partition are changed by its owner alone, but for the report part's: other owners
 * add to it, in their own fenced batches. A gift adds recipients to it, and a part's end takes one
 * from parts_left; both raise `gen`. So its owner never writes what these have written: it takes
 * away the recipients that it has reported, by their numbers and their count, and sets the time
 * when it is due only if `gen` is as it was read.
 *
 * A recipient whose route lies in another partition is moved there by its owner, in one fenced
 * batch: its part as a whole, or as a new part, which is added to parts_left in that batch, so that
 * this is never 0 meanwhile. A message that was not in parts becomes its own report part, in its
 * home.
 *
 * In tests/model/lease.pml a part's end is [settles] (SETTLE), the report part's end [closes], and
 * to go to another partition [moves], in its three cases: as a whole, divided, by a new part. What
 * it rests on is that a part moves at the end of its pass, is not claimed before that is durable,
 * and is fenced; that a new part is counted in the same batch; and that a node routes anew only
 * what older tables have routed (spool_routes.h). The owner of the home is told of a gift as of any
 * mail that arrives for it.
 */
#ifndef CLUSTER_PARTS_H
#define CLUSTER_PARTS_H

#include <stdint.h>

#include "spool.h"

/* part.kind */
enum part_kind { PART_MAIL = 0, PART_REPORT = 1 };

/* Pending recipients of all parts that are read with a report part, for what tells of a delay. */
#define PARTS_PENDING_MAX 1000

/* The partition of the report part; the same on every node. */
uint16_t parts_home(struct msg_id whole);

/* Recipients leave their part, as they are now, for the report part: (p, id, n, what changes of a
 * recipient, home, whole). Before anything of the part is deleted. */
extern const char parts_give_sql[], parts_give_types[];

/* [settles] What a report part is told of: (home, whole, recipients given, parts ended, due). The
 * rows of one report part are added up (parts that were made count below 0); they are locked in
 * their order. When no part is left it is
 * due at once, also from hold: nothing is left there to be held. */
extern const char parts_tell_sql[], parts_tell_types[];

/* [moves] A part goes to another partition, or a message becomes a report part: the key that it
 * has, what an owner changes, then its partition, kind and parts_left. */
extern const char parts_move_sql[], parts_move_types[];
/* .. and its message: (id, home, parts). */
extern const char parts_divide_sql[], parts_divide_types[];

/* The owner's changes of a report part: (home, whole, state, due, created, recipients reported,
 * warnings, force_expire, reason, gen). */
extern const char parts_update_sql[], parts_update_types[];

/* [closes] The end of a report part, message and content: (home, whole). Nothing happens while
 * there is a part. */
extern const char parts_close_sql[], parts_close_types[];

#endif
