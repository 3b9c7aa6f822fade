/*
 * A next hop as people write it: where an SMTP or LMTP client is to go.
 *
 *     host   host:port     look up MX records
 *     [host] [host]:port   no MX: an address, or a host's own addresses
 *     [IPv6:address]       as in address literals; [ipv6] alone is fine, too
 *     unix:path            a Unix socket
 */
#ifndef CONF_NEXTHOP_H
#define CONF_NEXTHOP_H

#include <stdbool.h>
#include <stdint.h>

#include "params.h"
#include "slice.h"

struct nexthop {
    struct slice host; /* name, address, or path; borrowed from the text, without brackets */
    uint16_t port;     /* 0: the protocol's */
    bool use_mx;       /* not in brackets */
    bool is_address;   /* host is an IPv4 or IPv6 address */
    bool is_unix;      /* host is a path */
};

/* False (and *ret_nexthop untouched) when the text is none of the above. */
bool nexthop_parse(struct slice text, struct nexthop *ret_nexthop);

/* An element of `listen`: smtp://HOST:PORT, lmtp://HOST:PORT (an IPv6 HOST in brackets; `*` or
 * nothing: all addresses) or lmtp:unix:PATH. */
struct listen_address {
    bool lmtp;
    bool is_unix;
    struct slice host; /* borrowed; the path when is_unix; empty: all addresses */
    uint16_t port;     /* 0: the system chooses (tests) */
};

bool listen_parse(struct slice text, struct listen_address *ret_listen);

/* The other elements of `listen`: class=NAME, of the address before it. *ret_name is borrowed and
 * as written: class_name_parse takes it. */
bool listen_class_parse(struct slice text, struct slice *ret_name);

/* The addresses of `listen`, one after the other, with the class that follows; start with *at = 0,
 * false at the end. Both are borrowed from the list; without a class it is empty. */
bool listen_next(const struct conf_list *listen, size_t *at, const char **ret_url,
                 struct slice *ret_class);

#endif
