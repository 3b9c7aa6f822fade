/*
 * Reads the auth file of the mailq protocol (mailq_auth.h) in the parent. The file is read at the
 * start, and again for each client and each login, so that a change takes effect at once.
 *
 * A user who can write the file can take any right. A file that others than root and the daemon's
 * user can write therefore admits no client.
 */
#ifndef ZMAILER_AUTHFILE_H
#define ZMAILER_AUTHFILE_H

#include "buf.h"
#include "mailq_auth.h"

/* Appends the text of the file to *text, or nothing if others can write the file. Returns 0 or
 * negative errno; -EFBIG beyond MAILQ_AUTH_FILE_MAX. Each fault of the permissions is appended to
 * *complaints as a line. */
int authfile_read(const char *path, struct buf *text, struct buf *complaints);

#endif
