/*
 * The SMTP agent: jobs of a scheduler delivered by the client that the daemon uses, one job at a
 * time, several mails of it one after the other. Connections are kept for the next job as the
 * configuration says.
 */
#ifndef ZMAILER_SMTP_AGENT_H
#define ZMAILER_SMTP_AGENT_H

#include "smtp_options.h"

/* Until the scheduler wants no more. Returns the exit status, of sysexits(3). */
int smtp_agent_run(const struct smtp_options *options);

#endif
