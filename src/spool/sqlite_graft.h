/*
 * A database whose first page or table definitions are damaged, made readable.
 *
 * SQLite reads nothing of a file whose definitions it can't read. But every spool is made by the
 * same statements, so the definitions, and the pages at which the tables of its first version
 * begin, are those of any new spool (unless the file was vacuumed: then what is read makes no
 * sense, which checks of rows and checksums find). So a copy gets the first page and the
 * definitions of a new spool, the latter at its end, where they overwrite nothing.
 */
#ifndef SPOOL_SQLITE_GRAFT_H
#define SPOOL_SQLITE_GRAFT_H

/* Copy the database `path`, with its log, to `copy`, and graft the definitions onto the copy.
 * `fresh` is a name for a new spool, which is needed for a moment. Both are overwritten; the caller
 * removes `copy`. `path` is only read. 0, or negative errno. */
int sqlite_graft(const char *path, const char *copy, const char *fresh);

/* Remove a database with its log and the log's index. */
void sqlite_graft_remove(const char *path);

#endif
