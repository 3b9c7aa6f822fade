/*
 * What signals do to the scheduler: ZMailer's meanings of them.
 *
 *     SIGQUIT   stop when what runs has ended      SIGALRM   look for work now
 *     SIGHUP    open the logs again                SIGUSR2   write mailq_dump_file
 *     SIGUSR1   reload the configuration
 */
#ifndef ZMAILER_SCHEDULER_SIGNALS_H
#define ZMAILER_SCHEDULER_SIGNALS_H

#include "parent.h"

/* For parent_plan. */
extern const struct parent_signal scheduler_signals[];

/* parent_plan.ended: a file that was being written is not complete, and is removed. */
void scheduler_signals_end(void);

#endif
