/*
 * The protocol between the queue manager and trivial-rewrite(8), without I/O: it returns the route
 * of an address. Requests follow each other on one connection, each answered by one list.
 */
#ifndef POSTFIX_REWRITE_REQUEST_H
#define POSTFIX_REWRITE_REQUEST_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

enum rewrite_class {
    REWRITE_CLASS_LOCAL = 256, /* local delivery; other classes are not needed here */
};

/* The route of an address. */
struct rewrite_answer {
    bool disconnect; /* the server has read its tables again: open a new connection for the next
                      * request */
    struct slice transport;
    struct slice nexthop;
    struct slice recipient;
    unsigned classes; /* bits of the address class; 0 if the address can't be resolved */
};

/* Appends a request for a route. `probe`: a route of address verification. Errors of *out are
 * sticky. */
void rewrite_put_resolve(struct buf *out, bool probe, struct slice sender, struct slice address);
/* Appends a request for the complete form of an address. */
void rewrite_put_rewrite(struct buf *out, struct slice address);

/* Parses a complete list, from which the slices are borrowed. An address that the server could not
 * resolve, or whose syntax is bad, gets the transport retry or error. Returns false if the list is
 * not an answer, or one without a route: the request must be repeated. */
bool rewrite_resolve_parse(struct slice list, struct rewrite_answer *ret_answer);
bool rewrite_rewrite_parse(struct slice list, struct slice *ret_address, bool *ret_disconnect);

#endif
