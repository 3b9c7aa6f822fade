/*
 * Delivery into a mailbox file: messages one after the other, each after a line "From SENDER DATE".
 * The format is mboxrd: a line of the message that begins with "From ", or with ">" signs and "From
 * ", gets one more ">" in front.
 *
 *     open, no link followed -> lock -> is it still that file? -> append -> sync -> success
 *
 * After a failure the appended bytes are cut off again. A process that dies during a delivery
 * leaves part of a message; then the next delivery begins with an empty line, which readers need.
 *
 * Locks: PATH.lock on request (unless we must not create it there), then fcntl on the whole file.
 * Both are waited for; a PATH.lock that is older than MBOX_LOCK_STALE_S is removed. Signals that
 * end a process are blocked while the file changes.
 *
 * Never written to: other things than regular files, files with more than one name, files of
 * another user. The only exception is /dev/null.
 *
 * These functions block, so they need a process of their own, with the user's rights.
 */
#ifndef DELIVER_MBOX_H
#define DELIVER_MBOX_H

#include <stdbool.h>

#include "buf.h"
#include "mail_file.h"
#include "slice.h"
#include "status.h"
#include "times.h"

#define MBOX_PATH_MAX     2048
#define MBOX_LOCK_WAIT_S  15
#define MBOX_LOCK_STALE_S 300

struct mbox_mail {
    struct mail_copy copy; /* copy.sender is also used in the "From " line */
    bool dot_lock;         /* use PATH.lock, too */
    int lock_wait_s;
};

/* Appends the "From " line that begins a message in mailboxes and for commands. A null sender
 * becomes MAILER-DAEMON. */
void mbox_put_from(struct buf *out, struct slice sender, struct wall now);

/* Delivers the message. Returns 0, or negative errno and the failed action in *ret_why ("lock
 * /var/mail/joe: ..."). */
int mbox_deliver(const struct mbox_mail *mail, mail_read *read, void *arg, struct buf *ret_why);

/* Returns the status of the message for an error of mbox_deliver. */
struct status mbox_status(int error);

#endif
