/*
 * Destinations in the queue process: the policy of each, and its next hop as written, which the
 * scheduler does not store.
 *
 * A destination is a transport and the scheduler's name of a next hop (lower case). It is added
 * when mail for it is routed, and found by transport and name. It is kept while the scheduler has
 * mail for it, or it has a retry time or a history. Limit: QUEUE_DESTINATIONS_MAX, not counting
 * those with mail.
 */
#ifndef QUEUE_DESTINATION_H
#define QUEUE_DESTINATION_H

#include <stdbool.h>
#include <stdint.h>

#include "conf.h"
#include "expiry.h"
#include "hash.h"
#include "slice.h"
#include "dest_history.h"
#include "dest_retry.h"
#include "times.h"
#include "tuning.h"

struct queue;

/* Limit of destinations without mail in the scheduler. */
#define QUEUE_DESTINATIONS_MAX 50000

struct destination {
    char *nexthop; /* owned; as written, for the agent */
    enum conf_agent agent;
    bool has_clause;
    bool has_command; /* a transport agent can be started for it */
    struct tuning_dest tuning;
    bool told;       /* the scheduler has, or had, a policy for this destination alone */
    uint64_t limits; /* count of changes of overrides' limits that `tuning` includes */
    struct retry_rules rules;
    struct expiry_rules expiry;
    struct mono next_clog_warning, next_login_notice;
    struct dest_retry *retry;     /* owned; retry time; NULL: none */
    struct dest_history *history; /* owned; recent events; NULL: none */
    UT_hash_handle hh;
    uint32_t transport; /* first member of the key */
    char name[];        /* NUL-terminated */
};

struct destinations {
    struct destination *table;
    size_t trim_at; /* number of destinations at which those without mail are freed */
    struct dest_retries retries;
    struct dest_histories histories;
};

void destinations_init(struct destinations *d);
void destinations_fini(struct destinations *d);

/* Returns NULL if there is none. */
struct destination *destination_find(const struct destinations *d, uint32_t transport,
                                     struct slice name);
/* Returns the destination, which is added if missing. */
struct destination *destination_need(struct queue *q, uint32_t transport, const char *name,
                                     const char *nexthop);

/* Adds by_us to the retry times of all, after the clock was set. */
void destinations_move(struct destinations *d, int64_t by_us);

/* Frees destinations without mail, retry time and history, when there are too many. Pointers to
 * them become invalid, so call it before new ones are used. Destinations with mail stay, because
 * they alone have the next hop as written. */
void destinations_trim(struct queue *q);

/* Applies the current limits, after an override of the destination has changed. */
void destination_retune(struct queue *q, struct destination *d);

/* Applies the policies of a new configuration to all destinations. */
void destinations_reload(struct queue *q);

/* Passes limits of its own to the scheduler, which has mail for the destination now. */
void destination_opened(struct queue *q, struct destination *d);

/* Logs a warning if the destination has so much of the active queue that other mail suffers
 * (helpful_warnings). */
void destination_warn_of_clog(struct queue *q, struct destination *d);

#endif
