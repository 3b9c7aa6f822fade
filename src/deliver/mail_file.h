/*
 * Writing a message into a file: what deliveries into maildirs, into mailbox files and to commands
 * have in common. Lines end in LF there, whatever they ended in before.
 *
 * Errors are negative errno. These functions block: they are for a process of their own.
 */
#ifndef DELIVER_MAIL_FILE_H
#define DELIVER_MAIL_FILE_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"
#include "status.h"
#include "times.h"

/* Reads content piece by piece: 1 and a piece (which lasts until the next call), 0 at the end, or
 * negative errno. */
typedef int mail_read(void *arg, struct slice *ret_piece);

/* One recipient's copy, wherever it goes. */
struct mail_copy {
    const char *path;       /* of the maildir, or of the file */
    struct slice sender;    /* Return-Path: */
    struct slice recipient; /* Delivered-To: */
    struct wall now;
};

/* The header fields that say for whom this copy is. What can't stand in one becomes a blank. */
void mail_file_put_header(struct buf *out, const struct mail_copy *copy);

/* What is to be done to lines (ending in LF, in pieces of any length) on their way; at the end it
 * is called once more with `last` and no bytes. */
typedef void mail_filter(void *arg, struct slice lines, bool last, struct buf *out);

/* Write `head`, as it is, and all that `read` gives, through `filter` (NULL: none). */
int mail_file_write(int fd, struct slice head, mail_filter *filter, void *filter_arg,
                    mail_read *read, void *read_arg);

/* Write all of `out`, consumed as it goes. */
int mail_file_flush(int fd, struct buf *out);

/* Make the names in a directory safe. Some file systems can't sync one, and one that may only be
 * passed is not open for it: that is no error. */
int mail_file_sync_directory(int fd);

/* What an error means for the message: a full disk or quota, a path that no file can have, or
 * `otherwise`. */
struct status mail_file_status(int error, struct status otherwise);

/* Put the message, behind `head`, on standard input, as a file in memory: a command may read it as
 * it likes, twice or not at all. */
int mail_file_as_input(struct slice head, mail_read *read, void *arg);

#endif
