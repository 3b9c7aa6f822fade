/*
 * Writes a message into a file: the common part of deliveries into maildirs, into mailbox files and
 * to commands. All lines end in LF there.
 *
 * Errors are negative errno. These functions block, so they need a process of their own.
 */
#ifndef DELIVER_MAIL_FILE_H
#define DELIVER_MAIL_FILE_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"
#include "status.h"
#include "times.h"

/* Reads content in pieces. Returns 1 and a piece (valid until the next call), 0 at the end, or
 * negative errno. */
typedef int mail_read(void *arg, struct slice *ret_piece);

/* One recipient's copy. */
struct mail_copy {
    const char *path;       /* path of the maildir or the file */
    struct slice sender;    /* Return-Path: */
    struct slice recipient; /* Delivered-To: */
    struct wall now;
};

/* Appends the fields Return-Path and Delivered-To. A byte that a field can't have becomes a
 * blank. */
void mail_file_put_header(struct buf *out, const struct mail_copy *copy);

/* Changes lines on their way to the file. Lines end in LF; one call has any part of them. The last
 * call has `last` set and no bytes. */
typedef void mail_filter(void *arg, struct slice lines, bool last, struct buf *out);

/* Writes `head` unchanged, then all content from `read`, through `filter` (NULL: none). */
int mail_file_write(int fd, struct slice head, mail_filter *filter, void *filter_arg,
                    mail_read *read, void *read_arg);

/* Writes all of `out`, and removes the written bytes from it. */
int mail_file_flush(int fd, struct buf *out);

/* Syncs the names in a directory. Returns 0 if the file system can't sync directories, or the
 * directory is open without the right to read. */
int mail_file_sync_directory(int fd);

/* Returns the status for an error: that of a full disk or quota, that of a path that no file can
 * have, or `otherwise`. */
struct status mail_file_status(int error, struct status otherwise);

/* Puts `head` and the message into a file in memory and makes that the standard input. So a command
 * may read it twice or not at all. */
int mail_file_as_input(struct slice head, mail_read *read, void *arg);

#endif
