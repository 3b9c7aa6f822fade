/*
 * Reports of the agent errormail. The recipients of its jobs are addresses that the router could
 * not resolve; their host word names a form in MAILSHARE/forms. The sender of the mail gets a
 * report in this form.
 */
#ifndef ZMAILER_ERRORMAIL_REPORT_H
#define ZMAILER_ERRORMAIL_REPORT_H

#include "conf.h"
#include "ta_job.h"

struct errormail {
    const struct conf *zenv; /* has MAILSHARE and the variables of ta_submit */
    const char *host;        /* our host name */
};

/* Reports the recipients `first` .. `end` - 1 to the sender and settles them. They must have the
 * same content, sender and form, and be at most REPORT_RCPTS_MAX. */
void errormail_report(const struct errormail *m, struct ta_job *job, size_t first, size_t end);

#endif
