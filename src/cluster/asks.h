/*
 * Asks: requests of operators that nodes send each other (spool_others.h), as rows of the table
 * `ask`. The asking node inserts the row, the other node writes its answer into the row, and the
 * asking node reads the answer and deletes the row.
 *
 *     asker  INSERT --notify--> other  SELECT .. UPDATE answer --notify--> asker  SELECT, DELETE
 *
 * A node reads the table when it is notified, and otherwise every ASKS_LOOK_US. The number of a row
 * contains the asker's incarnation, so that a later incarnation does not take the answer for its
 * own. Rows need not survive a crash of the server (synchronous_commit is off). Rows older than
 * ASKS_OLD_S are not carried out, and the housekeeper deletes them. All statements can be repeated
 * after a lost connection: an INSERT skips a row that exists, and an answer is written only if the
 * row has none.
 *
 * Rows are not trusted: numbers are checked against their ranges, and a text that is too long is
 * read as an empty one. There are at most ASKS_MAX questions of this node in flight, and at most
 * ASKS_HELD_MAX of others in memory; further ones wait in the table.
 */
#ifndef CLUSTER_ASKS_H
#define CLUSTER_ASKS_H

#include "link.h"
#include "spool_others.h"

#define ASKS_MAX      256
#define ASKS_HELD_MAX 32
#define ASKS_LOOK_US  (1 * INT64_C(1000000))
#define ASKS_OLD_S    60

struct asks;

/* Creates the object and begins to connect. Borrows what link_new borrows. Calls `notify` when a
 * question or answer for that node was stored. */
struct asks *asks_new(int epoll_fd, const struct link_target *target,
                      void (*notify)(void *arg, int node), void *arg);
void asks_free(struct asks *a); /* NULL is allowed */

/* Exchanges questions and answers without waiting; must be called when the epoll descriptor is
 * readable. `node` is SPOOL_NOBODY before the node has registered. `now` is in microseconds of any
 * clock that is never set. */
void asks_turn(struct asks *a, int node, int64_t incarnation, int64_t now);
/* Makes the next turn read the table. */
void asks_woken(struct asks *a);
/* Has a question or an answer been received since the last call? */
bool asks_has_come(struct asks *a);

/* Implements spool_others.h. */
int asks_ask(struct asks *a, struct spool *sp, int node, uint32_t token, struct slice question);
void asks_end(struct asks *a, uint32_t token);
bool asks_next_told(struct asks *a, struct spool_told *ret);
void asks_answer(struct asks *a, uint32_t token, struct slice answer);

#endif
