/*
 * Part of a spool: recipients go back to the program that routes mail.
 *
 * For stores in which that program (a router) has fixed the route of each recipient, so that only
 * the router can find another one. Where the queue process finds routes itself (spool_set_route),
 * this part does not exist.
 */
#ifndef SPOOL_SPOOL_REROUTE_H
#define SPOOL_SPOOL_REROUTE_H

#include "spool.h"

/* Hands the recipients `ns` of the message, in ascending order, back as new mail of their sender,
 * with the message's headers and body. Once the new mail is safe, they are done, without a report:
 * a crash may duplicate them, but never loses them. Recipients stay that a living process has
 * locked, that are already done, or that are not mailboxes but programs or files; *ret_count is the
 * number that goes. This is a change, so it is part of the batch; the message may be claimed.
 * -ENOTSUP without this part, -ENOENT if one is not a pending recipient of the message. */
int spool_reroute(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count,
                  size_t *ret_count);

/* Functions of an engine with this part; *ret_count is 0 at the start. */
struct spool_reroute_part {
    int (*reroute)(struct spool *sp, struct msg_id id, const uint32_t *ns, size_t count,
                   size_t *ret_count);
};

#endif
