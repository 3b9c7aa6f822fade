/*
 * HTTPS call: one request without waiting; the adapter to libcurl.
 *
 *    https_call_new --> connecting, TLS, request, reply --> done() --> https_call_free
 *
 * For a policy (RFC 8461, 3.3) this is a GET over TLS 1.2 or later. The certificate must have a
 * DNS-ID of the host; its common name is ignored. The status must be 200, without redirects, and
 * the media type text/plain. For a web hook this is a POST over TLS, or in clear on this machine,
 * and the status must be 200 to 299. No proxy, cookies, cache or compression are used; HTTP/1.1,
 * one connection for one request. libcurl looks up no names and opens no files: the caller passes
 * addresses and authorities.
 *
 * Limits: `size_max` bytes for the body of the reply, HTTPS_HEADER_MAX bytes for its header. The
 * caller limits the time by freeing the call. https_begin must be called once, before the process
 * is confined.
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
    const char *addresses;    /* with commas, IPv6 in brackets; empty if the host is an address */
    struct slice authorities; /* PEM; authorities that may sign the certificate */
    size_t size_max;
    bool in_clear;             /* whether to use http:// */
    bool posts;                /* whether to POST `body` with `fields`; else GET */
    struct slice body;         /* borrowed until https_call_free */
    const char *const *fields; /* "NAME: VALUE"; ends with NULL */
};

typedef void https_done(void *arg, struct https_call *get);

void https_begin(void);

/* Begins a call; copies the texts. `done` is called once, never during this function, and may free
 * the call. Returns NULL if libcurl refuses the request. */
struct https_call *https_call_new(struct event_base *base, const struct https_request *request,
                                  https_done *done, void *arg);

/* Frees the call and ends it. NULL is allowed. */
void https_call_free(struct https_call *get);

/* Returns the error after `done`, or NULL if there is a body. Valid as long as the call. */
const char *https_call_error(const struct https_call *get);
struct slice https_call_body(const struct https_call *get);

#endif
