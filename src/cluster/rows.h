/*
 * Rows: makes statements of a batch's changes on the desk. answers.h is the opposite direction.
 *
 * A new message in passage is one row of a fresh table. A message that waits has rows in message,
 * part, recipient and content. Rows of a message that is gone are deleted. Mail in a partition of
 * another node is announced by a row of arrival (arrivals.h).
 */
#ifndef CLUSTER_ROWS_H
#define CLUSTER_ROWS_H

#include "committer.h"
#include "desk.h"

/* Makes the statements of a batch. New mail in passage goes to the fresh table in use. The batch
 * receives the previous place of each message, and the partitions with arrivals. */
struct committer_batch *rows_write(const struct desk *d, struct desk_batch *b);

/* Returns the n-th statement that changes mail, from 0, or NULL after the last. For preparation,
 * and for tests of each statement. */
const char *rows_statement(unsigned n);

#endif
