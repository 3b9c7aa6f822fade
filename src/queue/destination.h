/*
 * Destinations as the queue process knows them: what the configuration says of each, and its next
 * hop as it was written, which the scheduler does not keep.
 *
 * A destination is a transport and the scheduler's name of a next hop (lower case). It is made when
 * mail for it is routed.
 *
 * Owns the destinations. They are found by transport and name, and last as long as the
 * scheduler has mail for them or they have a time of retry or a history. Limit:
 * QUEUE_DESTINATIONS_MAX beside those with mail.
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

/* Destinations that are remembered, beside those that have mail in the scheduler. */
#define QUEUE_DESTINATIONS_MAX 50000

struct destination {
    char *nexthop; /* owned: as written, for the agent */
    enum conf_agent agent;
    bool has_clause;
    bool has_command; /* a transport agent can be started for it */
    struct tuning_dest tuning;
    bool told;       /* the scheduler has, or had, a policy for it alone */
    uint64_t limits; /* the interventions' count of these that `tuning` follows */
    struct retry_rules rules;
    struct expiry_rules expiry;
    struct mono next_clog_warning, next_login_notice;
    struct dest_retry *retry;     /* owned: when it is tried again; NULL: at once */
    struct dest_history *history; /* owned: what happened lately; NULL: nothing */
    UT_hash_handle hh;
    uint32_t transport; /* the key begins here */
    char name[];        /* NUL behind it */
};

struct destinations {
    struct destination *table;
    size_t trim_at; /* so many: forget those without mail */
    struct dest_retries retries;
    struct dest_histories histories;
};

void destinations_init(struct destinations *d);
void destinations_fini(struct destinations *d);

/* NULL: it is not known. */
struct destination *destination_find(const struct destinations *d, uint32_t transport,
                                     struct slice name);
/* Made when missing. */
struct destination *destination_need(struct queue *q, uint32_t transport, const char *name,
                                     const char *nexthop);

/* The clock was set: the times of all move by so much. */
void destinations_move(struct destinations *d, int64_t by_us);

/* Forget those without mail, time of retry and history, when there are too many. Ends their lives,
 * so it is to be called before new ones are used. Those with mail are needed when it is handed
 * out: only they know the next hop as it was written. */
void destinations_trim(struct queue *q);

/* Give it the limits that hold now: an intervention about it has come or gone. */
void destination_retune(struct queue *q, struct destination *d);

/* Give all of them the policies of a new configuration. */
void destinations_reload(struct queue *q);

/* The scheduler has mail for it now: give it the limits that are its own, if it has some. */
void destination_opened(struct queue *q, struct destination *d);

/* Log when it holds so much of the active queue that other mail suffers (helpful_warnings). */
void destination_warn_of_clog(struct queue *q, struct destination *d);

#endif
