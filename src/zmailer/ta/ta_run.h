/* The life of an agent that does one thing after the other, and what such agents know of the
 * world. */
#ifndef ZMAILER_TA_RUN_H
#define ZMAILER_TA_RUN_H

#include "ta_agent.h"
#include "ta_job.h"
#include "times.h"

/* Settles the recipients of a job, or some of them: the others are tried again. */
typedef void ta_run_work(struct ta_job *job, void *arg);

/* Until the scheduler wants no more. Returns the exit status, of sysexits(3). */
int ta_run(struct ta_agent *agent, ta_run_work *work, void *arg);

/* The time. */
struct wall ta_run_now(void);

/* Our name, "localhost" when we have none. */
#define TA_RUN_HOST_SIZE 256
void ta_run_host(char ret_name[TA_RUN_HOST_SIZE]);

#endif
