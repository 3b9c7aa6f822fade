#include "child.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sysexits.h>
#include <unistd.h>

void child_reset_signals(void)
{
    sigset_t none;

    for (int s = 1; s < NSIG; s++) {
        (void)signal(s, SIG_DFL); /* some can't be changed */
    }
    (void)signal(SIGXFSZ, SIG_IGN);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

_Noreturn void child_fail(struct status status, const char *format, ...)
{
    char printed[STATUS_SIZE];
    va_list args;

    /* The parent may have closed the pipe. */
    (void)dprintf(STDOUT_FILENO, "%s ", status_print(status, printed));
    va_start(args, format);
    (void)vdprintf(STDOUT_FILENO, format, args);
    va_end(args);
    _exit(status.class == STATUS_PERMANENT ? EX_UNAVAILABLE : EX_TEMPFAIL);
}
