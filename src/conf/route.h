/*
 * From a recipient to a transport, a next hop and a destination.
 *
 * The first that answers decides, as in Postfix:
 *   1. transport_maps: user+ext@domain, user@domain, domain, .parent domains, `*`;
 *      the right side is `transport:nexthop`, `transport:` (next hop: the recipient's domain),
 *      `:nexthop` or `:` (what would be used without the map, with this or its own next hop), or
 *      `error:text`;
 *   2. local_domains: local_transport;
 *   3. relay_domains: relay_transport, else default_transport; either with the next hop it carries,
 *      else the sender's in sender_dependent_relayhost_maps, else relayhost, else the recipient's
 *      domain.
 *
 * A sender is looked up there as user+ext@domain, user@domain, @domain, the null sender as `<>`;
 * DUNNO in place of a next hop ends the search, so that relayhost holds.
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

/* In place of a sender: route without one. */
#define ROUTE_NO_SENDER slice_of(NULL, 0)

struct route {
    const char *transport; /* its name, borrowed from conf; conf_transport_find knows it */
    char nexthop[ROUTE_NEXTHOP_MAX + 1];         /* as written; never empty */
    char destination[ROUTE_DESTINATION_MAX + 1]; /* nexthop, or localpart@nexthop when the recipient
                                                    limit is 1; lower case */
};

/* Route one recipient (an address without angle brackets, or a bare local part, which is at
 * myorigin) of a message of `sender` (likewise; empty: the null sender; or ROUTE_NO_SENDER). Always
 * finds a route: an address that is none goes to the error transport with a text that says so.
 * `conf->route_generation` names the tables it was made with: a fingerprint from 1 to below
 * INT64_MAX, as the spool stores signed numbers and has that one for a use of its own; the same in
 * every process that read the same files, so that it says which routes are stale (spool_routes.h).
 * `conf->route_tables` is such a fingerprint, too, which machines share whose tables differ in
 * their own name alone ($myhostname in local_domains, myorigin). It tells, besides, which
 * destinations have a limit in common (policy_shared_ring): these say which machine has them. */
void route_address(const struct conf *conf, struct slice sender, struct slice recipient,
                   struct route *ret_route);

/* What is wrong with a "transport:nexthop" that a rule names (content_filter, FILTER), to be put
 * behind its name; NULL: nothing. */
const char *route_target_error(const struct conf *conf, struct slice target);

/* Where such a rule sends this recipient, whatever route_address says. Without a next hop in
 * `target` it is default_filter_nexthop, else the recipient's domain. False: nothing declares the
 * transport, or it is no route. */
bool route_forced(const struct conf *conf, struct slice target, struct slice recipient,
                  struct route *ret_route);

/* The destination's name for a transport and next hop that are known already. */
void route_destination(const struct conf *conf, struct slice recipient, struct route *route);

/* The domain of an address, behind its last `@`; empty when there is none. */
struct slice route_domain(struct slice address);

/* A local part without its extension (recipient_delimiter). */
struct slice route_without_extension(const struct conf *conf, struct slice local);

/* Does anything in the configuration lead to a Unix socket (a next hop unix:PATH)? */
bool route_has_unix_nexthops(const struct conf *conf);

/* May a stranger send to this domain: local_domains, relay_domains? */
bool route_accepts_domain(const struct conf *conf, struct slice domain);

#endif
