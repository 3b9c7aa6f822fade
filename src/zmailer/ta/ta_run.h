/* Main loop, time and host name of agents that process one job at a time. */
#ifndef ZMAILER_TA_RUN_H
#define ZMAILER_TA_RUN_H

#include "ta_agent.h"
#include "ta_job.h"
#include "times.h"

/* Settles recipients of a job; those that it leaves out are tried again. */
typedef void ta_run_work(struct ta_job *job, void *arg);

/* Runs until the scheduler ends the agent. Returns the exit status, of sysexits(3). */
int ta_run(struct ta_agent *agent, ta_run_work *work, void *arg);

/* Returns the current time. */
struct wall ta_run_now(void);

/* Writes our host name, or "localhost" if there is none. */
#define TA_RUN_HOST_SIZE 256
void ta_run_host(char ret_name[TA_RUN_HOST_SIZE]);

#endif
