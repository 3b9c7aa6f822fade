/*
 * Delivery of one recipient by the mailbox agent. The recipient's address is one of:
 *
 *     |command      a command, run with the message on its standard input
 *     /file         a mailbox file
 *     name          a user, whose mailbox is DIRECTORY/name or a maildir
 *
 * Commands and files are run and written with the user id in the fourth word of the recipient,
 * which the router sets by the origin of the address. A user's mailbox is written with the user's
 * own id. Each delivery is a process with these rights; it has root's only if the mail is root's.
 * An agent that does not run as root delivers as itself and defers mail of other users.
 */
#ifndef ZMAILER_MAILBOX_DELIVER_H
#define ZMAILER_MAILBOX_DELIVER_H

#include <stdint.h>

#include "conf.h"
#include "ta_job.h"

struct mailbox {
    const struct conf *conf; /* ZMailer's variables */
    const char *directory;   /* directory of mailbox files */
    unsigned levels;         /* number of hash directories below `directory`, made of the name's
                              * first letters; 0..2 */
    const char *maildir;     /* used instead of `directory` if not NULL: a pattern as in
                              * maildir_path, or "~/NAME" */
    const char *host;        /* our host name */
    int command_timeout_s;
    int lock_wait_s;
    uint64_t deliveries; /* number of deliveries so far */
};

/* Delivers to recipient `i` of a job and settles that recipient. */
void mailbox_deliver(struct mailbox *m, struct ta_job *job, size_t i);

#endif
