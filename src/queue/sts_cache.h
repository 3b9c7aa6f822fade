/*
 * Cache of the MTA-STS policies of domains (RFC 8461): valid policies, domains to look up, and
 * deliveries that wait for a look-up. Pure: the caller passes the time in and pulls the work out.
 *
 *          sts_cache_ask, refresh                 sts_cache_next_check
 *   IDLE ---------------------------> WANTED ---------------------------> ASKED
 *    ^                                   ^                                  |
 *    |                                   +------- sts_cache_lost (once) ----+
 *    +------------------------- sts_cache_result ---------------------------+
 *
 * - A policy is valid until its max_age is over, whatever happens to its record and host
 *   (RFC 8461, 3.3). A domain's record is looked up before a delivery, but not again within
 *   STS_CHECK_US; its policy is fetched when the id is new.
 * - A delivery that needs a policy during a look-up waits for it, until STS_WAIT_US after the
 *   begin of the look-up. Then it continues with the valid policy, or without one.
 * - After a failed fetch the next one follows after STS_RETRY_US, then after twice as long,
 *   up to STS_RETRY_MAX_US.
 * - A policy is fetched again every STS_REFRESH_US, or when half of its max_age is over, as long
 *   as there was mail for the domain within STS_USED_US.
 *
 * Limits: STS_DOMAINS_MAX domains without a policy and STS_POLICIES_MAX with one. The least
 * recently used one is dropped for a new one. If none can be dropped, the new domain counts as one
 * without a policy.
 *
 * After each call that may cause answers, pull them (sts_cache_next_answer) until there is none.
 */
#ifndef QUEUE_STS_CACHE_H
#define QUEUE_STS_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "hash.h"
#include "slice.h"
#include "sts.h"
#include "times.h"
#include "wire.h"

#define STS_WAIT_US      (15 * US_PER_S)
#define STS_CHECK_US     (60 * US_PER_S)
#define STS_RETRY_US     (300 * US_PER_S)
#define STS_RETRY_MAX_US (3600 * US_PER_S)
#define STS_REFRESH_US   (86400 * US_PER_S)
#define STS_USED_US      (30 * STS_REFRESH_US)
#define STS_SCAN_US      (60 * US_PER_S) /* interval between searches for policies to refresh */

#define STS_DOMAINS_MAX  50000u
#define STS_POLICIES_MAX 20000u

enum sts_state { STS_IDLE, STS_WANTED, STS_ASKED };

struct sts_waiter;
struct sts_cache;

/* A domain. Only sts_cache.c writes the fields. */
struct sts_domain {
    UT_hash_handle hh;
    char name[WIRE_DOMAIN_MAX + 1]; /* lower case */
    enum sts_state state;
    char id[STS_ID_MAX + 1];
    char *policy; /* valid or expired policy as sts_policy_put writes it; owned; NULL: none */
    enum sts_mode mode;
    struct mono fetched, until; /* begin and end of the policy */
    struct mono refresh_at;
    struct mono used;       /* last request */
    struct mono check_at;   /* no look-up before this time */
    struct mono checked;    /* end of the last look-up; us INT64_MIN: none yet */
    struct mono wait_until; /* end of the wait for the look-up */
    unsigned failures;      /* failed fetches in a row */
    char *why;              /* reason of the last failure; owned; NULL: none */
    bool always, was_lost, is_waited_for, is_changed, is_dead;
    unsigned answers; /* answers that were not pulled yet */
    STAILQ_HEAD(, sts_waiter) waiters;
    TAILQ_ENTRY(sts_domain) in_order, in_work, in_waiting, in_changed;
};

struct sts_cache *sts_cache_new(struct mono now);
void sts_cache_free(struct sts_cache *c);

/* Returns the policy that is valid now, or NULL. */
const char *sts_domain_policy(const struct sts_domain *d, struct mono now);

/* Returns the domain, or NULL if it is not in the cache. */
const struct sts_domain *sts_cache_find(const struct sts_cache *c, struct slice domain);

/* Requests the policy of a valid domain for `asker`, which gets an answer with `token`. */
void sts_cache_ask(struct sts_cache *c, struct mono now, struct slice domain, uint32_t asker,
                   uint64_t token);

/* Drops the waiting requests of an asker that has gone. */
void sts_cache_asker_lost(struct sts_cache *c, uint32_t asker);

struct sts_cache_answer {
    uint32_t asker;
    uint64_t token;
    const struct sts_domain *domain; /* valid until the next call; NULL: no room for the domain */
};
bool sts_cache_next_answer(struct sts_cache *c, struct sts_cache_answer *ret);

/* Returns the next domain to look up, which is then ASKED. With `always`, the policy must be
 * fetched even if its id is sts_domain_known_id. NULL if none is wanted, or if WIRE_FETCHES_MAX
 * look-ups are in flight. */
const struct sts_domain *sts_cache_next_check(struct sts_cache *c);
const char *sts_domain_known_id(const struct sts_domain *d, struct mono now);

enum sts_effect { STS_REFUSED, STS_UNCHANGED, STS_CHANGED, STS_FAILED };

/* Stores the result of a look-up. Returns STS_REFUSED, without a change, if no such look-up is in
 * flight or the result is malformed. */
enum sts_effect sts_cache_result(struct sts_cache *c, struct mono now,
                                 const struct wire_fetched *m);

/* Repeats the look-ups in flight after the process `fetch` has ended. A look-up that was lost
 * before counts as failed. */
void sts_cache_lost(struct sts_cache *c, struct mono now);

/* Does what is due: ends waits, drops expired policies, requests refreshes. */
void sts_cache_tick(struct sts_cache *c, struct mono now);
struct mono sts_cache_wake_at(const struct sts_cache *c);

/* Returns a domain whose policy must be stored, or removed from the store if `policy` is NULL.
 * Returns NULL if there is none. Valid until the next call. */
const struct sts_domain *sts_cache_next_change(struct sts_cache *c);

/* Drops the domain's policy; the next mail looks it up again. Returns false if the domain is not in
 * the cache. */
bool sts_cache_flush(struct sts_cache *c, struct mono now, struct slice domain);

/* Makes the next request look up the record and fetch the policy, however recent they are. */
void sts_cache_renew(struct sts_cache *c, struct mono now, struct slice domain);

/* Restores a stored policy. Returns false if it has expired or is malformed, or there is no
 * room. */
bool sts_cache_restore(struct sts_cache *c, struct mono now, struct slice domain, struct slice id,
                       struct slice policy, struct mono fetched, struct mono used);

/* Iterates over all domains: those with a policy first, the most recently used first. NULL begins
 * and ends. */
const struct sts_domain *sts_cache_walk(const struct sts_cache *c, const struct sts_domain *after);

/* Aborts unless lists, counts and states are consistent. For tests and fuzz targets. */
void sts_cache_audit(const struct sts_cache *c);

#endif
