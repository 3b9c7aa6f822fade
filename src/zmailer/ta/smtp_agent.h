/*
 * The SMTP agent delivers jobs of a scheduler with the daemon's SMTP client: one job at a time, the
 * mails of a job one after the other. Connections are kept for the next job as the configuration
 * allows.
 */
#ifndef ZMAILER_SMTP_AGENT_H
#define ZMAILER_SMTP_AGENT_H

#include "smtp_options.h"

/* Runs until the scheduler ends the agent. Returns the exit status, of sysexits(3). */
int smtp_agent_run(const struct smtp_options *options);

#endif
