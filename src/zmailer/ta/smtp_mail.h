/*
 * One mail of a job as the SMTP client takes it: those recipients that get the same bytes from the
 * same sender at the same place, their content in the form it travels in.
 *
 * What a control file has for addresses, parameters and hosts is checked here: nothing that could
 * become more than an argument of an SMTP command goes on. Recipients whose address is none have
 * their result then, and are not among those of the mail.
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
    struct wire_deliver ask;         /* slices point into the job and into what is below */
    struct wire_deliver_rcpt *rcpts; /* owned; ask.rcpts. `n` is the recipient's index in the job */
    struct buf texts;                /* sender, addresses, next hop */
    int content;                     /* descriptor; -1 once it was taken */
};

/* The mail of the recipients that begin with *first, which goes behind them. False when none is
 * left to deliver to: those have a result, but for some that are to be tried again because
 * something failed here (then the scheduler was told). */
bool smtp_mail_next(struct smtp_mail *mail, const struct smtp_options *options, struct ta_job *job,
                    size_t *first);

void smtp_mail_fini(struct smtp_mail *mail);

#endif
