/*
 * Reduces the rights of a process after its start, so that an attacker who controls the process
 * gains few.
 *
 *                 user           chroot            Landlock                   system calls
 *   receive       receive_user   chroot_directory  no file, no TCP connect    sockets it was given
 *   filter        receive_user   chroot_directory  no file, no TCP connect    sockets it was given
 *   deliver       deliver_user   chroot_directory  no file                    may connect, no UDP;
 *                                                                             Unix sockets if it
 *                                                                             must
 *   fetch, hook   deliver_user   chroot_directory  no file, TCP to ports of   may connect, no UDP
 *                                                  HTTPS
 *   resolve       deliver_user   chroot_directory  no file, TCP to ports of   may connect and send
 *                                                  name servers               UDP to any port
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
 * A process that talks to the network never runs as root; confine_process refuses that. Users and
 * chroot need a start as root. conf.h has the users' defaults; chroot_directory may be empty.
 * Processes may share a user, so no process can be read or traced by another one of its user
 * (PR_SET_DUMPABLE). The filter of system calls is always used, Landlock if the kernel has it. A
 * call that is on no list ends the process (SIGSYS). With SLUICE_SECCOMP=trap in the environment,
 * the process first prints the call to standard error, as a help to extend a list.
 *
 * Opening a file or a socket against the rules fails with EACCES instead, because libraries try
 * that as a matter of course (a configuration file, a log socket) and can handle a refusal.
 *
 * A shared spool (conf_spool_is_shared) is written by programs of many users. Its files belong to
 * the senders, and a router only trusts files from root. So its queue process stays root, but keeps
 * only the capabilities to use any user's files (CAP_DAC_OVERRIDE, CAP_FOWNER) and to write a
 * user's verbose file as that user (CAP_SETUID). Landlock limits the process to the spool, and
 * nothing can be executed. For the locks of agents it may check whether a process is alive (kill
 * with signal 0, pidfd_open).
 *
 * Files in maildrop belong to the users who sent the mail, and the directory to root. So pickup
 * stays root, but keeps only the capability to read any user's files (CAP_DAC_READ_SEARCH). If the
 * directory belongs to another user, it keeps CAP_DAC_OVERRIDE and CAP_FOWNER instead, which also
 * permit to rename and remove files there. It opens the directory before its confinement, because
 * its chroot has no maildrop.
 *
 * local and agents run other programs with other users' ids, so they keep the rights for that. As
 * root they do not set no_new_privs, which would prevent a user's command from running the
 * set-group-id sendmail. Only calls that administer the machine are refused. Without CAP_SYS_ADMIN
 * not even that filter can be set, so root in a container runs without.
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

/* Finds the ids of a user, given by name or number. Returns false and the reason in *ret_error if
 * there is no such user. A missing user is never replaced by another one, because programs that
 * share a default user can open each other's files. */
bool confine_find_user(const char *name, struct confine_user *ret_user, struct buf *ret_error);

/* Disables core dumps, to files and pipes, unless the environment has SLUICE_CORE: they would
 * contain mail, keys and passwords. */
void confine_cores(void);

/* Disables core dumps as confine_cores, and raises the limit of descriptors as far as the system
 * permits. */
void confine_limits(void);

/* Changes to user `name`, with its group only. Does nothing if the name is empty or this process is
 * not root. */
bool confine_to_user(const char *name, struct buf *ret_error);

struct confine {
    enum wire_role role;
    const char *user; /* as for confine_to_user */
    const char *root; /* empty: no chroot; used only as root */

    /* queue: directories with the right to read and write */
    const char *const *writable;
    size_t writable_count;
    bool unix_sockets;     /* deliver: next hops are Unix sockets; otherwise it can't make any */
    bool remote_spool;     /* queue: the spool is a server; connecting is permitted */
    bool foreign_files;    /* queue: the spool's files belong to others, see above */
    bool local_services;   /* queue: it uses services on Unix sockets, and accepts on one */
    const uint16_t *ports; /* fetch, hook, resolve: TCP ports that it may connect to */
    size_t port_count;
    int maildrop; /* pickup: the directory, opened with O_PATH; otherwise -1 */
};

/* Confines the process. Returns false if a step failed; then the process must end. */
bool confine_process(const struct confine *plan, struct buf *ret_error);

#endif
