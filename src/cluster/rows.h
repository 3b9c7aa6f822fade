/*
 * From the desk to the tables: what a batch has changed, as statements. answers.h is the other way.
 *
 * A message that is new and passes is one row of a fresh table, one that is gone is deleted, one
 * that waits has its rows in message, part, recipient, content. Of what comes to a partition of
 * another node that is told in a row of arrival (arrivals.h).
 */
#ifndef CLUSTER_ROWS_H
#define CLUSTER_ROWS_H

#include "committer.h"
#include "desk.h"

/* The statements of a batch of the desk. New mail that passes goes to a fresh table; what each
 * message's place was before, and which partitions are told, is noted in the batch. */
struct committer_batch *rows_write(const struct desk *d, struct desk_batch *b);

/* The n-th statement by which mail is changed, from 0; NULL: there are no more. For tests that try
 * each of them. */
const char *rows_statement(unsigned n);

#endif
