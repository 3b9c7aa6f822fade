/*
 * Taking rights away from a process that has started up, so that an attacker who takes it over gets
 * few.
 *
 *                 user           chroot            Landlock                   system calls
 *   receive       receive_user   chroot_directory  no file, no TCP connect    sockets it was given
 *   filter        receive_user   chroot_directory  no file, no TCP connect    sockets it was given
 *   deliver       deliver_user   chroot_directory  no file                    may connect, to Unix
 *                                                                             sockets if it must
 *   fetch         deliver_user   chroot_directory  no file, TCP to ports of   may connect
 *                                                  name servers and HTTPS
 *   control       receive_user   chroot_directory  no file, no TCP connect    sockets it was given
 *   auth          mail_owner     chroot_directory  no file, no TCP connect    sockets it was given
 *   whatif        receive_user   chroot_directory  no file, no TCP connect    sockets it was given
 *   queue         mail_owner     -                 spool's directories        files, no exec; Unix
 *                                                                             sockets if it must
 *    (shared)     (stays)        -                 spool's directories        files, no exec
 *   pickup        (stays)        chroot_directory  maildrop: read, rename,    opens files to read,
 *                                                  remove                     renames, removes
 *   local, agents (stays)        -                 -                          no administration
 *
 * Users and chroot need a start as root and are parameters that may be empty. The filter of system
 * calls is always there; Landlock where the kernel has it. A call that is on no list ends the
 * process (SIGSYS). With SLUICE_SECCOMP=trap in the environment the process first says on standard
 * error which one it was; that is for extending a list.
 *
 * Opening a file or a socket where the role may not is refused with EACCES instead: libraries try
 * such things politely (a configuration file, a log socket), and a refusal gives away nothing.
 *
 * A shared spool (conf_spool_is_shared) is written by programs of many users: its files belong to
 * the senders, and what is handed to a router must come from root to be believed. So its queue
 * process stays root, but keeps only the capabilities to get at any user's files
 * (CAP_DAC_OVERRIDE, CAP_FOWNER) and to write a user's verbose file as that user (CAP_SETUID);
 * Landlock holds it to the spool, and nothing can be executed. It may ask whether a process is
 * alive (kill with signal 0, pidfd_open), for the locks of agents.
 *
 * Files in maildrop belong to the users who sent the mail, and the directory to root. So pickup
 * stays root, but keeps only the capability to read any user's files (CAP_DAC_READ_SEARCH). Where
 * the directory belongs to another user, it keeps CAP_DAC_OVERRIDE and CAP_FOWNER instead, to
 * rename and remove files there as well. It opens the directory before it is confined: in its
 * chroot there is none.
 *
 * local and agents run the commands of others, under the ids of others, so they keep what that
 * takes: as root they do not set no_new_privs, or a user's command could not run the set-group-id
 * sendmail. Only calls that administer a machine are refused there; a root that is none (without
 * CAP_SYS_ADMIN) may not even have them refused, and goes without.
 */
#ifndef PROCESS_CONFINE_H
#define PROCESS_CONFINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "buf.h"
#include "wire.h"

struct confine_user {
    uid_t uid;
    gid_t gid;
};

/* The ids of a user, given by name or number. False when there is no such user: *ret_error then
 * says so. A name that is missing is never replaced by another one: the files of two programs
 * that fall back to the same user are open to each other. */
bool confine_find_user(const char *name, struct confine_user *ret_user, struct buf *ret_error);

/* No core files, and none into a pipe, either (they would hold mail, keys and passwords), unless
 * SLUICE_CORE is set in the environment. */
void confine_cores(void);

/* That, and as many descriptors as the system lets us have. */
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
    bool unix_sockets;     /* deliver: next hops are Unix sockets; else it can make none */
    bool remote_spool;     /* queue: the spool is a server; connecting is allowed */
    bool foreign_files;    /* queue: the spool's files are others', see above */
    bool local_services;   /* queue: it talks to services on Unix sockets, and accepts on one */
    const uint16_t *ports; /* fetch: those that it may connect to by TCP */
    size_t port_count;
    int maildrop; /* pickup: the directory, opened with O_PATH; else -1 */
};

/* All of it. False when a part that should work did not: the process must not go on. */
bool confine_process(const struct confine *plan, struct buf *ret_error);

#endif
