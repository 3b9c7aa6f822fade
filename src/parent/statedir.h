/*
 * The state directory, which is made at the start and locked by one daemon at a time.
 *
 *                        started as root             as another user
 *   state_directory      mail_owner, 0711            0700
 *   its sluiced.pid      0644, locked while we run   0644, locked while we run
 *   the spool's own      mail_owner, 0700            0700
 *   maildrop             root, 1733 (docs/maildrop.md)  0700
 *   maildrop/corrupt     root, 0700                  0700
 *   chroot_directory     root, 0755                  not used
 *
 * "mail_owner" is the user of the queue process (conf_mail_owner). Existing directories keep their
 * modes. As root, this module gives the queue process its own files, the directory of the spool's
 * files, and an empty directory. If another directory has a wrong owner, the error names the
 * command that corrects it. All other files stay unchanged.
 */
#ifndef PARENT_STATEDIR_H
#define PARENT_STATEDIR_H

#include <stdbool.h>

#include "buf.h"
#include "conf.h"
#include "times.h"

/* Makes missing directories and takes the lock. Returns the descriptor of the pid file, which must
 * stay open while the daemon runs; -1 and the reason in *ret_error if a directory can't be made or
 * another daemon has the lock. *ret_killed is the pid of a previous daemon that was killed, because
 * its pid file still exists; its child processes may still run. 0: none. */
int statedir_open(const struct conf *conf, long *ret_killed, struct buf *ret_error);

/* Makes the directories below the state directory for maildirs, if this process is root: the users
 * of the transports can't make them. Existing directories stay unchanged. */
bool statedir_make_mailboxes(const struct conf *conf, struct buf *ret_error);

/* Removes the pid file and closes the lock. */
void statedir_close(const struct conf *conf, int lock);

#endif
