#include "watchdog.h"

#include <event2/event.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/time.h>
#include <unistd.h>

#include "check.h"
#include "times.h"

static struct event *note;                 /* NULL: not started */
static volatile sig_atomic_t signals_left; /* number of signals until the process ends */

static void on_alarm(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number;
    (void)context;
    if (info->si_code == SI_USER) {
        return; /* sent to the whole process group of a daemon */
    }
    if (--signals_left <= 0) {
        _exit(WATCHDOG_EXIT); /* other functions might not return */
    }
}

static void on_note(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
    signals_left = WATCHDOG_STEPS;
}

static void set_timer(struct timeval period)
{
    const struct itimerval timer = {.it_interval = period, .it_value = period};

    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

void watchdog_start(struct event_base *base, int64_t timeout_us)
{
    const struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART, .sa_sigaction = on_alarm};
    int64_t step_us = timeout_us / WATCHDOG_STEPS + 1;
    struct timeval period = {.tv_sec = step_us / US_PER_S, .tv_usec = step_us % US_PER_S};

    CHECK(timeout_us > 0);
    if (note == NULL) {
        note = event_new(base, -1, EV_PERSIST, on_note, NULL);
        CHECK(note != NULL);
    }
    CHECK(event_add(note, &period) == 0);
    signals_left = WATCHDOG_STEPS;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    set_timer(period);
}

void watchdog_stop(void)
{
    if (note != NULL) {
        set_timer((struct timeval){0});
        CHECK(signal(SIGALRM, SIG_IGN) != SIG_ERR);
        event_free(note);
        note = NULL;
    }
}
