/*
 * mailq -v: what the control file of a message says of it, besides what the server told.
 */
#ifndef ZMAILER_MAILQ_DETAIL_H
#define ZMAILER_MAILQ_DETAIL_H

#include <stdint.h>

#include "buf.h"
#include "mailq_client.h"

/* Append the lines about a row; of one of version 2, first the line that names it. The files are
 * read below `postoffice`; one that can't be read costs what it would have said. A path that does
 * not look like a control file's is not opened. */
void mailq_detail_put(struct buf *out, const char *postoffice, int64_t now_s,
                      const struct mailq_row *row);

#endif
