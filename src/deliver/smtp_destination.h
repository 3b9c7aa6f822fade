/*
 * A destination of the SMTP client: one transport and next hop, with all settings for reaching it.
 * They are computed once and shared by its deliveries and connections.
 *
 * References are counted: each delivery and each connection, idle ones included, holds one. After a
 * reload the previous destinations leave the table and remain until their last reference is gone.
 * They have copies of all settings, so they do not point into a configuration.
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

/* Next hops of one destination, with relays of last resort. */
#define SMTP_DESTINATION_HOPS_MAX 32

struct smtp_destination {
    struct session_settings settings;
    struct smtp_destinations *all;
    char *key; /* owned: transport, NUL, next hop; with logins, NUL and their line numbers */
    size_t transport_len, nexthop_len, key_len;
    uint32_t refs;
    bool stale;  /* from an old configuration; its connections are not kept */
    bool leaves; /* another node gets it; no connection is kept until its next delivery */
    bool lmtp;

    char *hops[SMTP_DESTINATION_HOPS_MAX]; /* owned: next hops in the order of use */
    size_t hop_count;
    /* owned: login for each hop; NULL: none */
    struct session_login *logins[SMTP_DESTINATION_HOPS_MAX];
    unsigned login_lines[SMTP_DESTINATION_HOPS_MAX]; /* line of each login in relay_auth */
    /* number of the destination's own hops; the others are relays of last resort */
    size_t own_count;
    enum conf_tls level;
    enum conf_sts sts;
    struct mxlist_rules rules;
    size_t session_limit;
    int64_t size_limit; /* bytes; 0: none */

    bool cache; /* connections are kept */
    int64_t cache_us, reuse_us;
    uint64_t reuse_count; /* 0: no limit */
    struct conncache_key idle;
    TAILQ_HEAD(, attempt) waiting; /* private to attempt.c: attempts without a connection */

    char *helo; /* owned */
    struct smtp_trust *trust;
    UT_hash_handle hh;
};

/* Reads the system's certificates; call it before confinement. `role` is borrowed. */
struct smtp_destinations *smtp_destinations_new(const struct role *role);

/* Frees the table; the only references left must be those of sessions that are gone. NULL is
 * fine. */
void smtp_destinations_free(struct smtp_destinations *all);

/* Takes settings from a new configuration. */
void smtp_destinations_renew(struct smtp_destinations *all);

/* Finds or makes the destination for mail from `sender`, which matters if a relay needs a login.
 * The caller gets one reference. */
struct smtp_destination *smtp_destination_get(struct smtp_destinations *all, struct slice transport,
                                              struct slice nexthop, struct slice sender);

struct smtp_destination *smtp_destination_ref(struct smtp_destination *e);
void smtp_destination_unref(struct smtp_destination *e);

/* Records that the relay at this hop has refused our login. Neither the relay nor mail with another
 * login is to blame, so only this login is suspended: a wrong password must not be tried with each
 * message. The first pause is minimal_backoff_time, each further one in a row is twice as long, up
 * to maximal_backoff_time. `why` is copied. */
void smtp_destination_login_refused(struct smtp_destination *e, size_t hop, struct slice why,
                                    struct mono now);
void smtp_destination_login_works(struct smtp_destination *e, size_t hop);

/* Returns the reason why the login at this hop must not be tried now, and the remaining time in
 * *ret_us. Returns NULL if the caller may try the login; after a refusal only this caller may,
 * until the login's result is recorded or for minimal_backoff_time. The text lasts until the next
 * call of the other functions. */
const char *smtp_destination_login_rests(struct smtp_destination *e, size_t hop, struct mono now,
                                         int64_t *ret_us);

/* Forgets all refused logins: an operator wants everything tried again. */
void smtp_destinations_forgive(struct smtp_destinations *all);

/* Returns the destination's TLS requirements at a hop. */
struct hops_tls smtp_destination_tls(const struct smtp_destination *e, size_t hop);

/* Returns the destination with these settings. */
struct smtp_destination *smtp_destination_of(const struct session_settings *settings);

/* Sets `leaves` of the destination, for all senders. */
void smtp_destinations_leave(struct smtp_destinations *all, struct slice transport,
                             struct slice nexthop);

/* Is `e` for this transport and next hop? An empty transport matches all. */
bool smtp_destination_is(const struct smtp_destination *e, struct slice transport,
                         struct slice nexthop);

#endif
