/*
 * The agent errormail's reports: the recipients of a job are addresses that the router found
 * nothing for, their host word is the name of a form in MAILSHARE/forms, and the one who sent the
 * mail is told so.
 */
#ifndef ZMAILER_ERRORMAIL_REPORT_H
#define ZMAILER_ERRORMAIL_REPORT_H

#include "conf.h"
#include "ta_job.h"

struct errormail {
    const struct conf *zenv; /* MAILSHARE, and what ta_submit wants */
    const char *host;        /* our name */
};

/* Report on the recipients `first` .. `end` - 1, which get the same mail, and settle them. At most
 * REPORT_RCPTS_MAX. */
void errormail_report(const struct errormail *m, struct ta_job *job, size_t first, size_t end);

#endif
