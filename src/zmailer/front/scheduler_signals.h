/*
 * Effects of signals on the scheduler, as ZMailer defines them.
 *
 *     SIGQUIT   stop after the active deliveries   SIGALRM   look for work now
 *     SIGHUP    open the logs again                SIGUSR2   write mailq_dump_file
 *     SIGUSR1   reload the configuration
 */
#ifndef ZMAILER_SCHEDULER_SIGNALS_H
#define ZMAILER_SCHEDULER_SIGNALS_H

#include "parent.h"

/* Value for parent_plan.signals. */
extern const struct parent_signal scheduler_signals[];

/* Removes an incomplete mailq_dump_file at the end; for parent_plan.ended. */
void scheduler_signals_end(void);

#endif
