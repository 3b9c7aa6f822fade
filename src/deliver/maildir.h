/*
 * Delivery into a maildir: a directory with tmp, new and cur, and a file per message (format of D.
 * J. Bernstein; see qmail's maildir(5)).
 *
 *     write DIR/tmp/NAME, sync it -> last look -> rename to DIR/new/NAME -> sync DIR/new -> success
 *
 * Below the operator's part of the path, no symbolic link is followed: with a link, users could
 * direct a delivery to a place where they must not write.
 *
 * Readers see only complete messages, and after success the message survives a power failure. NAME
 * is unique: time, process, counter, device and inode, host. Missing directories are made, and
 * synced into their parents.
 *
 * These functions block, so they need a process of their own.
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

/* Makes the path of a recipient's directory: replaces in `pattern` %u (local part without quotes,
 * up to the first of the `delimiters`), %d (domain) and %%. %u and %d are in lower case. Returns
 * false and the reason in *ret_why if the path is too long or a part can't be the name of a
 * directory: it is empty, too long, begins with a dot, or has a slash or a control character. */
bool maildir_path(struct slice pattern, struct slice recipient, struct slice delimiters,
                  struct buf *out, const char **ret_why);

/* Returns the length of the pattern's fixed part, which all paths share: the directories before the
 * first name with a per cent sign. */
size_t maildir_fixed_len(struct slice pattern);

struct maildir_mail {
    struct mail_copy copy; /* copy.path is the maildir */
    size_t fixed_len; /* length of the operator's part of the path; links are followed only there */
    const char *host; /* our host name */
    uint64_t number;  /* unique among the deliveries of this process */
    const struct lease_page *lease; /* NULL: no lease */
    /* flag that another process sets to break off the delivery; NULL: none */
    const _Atomic bool *is_called_back;
};

/* Delivers the message. Returns 0, or negative errno and the failed action in *ret_why ("create
 * /x/tmp/1.P2: ..."). Returns -ECANCELED without a text if the lease is over or the delivery was
 * called back at the last look; then nothing was delivered. */
int maildir_deliver(const struct maildir_mail *mail, mail_read *read, void *arg,
                    struct buf *ret_why);

/* Returns the status of the message for an error of maildir_deliver. */
struct status maildir_status(int error);

#endif
