#include "scheduler_signals.h"

#include <event2/util.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "dump.h"
#include "log.h"
#include "mailq_serve.h"

static struct dump *dump; /* dump that is being written; NULL: none */

static void dump_ended(void *arg)
{
    (void)arg;
    dump_free(dump);
    dump = NULL;
}

/* Starts to write mailq_dump_file. This process is a mailq client of the control process. */
static void dump_queue(struct parent *p)
{
    const struct wire_service m = {.name = SLICE(MAILQ_SERVICE), .what = MAILQ_DUMP};
    int fds[2];

    if (dump != NULL) {
        log_warning("mailq_dump_file: not now: it is being written");
        return;
    }
    /* fails as for child processes: a parent without descriptors can't go on */
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    if (!parent_tell_service(p, &m, fds[1])) {
        (void)close(fds[0]); /* no data will arrive */
        log_warning("mailq_dump_file: not now: the daemon is starting or stopping");
        return;
    }
    CHECK(evutil_make_socket_nonblocking(fds[0]) == 0);
    dump = dump_new(parent_base(p), parent_conf(p)->mailq_dump_file, fds[0], dump_ended, NULL);
}

const struct parent_signal scheduler_signals[] = {
    {SIGQUIT, parent_stop_slowly}, {SIGHUP, parent_reopen_log},     {SIGUSR1, parent_reload},
    {SIGUSR2, dump_queue},         {SIGALRM, parent_look_for_work}, {0, NULL},
};

void scheduler_signals_end(void)
{
    dump_ended(NULL);
}
