/*
 * The start of a child process that delivers, and its failure.
 *
 * A child reports a failure as "x.y.z text" on standard output, with a matching exit status;
 * pipe_result reads both.
 */
#ifndef DELIVER_CHILD_H
#define DELIVER_CHILD_H

#include "status.h"

/* Resets signals to their defaults, except SIGXFSZ: it is ignored, so that a full quota is an error
 * and does not kill the process. */
void child_reset_signals(void);

/* Writes the reason to standard output and ends this process. */
_Noreturn void child_fail(struct status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
