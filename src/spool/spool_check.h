/*
 * Looking for damage in a sqlite spool, and making a sound one of what is left of a damaged one.
 *
 * Both tell what they find, a line at a time, in words that name the queue id. Neither ever removes
 * a content or writes to a damaged database.
 */
#ifndef SPOOL_SPOOL_CHECK_H
#define SPOOL_SPOOL_CHECK_H

#include <stdint.h>

#include "buf.h"

/* A line without its end; lasts for the call. */
typedef void spool_told(void *context, const char *line);

/* Read everything: pages and indexes (SQLite's integrity_check), each row with its checksum, each
 * content with its checksum, rows and contents that belong to nothing, the counters. Works beside a
 * process that holds the spool: what changes meanwhile is no finding. *ret_findings is how many
 * were told. An error: the spool could not be read to its end, in the words of *ret_error. */
int spool_check(const char *url, spool_told *told, void *context, struct buf *ret_error,
                uint64_t *ret_findings);

/* Make a new database of all that can be read, row by row, and put it in the place of the old one,
 * which is kept as PATH.damaged-N. Messages that are not sure to be whole are quarantined as
 * corrupt, with the reason, under their old queue ids: what is known of their recipients stays. A
 * content that no row names becomes a corrupt message of its own. Mail that was on hold stays so.
 *
 * No process may hold the spool (-EBUSY). It may be killed at any time: the old spool is as it was
 * until the new one is complete and synced; if it was killed after that, while names were changed,
 * a spool refuses to open until the next repair has finished it. */
struct spool_repaired {
    uint64_t messages; /* in the new spool */
    uint64_t doubtful; /* of them, those that were quarantined by this call */
};
int spool_repair(const char *url, spool_told *told, void *context, struct buf *ret_error,
                 struct spool_repaired *ret_repaired);

#endif
