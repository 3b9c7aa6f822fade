/*
 * Contexts of libunbound: the name servers, names and trust anchors that its queries use. A context
 * can't change after its first query, so other sources need another context. A confined process can
 * make one, because that takes only memory and random numbers.
 */
#ifndef NET_DNS_CONTEXT_H
#define NET_DNS_CONTEXT_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

struct event_base;
struct ub_ctx;

/* The system's files, which are part of the configuration (parent/bundle.h). */
#define DNS_RESOLV_CONF_PATH "/etc/resolv.conf"
#define DNS_HOSTS_PATH       "/etc/hosts"

/* Name servers, and names that need none; borrowed for the call. */
struct dns_sources {
    const char *const *servers; /* "address:port", "[address]:port" or plain addresses */
    size_t count;               /* number of servers; 0: use those of resolv_conf */
    struct slice resolv_conf;   /* text of resolv.conf; invalid lines are ignored */
    struct slice hosts;         /* text of hosts; invalid lines are ignored */
    /* DS or DNSKEY records, one per line, for validation in this process; a server's own claim (the
     * AD bit) is ignored. Empty: no validation, and no answer is secure. */
    struct slice anchors;
};

/* Makes a context, on which a query initializes the library, and frees it with ub_ctx_delete.
 * Returns NULL and a text in *ret_error on a failure. `quiet`: the library's messages do not go to
 * standard error. */
struct ub_ctx *dns_context_new(struct event_base *base, const struct dns_sources *sources,
                               bool quiet, struct buf *ret_error);

/* Are these valid trust anchors? If not, a text is appended to *ret_error. */
bool dns_anchors_ok(struct slice anchors, struct buf *ret_error);

#endif
