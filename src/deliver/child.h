/*
 * What a child process that delivers does at its start, and how it says what went wrong.
 *
 * That is "x.y.z text" on standard output and an exit status that fits; pipe_result reads both.
 */
#ifndef DELIVER_CHILD_H
#define DELIVER_CHILD_H

#include "status.h"

/* Signals as a program expects them at its start, but for SIGXFSZ: a full quota is an error to
 * report, not a death. */
void child_reset_signals(void);

/* End this process with the reason. */
_Noreturn void child_fail(struct status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
