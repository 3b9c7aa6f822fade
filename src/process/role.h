/*
 * The common part of all child processes: start, configuration, channels, event loop, end.
 *
 * A role is a table of functions with a struct role. role_main reads the parent's first frames from
 * the inherited channel, loads the configuration from them, calls the role's functions, confines
 * the process, and runs the loop:
 *
 *     one turn: events (sockets, channels, timers) -> ops->turn -> channels and log written out
 *
 * The loop ends when the role calls role_exit, or at once when the parent's channel closes: a child
 * never outlives its parent. A queue process whose loop stands still for qmgr_daemon_timeout ends
 * itself (watchdog.h). Only the parent handles signals. A child ignores SIGPIPE, and also SIGINT,
 * SIGTERM, SIGHUP, SIGQUIT, SIGALRM, SIGUSR1 and SIGUSR2, which are sent to the whole process group
 * of a terminal or daemon; WIRE_STOP stops it.
 *
 *   parent's frames:  CONF (LISTENER | PEER | CLOCK)* START ... (CONF | LISTENER | PEER | CLOCK |
 *                     LOG | the role's own)* STOP
 *   role's functions: start, then listener and peer in the order of the frames, confinement, begin,
 *                     STARTED to the parent
 *
 * After a reload the parent sends listeners only for URLs without a listener so far. The role
 * closes in `reload` each listener whose URL the new configuration lacks (conf->listen).
 */
#ifndef PROCESS_ROLE_H
#define PROCESS_ROLE_H

#include <stdbool.h>
#include <stdint.h>

#include "channel.h"
#include "conf.h"
#include "times.h"
#include "wire.h"

/* Child processes of a killed daemon end when they find their channels closed. PREDECESSOR_WAIT_US:
 * how long a new daemon waits for that; PREDECESSOR_LOOK_US: time between two checks. */
#define PREDECESSOR_WAIT_US (10 * US_PER_S)
#define PREDECESSOR_LOOK_US (50 * US_PER_MS)

struct event_base;
struct role;

/* Kinds of roles; a shutdown stops one kind after the other. */
enum role_kind {
    ROLE_TAKES_MAIL, /* first: roles that accept mail */
    ROLE_WORKS,      /* then the queue process and the roles that deliver for it */
    ROLE_ANSWERS,    /* last: control, because it shows the others */
    ROLE_KINDS,
};

struct role_ops {
    enum wire_role role;
    const char *program; /* name in log tags: "smtpd", "qmgr", "smtp" */
    enum role_kind kind;
    /* talks to the network: the control process answers no process with such a pid */
    bool is_exposed;

    /* Returns the number of its processes for a configuration; NULL: one. */
    unsigned (*count)(const struct conf *conf);

    /* Opens files and resources that need privileges, with the first configuration, before
     * confinement. Sets role->state to the role's own state. If not 0, the result is the exit
     * status of the process. The queue process already has its user, so that it owns the files that
     * it makes. */
    int (*start)(struct role *role);

    /* Takes a listening socket (receive, control). May be NULL. */
    void (*listener)(struct role *role, struct slice url, int fd);

    /* Takes `fd`, a channel to another process: the first one, or a new one after a restart of that
     * process. Makes a channel with the role's own callback. */
    void (*peer)(struct role *role, const struct wire_peer *peer, int fd);

    /* Handles a frame of the parent that role_main does not handle. Returns false if the type is
     * unknown; then the process ends. */
    bool (*parent_frame)(struct role *role, const struct frame *frame);

    /* Begins work: all first channels and listeners are open, the process is confined. May be
     * NULL. */
    void (*begin)(struct role *role);

    /* Takes the new configuration role->conf; `old` is freed after the call. */
    void (*reload)(struct role *role, const struct conf *old);

    /* Begins a graceful shutdown; calls role_exit(role, 0) at its end. */
    void (*stop)(struct role *role);

    /* Handles a move of the clock (WIRE_CLOCK). May be NULL. */
    void (*clock_moved)(struct role *role);

    /* Runs after the events of each turn. May be NULL. */
    void (*turn)(struct role *role);

    /* Frees channels and state after the loop. May be NULL. Is not called if `start` failed. */
    void (*end)(struct role *role);
};

struct role {
    const struct role_ops *ops;
    struct event_base *base;
    struct channel *parent;
    const struct conf *conf;       /* owned by role_main */
    const struct wire_file *files; /* all files of the configuration; valid until the next reload */
    uint32_t file_count;
    int tables_fd; /* tables of rules of the configuration, or -1; valid until the next reload */
    uint64_t conf_generation;
    unsigned index; /* index among the processes of this role */
    bool stopping;
    enum wire_stop stop_how;
    void *state; /* private to the role */

    /* private to role.c */
    struct role_private *inner;
};

/* Returns the mode of new log files: readable by all if the spool's files are shared. */
unsigned role_log_mode(const struct conf *conf);

/* Runs a child process until its end and returns its exit status. `parent_fd` is the inherited
 * channel. */
int role_main(const struct role_ops *ops, unsigned index, int parent_fd);

/* Ends the loop after this turn. The role must call channel_drain for last frames to other
 * processes. */
void role_exit(struct role *role, int status);

/* Handles the close of the channel to the queue process. If the queue process was restarted, the
 * parent sends a new channel. If none arrives, the queue process has closed the channel because of
 * a frame from this process; then this process ends after a while, so that the parent starts it
 * with new channels. */
void role_queue_lost(struct role *role);

/* Returns the current configuration with `lines` of parameters appended, or NULL on an error; the
 * caller frees it. `name` is the name of the combined text in problems. Initializes `problems`,
 * which conf_problems_fini releases. */
struct conf *role_conf_with(const struct role *role, struct slice lines, const char *name,
                            struct conf_problems *problems);

/* Returns the bytes of a file of the configuration by its path as configured; ptr is NULL if there
 * is none. */
struct slice role_file(const struct role *role, struct slice path);

/* The roles of all rooms. */
extern const struct role_ops receive_role, queue_role, deliver_role, local_role, control_role,
    pickup_role, auth_role, fetch_role, hook_role, filter_role, whatif_role, resolve_role;

#endif
