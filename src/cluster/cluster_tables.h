/*
 * A cluster's database as a whole: whether a connection leads to one, and what `sluice cluster`
 * does to it. Everything here waits for answers.
 */
#ifndef CLUSTER_CLUSTER_TABLES_H
#define CLUSTER_CLUSTER_TABLES_H

#include "buf.h"
#include "cluster_url.h"

/* Older servers are refused: this is the oldest that is tried. */
#define CLUSTER_SERVER_MIN 140000

/* Connect to a cluster whose names were looked up. NULL: *ret_error says what is wrong (no such
 * database, no tables, tables of another format, a server too old) and what to do; *ret_err is
 * -EIO, or -EPROTO when trying again does not help. */
PGconn *cluster_tables_open(struct cluster_url *u, int *ret_err, struct buf *ret_error);

/* Run a statement that answers in text. NULL: *ret_error says why. */
PGresult *cluster_tables_ask(PGconn *conn, struct cluster_url *u, const char *sql,
                             struct buf *ret_error);

/* The commands. `password` is the text of a password's file, or empty. 0 or a negative errno, with
 * *ret_error; what there is to be said goes to `out`, in lines. */

/* Make the schema, unless it is there, and the tables in it. */
int cluster_tables_init(const char *url, struct slice password, bool flag, struct buf *out,
                        struct buf *ret_error);
/* Look at settings of the server, formats, clocks and orphans; the last are removed with `repair`.
 * -EUCLEAN: something was found that is to be mended. */
int cluster_tables_check(const char *url, struct slice password, bool needs_standby, bool repair,
                         struct buf *out, struct buf *ret_error);
/* Raise the format to what this program makes, step by step, each in a transaction; nodes go on
 * meanwhile. -EBUSY: a node that runs, or was killed, does not know it, or a lock is not to be had.
 */
int cluster_tables_upgrade(const char *url, struct slice password, bool flag, struct buf *out,
                           struct buf *ret_error);
/* After a backup was restored: all mail on hold, no node in force, ids above all given ones. */
int cluster_tables_restored(const char *url, struct slice password, bool flag, struct buf *out,
                            struct buf *ret_error);

#endif
