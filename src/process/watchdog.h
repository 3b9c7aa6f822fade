/*
 * Ends this process when its event loop has stood still for too long, so that its parent starts it
 * anew: a process that hangs (in a system call, in an endless loop) helps no mail.
 *
 * The method is that of Postfix's watchdog.c. A timer of the kernel sends SIGALRM WATCHDOG_STEPS
 * times in a timeout; a timer of the event loop, with the same period, notes that the loop still
 * turns. When the signal has come WATCHDOG_STEPS times without such a note, the process ends with
 * WATCHDOG_EXIT. So a loop may stand still for the timeout at least, and for WATCHDOG_STEPS + 1
 * steps at most. A process that is stopped (SIGSTOP, a debugger) gets one signal however long that
 * lasts, and does not end because of it.
 *
 * One per process. While it runs, system calls may end early with EINTR.
 */
#ifndef PROCESS_WATCHDOG_H
#define PROCESS_WATCHDOG_H

#include <stdint.h>

struct event_base;

#define WATCHDOG_STEPS 3
/* None of sysexits.h, so that the parent knows the reason. */
#define WATCHDOG_EXIT 90

/* Watch `base` (borrowed until watchdog_stop); at least 1 us. Called again: with the new
 * timeout. */
void watchdog_start(struct event_base *base, int64_t timeout_us);

/* Without watchdog_start: no effect. */
void watchdog_stop(void);

#endif
