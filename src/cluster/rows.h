/*
 * Between the desk and the tables: what a batch has changed, as statements; what was read, as
 * messages on the desk.
 *
 * A message that is new and passes is one row of a fresh table, one that is gone is deleted, one
 * that waits has its rows in message, part, recipient, content.
 */
#ifndef CLUSTER_ROWS_H
#define CLUSTER_ROWS_H

#include <libpq-fe.h>

#include "committer.h"
#include "desk.h"

/* The statements of a batch. New mail that passes goes to a fresh table; what each message's place
 * was before is noted in `d`. */
struct committer_batch *rows_write(struct desk_batch *d, unsigned fresh_now);

/* The n-th statement by which mail is changed, from 0; NULL: there are no more. For tests that try
 * each of them. */
const char *rows_statement(unsigned n);

/* Queries, without parameters, and what takes their answers, which are in binary. Messages come
 * before their recipients. */
extern const char rows_fresh_sql[], rows_waiting_sql[], rows_rcpts_sql[];
void rows_take_fresh(struct desk *d, const PGresult *r);
void rows_take_waiting(struct desk *d, const PGresult *r);
void rows_take_rcpts(struct desk *d, const PGresult *r);

/* A number of any width. */
int64_t rows_number(const PGresult *r, int row, int column);

#endif
