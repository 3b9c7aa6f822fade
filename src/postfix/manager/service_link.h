/*
 * A connection to one of Postfix's services over its Unix socket, on the event loop: passes on
 * complete attribute lists, and sends bytes when the socket accepts them.
 *
 * Nothing waits: connecting to a Unix socket succeeds or fails at once. Callbacks report each list
 * and the end; both may free the link.
 */
#ifndef POSTFIX_SERVICE_LINK_H
#define POSTFIX_SERVICE_LINK_H

#include <stdint.h>

#include "slice.h"

struct event_base;
struct service_link;

struct service_link_owner {
    /* Receives a complete list, as attributes.h reads it; borrowed for the call. */
    void (*heard)(void *arg, struct slice list);
    /* Reports the end of the connection; the owner must free the link. 0: the other side has closed
     * it; else an errno: EPROTO for bytes that are not a list, ETIMEDOUT. */
    void (*closed)(void *arg, int error);
};

/* Connects to the socket `path`, relative to the working directory, which is Postfix's queue
 * directory. Returns NULL on failure, with the errno in *ret_error. `owner` must last as long as
 * the link. */
struct service_link *service_link_open(struct event_base *base, const char *path,
                                       const struct service_link_owner *owner, void *arg,
                                       int *ret_error);

/* Sends these bytes, which it copies. */
void service_link_send(struct service_link *link, struct slice bytes);

/* Sets the time limit after which the connection ends if no list arrives; US_FOREVER = none. Each
 * list starts the time again. */
void service_link_patience(struct service_link *link, int64_t us);

/* Closes the link, which may be NULL; unsent bytes are lost. */
void service_link_free(struct service_link *link);

#endif
