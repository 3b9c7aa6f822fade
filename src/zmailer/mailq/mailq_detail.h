/*
 * Details for mailq -v from the control file of a message.
 */
#ifndef ZMAILER_MAILQ_DETAIL_H
#define ZMAILER_MAILQ_DETAIL_H

#include <stdint.h>
#include <sys/types.h>

#include "buf.h"
#include "mailq_client.h"

/* Appends the details of a row; for a row of version 2, first the line that names the message. With
 * `sizes` (-vv) the details of a row of version 1 have the size and age of the message, too.
 * Files are read below `postoffice`; the details of a file that can't be read are left out. A path
 * that does not look like a control file is not opened. */
void mailq_detail_put(struct buf *out, const char *postoffice, int64_t now_s,
                      const struct mailq_row *row, bool sizes);

/* Finds the owner of the control file at `path` and the size of its message (0: not known). Returns
 * false if there is no such control file. */
bool mailq_detail_look(const char *postoffice, const char *path, uid_t *ret_owner,
                       uint64_t *ret_size);

#endif
