/*
 * A submission: mail that a client brings becomes a message in the spool's open batch. When there
 * is a place for it in memory it stays there, to be opened after the commit, and what was just
 * written need not be read again.
 *
 * Owns nothing.
 */
#ifndef QUEUE_QUEUE_SUBMIT_H
#define QUEUE_QUEUE_SUBMIT_H

#include "active.h"
#include "spool.h"
#include "wire.h"

struct queue;

/* Take over a submission; `fd` holds the rest of its content, or is -1, and stays the caller's.
 * `is_report`: it is our own, and has its flags and class. 0,
 * or a negative errno. *ret_msg is set when it is to be opened (pass_open) after its commit. */
int submit_message(struct queue *q, const struct wire_submit *m, int fd, bool is_report,
                   struct msg_id *ret_id, struct active_msg **ret_msg);

#endif
