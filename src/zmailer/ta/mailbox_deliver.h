/*
 * One recipient of the mailbox agent: whose mail is it, and into what?
 *
 *     |command      a command of this user id, with the message on its standard input
 *     /file         a mailbox file of this user id
 *     name          the user's mailbox: DIRECTORY/name, or a maildir
 *
 * The user id of commands and files is the fourth word of the recipient, which the router gives by
 * where the address came from; a user's mailbox has the user's own. Each delivery is a process of
 * its own with those rights, and not root's, unless that is whose mail it is. An agent that is not
 * root delivers as itself and defers what belongs to others.
 */
#ifndef ZMAILER_MAILBOX_DELIVER_H
#define ZMAILER_MAILBOX_DELIVER_H

#include <stdint.h>

#include "conf.h"
#include "ta_job.h"

struct mailbox {
    const struct conf *conf; /* of ZMailer's variables */
    const char *directory;   /* of mailbox files */
    unsigned levels;         /* directories below it: the first letters of the name; 0..2 */
    const char *maildir;     /* instead: a pattern as maildir_path has it, or "~/NAME"; NULL */
    const char *host;        /* our name */
    int command_timeout_s;
    int lock_wait_s;
    uint64_t deliveries; /* so far */
};

/* Deliver to recipient `i` of a job, and settle it. */
void mailbox_deliver(struct mailbox *m, struct ta_job *job, size_t i);

#endif
