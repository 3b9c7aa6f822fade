/* Matching against shell patterns, networks and domains. */
#ifndef CONF_MATCH_H
#define CONF_MATCH_H

#include <stdbool.h>
#include <sys/socket.h>

#include "buf.h"
#include "params.h"
#include "slice.h"

/* Does the pattern match all of `text`? `*` matches any bytes (also `/` and `.`), `?` one byte,
 * `[abc]`, `[a-z]` and `[^abc]` (or `[!abc]`) one byte, and `\x` the byte x. At the end of the
 * pattern `{a,b,c}` matches one of these literally. Case matters. The time is at most proportional
 * to the product of the lengths. */
bool glob_match(struct slice pattern, struct slice text);

/* Returns the fault of a pattern, or NULL. An invalid pattern matches nothing. */
const char *glob_error(struct slice pattern);

/* Does the pattern match a next hop (nexthop.h)? As glob_match, except that a host in brackets at
 * the beginning is literal, brackets included; `*` and `?` keep their meaning in it. A `[` there
 * begins such a host and not a set of bytes if no `^` or `!` follows, and its `]` ends the pattern,
 * stands before a `:`, or follows a `.` or `:`. */
bool nexthop_match(struct slice pattern, struct slice nexthop);

/* Returns the fault of a pattern of next hops, or NULL. The next functions return whether the
 * pattern has no special byte, and the length of its literal bracket before the rest (1 or 0). */
const char *nexthop_pattern_error(struct slice pattern);
bool nexthop_pattern_is_plain(struct slice pattern);
size_t nexthop_pattern_bracket(struct slice pattern);

/* Does the first pattern match everything that the second matches? Returns false if that is not
 * obvious. Also for transports and classes, which have no brackets. */
bool nexthop_pattern_covers(struct slice general, struct slice special);

/* Appends the pattern that matches this next hop and no other. *out is sticky. */
void nexthop_put_pattern(struct buf *out, struct slice nexthop);

/* Has the pattern no special byte? */
bool glob_is_plain(struct slice pattern);

/* A network: "address", "address/bits" or "[ipv6]/bits". */
struct cidr {
    unsigned char address[16]; /* IPv4 as ::ffff:a.b.c.d */
    unsigned bits;             /* 0..128 */
};

/* Parses a network. Returns false if the text is none, or has bits set after the mask. */
bool cidr_parse(struct slice text, struct cidr *ret_cidr);
bool cidr_match(const struct cidr *c, const unsigned char ip[16]);

/* Sets the address in the form of struct cidr. Returns false for families other than IPv4 and IPv6.
 * ip_parse does so for a text. */
bool ip_of_sockaddr(const struct sockaddr *addr, unsigned char ret_ip[16]);
bool ip_parse(struct slice text, unsigned char ret_ip[16]);

/* Is the client in the list? Elements that are no networks match nothing (conf_load refuses
 * them). */
bool network_list_match(const struct conf_list *networks, const struct sockaddr *addr);

/* Is the domain in the list? An element is a domain, `.domain` (its subdomains), or a pattern with
 * `*` or `?`; case is ignored. */
bool domain_list_match(const struct conf_list *domains, struct slice domain);

#endif
