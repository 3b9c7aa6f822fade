/*
 * One mail of a job in the form of the SMTP client: recipients with the same content, sender and
 * host, and that content in wire form.
 *
 * Addresses, parameters and hosts of the control file are checked here, so that each can only
 * become an argument of an SMTP command. A recipient whose address is invalid is settled at once
 * and left out of the mail.
 */
#ifndef ZMAILER_SMTP_MAIL_H
#define ZMAILER_SMTP_MAIL_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "smtp_options.h"
#include "ta_job.h"
#include "wire.h"

struct smtp_mail {
    struct wire_deliver ask;         /* slices point into the job and into the members below */
    struct wire_deliver_rcpt *rcpts; /* owned; also ask.rcpts. `n` is the recipient's index in the
                                      * job */
    struct buf texts;                /* sender, addresses and next hop */
    int content;                     /* file descriptor; -1 after it was taken */
};

/* Makes a mail of the recipients that begin with *first, and sets *first to the next recipient
 * after them. Returns false if nothing is left to deliver: those recipients are settled, or will be
 * tried again after an error here, which the scheduler was sent. */
bool smtp_mail_next(struct smtp_mail *mail, const struct smtp_options *options, struct ta_job *job,
                    size_t *first);

void smtp_mail_fini(struct smtp_mail *mail);

#endif
