#include <event2/event.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "times.h"
#include "unit.h"
#include "watchdog.h"

#define TICKS 30

static struct event_base *base;
static struct event *tick;
static int ticks;

static void on_hang(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
    for (;;) {
        (void)pause(); /* the signals of the watchdog end it each time */
    }
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
    /* Those of a terminal or a service manager go to all processes, and do not count. */
    (void)kill(getpid(), SIGALRM);
    if (++ticks == TICKS) {
        (void)event_base_loopbreak(base);
    }
}

/* The exit status of a process that runs a loop with `callback` every `every_us`. */
static int end_of_loop(event_callback_fn callback, int64_t every_us, int64_t timeout_us)
{
    const struct timeval every = {.tv_usec = every_us};
    pid_t child = fork();
    int status;

    if (child == 0) {
        base = event_base_new();
        tick = event_new(base, -1, EV_PERSIST, callback, NULL);
        (void)event_add(tick, &every);
        watchdog_start(base, timeout_us);
        (void)event_base_dispatch(base);
        watchdog_stop();
        (void)kill(getpid(), SIGALRM); /* ignored from here on */
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void a_loop_that_stands_still_is_ended(void **unused)
{
    (void)unused;
    assert_int_equal(end_of_loop(on_hang, 1000, 50000), WATCHDOG_EXIT);
}

/* Over several timeouts, in most of which nothing happens. */
static void a_loop_that_turns_or_waits_goes_on(void **unused)
{
    (void)unused;
    assert_int_equal(end_of_loop(on_tick, 100000, US_PER_S), 0);
}

/* The first timeout, an hour, would not end before the test. */
static void on_hang_with_another_timeout(evutil_socket_t fd, short what, void *arg)
{
    watchdog_start(base, 50000);
    on_hang(fd, what, arg);
}

static void a_new_timeout_holds_at_once(void **unused)
{
    (void)unused;
    assert_int_equal(end_of_loop(on_hang_with_another_timeout, 1000, 3600 * US_PER_S),
                     WATCHDOG_EXIT);
}

UNIT_MAIN(cmocka_unit_test(a_loop_that_stands_still_is_ended),
          cmocka_unit_test(a_loop_that_turns_or_waits_goes_on),
          cmocka_unit_test(a_new_timeout_holds_at_once))
