/*
 * Starts the process of a transport agent. A stream socket is its standard input, output and error.
 * It has its own environment, working directory, user, group and priority, and nothing else of
 * ours.
 *
 * The process stays in our process group, because ZMailer's start script ends all processes with a
 * signal to that group.
 */
#ifndef ZMAILER_TA_PROCESS_H
#define ZMAILER_TA_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "buf.h"

/* Umask of agents, as in ZMailer; their children inherit it. */
#define TA_UMASK 022

/* User and group that an agent takes. */
struct ta_identity {
    bool change_group, change_user;
    gid_t gid;
    uid_t uid;
};

/* Finds a user and a group by name or number. An empty name means no change, except that a user
 * without a group gets the user's own group. There is no change, too, if the daemon does not run as
 * root: it has no right to, and the postoffice is its user's. Returns false with the reason in
 * *ret_why for an unknown name. */
bool ta_identity_find(const char *user, const char *group, struct ta_identity *ret_identity,
                      struct buf *ret_why);

struct ta_launch {
    char *const *words; /* [0] is the program's path */
    char *const *environment;
    const char *directory;
    struct ta_identity identity;
    int64_t priority, nice; /* 0: unchanged */
    uint64_t fd_limit;      /* soft limit of descriptors */
};

/* Starts the process. Returns its id, with our non-blocking end of its socket in *ret_fd, or
 * negative errno if the system has no process or descriptor left. The child reports later errors on
 * its socket, as a line that begins with `#`, and exits with status 1. */
pid_t ta_process_start(const struct ta_launch *launch, int *ret_fd);

#endif
