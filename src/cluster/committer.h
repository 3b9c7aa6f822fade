/*
 * Batches of one node, made durable in a database: in their order, each once, under the node's
 * fence, over lost connections.
 *
 *   committer_begin --> WAITING --sent--> SENT --answered--> ended: 0, or an error; then the
 *                          ^               |                 younger ones are cancelled
 *                          +--- not in ----+ connection lost: is it in? (markers)
 *                               the database       +--> it is: ended with 0
 *
 * A batch is one transaction: a marker (node, number), which says afterwards that the batch
 * happened, is stored if the fence is in force, whose lock lasts until the commit; then come its
 * statements. When a connection is lost with batches unanswered, a new one first waits for the old
 * session's transaction to end (it takes the fence's row), then looks for the markers, and commits
 * a marker of its own: that commit waits for the standby, and with it for all that is older. So
 * what is told as done is on the standby, too, and nothing is done twice. The same look is made
 * when a marker is refused because it is there already; when a commit is refused, or the server
 * warns that it did not wait for the standby; and when the server takes no writes any more.
 *
 * Errors: -ESTALE (another has taken this node's mail: its incarnation is not in force any more;
 * nothing can be committed before it registers again), -ENOSPC, -ECANCELED (an older one failed),
 * -EUCLEAN (a row that no node has made is in the way: a further try is no better), -EIO.
 * Serialization failures, deadlocks and lock timeouts are tried again, COMMITTER_TRIES times.
 * Without a connection batches stay under way, for as long as it takes: what was sent may have
 * happened, and only the database knows.
 */
#ifndef CLUSTER_COMMITTER_H
#define CLUSTER_COMMITTER_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "link.h"

#define COMMITTER_UNDER_WAY_MAX 2
#define COMMITTER_TRIES         5
/* Between two tries to connect. */
#define COMMITTER_AGAIN_US (200 * INT64_C(1000))

/* A statement with its parameters: copies in one block, each ended by NUL, or taken ones. */
struct committer_statement;

/* The open batch; owned by its maker until committer_begin. */
struct committer_batch;

struct committer_batch *committer_batch_new(void);
void committer_batch_free(struct committer_batch *b); /* NULL is fine */
/* Copies the parameters; `sql` lasts as long as the program. */
void committer_batch_add(struct committer_batch *b, const char *sql,
                         const struct link_param *params, int count);

/* The same with parameters whose bytes are taken: each from mem_new or the like, or NULL. */
void committer_batch_add_taken(struct committer_batch *b, const char *sql,
                               const struct link_param *params, int count);

/* The statements of `more` (taken; NULL is fine) follow on those of `b`. */
void committer_batch_join(struct committer_batch *b, struct committer_batch *more);

/* Send them, as they are, to a link that is up; their number. */
unsigned committer_batch_send(const struct committer_batch *b, struct link *l);

struct committer;

/* Borrows what link_new borrows. Connects at once. statement(n), n = 0, 1, .. until NULL, are those
 * that batches are made of, to be prepared; NULL: none are. */
struct committer *committer_new(int epoll_fd, const struct link_target *target, int node,
                                int64_t incarnation, const char *(*statement)(unsigned n));
void committer_free(struct committer *c); /* NULL is fine; what is under way may happen or not */

/* Its node was given up: what was not sent fails (-ESTALE), what was is told as ever. */
void committer_leave(struct committer *c);
/* The node has registered anew. All that was under way has ended, told or not. */
void committer_enter(struct committer *c, int node, int64_t incarnation);

/* At most COMMITTER_UNDER_WAY_MAX are under way. Takes the batch; its number, by which the table
 * batch has it when it has happened. */
int64_t committer_begin(struct committer *c, struct committer_batch *b);
/* The highest number that was given. */
int64_t committer_last(const struct committer *c);

/* Has the oldest ended? Then *ret_rc, with committer_error's words, and it is forgotten. */
bool committer_end(struct committer *c, int *ret_rc);
const char *committer_error(const struct committer *c);
/* After -EUCLEAN: the message whose key the row in the way has; 0: the server did not say. */
uint64_t committer_in_the_way(const struct committer *c);

/* While it is held nothing is sent that was not sent yet. */
void committer_hold(struct committer *c, bool is_held);

/* When the epoll descriptor is readable. Never waits. */
void committer_turn(struct committer *c);

bool committer_is_up(const struct committer *c);

#endif
