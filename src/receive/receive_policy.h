/*
 * Decision which client may send to which recipients.
 *
 * Clients that may relay send anywhere, others to the domains of the configuration. A recipient
 * that is routed to an `error:` transport is refused with the text of its route, which may begin
 * with a status code ("5.1.2 no such place"); the default is 5.1.1. A route to an undeclared
 * transport is a fault of the configuration: the client should try again.
 */
#ifndef RECEIVE_RECEIVE_POLICY_H
#define RECEIVE_RECEIVE_POLICY_H

#include <stdbool.h>

#include "buf.h"
#include "server.h"
#include "slice.h"

struct conf;

#define RECEIVE_STATUS_MAX 12 /* an enhanced status code, NUL included */

/* Buffers for the text of a verdict. */
struct receive_verdict {
    struct buf *text; /* the caller's; cleared first */
    char status[RECEIVE_STATUS_MAX];
    bool ignores_case; /* with code 0: the recipient's delivery uses its local part without case */
};

/* Returns the reply to RCPT; code 0: accepted. The reply borrows from *verdict. */
struct server_reply receive_judge(const struct conf *conf, bool may_relay, struct slice rcpt,
                                  struct receive_verdict *verdict);

#endif
