/*
 * The engine `postgresql:`: one queue in a database, with commits that end later.
 *
 * What the queue process sees is the desk, in memory: messages, recipients, content, with the log
 * of what each batch has changed. When a commit begins, what the batch has changed becomes
 * statements (row.h): a message that is new and passes is one row of a fresh table, one that is
 * gone is deleted, one that waits has its rows in message, part, recipient, content.
 */
#ifndef CLUSTER_CLUSTER_SPOOL_H
#define CLUSTER_CLUSTER_SPOOL_H

/* From now on spool_open knows `postgresql:...`. */
void cluster_spool_register(void);

/* Make the tables in the empty schema of a url, "//user@host/database?host=..&schema=..". 0 or a
 * negative errno; *ret_error has the words. */
struct buf;
int cluster_spool_init(const char *where, struct buf *ret_error);

#endif
