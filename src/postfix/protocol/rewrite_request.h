/*
 * What the queue manager and trivial-rewrite(8) say to each other, without I/O: where does mail for
 * an address go? Requests follow each other on one connection, each answered by one list.
 */
#ifndef POSTFIX_REWRITE_REQUEST_H
#define POSTFIX_REWRITE_REQUEST_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

enum rewrite_class {
    REWRITE_CLASS_LOCAL = 256, /* local delivery; others are of no interest here */
};

/* The answer to where an address goes. */
struct rewrite_answer {
    bool disconnect; /* the server has read its tables anew: the next request goes elsewhere */
    struct slice transport;
    struct slice nexthop;
    struct slice recipient;
    unsigned classes; /* bits of the address class; 0 when it can't be resolved */
};

/* Append a request. `probe`: by the transports of address verification. *out is sticky. */
void rewrite_put_resolve(struct buf *out, bool probe, struct slice sender, struct slice address);
/* Bring an address into its complete form. */
void rewrite_put_rewrite(struct buf *out, struct slice address);

/* From a complete list; slices are borrowed from it. An address that the server could not resolve,
 * or whose syntax is bad, goes to the transport retry or error. False: it is no answer, or one that
 * names nothing: the request is to be repeated. */
bool rewrite_resolve_parse(struct slice list, struct rewrite_answer *ret_answer);
bool rewrite_rewrite_parse(struct slice list, struct slice *ret_address, bool *ret_disconnect);

#endif
