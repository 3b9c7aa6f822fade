/*
 * Part of a spool: other programs end passes.
 *
 * For a store that has services of its own, which report failures and delays. They are called one
 * after the other while the message's file keeps its place (Postfix: bounce(8) under its three
 * names). The queue process then makes no reports and checks no lifetime: at the end of a pass it
 * calls spool_conclude and drops the message from memory.
 *
 *     spool_conclude --> claim ended, message can't be claimed --> the services are called
 *                                                                       |
 *        gone, or DEFERRED until `due`, or can be claimed again <-------+
 */
#ifndef SPOOL_SPOOL_CONCLUSION_H
#define SPOOL_SPOOL_CONCLUSION_H

#include "spool.h"

/* Has the spool this part? */
bool spool_concludes(const struct spool *sp);

/* Ends the pass of a claimed message. `deferred`: some recipients will be tried again, not before
 * `due`. This is a change, so it is part of the batch; the rest happens without the caller.
 * -ENOTSUP when !spool_concludes. */
int spool_conclude(struct spool *sp, struct msg_id id, bool deferred, struct wall due);

/* Functions of an engine with this part. */
struct spool_conclusion_part {
    int (*conclude)(struct spool *sp, struct msg_id id, bool deferred, struct wall due);
};

#endif
