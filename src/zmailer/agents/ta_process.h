/*
 * Starting the process of a transport agent: one stream socket as its standard input, output and
 * error, the environment and working directory it is given, its own user, group and priority, and
 * nothing else of ours.
 *
 * It stays in our process group: ZMailer's start script ends the whole family by signalling that.
 */
#ifndef ZMAILER_TA_PROCESS_H
#define ZMAILER_TA_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "buf.h"

/* Of agents, as ZMailer's have it: what they start, and what that writes, inherits it. */
#define TA_UMASK 022

/* Whom it becomes. */
struct ta_identity {
    bool change_group, change_user;
    gid_t gid;
    uid_t uid;
};

/* Look up names or numbers, both may be empty: unchanged (a user without a group has its own one).
 * Unchanged, too, when the daemon is not root's: it can't change, and its postoffice is its user's
 * own. False with the reason in *ret_why: no such name. */
bool ta_identity_find(const char *user, const char *group, struct ta_identity *ret_identity,
                      struct buf *ret_why);

struct ta_launch {
    char *const *words; /* [0] the program's path */
    char *const *environment;
    const char *directory;
    struct ta_identity identity;
    int64_t priority, nice; /* 0: unchanged */
    uint64_t fd_limit;      /* soft limit of descriptors */
};

/* The process's number, and our end of its socket, which does not block. Negative errno when the
 * system has no process or descriptor to spare. What goes wrong later the child says on its socket,
 * as a line that begins with `#`, and ends with status 1. */
pid_t ta_process_start(const struct ta_launch *launch, int *ret_fd);

#endif
