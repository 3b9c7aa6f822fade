/* Results of agents that deliver on this machine, in the words of ZMailer's own. */
#ifndef ZMAILER_TA_LOCAL_H
#define ZMAILER_TA_LOCAL_H

#include "slice.h"
#include "status.h"
#include "ta_job.h"

/* The class of `status` decides between success, failure and deferral; `text` says why. */
void ta_local_settle(struct ta_job *job, size_t i, struct status status, struct slice text);

#endif
