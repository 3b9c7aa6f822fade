/*
 * The addresses of a host that is called by HTTPS, as https_call.h wants them.
 *
 * Limit: HOST_ADDRESSES_MAX of each family; the others are not looked at.
 */
#ifndef FETCH_HOST_ADDRESSES_H
#define FETCH_HOST_ADDRESSES_H

#include <stdbool.h>

#include "conf.h"
#include "resolver.h"
#include "slice.h"

#define HOST_ADDRESSES_MAX 16u

struct host_addresses;

/* Called once, from the loop; it may free them. */
typedef void host_addresses_found(void *arg, struct host_addresses *a);

/* Ask for those of the families that `conf` wants; `public_only`: not for those of our own networks
 * (public_address.h). */
struct host_addresses *host_addresses_new(struct resolver *resolver, const struct conf *conf,
                                          struct slice host, bool public_only,
                                          host_addresses_found *found, void *arg);

/* Ends what is under way. NULL is fine. */
void host_addresses_free(struct host_addresses *a);

/* Once found: separated by commas, those of IPv6 in brackets; as long as they. Empty: there are
 * none, and host_addresses_why says why. */
const char *host_addresses_text(struct host_addresses *a);
const char *host_addresses_why(const struct host_addresses *a);

#endif
