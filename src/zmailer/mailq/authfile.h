/*
 * The file of who may ask over the mailq protocol (mailq_auth.h), as the parent reads it: at the
 * start, and again for each client and each login, so that a change counts at once.
 *
 * A user that can write it can take any right. So a file that others than root and the daemon's
 * user can write admits no client, until that is mended.
 */
#ifndef ZMAILER_AUTHFILE_H
#define ZMAILER_AUTHFILE_H

#include "buf.h"
#include "mailq_auth.h"

/* Append its text to *text: nothing if others can write it. 0 or negative errno; -EFBIG beyond
 * MAILQ_AUTH_FILE_MAX. What is wrong with its permissions is appended to *complaints, a line each
 * with its end. */
int authfile_read(const char *path, struct buf *text, struct buf *complaints);

#endif
