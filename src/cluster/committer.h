/*
 * Committer: makes the batches of a node durable in a database. Batches are committed in their
 * order, exactly once, only while the node's incarnation is in force, and despite lost connections.
 *
 *    committer_begin --> WAITING --sent--> SENT --answered--> ended: 0, or an error; then the
 *                           ^               |                 younger ones are cancelled
 *                           +--- not in ----+ connection lost: is it in? (markers)
 *                                the database       +--> it is: ended with 0
 *
 * A batch is one transaction. Its first statement inserts a marker (node, number), which proves
 * later that the batch was committed. The insert fails if the fence has another incarnation, and
 * locks the fence's row until the commit. The statements of the batch follow.
 *
 * If a connection is lost before all batches were answered, the look follows: a new connection
 * first waits until the old session's transaction has ended, by locking the fence's row. Then it
 * searches for the markers of the batches, and commits a marker of its own. This commit waits for
 * the standby, and so for all earlier commits. Therefore a batch that is reported as durable is on
 * the standby, too, and no batch is committed twice. The look also follows if a marker exists
 * already, if a commit is refused, or if the server becomes read-only. It follows, too, if the
 * server warns that it did not wait for the standby.
 *
 * Errors:
 *
 *   -ESTALE     Another node has taken over. This node must register again before it commits.
 *   -ENOSPC     The server has no space.
 *   -EUCLEAN    A row that no node has made has the key of a new row; another attempt cannot help.
 *   -ECANCELED  An older batch has failed.
 *   -EIO        Any other error.
 *
 * A batch that fails by serialization, deadlock or lock timeout is sent again, up to
 * COMMITTER_TRIES times.
 *
 * Without a connection batches stay in flight without a limit of time, as a batch that was sent may
 * have been committed, and only the database has the answer.
 */
#ifndef CLUSTER_COMMITTER_H
#define CLUSTER_COMMITTER_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "link.h"

#define COMMITTER_UNDER_WAY_MAX 2
#define COMMITTER_TRIES         5
/* Time between two attempts to connect. */
#define COMMITTER_AGAIN_US (200 * INT64_C(1000))

/* Statement with its parameters: either copies in one block, each followed by NUL, or taken
 * ones. */
struct committer_statement;

/* Batch of statements; owned by its maker until committer_begin. */
struct committer_batch;

struct committer_batch *committer_batch_new(void);
void committer_batch_free(struct committer_batch *b); /* NULL is allowed */
/* Adds a statement; copies the parameters. `sql` must be static. */
void committer_batch_add(struct committer_batch *b, const char *sql,
                         const struct link_param *params, int count);

/* Adds a statement; takes the bytes of the parameters, each from mem_new or the like, or NULL. */
void committer_batch_add_taken(struct committer_batch *b, const char *sql,
                               const struct link_param *params, int count);

/* Appends the statements of `more` to those of `b`. Takes `more`; NULL is allowed. */
void committer_batch_join(struct committer_batch *b, struct committer_batch *more);

/* Sends the statements to a link that is up. Returns their number. */
unsigned committer_batch_send(const struct committer_batch *b, struct link *l);

struct committer;

/* Creates the committer and begins to connect. Borrows what link_new borrows. statement(n) returns
 * the statements of batches for n = 0, 1, .., then NULL; they are prepared. `statement` may be
 * NULL. */
struct committer *committer_new(int epoll_fd, const struct link_target *target, int node,
                                int64_t incarnation, const char *(*statement)(unsigned n));
void committer_free(struct committer *c); /* NULL is allowed; batches in flight may happen */

/* Ends the node's incarnation: batches that were not sent fail with -ESTALE; those that were sent
 * end as usual. */
void committer_leave(struct committer *c);
/* Begins a new incarnation after the node has registered again. All batches must have ended, though
 * committer_end need not have returned them. */
void committer_enter(struct committer *c, int node, int64_t incarnation);

/* Takes the batch and begins its commit; at most COMMITTER_UNDER_WAY_MAX may be in flight. Returns
 * the batch's number, which the table `batch` contains after the commit. */
int64_t committer_begin(struct committer *c, struct committer_batch *b);
/* Returns the highest number that was given to a batch or marker. */
int64_t committer_last(const struct committer *c);

/* Has the oldest batch ended? Then *ret_rc is its result, committer_error has the text of an error,
 * and the batch is freed. */
bool committer_end(struct committer *c, int *ret_rc);
const char *committer_error(const struct committer *c);
/* Returns, after -EUCLEAN, the id of the message whose key the other row has, or 0 if the server
 * did not report the key. */
uint64_t committer_in_the_way(const struct committer *c);

/* Holds back all batches that were not sent yet while `is_held` is set. */
void committer_hold(struct committer *c, bool is_held);

/* Handles the connection without waiting; must be called when the epoll descriptor is readable. */
void committer_turn(struct committer *c);

bool committer_is_up(const struct committer *c);

/* Returns the number of the batch or marker that was committed last, and its node; 0 if none is
 * known. A new connection is used only if its server has that batch. Another server is skipped, and
 * batches wait until a server has it, or until committer_forget. */
int64_t committer_kept(const struct committer *c, int *ret_node);
/* Accepts a server that lacks committed batches, by order of an operator. */
void committer_forget(struct committer *c);

#endif
