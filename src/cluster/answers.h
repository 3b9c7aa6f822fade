/*
 * From the tables to the desk: queries, and what is made of their answers.
 *
 * What comes from the database may be anything (another program's hand, a damaged disk): numbers
 * are held against their ranges, texts against their limits, counts against what they count. A row
 * that has no id that was asked for is left out; a message whose rows make no sense is on the desk
 * with the reason (desk_fill_wrong), so that it is quarantined, and stops nothing else. Answers
 * whose columns have other types are not to be taken at all: that is no message's fault.
 */
#ifndef CLUSTER_ANSWERS_H
#define CLUSTER_ANSWERS_H

#include <libpq-fe.h>

#include "desk.h"

/* ---- values ---------------------------------------------------------------------------------- */

/* A number of 2, 4 or 8 bytes, or a boolean. False: it is none, or NULL. */
bool answer_number(const PGresult *r, int row, int column, int64_t *ret_n);
/* A text, or bytes, as columns.h writes them; one that was marked goes to the pool. False: it is
 * NULL, no such text, or longer than `max`. */
bool answer_text(const PGresult *r, int row, int column, size_t max, struct text_pool *pool,
                 struct slice *ret_text);

/* Is a column of another type than `types` has it, a letter each: n number or boolean, b bytea, t
 * text? Then the table is wrong, not the mail. Its name; NULL: all are as they should be. */
const char *answer_misfit(const PGresult *r, const char *types);

/* A row that is read from its first column on. */
struct answer_row {
    const PGresult *r;
    int row, column;        /* that comes next */
    struct text_pool *pool; /* borrowed: for texts */
    const char *wrong;      /* the first thing that is wrong with it, or NULL */
};

/* The columns that come next. What is wrong is told in row->wrong; in its place is something that
 * is in range.
 *
 * due, arrived, created, size, flags, class_source, sender, envid, client, reason, class */
void answer_envelope(struct answer_row *row, struct spool_message *m);
/* state, pending, to_report, rcpt_total, warnings, force_expire, parked (not NULL) */
void answer_wait(struct answer_row *row, struct spool_message *m);
/* notify, route_generation, address, orcpt, transport, nexthop, state, attempts, last_attempt,
 * status, diagnostic, reply, remote, tls */
void answer_rcpt(struct answer_row *row, struct spool_rcpt *to);

/* ---- messages -------------------------------------------------------------------------------- */

/* $1: partitions, $2: ids, in the order of both, $3: content of messages up to that size, too. The
 * answers are to be taken in this order. Of fresh tables, all three or one. */
extern const char answers_fresh_sql[], answers_waiting_sql[], answers_rcpts_sql[];
extern const char answers_fresh_0_sql[], answers_fresh_1_sql[], answers_fresh_2_sql[];
extern const char answers_fresh_types[], answers_waiting_types[], answers_rcpts_types[];
void answers_fresh(struct desk *d, const PGresult *r);
void answers_waiting(struct desk *d, const PGresult *r);
void answers_rcpts(struct desk *d, const PGresult *r);

/* The same of report parts, of answers_rcpts_types: what is pending of their parts,
 * PARTS_PENDING_MAX of each. */
extern const char answers_others_sql[];
void answers_others(struct desk *d, const PGresult *r);

#endif
