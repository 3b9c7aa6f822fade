/*
 * Statements for messages in parts (spool_parts.h). The rows are:
 *
 * message M, content the whole message; deleted with the report part, by one statement part (home,
 * M) the report part: kind 1, parts_left, gen part (p, id) a part: kind 0, message M recipient (p,
 * id, n) n is the number in M, so that a recipient can move between parts
 *
 * Rows of a partition are changed by its owner alone, except the report part's: owners of parts
 * also change it, in their own fenced batches. A part that hands results over adds recipients to
 * the report part, and the end of a part lowers parts_left; both raise `gen`. Therefore the owner
 * of the report part overwrites none of this. It deletes reported recipients by their numbers and
 * subtracts their count. It sets `due` only if `gen` has not changed since it was read.
 *
 * A recipient whose new route lies in another partition is moved there by its owner in one fenced
 * batch. Either the whole part moves, or a new part is made. The latter raises parts_left in the
 * same batch, so that parts_left is never 0 meanwhile. A message that was not in parts becomes its
 * own report part, in its home.
 *
 * In tests/model/lease.pml the end of a part is [settles] (SETTLE), and the end of the report part
 * is [closes]. The move to another partition is [moves], in three cases: as a whole, divided, by a
 * new part. This is safe under three conditions. A part moves at the end of its pass, is fenced,
 * and is not claimed before the move is durable. A new part is counted in the same batch. A node
 * routes again only mail that older tables have routed (spool_routes.h). The owner of the home gets
 * an arrival for results of parts, as for mail.
 */
#ifndef CLUSTER_PARTS_H
#define CLUSTER_PARTS_H

#include <stdint.h>

#include "spool.h"

/* Values of part.kind. */
enum part_kind { PART_MAIL = 0, PART_REPORT = 1 };

/* Number of pending recipients of parts that are read with a report part, for delay notices. */
#define PARTS_PENDING_MAX 1000

/* Returns the partition of the report part, the same on every node. */
uint16_t parts_home(struct msg_id whole);

/* Moves recipients with their current state from their part to the report part: (p, id, n, changing
 * columns of a recipient, home, whole). Must precede deletions of rows of the part. */
extern const char parts_give_sql[], parts_give_types[];

/* [settles]: updates report parts: (home, whole, recipients handed over, parts ended, due). Rows
 * for the same report part are added up (new parts count as -1 ended), and rows are locked in their
 * order. Without a part left it is due at once, even if it is on hold, as it has nothing to hold
 * then. */
extern const char parts_tell_sql[], parts_tell_types[];

/* [moves]: moves a part to another partition, or makes a message a report part: its present key,
 * columns that an owner changes, then its new partition, kind and parts_left. */
extern const char parts_move_sql[], parts_move_types[];
/* Divides the message of a new report part: (id, home, parts). */
extern const char parts_divide_sql[], parts_divide_types[];

/* Stores the owner's changes of a report part: (home, whole, state, due, created, recipients
 * reported, warnings, force_expire, reason, gen). */
extern const char parts_update_sql[], parts_update_types[];

/* [closes]: deletes report parts with message and content: (home, whole). Has no effect while a
 * part exists. */
extern const char parts_close_sql[], parts_close_types[];

#endif
