/*
 * Taking power away from a process that has started up, so that whoever takes it over gets little.
 *
 *                 user           chroot            Landlock                   system calls
 *   receive       receive_user   chroot_directory  no file, no TCP connect    sockets it was given
 *   deliver       deliver_user   chroot_directory  no file                    may connect, to Unix
 *                                                                             sockets if it must
 *   control       receive_user   chroot_directory  no file, no TCP connect    sockets it was given
 *   queue         mail_owner     -                 spool's directories        files, no exec
 *    (postoffice) (stays)        -                 spool's directories        files, no exec
 *   local, agents (stays)        -                 -                          no administration
 *
 * Users and chroot need a start as root and are parameters that may be empty. The filter of system
 * calls is always there; Landlock where the kernel has it. A call that is on no list ends the
 * process (SIGSYS). With SLUICE_SECCOMP=trap in the environment the process first says on standard
 * error which one it was; that is for whoever extends a list.
 *
 * Opening a file or a socket where the role may not is refused with EACCES instead: libraries try
 * such things politely (a configuration file, a log socket), and a refusal gives away nothing.
 *
 * A postoffice is written by programs of many users: its control files belong to the senders, and
 * what is handed to the router must come from root to be believed. So the queue process of one
 * stays root, but keeps only the capabilities to get at files whoever they belong to
 * (CAP_DAC_OVERRIDE, CAP_FOWNER) and to write a user's verbose file as that user (CAP_SETUID);
 * Landlock holds it to the postoffice, and nothing can be executed. It may ask whether a process is
 * alive (kill with signal 0, pidfd_open), for the locks of agents.
 *
 * local and agents run the commands of others, under the ids of others, so they keep what that
 * takes: as root they do not set no_new_privs, or a user's command could not run the set-group-id
 * sendmail. Only calls that administer a machine are refused there; a root that is none (without
 * CAP_SYS_ADMIN) may not even have them refused, and goes without.
 */
#ifndef DAEMON_CONFINE_H
#define DAEMON_CONFINE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "buf.h"
#include "wire.h"

struct confine_user {
    uid_t uid;
    gid_t gid;
};

/* The ids of a user, given by name or number. False when there is no such user: *ret_error then
 * says so. A name that is missing is never replaced by another one (nobody): the files of two
 * programs that fall back to the same user are open to each other. */
bool confine_find_user(const char *name, struct confine_user *ret_user, struct buf *ret_error);

/* As many descriptors as the system lets us have, and no core files (they would hold mail and
 * keys) unless SLUICE_CORE is set in the environment. */
void confine_limits(void);

/* Become `name`, with its group only. Does nothing for an empty name, or when this process is not
 * root. */
bool confine_to_user(const char *name, struct buf *ret_error);

struct confine {
    enum wire_role role;
    const char *user; /* as for confine_to_user */
    const char *root; /* empty: no chroot. Only as root */

    /* queue: directories to read and write in */
    const char *const *writable;
    size_t writable_count;
    bool unix_sockets;  /* deliver: next hops are Unix sockets; else it can make none */
    bool remote_spool;  /* queue: the spool is a server; connecting is allowed */
    bool foreign_files; /* queue: the spool's files are others', see below */
};

/* All of it. False when a part that should work did not: the process must not go on. */
bool confine_process(const struct confine *plan, struct buf *ret_error);

#endif
