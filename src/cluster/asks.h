/*
 * Questions of nodes to each other (spool_others.h), through the table ask: a row is put there by
 * who asks, gets its answer from who is asked, and is deleted by the asker, who has read it.
 *
 *     asker  INSERT --notify--> other  SELECT .. UPDATE answer --notify--> asker  SELECT, DELETE
 *
 * A node looks for rows when it is notified, and else each ASKS_LOOK_US. Rows have the asker's
 * number and incarnation, so that a later life takes no answer for its own. They survive nothing
 * (synchronous_commit is off), and what is older than ASKS_OLD_S is not carried out any more: the
 * housekeeper deletes it. All statements may be sent again after a lost connection: an INSERT
 * passes over a row that is there, an answer goes only where none is.
 *
 * What the rows say may be anything: numbers are held against their ranges, a text that is too long
 * is not fetched and told as an empty one. Bounded: ASKS_MAX questions of ours, ASKS_HELD_MAX of
 * others; the rest of those waits in the table.
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

/* Borrows what link_new borrows. Connects at once. `notify` is called when there is something for
 * that node. */
struct asks *asks_new(int epoll_fd, const struct link_target *target,
                      void (*notify)(void *arg, int node), void *arg);
void asks_free(struct asks *a); /* NULL is fine */

/* When the epoll descriptor is readable: as whom (SPOOL_NOBODY: not registered). `now`: us, of any
 * clock that goes on. Never waits. */
void asks_turn(struct asks *a, int node, int64_t incarnation, int64_t now);
/* Something is there: the next turn looks. */
void asks_woken(struct asks *a);
/* Has something come since this was asked last? */
bool asks_has_come(struct asks *a);

/* As spool_others.h. */
int asks_ask(struct asks *a, struct spool *sp, int node, uint32_t token, struct slice question);
void asks_end(struct asks *a, uint32_t token);
bool asks_next_told(struct asks *a, struct spool_told *ret);
void asks_answer(struct asks *a, uint32_t token, struct slice answer);

#endif
