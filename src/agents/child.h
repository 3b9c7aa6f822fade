/*
 * What a child process does that delivers: how it begins, and its last words.
 *
 * Last words are "x.y.z text" on standard output and an exit status that fits, which pipe_result
 * understands.
 */
#ifndef AGENTS_CHILD_H
#define AGENTS_CHILD_H

#include "status.h"

/* Signals as a program expects them at its start, but for SIGXFSZ: a full quota is an error to
 * report, not a death. */
void child_reset_signals(void);

_Noreturn void child_fail(struct status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
