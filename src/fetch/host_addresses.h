/*
 * Addresses of a host, in the form that https_call.h needs. Limit: HOST_ADDRESSES_MAX of each
 * family; further ones are ignored.
 */
#ifndef FETCH_HOST_ADDRESSES_H
#define FETCH_HOST_ADDRESSES_H

#include <stdbool.h>

#include "conf.h"
#include "resolver.h"
#include "slice.h"

#define HOST_ADDRESSES_MAX 16u

struct host_addresses;

/* Receives the result, once, from the event loop; may free the object. */
typedef void host_addresses_found(void *arg, struct host_addresses *a);

/* Looks up addresses of the families that `conf` enables. With `public_only`, addresses of private
 * networks are ignored (public_address.h). */
struct host_addresses *host_addresses_new(struct resolver *resolver, const struct conf *conf,
                                          struct slice host, bool public_only,
                                          host_addresses_found *found, void *arg);

/* Frees the object and ends queries in flight. NULL is allowed. */
void host_addresses_free(struct host_addresses *a);

/* Returns the addresses after `found`, separated by commas, IPv6 in brackets; valid as long as the
 * object. If there are none, the text is empty and host_addresses_why returns the reason. */
const char *host_addresses_text(struct host_addresses *a);
const char *host_addresses_why(const struct host_addresses *a);

#endif
