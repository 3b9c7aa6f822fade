/*
 * Retry times of destinations.
 *
 * If a clause has an `interval`, its destinations have retry times, and messages have none. All
 * mail for a destination waits until its retry time W. W moves along the sequence `retries` each
 * time a run to the destination leaves mail. This file has the states, without I/O; queue_retry.c
 * acts on them.
 *
 *   (none: mail goes at once) --first result--> W past --mail is left--> W in the future
 *                                                 ^                          |
 *                                                 +--- W is over, new mail --+
 *
 * - Only the first event of a run moves W, because W is then in the future.
 * - Success does not reset W and its position in the sequence. Both are dropped when no mail for
 *   the
 *   destination is left (dest_retry_drop). If that did not happen, dest_retries_check returns the
 *   destination some time after its W.
 * - After a start no destination has a W: all mail is due.
 *
 * Limit: DEST_RETRIES_MAX. Beyond it the state with the earliest check is dropped, and the next
 * failure of its destination begins with the first step of the sequence.
 */
#ifndef QUEUE_DEST_RETRY_H
#define QUEUE_DEST_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "heap.h"
#include "policy.h"
#include "retry.h"
#include "times.h"

#define DEST_RETRIES_MAX 200000
/* Wait after a run if `retries` has no factor: the destination stays due, and is not tried
 * faster. */
#define RETRY_ALWAYS_US US_PER_S
/* Shortest time between two wakes of waiting mail by new mail. New mail also waits for so long
 * after its destination was stopped. */
#define RETRY_WAKE_US (10 * US_PER_S)
/* Time after W at which an unchanged state is checked, and period of further checks. */
#define RETRY_CHECK_US (60 * US_PER_S)
/* Time until the check of a destination whose mail seems to be gone. */
#define RETRY_CHECK_SOON_US US_PER_S

/* A clause's parameters for retries. */
struct retry_rules {
    struct retry_sequence sequence; /* interval_us 0: no retry times; the rules then apply only with
                               queueonly */
    uint32_t *factors;              /* owned; sequence.factors points to it */
    bool queueonly;                 /* mail is delivered only when it is requested */
    bool wakeuprestartonly;         /* new mail does not wake waiting mail */
};

/* Copies the parameters of a policy. */
void retry_rules_init(struct retry_rules *r, const struct policy *policy);
void retry_rules_fini(struct retry_rules *r);

static inline bool retry_rules_apply(const struct retry_rules *r)
{
    return r->sequence.interval_us > 0 || r->queueonly;
}

struct destination;

/* State of a destination, which owns it (destination.retry). */
struct dest_retry {
    struct destination *of;
    struct heap_node by_check;
    struct wall check_at;
    struct retry_state retry; /* retry.due is W */
    uint64_t attempts;        /* number of recipients tried */
    struct wall woken;        /* time of the last wake; us 0: none */
    bool asleep;              /* mail was deferred until W since the last wake */
    bool stopped;             /* no mail goes now: an agent requested that, or has died */
    struct wall stopped_at;   /* time of the last stop */
};

struct dest_retries {
    struct heap by_check;
    size_t count;
};

void dest_retries_init(struct dest_retries *all);
void dest_retries_fini(struct dest_retries *all);

/* Returns the destination's state, which is added if missing. Adding one may drop the state of
 * another destination. */
struct dest_retry *dest_retry_need(struct dest_retries *all, struct destination *d,
                                   struct wall now);
void dest_retry_drop(struct dest_retries *all, struct dest_retry *r);

/* Moves W at the end of a run that left mail, unless W is in the future, and returns it. The rule
 * is the same whatever the run's results were. `stops`: no more mail goes to the destination until
 * W, and not before the time `not_before` that the agent requested (us 0: none). A requested time
 * in the past has no effect; a later one is reduced to the longest step of the sequence. */
struct wall dest_retry_ran(struct dest_retries *all, struct dest_retry *r,
                           const struct retry_rules *rules, bool stops, struct wall not_before,
                           struct wall now, unsigned jitter_percent, struct rng *rng);

/* Adds by_us to all times, after the clock was set. */
void dest_retry_move(struct dest_retries *all, struct dest_retry *r, int64_t by_us);

/* Is W in the future? */
bool dest_retry_waits(const struct dest_retry *r, struct wall now);

/* Notes that mail was deferred until W. */
void dest_retry_slept(struct dest_retry *r);
/* May new mail wake waiting mail? Only if some waits and the last wake is not too recent. */
bool dest_retry_may_be_woken(const struct dest_retry *r, struct wall now);
/* Is W in the future, and was the destination stopped less than RETRY_WAKE_US ago? Then new mail
 * waits, too. */
bool dest_retry_is_fresh_stop(const struct dest_retry *r, struct wall now);
/* Notes that waiting mail was made due. New mail leaves W as it is; if the mail was `requested`, W
 * is over. */
void dest_retry_woken(struct dest_retry *r, bool requested, struct wall now);

/* Schedules a check soon, because the destination's mail seems to be gone. */
void dest_retry_check_soon(struct dest_retries *all, struct dest_retry *r, struct wall now);

/* Returns a state whose check is due, because nothing has happened since its W; NULL if there is
 * none. The next check of the same state is after RETRY_CHECK_US. */
struct dest_retry *dest_retries_check(struct dest_retries *all, struct wall now);
/* Returns the time of the next check; WALL_NEVER if there is no state. */
struct wall dest_retries_check_at(const struct dest_retries *all);

#endif
