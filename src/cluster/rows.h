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

/* The statements of a batch. What each message's place was before is noted in `d`. */
struct committer_batch *rows_write(struct desk_batch *d);

/* Queries, without parameters, and what takes their answers, which are in binary. Messages come
 * before their recipients. */
extern const char rows_fresh_sql[], rows_waiting_sql[], rows_rcpts_sql[];
void rows_take_fresh(struct desk *d, const PGresult *r);
void rows_take_waiting(struct desk *d, const PGresult *r);
void rows_take_rcpts(struct desk *d, const PGresult *r);

/* A number of any width. */
int64_t rows_number(const PGresult *r, int row, int column);

#endif
