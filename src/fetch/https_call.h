/*
 * One call by HTTPS, made without waiting: the adapter to libcurl.
 *
 *   https_call_new --> connecting, TLS, request, reply --> done() from the loop --> https_call_free
 *
 * A policy is got, and no more allowed than it needs (RFC 8461, 3.3): GET over TLS 1.2 or later;
 * the certificate is valid for the host by a DNS-ID, its common name does not count; status 200, no
 * redirects; media type text/plain. A web hook gets a POST, whose status is one of 200 to 299, over
 * TLS as well, or in clear on this machine. No proxy, no cookies, no cache, no compression,
 * HTTP/1.1, one connection for one request. libcurl looks up no name and opens no file: addresses
 * and authorities are given to it.
 *
 * Limits: the body of the reply, `size_max` bytes; its header, HTTPS_HEADER_MAX bytes. Time is the
 * caller's: it frees what takes too long. https_begin is called once in the process, before its
 * confinement.
 */
#ifndef FETCH_HTTPS_CALL_H
#define FETCH_HTTPS_CALL_H

#include <stdbool.h>
#include <stddef.h>

#include "slice.h"

struct event_base;
struct https_call;

#define HTTPS_HEADER_MAX (64u << 10)

struct https_request {
    const char *host;
    unsigned port;
    const char *path;         /* begins with a slash */
    const char *addresses;    /* of the host, separated by commas; IPv6 in brackets; empty: it is an
                                 address itself */
    struct slice authorities; /* PEM; who may sign the certificate */
    size_t size_max;
    bool in_clear;             /* http:// */
    bool posts;                /* `body`, with these fields; else a policy is got */
    struct slice body;         /* borrowed until https_call_free */
    const char *const *fields; /* "NAME: VALUE", until NULL */
};

typedef void https_done(void *arg, struct https_call *get);

void https_begin(void);

/* Texts are copied. `done` is called once, never from within this function; it may free `get`. NULL
 * when libcurl can't. */
struct https_call *https_call_new(struct event_base *base, const struct https_request *request,
                                  https_done *done, void *arg);

/* Ends what is under way. NULL is fine. */
void https_call_free(struct https_call *get);

/* Once done: NULL when the body is there, else what went wrong. Lasts as long as `get`. */
const char *https_call_error(const struct https_call *get);
struct slice https_call_body(const struct https_call *get);

#endif
