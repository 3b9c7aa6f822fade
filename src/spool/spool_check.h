/*
 * Finds damage in an sqlite spool, and makes a sound spool of what is left of a damaged one.
 *
 * Both functions report findings line by line, with queue ids. Neither ever removes content or
 * writes to a damaged database.
 */
#ifndef SPOOL_SPOOL_CHECK_H
#define SPOOL_SPOOL_CHECK_H

#include <stdint.h>

#include "buf.h"

/* Receives one line without its line end; the line lasts for the call. */
typedef void spool_told(void *context, const char *line);

/* Checks everything: pages and indexes (SQLite's integrity_check), checksums of rows and of
 * content, rows and content that belong to no message, the counters. Also works while a process has
 * the spool open for writing; changes meanwhile are not findings. *ret_findings is the number of
 * findings reported. Returns an error, with its text in *ret_error, if the spool could not be read
 * to its end. */
int spool_check(const char *url, spool_told *told, void *context, struct buf *ret_error,
                uint64_t *ret_findings);

/* Copies all readable data, row by row, into a new database, and puts it in the place of the old
 * one, which is kept as PATH.damaged-N. Messages that may be incomplete are quarantined as corrupt
 * under their old queue ids, with the reason and with the recipients that could be read. Content
 * that no row names becomes a corrupt message of its own. Mail on hold stays on hold.
 *
 * Returns -EBUSY while a process has the spool open for writing. The repair may be killed at any
 * time: the old spool stays as it was until the new one is complete and synced. If it was killed
 * later, while files were renamed, a spool refuses to open until the next repair has finished the
 * renaming. */
struct spool_repaired {
    uint64_t messages; /* number of messages in the new spool */
    uint64_t doubtful; /* number of those that this call quarantined */
};
int spool_repair(const char *url, spool_told *told, void *context, struct buf *ret_error,
                 struct spool_repaired *ret_repaired);

#endif
