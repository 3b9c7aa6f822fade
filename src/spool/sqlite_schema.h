/*
 * The tables of the sqlite engine, and the upgrade of files of older versions. docs/spool.md
 * explains every table and column.
 */
#ifndef SPOOL_SQLITE_SCHEMA_H
#define SPOOL_SQLITE_SCHEMA_H

#include <stddef.h>

#include <sqlite3.h>

#define SCHEMA_APPLICATION_ID 0x534c5549 /* "SLUI" */

/* One step from version `index` in the table to `index + 1`; step 0 makes an empty file a spool. */
struct schema_step {
    const char *what; /* description for the error message */
    const char *sql;
};

extern const struct schema_step schema_steps[];
extern const size_t schema_version; /* number of steps */

/* Upgrades the database from its version to `version`, each step in a transaction of its own.
 * Returns 0, or an SQLite result code; SQLITE_MISMATCH means that the file is newer than `version`,
 * or not a spool. *ret_why is a static text with the cause, or the step that failed. */
int schema_upgrade(sqlite3 *db, const struct schema_step *steps, size_t version,
                   const char **ret_why);

/* Checks that the database is a spool of exactly this version; for readers. Results as of
 * schema_upgrade. */
int schema_check(sqlite3 *db, size_t version, const char **ret_why);

#endif
