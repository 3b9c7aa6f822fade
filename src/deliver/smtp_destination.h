/*
 * A destination as the SMTP client sees it: one transport and next hop with all that the
 * configuration says about reaching it, computed once and shared by its deliveries and connections.
 *
 * Counted references: each delivery, each connection and each connection kept idle holds one. After
 * a reload the old ones leave the table and live on until the last reference is gone; they have
 * copies of everything, so nothing in them points into a configuration.
 */
#ifndef DELIVER_SMTP_DESTINATION_H
#define DELIVER_SMTP_DESTINATION_H

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
struct smtp_destinations;

/* Next hops of one destination, relays of last resort included. */
#define SMTP_DESTINATION_HOPS_MAX 32

struct smtp_destination {
    struct session_settings settings;
    struct smtp_destinations *all;
    char *key; /* owned: transport, NUL, next hop; with logins, NUL and their numbers */
    size_t transport_len, nexthop_len, key_len;
    uint32_t refs;
    bool stale;  /* of an old configuration: no connection of it is kept */
    bool leaves; /* another node gets it: none is kept until a delivery comes for it again */
    bool lmtp;

    char *hops[SMTP_DESTINATION_HOPS_MAX]; /* owned: next hops in the order to be tried */
    size_t hop_count;
    struct session_login *logins[SMTP_DESTINATION_HOPS_MAX]; /* owned: at each hop; NULL: none */
    unsigned login_lines[SMTP_DESTINATION_HOPS_MAX];         /* of relay_auth, of these */
    size_t own_count; /* of them, the destination's own; the others are relays of last resort */
    enum conf_tls level;
    enum conf_sts sts;
    struct mxlist_rules rules;
    size_t session_limit;
    int64_t size_limit; /* bytes; 0: none */

    bool cache; /* connections are kept */
    int64_t cache_us, reuse_us;
    uint64_t reuse_count; /* 0: no limit */
    struct conncache_key idle;
    TAILQ_HEAD(, attempt) waiting; /* attempt.c's: those without a connection yet */

    char *helo; /* owned */
    struct smtp_trust *trust;
    UT_hash_handle hh;
};

/* Reads the system's certificates; before confinement. `role` is borrowed. */
struct smtp_destinations *smtp_destinations_new(const struct role *role);

/* When no reference is left but those of sessions that are gone. NULL is fine. */
void smtp_destinations_free(struct smtp_destinations *all);

/* The configuration is a new one. */
void smtp_destinations_renew(struct smtp_destinations *all);

/* Find or make the one for mail from `sender`, which counts where a relay wants a login; one
 * reference is the caller's. */
struct smtp_destination *smtp_destination_get(struct smtp_destinations *all, struct slice transport,
                                              struct slice nexthop, struct slice sender);

struct smtp_destination *smtp_destination_ref(struct smtp_destination *e);
void smtp_destination_unref(struct smtp_destination *e);

/* The relay at this hop refuses our login. That is no fault of the relay, nor of mail that has
 * another login there: so the login alone rests, that a wrong password is not tried with each
 * message, for minimal_backoff_time and each further time in a row twice as long, up to
 * maximal_backoff_time. `why` is copied. */
void smtp_destination_login_refused(struct smtp_destination *e, size_t hop, struct slice why,
                                    struct mono now);
void smtp_destination_login_works(struct smtp_destination *e, size_t hop);

/* Why the login at this hop is not to be tried now, and for how long; lasts until the next of the
 * other calls. NULL: it is, and when it has been refused, by the caller alone until that says how
 * it went, or for minimal_backoff_time. */
const char *smtp_destination_login_rests(struct smtp_destination *e, size_t hop, struct mono now,
                                         int64_t *ret_us);

/* An operator wants all of it tried again: no login rests any more. */
void smtp_destinations_forgive(struct smtp_destinations *all);

/* What it demands of TLS at one of its hops. */
struct hops_tls smtp_destination_tls(const struct smtp_destination *e, size_t hop);

/* The destination whose settings these are. */
struct smtp_destination *smtp_destination_of(const struct session_settings *settings);

/* Set its `leaves`, for all senders. */
void smtp_destinations_leave(struct smtp_destinations *all, struct slice transport,
                             struct slice nexthop);

/* Is it this one? An empty transport means every one. */
bool smtp_destination_is(const struct smtp_destination *e, struct slice transport,
                         struct slice nexthop);

#endif
