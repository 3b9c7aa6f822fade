/*
 * A destination as the SMTP client sees it: one transport and next hop with all that the
 * configuration says about reaching it, computed once and shared by its deliveries and connections.
 *
 * Counted references: each delivery, each connection and each connection kept idle holds one. After
 * a reload the old ones leave the table and live on until the last reference is gone; they have
 * copies of everything, so nothing in them points into a configuration.
 */
#ifndef DAEMON_ENDPOINT_H
#define DAEMON_ENDPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "conf.h"
#include "conncache.h"
#include "hash.h"
#include "hops.h"
#include "session.h"

struct role;
struct attempt;
struct endpoints;

/* Next hops of one destination, relays of last resort included. */
#define ENDPOINT_HOPS_MAX 32

struct endpoint {
    struct session_settings settings;
    struct endpoints *all;
    char *key; /* owned: transport, NUL, next hop */
    size_t transport_len, key_len;
    uint32_t refs;
    bool stale; /* of an old configuration: no connection of it is kept */
    bool lmtp;

    char *hops[ENDPOINT_HOPS_MAX]; /* owned: next hops in the order to be tried */
    size_t hop_count;
    size_t own_count; /* of them, the destination's own; the others are relays of last resort */
    struct mxlist_rules rules;
    size_t session_limit;
    int64_t size_limit; /* bytes; 0: none */

    bool cache; /* connections are kept */
    int64_t cache_us, reuse_us;
    uint64_t reuse_count; /* 0: no limit */
    struct conncache_key idle;
    TAILQ_HEAD(, attempt) waiting; /* attempt.c's: those without a connection yet */

    char *helo; /* owned */
    struct endpoint_trust *trust;
    UT_hash_handle hh;
};

/* Reads the system's certificates; before confinement. `role` is borrowed. */
struct endpoints *endpoints_new(const struct role *role);

/* When no reference is left but those of sessions that are gone. NULL is fine. */
void endpoints_free(struct endpoints *all);

/* The configuration is a new one. */
void endpoints_renew(struct endpoints *all);

/* Find or make; one reference is the caller's. */
struct endpoint *endpoint_get(struct endpoints *all, struct slice transport, struct slice nexthop);

struct endpoint *endpoint_ref(struct endpoint *e);
void endpoint_unref(struct endpoint *e);

/* The endpoint whose settings these are. */
struct endpoint *endpoint_of(const struct session_settings *settings);

/* Is it this one? An empty transport means every one. */
bool endpoint_is(const struct endpoint *e, struct slice transport, struct slice nexthop);

#endif
