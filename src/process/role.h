/*
 * What every child process has in common: start-up, configuration, channels, the loop, the end.
 *
 * A role is a table of functions over struct role. role_main reads the parent's first frames from
 * the inherited channel, loads the configuration from them, calls the role's functions, confines
 * the process, and runs the loop:
 *
 *     one turn: events (sockets, channels, timers) -> ops->turn -> channels and log written out
 *
 * The loop ends when the role calls role_exit, or at once when the parent's channel closes: a child
 * never outlives its parent. A queue process whose loop stands still for qmgr_daemon_timeout ends
 * itself (watchdog.h). Signals are the parent's business: a child ignores SIGINT, SIGTERM,
 * SIGHUP, SIGQUIT, SIGALRM, SIGUSR1 and SIGUSR2 (they are sent to all of a terminal's or a daemon's
 * process group) and SIGPIPE, and is stopped with WIRE_STOP.
 *
 *   parent's frames:  CONF (LISTENER | PEER | CLOCK)* START ... (CONF | LISTENER | PEER | CLOCK |
 *                     LOG | the role's own)* STOP
 *   role's functions: start, then listener and peer in the order of the frames, confinement, begin,
 *                     STARTED to the parent
 *
 * After a reload the listeners come anew: those that were there before are sent again only when
 * their URL was not listened to before; a listener whose URL the new configuration lacks is the
 * role's to close in `reload` (conf->listen).
 */
#ifndef PROCESS_ROLE_H
#define PROCESS_ROLE_H

#include <stdbool.h>
#include <stdint.h>

#include "channel.h"
#include "conf.h"
#include "times.h"
#include "wire.h"

/* A daemon that was killed leaves child processes, which end when they find their channels closed.
 * So long a new daemon waits for that, and so often it looks. */
#define PREDECESSOR_WAIT_US (10 * US_PER_S)
#define PREDECESSOR_LOOK_US (50 * US_PER_MS)

struct event_base;
struct role;

/* When processes of a role are told to stop, one kind after the other. */
enum role_kind {
    ROLE_TAKES_MAIL, /* first: what comes in */
    ROLE_WORKS,      /* then the queue and what delivers for it */
    ROLE_ANSWERS,    /* last, as it shows the others */
    ROLE_KINDS,
};

struct role_ops {
    enum wire_role role;
    const char *program; /* in log tags: "smtpd", "qmgr", "smtp" */
    enum role_kind kind;
    bool is_exposed; /* it talks to the network: the control process answers none of these */

    /* How many processes of it a configuration wants; NULL: one. */
    unsigned (*count)(const struct conf *conf);

    /* Before confinement, with the first configuration: open what needs files or privileges.
     * `state` = role->state is the role's own. Nonzero: the process ends with this exit status. The
     * queue has its user already, so that what it creates belongs to it. */
    int (*start)(struct role *role);

    /* A listening socket (receive, control); taken. May be NULL. */
    void (*listener)(struct role *role, struct slice url, int fd);

    /* A channel to a process of role `kind` has come, the first or a new one after its restart:
     * make a channel of `fd` (taken) with an own callback. */
    void (*peer)(struct role *role, const struct wire_peer *peer, int fd);

    /* A frame from the parent that role_main does not know. False = unknown: the process ends. */
    bool (*parent_frame)(struct role *role, const struct frame *frame);

    /* All first channels and listeners are there, the process is confined: begin. May be NULL. */
    void (*begin)(struct role *role);

    /* role->conf is a new configuration; the old one is freed after the call. */
    void (*reload)(struct role *role, const struct conf *old);

    /* Graceful shutdown, then role_exit(role, 0). */
    void (*stop)(struct role *role);

    /* The clock was moved (WIRE_CLOCK). May be NULL. */
    void (*clock_moved)(struct role *role);

    /* After the events of each turn. May be NULL. */
    void (*turn)(struct role *role);

    /* The loop is over: free channels and state. May be NULL. Not called when `start` failed. */
    void (*end)(struct role *role);
};

struct role {
    const struct role_ops *ops;
    struct event_base *base;
    struct channel *parent;
    const struct conf *conf;       /* owned by role_main */
    const struct wire_file *files; /* all files of the configuration; last until the next reload */
    uint32_t file_count;
    int tables_fd; /* the tables of rules that came with the configuration, or -1; like `files` */
    uint64_t conf_generation;
    unsigned index; /* among the processes of this role */
    bool stopping;
    enum wire_stop stop_how;
    void *state; /* the role's own */

    /* role.c's own */
    struct role_private *inner;
};

/* Mode of the log files that are made: for all to read where the spool's files are shared. */
unsigned role_log_mode(const struct conf *conf);

/* The life of a child: returns its exit status. `parent_fd` is the inherited channel. */
int role_main(const struct role_ops *ops, unsigned index, int parent_fd);

/* End the loop after this turn. Last frames for a neighbour are the role's to channel_drain. */
void role_exit(struct role *role, int status);

/* The channel to the queue process was closed. The parent sends a new one when that process was
 * started anew. When none comes, the queue has closed the channel because of something this
 * process sent, and it ends after a while, so that the parent starts it with new channels. */
void role_queue_lost(struct role *role);

/* The present configuration with `lines` of parameters behind it, called `name` in problems, which
 * are initialised here; conf_problems_fini releases them. NULL when there is an error; the caller
 * frees it. */
struct conf *role_conf_with(const struct role *role, struct slice lines, const char *name,
                            struct conf_problems *problems);

/* The bytes of a file of the configuration by its path as written there; ptr NULL when none. */
struct slice role_file(const struct role *role, struct slice path);

/* The roles of the rooms. */
extern const struct role_ops receive_role, queue_role, deliver_role, local_role, control_role,
    pickup_role, auth_role, fetch_role, hook_role, filter_role, whatif_role;

#endif
