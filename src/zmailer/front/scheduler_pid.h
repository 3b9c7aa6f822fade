/*
 * POSTOFFICE/.pid.scheduler: who the scheduler is, so that the next one ends it, and that
 * `mailq -s` and start scripts find it.
 */
#ifndef ZMAILER_SCHEDULER_PID_H
#define ZMAILER_SCHEDULER_PID_H

#include <stdbool.h>

#include "buf.h"

/* End the scheduler that the file names, ours or ZMailer's: SIGTERM, then up to 5 s for it to go.
 * A number that belongs to no process, or to one that is no scheduler of this POSTOFFICE (by its
 * name and its working directory), is left alone. False when
 * it does not go, or the file can't be read; *error says why. */
bool scheduler_pid_replace(const char *postoffice, struct buf *error);

/* Write the own number. 0 or a negative errno. */
int scheduler_pid_write(const char *postoffice);

/* Remove the file if it still has the own number. */
void scheduler_pid_remove(const char *postoffice);

#endif
