/*
 * Makes a database readable whose first page or table definitions are damaged.
 *
 * SQLite reads nothing of a file whose definitions it can't read. But the same statements make
 * every spool, so its definitions, and the root pages of the tables of its first version, are those
 * of any new spool. (In a file that was vacuumed they are not: then the values read are wrong,
 * which checks of rows and checksums detect.) So a copy of the file gets the first page and the
 * definitions of a new spool. The definitions go to its end, where they overwrite nothing.
 */
#ifndef SPOOL_SQLITE_GRAFT_H
#define SPOOL_SQLITE_GRAFT_H

/* Copies the database `path`, with its log, to `copy`, and grafts the definitions onto the copy.
 * `fresh` is a name for a new spool, which is needed for a moment. Both are overwritten; the caller
 * removes `copy`. `path` is only read. Returns 0 or negative errno. */
int sqlite_graft(const char *path, const char *copy, const char *fresh);

/* Removes a database with its log and the log's index. */
void sqlite_graft_remove(const char *path);

#endif
