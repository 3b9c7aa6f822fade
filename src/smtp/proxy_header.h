/*
 * The header of the PROXY protocol, versions 1 and 2: the address of the client for which a proxy
 * has connected. It is sent before anything else. No I/O.
 *
 *   version 1   PROXY TCP4 192.0.2.1 198.51.100.1 4711 25 CRLF
 *               PROXY TCP6 2001:db8::1 2001:db8::2 4711 25 CRLF
 *               PROXY UNKNOWN .. CRLF
 *   version 2   12 bytes of signature
 *                1 byte: version (2) and command, 4 bits each
 *                1 byte: address family and transport, 4 bits each
 *                2 bytes: length of the rest
 *               the rest: addresses and ports of client and server, then fields that are skipped
 *
 * Source: HAProxy, doc/proxy-protocol.txt.
 */
#ifndef SMTP_PROXY_HEADER_H
#define SMTP_PROXY_HEADER_H

#include <stddef.h>
#include <stdint.h>

#include "slice.h"

/* Largest line of version 1, with CRLF. */
#define PROXY_LINE_MAX 107
/* Largest header. Version 2 could announce 64 KiB, but a header must fit into one TCP segment. */
#define PROXY_HEADER_MAX 4096

enum proxy_source {
    PROXY_ITSELF,  /* the proxy's own connection, such as a health check: LOCAL */
    PROXY_UNKNOWN, /* a client of unknown address: UNKNOWN, or no TCP address */
    PROXY_CLIENT,  /* the client of `address` and `port` */
};

struct proxy_header {
    size_t len; /* bytes of the header */
    enum proxy_source source;
    unsigned char address[16]; /* IPv4 as ::ffff:a.b.c.d */
    uint16_t port;
};

enum proxy_result {
    PROXY_MORE, /* the header is incomplete; all bytes belong to it */
    PROXY_DONE,
    PROXY_BAD,
};

/* Parses the header at the beginning of the first bytes of a connection; other bytes may follow.
 * Sets *ret_header only if done, and the error in *ret_why (static) only if bad. More bytes never
 * change a result other than PROXY_MORE. */
enum proxy_result proxy_header_parse(struct slice bytes, struct proxy_header *ret_header,
                                     const char **ret_why);

#endif
