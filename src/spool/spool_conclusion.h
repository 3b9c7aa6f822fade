/*
 * Part of a spool: other programs bring passes to their end.
 *
 * For a store that has services of its own, which report failures and delays and are asked one
 * after the other while the message's file keeps its place (Postfix: bounce(8) under its three
 * names). The queue process then makes no reports and looks at no lifetime: at the end of a pass it
 * says so, and forgets the message.
 *
 *     spool_conclude --> claim ended, message not to be claimed --> the services are asked
 *                                                                        |
 *        gone, or DEFERRED until `due`, or to be claimed again <---------+
 */
#ifndef SPOOL_SPOOL_CONCLUSION_H
#define SPOOL_SPOOL_CONCLUSION_H

#include "spool.h"

/* Has the spool this part? */
bool spool_concludes(const struct spool *sp);

/* The pass of a claimed message is over. `deferred`: something of it is to be tried again, not
 * before `due`. A change, part of the batch; what follows from it happens by itself. -ENOTSUP when
 * !spool_concludes. */
int spool_conclude(struct spool *sp, struct msg_id id, bool deferred, struct wall due);

/* The part, as spool_engine.h wants it. */
struct spool_conclusion_part {
    int (*conclude)(struct spool *sp, struct msg_id id, bool deferred, struct wall due);
};

#endif
