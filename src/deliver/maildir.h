/*
 * Delivery into a maildir: a directory with tmp, new and cur, a file per message (the format is
 * D. J. Bernstein's, as qmail's maildir(5) tells it).
 *
 *     write DIR/tmp/NAME, sync it -> last look -> rename to DIR/new/NAME -> sync DIR/new -> success
 *
 * Below the part of the path that the operator gave, no symbolic link is followed: users could lead
 * the delivery to where they may not write themselves.
 *
 * A reader never sees half a message, and success means that the message survives a power cut. NAME
 * is unique: time, process, counter, device and inode, host. Directories that are missing are made,
 * and synced into their parents.
 *
 * These functions block: they are for a process of their own.
 */
#ifndef DELIVER_MAILDIR_H
#define DELIVER_MAILDIR_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "lease_page.h"
#include "mail_file.h"
#include "slice.h"
#include "status.h"
#include "times.h"

#define MAILDIR_PATH_MAX 2048
#define MAILDIR_HOST_MAX 255

/* The directory for a recipient: `pattern` with %u (local part without quotes and without what
 * stands behind the first of the `delimiters`), %d (domain) and %% filled in, both in lower case.
 * False, with the reason in *ret_why, when a part can't be the name of a directory: it is empty or
 * too long, begins with a dot, or holds a slash or a control character. */
bool maildir_path(struct slice pattern, struct slice recipient, struct slice delimiters,
                  struct buf *out, const char **ret_why);

/* How much of the pattern, and of each path made of it, is the same for all: what stands before the
 * name with the first per cent sign. */
size_t maildir_fixed_len(struct slice pattern);

struct maildir_mail {
    struct mail_copy copy;          /* its path is the maildir's */
    size_t fixed_len;               /* of the path: the operator's; links are followed there only */
    const char *host;               /* our name */
    uint64_t number;                /* different for each delivery of this process */
    const struct lease_page *lease; /* NULL: there is none */
    /* Is set, at any time, when the delivery is to be broken off; NULL: it never is. */
    const _Atomic bool *is_called_back;
};

/* Deliver. 0, or negative errno with what failed in *ret_why ("create /x/tmp/1.P2: ...");
 * -ECANCELED and no more when the lease is over at the last look, or it was called back before:
 * nothing was delivered then. */
int maildir_deliver(const struct maildir_mail *mail, mail_read *read, void *arg,
                    struct buf *ret_why);

/* What an error of maildir_deliver means for the message. */
struct status maildir_status(int error);

#endif
