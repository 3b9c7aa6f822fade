/*
 * Tables of a cluster: open a database that has them, and the commands of `sluice cluster`. All
 * functions wait for the server's answers.
 */
#ifndef CLUSTER_CLUSTER_TABLES_H
#define CLUSTER_CLUSTER_TABLES_H

#include "buf.h"
#include "cluster_url.h"

/* Oldest server version that is tested; older servers are refused. */
#define CLUSTER_SERVER_MIN 140000

/* Connects to a cluster whose host names were looked up. Returns NULL after an error, with its
 * cause and remedy in *ret_error (no such database, no tables, tables of another format, a server
 * that is too old). *ret_err is -EIO, or -EPROTO if another attempt cannot help. */
PGconn *cluster_tables_open(struct cluster_url *u, int *ret_err, struct buf *ret_error);

/* Executes a statement whose result is text. Returns NULL after an error, with its text in
 * *ret_error. */
PGresult *cluster_tables_ask(PGconn *conn, struct cluster_url *u, const char *sql,
                             struct buf *ret_error);

/* The commands return 0, or a negative errno with its text in *ret_error, and write their output to
 * `out`, in lines. `password` is the text of a password file, or empty. */

/* Creates the schema, unless it exists, and its tables. */
int cluster_tables_init(const char *url, struct slice password, bool flag, struct buf *out,
                        struct buf *ret_error);
/* Checks settings of the server, formats, clocks, and orphans, which are removed with `repair`.
 * Returns -EUCLEAN if there is a fault to repair. */
int cluster_tables_check(const char *url, struct slice password, bool needs_standby, bool repair,
                         struct buf *out, struct buf *ret_error);
/* Raises the format to that of this program, one step per transaction, while nodes run. Returns
 * -EBUSY if a node that runs or was killed does not know the new format, or if a lock cannot be
 * had. */
int cluster_tables_upgrade(const char *url, struct slice password, bool flag, struct buf *out,
                           struct buf *ret_error);
/* Lists changes that nodes had acknowledged and that this database lacks. With `yes` the nodes go
 * on without these changes. Returns -EUCLEAN if there are any and `yes` is not set. */
int cluster_tables_accept_loss(const char *url, struct slice password, bool yes, struct buf *out,
                               struct buf *ret_error);
/* Puts all mail on hold, ends all nodes' incarnations and raises ids above all previous ones, after
 * a backup was restored. Returns -EBUSY if a node runs. */
int cluster_tables_restored(const char *url, struct slice password, bool flag, struct buf *out,
                            struct buf *ret_error);

#endif
