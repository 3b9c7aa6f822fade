/*
 * A next hop in configuration files: the host of an SMTP or LMTP client.
 *
 *     host   host:port     MX records are looked up
 *     [host] [host]:port   no MX: an address, or a host's own addresses
 *     [IPv6:address]       as in address literals; [ipv6] alone is also valid
 *     unix:path            a Unix socket
 *
 * A port is a number, or the name of a mail service: smtp or mail, submission, submissions, smtps,
 * ssmtp or urd, lmtp.
 */
#ifndef CONF_NEXTHOP_H
#define CONF_NEXTHOP_H

#include <stdbool.h>
#include <stdint.h>

#include "params.h"
#include "slice.h"

struct nexthop {
    struct slice host; /* name, address, or path without brackets; borrowed from the text */
    uint16_t port;     /* 0: default of the protocol */
    bool use_mx;       /* true if not in brackets */
    bool is_address;   /* true if host is an IPv4 or IPv6 address */
    bool is_unix;      /* true if host is a path */
};

/* Parses a port: a number from `lowest`, or a service name. Returns false, without change of
 * *ret_port, if the text is none. */
bool port_parse(struct slice text, unsigned lowest, uint16_t *ret_port);

/* Parses a next hop. Returns false, without change of *ret_nexthop, if the text is none. */
bool nexthop_parse(struct slice text, struct nexthop *ret_nexthop);

/* Returns the form of a next hop that destinations have as names, and in which clauses and
 * overrides are compared: with A-labels (idn.h), and without a final dot of its host. Letter case
 * stays. The text may also be a pattern, a list of next hops, or TRANSPORT/NEXTHOP. The result is
 * `text` if nothing changes or the result is longer than `size` bytes, else in `room`. */
struct slice nexthop_canonical(struct slice text, char *room, size_t size);

/* An element of `listen`: smtp://HOST:PORT, lmtp://HOST:PORT, submission://HOST[:PORT],
 * submissions://HOST[:PORT], http://HOST:PORT, https://HOST:PORT or lmtp:unix:PATH. An IPv6 HOST is
 * in brackets; `*` or an empty HOST means all addresses. */
#define LISTEN_PORT_SUBMISSION  587
#define LISTEN_PORT_SUBMISSIONS 465
struct listen_address {
    bool lmtp;
    bool submission; /* true if clients must log in */
    bool http;       /* true for mail by HTTP (docs/injection.md) */
    bool tls_first;  /* true for TLS from the first byte */
    bool is_unix;
    struct slice host; /* borrowed; the path if is_unix; empty: all addresses */
    uint16_t port;     /* 0: chosen by the system (tests) */
};

bool listen_parse(struct slice text, struct listen_address *ret_listen);

/* Options of an address of `listen`. They are the elements after it: class=NAME, auth=yes,
 * filtered=yes and proxy=yes. */
struct listen_options {
    struct slice class_name; /* borrowed, as written, valid for class_name_parse; empty: none */
    bool login;              /* true if clients may log in; always on submission listeners */
    bool filtered;           /* true if mail comes from content_filter, so that the rules have
                              * passed it before */
    bool proxy;              /* true if connections begin with the header of the PROXY protocol */
};

/* Adds an element that is an option to *options. Returns false if it is none, or a second class. */
bool listen_option_parse(struct slice text, struct listen_options *options);

/* Returns the next address of `listen` with its options. Start with *at = 0; false at the end. The
 * results are borrowed from the list. */
bool listen_next(const struct conf_list *listen, size_t *at, const char **ret_url,
                 struct listen_options *ret_options);

/* Returns the options of the first address that is `url`; no options if there is none. */
struct listen_options listen_options_of(const struct conf_list *listen, const char *url);

#endif
