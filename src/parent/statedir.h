/*
 * The state directory: made at start-up, and held by one daemon at a time.
 *
 *                        started as root             as another user
 *   state_directory      mail_owner, 0711            0700
 *   its sluiced.pid      0644, locked while we run   the same
 *   the spool's own      mail_owner, 0700            0700
 *   maildrop             root, 1733 (docs/maildrop.md)  0700
 *   maildrop/corrupt     root, 0700                  0700
 *   chroot_directory     root, 0755                  not used
 *
 * Directories that exist keep their owners and modes: they are the administrator's.
 */
#ifndef PARENT_STATEDIR_H
#define PARENT_STATEDIR_H

#include <stdbool.h>

#include "buf.h"
#include "conf.h"
#include "times.h"

/* Make what is missing and take the lock. The descriptor of the pid file, to be kept open for as
 * long as the daemon runs; -1 with the reason in *ret_error when something can't be made or another
 * daemon has the lock. *ret_killed is the process of a daemon that has not removed its pid file, so
 * that it was killed, and its child processes may be about to end; 0: there is none. */
int statedir_open(const struct conf *conf, long *ret_killed, struct buf *ret_error);

/* As root: make the directories below the state directory in which maildirs are to be made by the
 * users of their transports, who may make nothing there themselves. What exists stays as it is. */
bool statedir_make_mailboxes(const struct conf *conf, struct buf *ret_error);

/* Remove the pid file, close the lock. */
void statedir_close(const struct conf *conf, int lock);

#endif
