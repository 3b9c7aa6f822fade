/*
 * POSTOFFICE/.pid.scheduler: the process id of the scheduler, with which the next scheduler ends
 * this one and `mailq -s` and start scripts find it.
 */
#ifndef ZMAILER_SCHEDULER_PID_H
#define ZMAILER_SCHEDULER_PID_H

#include <stdbool.h>

#include "buf.h"

/* Ends the scheduler in the file, ours or ZMailer's, with SIGTERM, and waits up to 5 s for its end.
 * The process is left alone unless its name and working directory are those of a scheduler of this
 * POSTOFFICE. Returns false if the process does not end or the file can't be read, with the reason
 * in *error. */
bool scheduler_pid_replace(const char *postoffice, struct buf *error);

/* Writes our process id. Returns 0 or negative errno. */
int scheduler_pid_write(const char *postoffice);

/* Removes the file if it still has our process id. */
void scheduler_pid_remove(const char *postoffice);

#endif
