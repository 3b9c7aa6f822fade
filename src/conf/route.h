/*
 * Routing: from a recipient to a transport, a next hop and a destination.
 *
 * The first match decides, as in Postfix:
 *   1. transport_maps: user+ext@domain, user@domain, domain, .parent domains, `*`;
 *      the right side is `transport:nexthop`, `transport:` (next hop: the recipient's domain),
 *      `:nexthop` or `:` (the route without the map, with this or its own next hop), or
 *      `error:text`;
 *   2. local_domains: local_transport;
 *   3. relay_domains: relay_transport, else default_transport; either with its own next hop,
 *      else the sender's in sender_dependent_relayhost_maps, else relayhost, else the recipient's
 *      domain.
 *
 * A sender is looked up as user+ext@domain, user@domain, @domain, and the null sender as `<>`.
 * DUNNO instead of a next hop ends the search, so that relayhost applies.
 */
#ifndef CONF_ROUTE_H
#define CONF_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "envelope.h"
#include "slice.h"

struct conf;

#define ROUTE_NEXTHOP_MAX     512u /* bytes */
#define ROUTE_DESTINATION_MAX (ROUTE_NEXTHOP_MAX + ADDRESS_MAX + 1)
#define ROUTE_MAP_MAX         1000000u    /* lines of one map */
#define ROUTE_MAP_FILE_MAX    (64u << 20) /* bytes */

/* Argument for routing without a sender. */
#define ROUTE_NO_SENDER slice_of(NULL, 0)

struct route {
    const char *transport; /* name, borrowed from conf, valid for conf_transport_find */
    char nexthop[ROUTE_NEXTHOP_MAX + 1];         /* never empty; of SMTP and LMTP: canonical */
    char destination[ROUTE_DESTINATION_MAX + 1]; /* nexthop, or localpart@nexthop if the recipient
                                                  * limit is 1; in lower case */
};

/* Origin of a next hop. */
enum route_namer {
    ROUTE_BY_RECIPIENT,      /* domain of the recipient */
    ROUTE_BY_TRANSPORT_MAPS, /* line of transport_maps */
    ROUTE_BY_SENDER_MAPS,    /* line of sender_dependent_relayhost_maps */
    ROUTE_BY_RELAYHOST,
    ROUTE_BY_TRANSPORT, /* local_transport, relay_transport, default_transport */
    ROUTE_BY_CONTENT_FILTER,
    ROUTE_BY_RULE,           /* action FILTER of a table of rules */
    ROUTE_BY_REDIRECT,       /* override of an operator */
    ROUTE_BY_FALLBACK_RELAY, /* smtp_fallback_relay of a parameter or a clause */
    ROUTE_BY_STORE,          /* router whose store has the mail */
    ROUTE_BY_OTHER,          /* one of these; the caller can't distinguish them */
    ROUTE_NAMERS
};

/* Is the next hop the domain of this recipient, at any port? Then no setting names it. */
bool route_is_recipients(struct slice nexthop, struct slice recipient);

/* Setting that names a next hop. */
struct route_origin {
    enum route_namer namer;
    const char *name; /* parameter; NULL with ROUTE_BY_RECIPIENT */
    const char *file; /* NULL: built in */
    unsigned line;
};

/* Routes as route_address, and returns the setting that named the next hop. The strings of
 * *ret_origin last as long as `conf`. */
void route_explain(const struct conf *conf, struct slice sender, struct slice recipient,
                   struct route *ret_route, struct route_origin *ret_origin);

/* Returns the place where a parameter, a name of the table, is set. */
struct route_origin route_setting(const struct conf *conf, enum route_namer namer,
                                  const char *parameter);

/* Routes one recipient of a message of `sender`. An address has no angle brackets; a bare local
 * part is at myorigin. `sender` may be empty (the null sender) or ROUTE_NO_SENDER. The function
 * always finds a route: an invalid address goes to the error transport with an error text.
 *
 * `conf->route_generation` is a fingerprint of the tables that made the route. It is from 1 to
 * below INT64_MAX, because the spool stores signed numbers and gives INT64_MAX another meaning.
 * The fingerprint is equal in every process that read the same files, so it shows which routes are
 * stale (spool_routes.h).
 *
 * `conf->route_tables` is a fingerprint that is equal on machines whose tables differ only in their
 * own name ($myhostname in local_domains, myorigin). It also covers the limits that destinations
 * share (policy_shared_ring), because these determine which machine has the destinations. */
void route_address(const struct conf *conf, struct slice sender, struct slice recipient,
                   struct route *ret_route);

/* Returns the fault of a "transport:nexthop" in a rule (content_filter, FILTER), as words that
 * continue its name; NULL: none. */
const char *route_target_error(const struct conf *conf, struct slice target);

/* Routes this recipient by such a rule, in place of route_address. Without a next hop in `target`
 * it is default_filter_nexthop, else the recipient's domain. Returns false if no such transport
 * exists, or the target is no route. */
bool route_forced(const struct conf *conf, struct slice target, struct slice recipient,
                  struct route *ret_route);

/* Sets the name of the destination for the transport and next hop of *route, and makes the next hop
 * of an SMTP or LMTP client canonical (nexthop.h). */
void route_destination(const struct conf *conf, struct slice recipient, struct route *route);

/* Returns an address without a domain with $myorigin as its domain, in `room`. Returns other
 * addresses, and one that would be longer than ADDRESS_MAX, unchanged. */
struct slice route_complete(const struct conf *conf, struct slice address, char room[ADDRESS_MAX]);

/* Does the recipient's delivery use its local part without case? So does delivery to maildirs. */
bool route_ignores_case(const struct conf *conf, struct slice recipient);

/* Returns the domain of an address, after its last `@`; empty without one. */
struct slice route_domain(struct slice address);

/* Returns a local part without its extension (recipient_delimiter). */
struct slice route_without_extension(const struct conf *conf, struct slice local);

/* Does any route lead to a Unix socket (a next hop unix:PATH)? */
bool route_has_unix_nexthops(const struct conf *conf);

/* May any client send to this domain (local_domains, relay_domains)? */
bool route_accepts_domain(const struct conf *conf, struct slice domain);

#endif
