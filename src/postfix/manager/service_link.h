/*
 * A connection to one of Postfix's services over its Unix socket, on the event loop: attribute
 * lists come in whole, bytes go out when the socket takes them.
 *
 * Nothing waits: connecting to a Unix socket succeeds or fails at once. The owner is told of each
 * list and of the end, and may free the link from within both.
 */
#ifndef POSTFIX_SERVICE_LINK_H
#define POSTFIX_SERVICE_LINK_H

#include <stdint.h>

#include "slice.h"

struct event_base;
struct service_link;

struct service_link_owner {
    /* A complete list, as attributes.h reads it; borrowed for the call. */
    void (*heard)(void *arg, struct slice list);
    /* The connection is at its end, and the link is to be freed. 0: the other side has closed it;
     * else an errno: EPROTO for bytes that are no list, ETIMEDOUT. */
    void (*closed)(void *arg, int error);
};

/* Connect to the socket `path`, relative to the working directory: Postfix's queue directory. NULL
 * when that fails, *ret_error is the errno. `owner` is borrowed for good. */
struct service_link *service_link_open(struct event_base *base, const char *path,
                                       const struct service_link_owner *owner, void *arg,
                                       int *ret_error);

/* Send these bytes, which are copied. */
void service_link_send(struct service_link *link, struct slice bytes);

/* From now on, when nothing is heard for so long it is at its end; US_FOREVER: as long as it takes.
 * A list that comes starts the time anew. */
void service_link_patience(struct service_link *link, int64_t us);

/* Close it; what was not sent is lost. NULL is fine. */
void service_link_free(struct service_link *link);

#endif
