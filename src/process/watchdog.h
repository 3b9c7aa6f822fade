/*
 * Ends this process when its event loop has stood still for too long, so that its parent starts it
 * again: a hanging process (in a system call, in an endless loop) delivers no mail.
 *
 * The method is that of Postfix's watchdog.c. A kernel timer sends SIGALRM WATCHDOG_STEPS times per
 * timeout. A timer of the event loop, with the same period, records that the loop runs. After
 * WATCHDOG_STEPS signals without such a record the process ends with WATCHDOG_EXIT. So a loop may
 * stand still for at least the timeout, and at most WATCHDOG_STEPS + 1 steps. A stopped process
 * (SIGSTOP, a debugger) gets only one signal, however long it is stopped, and does not end.
 *
 * A process has one watchdog. While it runs, system calls may end early with EINTR.
 */
#ifndef PROCESS_WATCHDOG_H
#define PROCESS_WATCHDOG_H

#include <stdint.h>

struct event_base;

#define WATCHDOG_STEPS 3
/* Exit status that is not in sysexits.h, so that the parent can identify it. */
#define WATCHDOG_EXIT 90

/* Watches `base`, which is borrowed until watchdog_stop; the timeout is at least 1 us. A further
 * call sets a new timeout. */
void watchdog_start(struct event_base *base, int64_t timeout_us);

/* Stops watching; does nothing without watchdog_start. */
void watchdog_stop(void);

#endif
