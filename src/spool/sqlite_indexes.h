/*
 * Indexes with lost pages, which are made again while the database is in use.
 *
 * An index has nothing that its table lacks, but with a lost page in it no row of the table can be
 * added or changed, so that one page stops all mail. SQLite can't drop such an index, because it
 * reads each page to free it. So only its row in the schema is deleted, in one transaction with the
 * new index. The old pages stay unused: a check names them, until a repair makes a new database.
 */
#ifndef SPOOL_SQLITE_INDEXES_H
#define SPOOL_SQLITE_INDEXES_H

#include <stdbool.h>

#include <sqlite3.h>

/* Receives the name of an index with a damaged page, and whether it was made again. */
typedef void indexes_told(void *arg, const char *name, bool made);

/* Reads all indexes, and makes those with a lost page again if no page of their table is lost. Does
 * nothing in a transaction, or while a statement has not ended. Returns false if a damaged index is
 * left. */
bool indexes_mend(sqlite3 *db, indexes_told *told, void *arg);

#endif
