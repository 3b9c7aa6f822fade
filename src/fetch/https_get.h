/*
 * One file by HTTPS, got without waiting: the adapter to libcurl.
 *
 *   https_get_new --> connecting, TLS, request, reply --> done() from the loop --> https_get_free
 *
 * What a policy needs and no more (RFC 8461, 3.3): GET over TLS 1.2 or later; the certificate is
 * valid for the host by a DNS-ID, its common name does not count; status 200, no redirects; media
 * type text/plain. No proxy, no cookies, no cache, no compression, HTTP/1.1, one connection for one
 * request. libcurl looks up no name and opens no file: addresses and authorities are given to it.
 *
 * Limits: the body, `size_max` bytes; the header, HTTPS_HEADER_MAX bytes. Time is the caller's: it
 * frees what takes too long. https_begin is called once in the process, before its confinement.
 */
#ifndef FETCH_HTTPS_GET_H
#define FETCH_HTTPS_GET_H

#include <stdbool.h>
#include <stddef.h>

#include "slice.h"

struct event_base;
struct https_get;

#define HTTPS_HEADER_MAX (64u << 10)

struct https_request {
    const char *host;
    unsigned port;
    const char *path;         /* begins with a slash */
    const char *addresses;    /* of the host, separated by commas; IPv6 in brackets */
    struct slice authorities; /* PEM; who may sign the certificate */
    size_t size_max;
};

typedef void https_done(void *arg, struct https_get *get);

void https_begin(void);

/* Texts are copied. `done` is called once, never from within this function; it may free `get`. NULL
 * when libcurl can't. */
struct https_get *https_get_new(struct event_base *base, const struct https_request *request,
                                https_done *done, void *arg);

/* Ends what is under way. NULL is fine. */
void https_get_free(struct https_get *get);

/* Once done: NULL when the body is there, else what went wrong. Lasts as long as `get`. */
const char *https_get_error(const struct https_get *get);
struct slice https_get_body(const struct https_get *get);

#endif
