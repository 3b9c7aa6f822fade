/*
 * Submission: mail from a client becomes a message in the spool's open batch. If memory has a place
 * for it, it stays there to be opened after the commit, so that it need not be read again.
 *
 * Owns nothing.
 */
#ifndef QUEUE_QUEUE_SUBMIT_H
#define QUEUE_QUEUE_SUBMIT_H

#include "active.h"
#include "spool.h"
#include "wire.h"

struct queue;

/* Stores a submission. `fd` has the rest of its content, or is -1; it stays the caller's. The
 * message takes the recipients of the delivery `replaced` (may be NULL) in the same batch. It then
 * keeps the client and time of arrival of their message, and is a report if that message is one.
 *
 * Returns 0 or a negative errno; -ESTALE if recipients of the delivery are no longer pending.
 * *ret_msg is set if the message must be opened (pass_open) after its commit. */
int submit_message(struct queue *q, const struct wire_submit *m, int fd, struct delivery *replaced,
                   struct msg_id *ret_id, struct active_msg **ret_msg);

#endif
