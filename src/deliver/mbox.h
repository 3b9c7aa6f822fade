/*
 * Delivery into a mailbox file, one message behind the other, each after a line "From SENDER DATE"
 * (the format is mboxrd: a line of the message that begins with "From ", or with ">" signs and
 * that, gets a ">" in front).
 *
 *     open, no link followed -> lock -> is it still that file? -> append -> sync -> success
 *
 * What was appended before something failed is cut off again. A process that dies in the middle
 * leaves part of a message; the next one then begins with an empty line, as readers want it.
 *
 * Locks: PATH.lock if wanted (left away where we may not create it), then fcntl on the whole file.
 * Both are waited for; a PATH.lock that was not touched for MBOX_LOCK_STALE_S is taken away.
 * Signals that end a process are held back while the file is being changed.
 *
 * Never written to: what is no regular file, has more than one name, or belongs to another user.
 * The one exception is /dev/null.
 *
 * These functions block: they are for a process of their own, which has the user's rights.
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
    struct mail_copy copy; /* its sender is that of the "From " line, too */
    bool dot_lock;         /* PATH.lock, too */
    int lock_wait_s;
};

/* The line in front of a message, as mailboxes and commands get it. A null sender is
 * MAILER-DAEMON. */
void mbox_put_from(struct buf *out, struct slice sender, struct wall now);

/* Deliver. 0, or negative errno with what failed in *ret_why ("lock /var/mail/joe: ..."). */
int mbox_deliver(const struct mbox_mail *mail, mail_read *read, void *arg, struct buf *ret_why);

/* What an error of mbox_deliver means for the message. */
struct status mbox_status(int error);

#endif
