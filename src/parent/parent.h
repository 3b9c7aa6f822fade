/*
 * The parent: starts, connects, restarts, reconfigures and stops the other processes.
 *
 *   STARTING --all started--> RUNNING --SIGTERM, SIGINT, WIRE_STOP_ALL--> STOP_RECEIVE
 *                                     receive, pickup have ended, or half the time is over |
 *                                  STOP_WORK (queue, deliver, local finish what they do) <+
 *                                             the queue has ended, or the time is over |
 *                                  STOP_REST (all; after STOP_GRACE they are killed) <--+
 *
 * Processes begin in the order queue, deliver, local, control, auth, receive, pickup: mail is
 * accepted when everything behind is there. One that ends by itself is started again, at once the
 * first time, and after a pause that doubles from 1 s to service_throttle_time while it keeps
 * ending soon. During STARTING such an end stops everything instead, so that a wrong set-up is
 * noticed.
 *
 * Signals: SIGTERM and SIGINT stop (a second one hastens); what others do is said by the program.
 * A reload with errors changes nothing; see parent.c for what only a restart changes.
 *
 * Optional sockets of extensions (extension.h) that can't be opened are tried again every few
 * seconds; all others must be there at the start.
 *
 * The parent reads nothing that comes from the network or from users.
 */
#ifndef PARENT_PARENT_H
#define PARENT_PARENT_H

#include <stdbool.h>

#include "bundle.h"
#include "role.h"
#include "slice.h"

struct event_base;
struct parent;

/* What a signal does. */
struct parent_signal {
    int number;
    void (*act)(struct parent *p);
};

/* What the program that calls has made of its command line. */
struct parent_plan {
    const struct role_ops *const *roles; /* NULL ends them; in the order in which they begin */
    const char *path;                    /* of the configuration file; NULL: the built-in one */
    struct slice text;    /* what stands for that file's content, and is written there for programs
                           * that look at the daemon; empty: what is in it. Borrowed */
    struct bundle *first; /* what was read of it just now; taken. NULL: read it */
    const struct parent_signal
        *signals;        /* beside SIGTERM, SIGINT and SIGCHLD; number 0 ends them */
    bool is_quiet;       /* nothing on standard output */
    const char *program; /* in its log tags; NULL: "master" */
    /* All processes were started, with the privileges that the parent has; NULL: nothing more. */
    void (*begun)(struct parent *p);
    void (*ended)(int status); /* after it has run, with its exit status; NULL: nothing */
    int ready_fd;              /* gets a byte when the daemon works, and is closed; -1: none */
};

/* Actions of signals. */
void parent_reload(struct parent *p);
void parent_reopen_log(struct parent *p);
/* Stop when what runs has ended, however long that takes. */
void parent_stop_slowly(struct parent *p);
/* End at once with this status, and all processes before: what they do is lost, as if they were
 * killed. */
void parent_end_now(struct parent *p, int status);
/* The queue looks at its spool now. */
void parent_look_for_work(struct parent *p);

/* For actions of the program's own. */
const struct conf *parent_conf(const struct parent *p);
struct event_base *parent_base(const struct parent *p);
/* Say something to a service of the control process; `fd` (-1: none) is taken. False: it does not
 * run at present. */
bool parent_tell_service(struct parent *p, const struct wire_service *m, int fd);

/* Run the daemon until it is stopped. The exit status, as in sysexits.h. */
int parent_main(const struct parent_plan *plan);

#endif
