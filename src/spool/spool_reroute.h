/*
 * Part of a spool: recipients go back to the program that says where mail goes.
 *
 * For stores in which that program (a router) has fixed the route of each recipient, so that only
 * it can find another one. Where routes are found by the queue process itself (spool_set_route)
 * there is no such part.
 */
#ifndef SPOOL_SPOOL_REROUTE_H
#define SPOOL_SPOOL_REROUTE_H

#include "spool.h"

/* Recipients `ns` of the message, in order, are handed back as new mail of their sender, with the
 * message's headers and body. They are done, without a report, once that is safe: a crash makes two
 * of it, never none. Recipients stay that a living process has locked, that are done already, or
 * that are no mailboxes but programs or files; *ret_count is how many go. A change, part of the
 * batch; the message may be claimed. -ENOTSUP without the part, -ENOENT when one is none of the
 * message's pending recipients. */
int spool_reroute(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count,
                  size_t *ret_count);

/* The part, as spool_engine.h wants it: *ret_count is 0 at the start. */
struct spool_reroute_part {
    int (*reroute)(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count,
                   size_t *ret_count);
};

#endif
