/* Results of agents that deliver on this machine, worded as by ZMailer's own agents. */
#ifndef ZMAILER_TA_LOCAL_H
#define ZMAILER_TA_LOCAL_H

#include "slice.h"
#include "status.h"
#include "ta_job.h"

/* Settles recipient `i`. The class of `status` decides between success, failure and deferral;
 * `text` is the reason. */
void ta_local_settle(struct ta_job *job, size_t i, struct status status, struct slice text);

#endif
