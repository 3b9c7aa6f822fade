/*
 * Answers: queries that load messages, and the checks that put their rows on the desk.
 *
 * The database may return anything (other programs write to it, disks are damaged). Numbers are
 * checked against their ranges, texts against their limits, counts against the things counted. A
 * row whose id was not requested is ignored. A message whose rows are invalid goes on the desk with
 * the reason (desk_fill_wrong): it is quarantined and blocks no other mail. A result whose columns
 * have wrong types must not be read at all, as that is no message's fault.
 */
#ifndef CLUSTER_ANSWERS_H
#define CLUSTER_ANSWERS_H

#include <libpq-fe.h>

#include "desk.h"

/* ---- values ---------------------------------------------------------------------------------- */

/* Reads an integer of 2, 4 or 8 bytes, or a boolean. Returns false if the column is missing, NULL
 * or of another length. */
bool answer_number(const PGresult *r, int row, int column, int64_t *ret_n);
/* Reads a text or bytes that columns.h has written. A marked text is decoded into the pool. Returns
 * false if the column is missing, NULL, wrongly encoded, or longer than `max`. */
bool answer_text(const PGresult *r, int row, int column, size_t max, struct text_pool *pool,
                 struct slice *ret_text);

/* Returns the name of the first column whose type is not that in `types`, or NULL if all types are
 * right. `types` has a letter for each column: n number or boolean, b bytea, t text. A wrong type
 * means that the table is wrong, not the mail. */
const char *answer_misfit(const PGresult *r, const char *types);

/* Row whose columns are read from left to right. */
struct answer_row {
    const PGresult *r;
    int row, column;        /* next column */
    struct text_pool *pool; /* borrowed; memory of texts */
    const char *wrong;      /* first fault of the row, or NULL */
};

/* Reads the next columns:
 *
 *   due, arrived, created, size, flags, class_source, sender, envid, client, reason, class
 *
 * The first fault is stored in row->wrong. A member with a fault gets a value that is in range. */
void answer_envelope(struct answer_row *row, struct spool_message *m);
/* Reads state, pending, to_report, rcpt_total, warnings, force_expire and parked (not NULL), in the
 * same way. */
void answer_wait(struct answer_row *row, struct spool_message *m);
/* Reads, in the same way:
 *
 *   notify, route_generation, address, orcpt, transport, nexthop, state, attempts, last_attempt,
 *   status, diagnostic, reply, remote, tls */
void answer_rcpt(struct answer_row *row, struct spool_rcpt *to);

/* ---- messages -------------------------------------------------------------------------------- */

/* Queries for messages, with their column types. $1 and $2 are partitions and ids, one each per
 * message; $3 is the largest size of a content that is returned, too (not for answers_rcpts_sql).
 * The results must be read in this order: fresh, waiting, recipients. Fresh tables are queried all
 * at once or one alone. */
extern const char answers_fresh_sql[], answers_waiting_sql[], answers_rcpts_sql[];
extern const char answers_fresh_0_sql[], answers_fresh_1_sql[], answers_fresh_2_sql[];
extern const char answers_fresh_types[], answers_waiting_types[], answers_rcpts_types[];
void answers_fresh(struct desk *d, const PGresult *r);
void answers_waiting(struct desk *d, const PGresult *r);
void answers_rcpts(struct desk *d, const PGresult *r);

/* Query for the pending recipients of the parts of report parts, at most PARTS_PENDING_MAX for each
 * report part. The result has the types of answers_rcpts_types. */
extern const char answers_others_sql[];
void answers_others(struct desk *d, const PGresult *r);

#endif
