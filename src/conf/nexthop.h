/*
 * A next hop as configuration files write it: where an SMTP or LMTP client is to go.
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

/* An element of `listen`: smtp://HOST:PORT, lmtp://HOST:PORT, submission://HOST[:PORT],
 * submissions://HOST[:PORT], http://HOST:PORT, https://HOST:PORT (an IPv6 HOST in brackets; `*` or
 * nothing: all addresses) or lmtp:unix:PATH. */
#define LISTEN_PORT_SUBMISSION  587
#define LISTEN_PORT_SUBMISSIONS 465
struct listen_address {
    bool lmtp;
    bool submission; /* clients have to log in */
    bool http;       /* mail comes by HTTP (docs/injection.md) */
    bool tls_first;  /* TLS from the first byte on */
    bool is_unix;
    struct slice host; /* borrowed; the path when is_unix; empty: all addresses */
    uint16_t port;     /* 0: the system chooses (tests) */
};

bool listen_parse(struct slice text, struct listen_address *ret_listen);

/* The other elements of `listen`, of the address before them: class=NAME, auth=yes and
 * filtered=yes. */
struct listen_options {
    struct slice class_name; /* borrowed and as written: class_name_parse takes it; empty: none */
    bool login;              /* clients may log in; always of submission listeners */
    bool filtered;           /* mail comes back from content_filter: it was looked at before */
};

/* Take an element that is an option into *options. False for a second class, too. */
bool listen_option_parse(struct slice text, struct listen_options *options);

/* The addresses of `listen`, one after the other, with the options that follow; start with *at = 0,
 * false at the end. All is borrowed from the list. */
bool listen_next(const struct conf_list *listen, size_t *at, const char **ret_url,
                 struct listen_options *ret_options);

/* The options of the first that is `url`; none when there is no such address. */
struct listen_options listen_options_of(const struct conf_list *listen, const char *url);

#endif
