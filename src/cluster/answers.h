/*
 * From the tables to the desk: queries, and what is made of their answers.
 *
 * What comes from the database may be anything (another program's hand, a damaged disk): numbers
 * are held against their ranges, texts against their limits, counts against what they count. A row
 * that has no id that was asked for is left out; a message whose rows make no sense is on the desk
 * with the reason (desk_fill_wrong), so that it is quarantined, and stops nothing else.
 */
#ifndef CLUSTER_ANSWERS_H
#define CLUSTER_ANSWERS_H

#include <libpq-fe.h>

#include "desk.h"

/* ---- values ---------------------------------------------------------------------------------- */

/* A number of 2, 4 or 8 bytes, or a boolean. False: it is none, or NULL. */
bool answer_number(const PGresult *r, int row, int column, int64_t *ret_n);
/* A text as columns.h writes it; `room` takes one that was marked. False: it is no such text, or is
 * longer than `max`. */
bool answer_text(const PGresult *r, int row, int column, size_t max, struct buf *room,
                 struct slice *ret_text);

/* ---- messages -------------------------------------------------------------------------------- */

/* $1: partitions, $2: ids, in the order of both, $3: content of messages up to that size, too. The
 * answers are to be taken in this order. */
extern const char answers_fresh_sql[], answers_waiting_sql[], answers_rcpts_sql[];
void answers_fresh(struct desk *d, const PGresult *r);
void answers_waiting(struct desk *d, const PGresult *r);
void answers_rcpts(struct desk *d, const PGresult *r);

/* The same of report parts: what is pending of their parts, PARTS_PENDING_MAX of each. */
extern const char answers_others_sql[];
void answers_others(struct desk *d, const PGresult *r);

#endif
