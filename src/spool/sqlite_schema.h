/*
 * The tables of the sqlite engine and how a file of an older version becomes one of this version.
 * docs/spool.md explains every table and column.
 */
#ifndef SPOOL_SQLITE_SCHEMA_H
#define SPOOL_SQLITE_SCHEMA_H

#include <stddef.h>

#include <sqlite3.h>

#define SCHEMA_APPLICATION_ID 0x534c5549 /* "SLUI" */

/* One step from version `index` in the table to `index + 1`; step 0 makes an empty file a spool. */
struct schema_step {
    const char *what; /* for the error message */
    const char *sql;
};

extern const struct schema_step schema_steps[];
extern const size_t schema_version; /* number of steps */

/* Take the database from whatever version it has to `version`, each step in a transaction of its
 * own. 0, or an SQLite result code; with SQLITE_MISMATCH it is newer than `version`, or no spool
 * (*ret_why, a static text, says which of them, or which step failed). */
int schema_upgrade(sqlite3 *db, const struct schema_step *steps, size_t version,
                   const char **ret_why);

/* Is it a spool of exactly this version? For readers. Results as of schema_upgrade. */
int schema_check(sqlite3 *db, size_t version, const char **ret_why);

#endif
