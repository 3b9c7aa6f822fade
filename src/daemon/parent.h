/*
 * The parent: starts, connects, restarts, reconfigures and stops the other processes.
 *
 *   STARTING --all started--> RUNNING --SIGTERM, SIGINT, WIRE_STOP_ALL--> STOP_RECEIVE
 *                                             receive has ended, or half the time is over |
 *                                  STOP_WORK (queue, deliver, local finish what they do) <+
 *                                             the queue has ended, or the time is over |
 *                                  STOP_REST (everybody; after STOP_GRACE they are killed) <+
 *
 * Processes begin in the order queue, deliver, local, control, receive: mail is accepted when
 * everything behind is there. One that ends by itself is started again, at once the first time,
 * and after a pause that doubles from 1 s to service_throttle_time while it keeps ending soon.
 * During STARTING such an end stops everything instead, so that a wrong set-up is noticed.
 *
 * Signals: SIGTERM and SIGINT stop (a second one hastens), SIGHUP reloads, SIGUSR1 opens the log
 * again. As ZMailer's scheduler: SIGTERM and SIGINT stop, SIGQUIT stops when what runs has ended,
 * however long that takes, SIGHUP opens the logs again, SIGUSR1 reloads, SIGALRM looks for work at
 * once, SIGUSR2 writes mailq_dump_file.
 * A reload with errors changes nothing; see parent.c for what only a restart changes.
 *
 * Sockets of a postoffice's mailq protocols that can't be opened are tried again every few seconds,
 * as ZMailer does; all others must be there at the start.
 *
 * The parent reads no data from the network. It does read maildrop (pickup.h).
 */
#ifndef DAEMON_PARENT_H
#define DAEMON_PARENT_H

#include <stdbool.h>

#include "bundle.h"
#include "slice.h"

/* What the program that calls has made of its command line. */
struct parent_plan {
    const char *path;     /* of the configuration file; NULL: the built-in one */
    struct slice text;    /* what stands for that file's content, and is written there for programs
                           * that look at the daemon; empty: what is in it. Borrowed */
    struct bundle *first; /* what was read of it just now; taken. NULL: read it */
    bool is_scheduler;    /* ZMailer's signals, and nothing on standard output */
    int ready_fd;         /* gets a byte when the daemon works, and is closed; -1: nobody waits */
};

/* Run the daemon until it is stopped. The exit status, as in sysexits.h. */
int parent_main(const struct parent_plan *plan);

#endif
