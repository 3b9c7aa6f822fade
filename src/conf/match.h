/*
 * Is it one of these? Shell patterns, networks, domains.
 */
#ifndef CONF_MATCH_H
#define CONF_MATCH_H

#include <stdbool.h>
#include <sys/socket.h>

#include "params.h"
#include "slice.h"

/* Does the pattern match all of `text`? `*` any bytes (also `/` and `.`), `?` one byte, `[abc]`,
 * `[a-z]` and `[^abc]` (or `[!abc]`) one byte, `\x` the byte x, and at the end of the pattern
 * `{a,b,c}`: the rest is one of these, taken literally. Case counts. Takes time proportional to the
 * product of the lengths at worst. */
bool glob_match(struct slice pattern, struct slice text);

/* Why `pattern` is none, or NULL. A bad pattern matches nothing. */
const char *glob_error(struct slice pattern);

/* One "address", "address/bits" or "[ipv6]/bits". */
struct cidr {
    unsigned char address[16]; /* IPv4 as ::ffff:a.b.c.d */
    unsigned bits;             /* 0..128 */
};

/* False when it is not one, or has bits set behind the mask. */
bool cidr_parse(struct slice text, struct cidr *ret_cidr);
bool cidr_match(const struct cidr *c, const unsigned char ip[16]);

/* An address as cidr holds it; false for families other than IPv4 and IPv6. */
bool ip_of_sockaddr(const struct sockaddr *addr, unsigned char ret_ip[16]);
bool ip_parse(struct slice text, unsigned char ret_ip[16]);

/* Is the client in the list? Elements that are no networks match nothing (conf_load
 * refuses them). */
bool network_list_match(const struct conf_list *networks, const struct sockaddr *addr);

/* Is the domain in the list? An element is a domain, `.domain` (what is below it), or a pattern
 * with `*` or `?`; case does not matter. */
bool domain_list_match(const struct conf_list *domains, struct slice domain);

#endif
