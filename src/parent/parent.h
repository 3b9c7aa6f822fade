/*
 * The parent: starts, connects, restarts, reconfigures and stops the other processes.
 *
 *   STARTING --all started--> RUNNING --SIGTERM, SIGINT, WIRE_STOP_ALL--> STOP_RECEIVE
 *                                     receive, pickup have ended, or half the time is over |
 *                                  STOP_WORK (queue, deliver, local finish what they do) <+
 *                                             the queue has ended, or the time is over |
 *                                 STOP_REST (all; after STOP_GRACE they are killed) <--+
 *
 * Processes begin in the order queue, deliver, local, control, auth, receive, pickup: mail is
 * accepted when all other processes run. A process that ends by itself is restarted. The first
 * restart is immediate; while the process keeps ending soon, later ones wait for a pause that
 * doubles from 1 s to service_throttle_time. During STARTING such an end stops the daemon instead,
 * so that a wrong set-up is noticed.
 *
 * Signals: SIGTERM and SIGINT stop the daemon (a second one shortens the wait); the program defines
 * others. A reload with errors changes nothing; parent.c lists the changes that need a restart.
 *
 * Optional sockets of extensions (extension.h) that can't be opened are tried again every few
 * seconds; all other sockets must open at the start.
 *
 * The parent reads no data from the network or from users.
 */
#ifndef PARENT_PARENT_H
#define PARENT_PARENT_H

#include <stdbool.h>

#include "bundle.h"
#include "role.h"
#include "slice.h"

struct event_base;
struct parent;

/* Action of a signal. */
struct parent_signal {
    int number;
    void (*act)(struct parent *p);
};

/* Options that the calling program has taken from its command line. */
struct parent_plan {
    /* roles in the order in which they begin; NULL ends them */
    const struct role_ops *const *roles;
    const char *path; /* path of the configuration file; NULL: built-in configuration */
    /* text in place of that file's content; also written to that file, for programs that look at
     * the daemon. Empty: read the file. Borrowed */
    struct slice text;
    struct bundle *first; /* configuration that was just read; taken. NULL: read it */
    const struct parent_signal
        *signals;        /* in addition to SIGTERM, SIGINT and SIGCHLD; number 0 ends them */
    bool is_quiet;       /* print nothing to standard output */
    const char *program; /* name in its log tags; NULL: "master" */
    /* Runs when all processes were started, with the parent's privileges. May be NULL. */
    void (*begun)(struct parent *p);
    void (*ended)(int status); /* runs at the end, with the exit status; may be NULL */
    int ready_fd;              /* gets a byte when the daemon works, then is closed; -1: none */
};

/* Reloads the configuration, or opens the log again; actions of signals. */
void parent_reload(struct parent *p);
void parent_reopen_log(struct parent *p);
/* Stops the daemon when all active work has ended, however long that takes. */
void parent_stop_slowly(struct parent *p);
/* Ends all processes and then the parent at once with this status; active work is lost, as after a
 * kill. */
void parent_end_now(struct parent *p, int status);
/* Makes the queue process check its spool now. */
void parent_look_for_work(struct parent *p);

/* Returns the current configuration and event loop, for actions of the program. */
const struct conf *parent_conf(const struct parent *p);
struct event_base *parent_base(const struct parent *p);
/* Sends a message to a service of the control process; takes `fd` (-1: none). Returns false if the
 * control process does not run. */
bool parent_tell_service(struct parent *p, const struct wire_service *m, int fd);

/* Runs the daemon until it is stopped. Returns the exit status, as in sysexits.h. */
int parent_main(const struct parent_plan *plan);

#endif
