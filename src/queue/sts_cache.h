/*
 * What is known of the MTA-STS policies of domains (RFC 8461): which hold, which are to be looked
 * up, and which deliveries wait for that. Pure: time comes in; what is to be done is pulled out.
 *
 *          sts_cache_ask, refresh                 sts_cache_next_check
 *   IDLE ---------------------------> WANTED ---------------------------> ASKED
 *    ^                                   ^                                  |
 *    |                                   +------- sts_cache_lost (once) ----+
 *    +------------------------- sts_cache_result ---------------------------+
 *
 * - A policy holds until its max_age is over, whatever becomes of the record and the host
 *   (RFC 8461, 3.3). A domain's record is looked at before a delivery, but not again within
 *   STS_CHECK_US; its policy is fetched when the id is new.
 * - A delivery that asks while a look-up is under way waits for it, until STS_WAIT_US after its
 *   begin; then it goes on with the policy that holds, or without.
 * - A policy that can't be fetched is not asked for again for STS_RETRY_US, then twice as long,
 *   up to STS_RETRY_MAX_US.
 * - A policy is fetched anew every STS_REFRESH_US, or when half of its max_age is over, as long as
 *   there was mail for the domain within STS_USED_US.
 *
 * Limits: STS_DOMAINS_MAX domains without and STS_POLICIES_MAX with a policy; the one that was
 * asked for least lately makes room. Where none can, the domain counts as one without a policy.
 *
 * After each call that may cause them, pull answers (sts_cache_next_answer) until there is none.
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
#define STS_SCAN_US      (60 * US_PER_S) /* how often it is looked for what is to be refreshed */

#define STS_DOMAINS_MAX  50000u
#define STS_POLICIES_MAX 20000u

enum sts_state { STS_IDLE, STS_WANTED, STS_ASKED };

struct sts_waiter;
struct sts_cache;

/* A domain. Fields are for reading; sts_cache.c writes them. */
struct sts_domain {
    UT_hash_handle hh;
    char name[WIRE_DOMAIN_MAX + 1]; /* lower case */
    enum sts_state state;
    char id[STS_ID_MAX + 1];
    char *policy; /* owned: as sts_policy_put writes it; NULL: none is known */
    enum sts_mode mode;
    struct mono fetched, until; /* of the policy */
    struct mono refresh_at;
    struct mono used;       /* asked for */
    struct mono check_at;   /* not looked up before */
    struct mono checked;    /* the last look-up ended; us INT64_MIN: none has */
    struct mono wait_until; /* of what waits for the look-up */
    unsigned failures;      /* in a row */
    char *why;              /* owned: of the last failure; NULL: the last look-up had none */
    bool always, was_lost, is_waited_for, is_changed, is_dead;
    unsigned answers; /* that are to be pulled */
    STAILQ_HEAD(, sts_waiter) waiters;
    TAILQ_ENTRY(sts_domain) in_order, in_work, in_waiting, in_changed;
};

struct sts_cache *sts_cache_new(struct mono now);
void sts_cache_free(struct sts_cache *c);

/* What holds now: NULL for no policy. */
const char *sts_domain_policy(const struct sts_domain *d, struct mono now);

/* NULL: nothing is known of it. */
const struct sts_domain *sts_cache_find(const struct sts_cache *c, struct slice domain);

/* `asker` wants to know the policy of a valid domain, and gets an answer with `token`. */
void sts_cache_ask(struct sts_cache *c, struct mono now, struct slice domain, uint32_t asker,
                   uint64_t token);

/* It is gone. */
void sts_cache_asker_lost(struct sts_cache *c, uint32_t asker);

struct sts_cache_answer {
    uint32_t asker;
    uint64_t token;
    const struct sts_domain *domain; /* until the next call; NULL: there is no room for it */
};
bool sts_cache_next_answer(struct sts_cache *c, struct sts_cache_answer *ret);

/* The next domain to look up, ASKED from now on: with `always` get the policy also when its id is
 * sts_domain_known_id. NULL: none is wanted, or WIRE_FETCHES_MAX are under way. */
const struct sts_domain *sts_cache_next_check(struct sts_cache *c);
const char *sts_domain_known_id(const struct sts_domain *d, struct mono now);

enum sts_effect { STS_REFUSED, STS_UNCHANGED, STS_CHANGED, STS_FAILED };

/* What came of a look-up. STS_REFUSED: it is none of those under way, or malformed; nothing has
 * changed. */
enum sts_effect sts_cache_result(struct sts_cache *c, struct mono now,
                                 const struct wire_fetched *m);

/* The process that looks up is gone: what was under way is wanted again, and a failure when it was
 * lost before. */
void sts_cache_lost(struct sts_cache *c, struct mono now);

/* Do what is due: end waiting, forget what is over, want what is to be refreshed. */
void sts_cache_tick(struct sts_cache *c, struct mono now);
struct mono sts_cache_wake_at(const struct sts_cache *c);

/* A domain whose policy is to be stored, or (policy NULL) to be removed from where it is. NULL:
 * none. Lasts until the next call. */
const struct sts_domain *sts_cache_next_change(struct sts_cache *c);

/* Forget its policy; the next mail has it looked up. False: nothing is known of it. */
bool sts_cache_flush(struct sts_cache *c, struct mono now, struct slice domain);

/* Look at its record and get its policy with the next question, whatever was found lately. */
void sts_cache_renew(struct sts_cache *c, struct mono now, struct slice domain);

/* A policy that was stored. False when it is over or malformed, or there is no room. */
bool sts_cache_restore(struct sts_cache *c, struct mono now, struct slice domain, struct slice id,
                       struct slice policy, struct mono fetched, struct mono used);

/* All domains, those with a policy first, the latest used first: NULL begins, and ends. */
const struct sts_domain *sts_cache_walk(const struct sts_cache *c, const struct sts_domain *after);

/* Aborts unless lists, counts and states fit. For tests and fuzz targets. */
void sts_cache_audit(const struct sts_cache *c);

#endif
