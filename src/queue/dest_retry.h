/*
 * When a destination is tried again.
 *
 * Where a clause has an `interval`, not a message but its destination has a time of retry: W. All
 * that waits for the destination is put off until W, and W moves along the sequence `retries` each
 * time a run to the destination leaves something. Here are these states, without I/O; queue_retry.c
 * acts on them.
 *
 *   (none: mail goes at once) --first result--> W past --something is left--> W in the future
 *                                                 ^                               |
 *                                                 +---- W comes, or new mail -----+
 *
 * - Only what moves W first in a run counts, as then W lies in the future.
 * - W and its place in the sequence are not reset by success: they are dropped when nothing is left
 *   of the destination's mail (dest_retry_drop). One that is not dropped in time is told by
 *   dest_retries_check, some time after its W.
 * - A start knows none: everything is due.
 *
 * Limit: DEST_RETRIES_MAX. Beyond it the one whose W comes first is forgotten: the next failure of
 * its destination starts the sequence from its beginning.
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
/* `retries` of no factor: the destination stays due, but is not tried faster than this. */
#define RETRY_ALWAYS_US US_PER_S
/* New mail in a stream does not have all that waits tried with each message, but so often; nor is
 * it tried itself so soon after its destination was stopped. */
#define RETRY_WAKE_US (10 * US_PER_S)
/* How long after W a destination is looked at, should nothing have come of it; and again. */
#define RETRY_CHECK_US (60 * US_PER_S)
/* And when its mail seems to have gone. */
#define RETRY_CHECK_SOON_US US_PER_S

/* What a clause says of retries. Owns the factors. */
struct retry_rules {
    struct retry_sequence
        sequence;           /* interval_us 0: no times; without queueonly they do not apply */
    uint32_t *factors;      /* owned; what the sequence points to */
    bool queueonly;         /* goes only when asked for */
    bool wakeuprestartonly; /* new mail wakes nothing */
};

/* Take them from a policy. Nothing of it is borrowed. */
void retry_rules_init(struct retry_rules *r, const struct policy *policy);
void retry_rules_fini(struct retry_rules *r);

static inline bool retry_rules_apply(const struct retry_rules *r)
{
    return r->sequence.interval_us > 0 || r->queueonly;
}

struct destination;

/* Of one destination, which owns it (destination.retry). */
struct dest_retry {
    struct destination *of;
    struct heap_node by_check;
    struct wall check_at;
    struct retry_state retry; /* due: W */
    uint64_t attempts;        /* recipients tried */
    struct wall woken;        /* when it was, last */
    bool asleep;              /* mail was put off since it was woken */
    bool stopped;             /* nothing more of it goes now: an agent said so, or has died */
    struct wall stopped_at;   /* when that was last found out */
};

struct dest_retries {
    struct heap by_check;
    size_t count;
};

void dest_retries_init(struct dest_retries *all);
void dest_retries_fini(struct dest_retries *all);

/* The destination's; made when missing. May forget another's. */
struct dest_retry *dest_retry_need(struct dest_retries *all, struct destination *d,
                                   struct wall now);
void dest_retry_drop(struct dest_retries *all, struct dest_retry *r);

/* What a run has brought; W moves when it is not in the future. */
enum retry_end {
    RETRY_DEFERRED, /* a recipient is to be tried again */
    RETRY_SILENT,   /* recipients are left, and none was deferred: no word of them, a crash */
    RETRY_STOPPED,  /* nothing more goes to the destination now */
};
/* `not_before` is what the agent asked for with RETRY_STOPPED (us 0: nothing); what lies in the
 * past means nothing, and no more than the longest step is granted. Returns W. */
struct wall dest_retry_ran(struct dest_retries *all, struct dest_retry *r,
                           const struct retry_rules *rules, enum retry_end end,
                           struct wall not_before, struct wall now, unsigned jitter_percent,
                           struct rng *rng);

/* The clock was set: its times move by so much. */
void dest_retry_move(struct dest_retries *all, struct dest_retry *r, int64_t by_us);

/* Is W in the future? */
bool dest_retry_waits(const struct dest_retry *r, struct wall now);

/* Something of it was put off until W. */
void dest_retry_slept(struct dest_retry *r);
/* May new mail wake what was put off? Not when that was just done. */
bool dest_retry_may_be_woken(const struct dest_retry *r, struct wall now);
/* Does the destination wait, and was it found out less than RETRY_WAKE_US ago that nothing goes to
 * it? Then new mail waits, too. */
bool dest_retry_is_fresh_stop(const struct dest_retry *r, struct wall now);
/* What was put off was made due: for new mail, which leaves W as it is, or because it was
 * `requested`, which ends the wait. */
void dest_retry_woken(struct dest_retry *r, bool requested, struct wall now);

/* Its mail seems to have gone: it should be looked at soon. */
void dest_retry_check_soon(struct dest_retries *all, struct dest_retry *r, struct wall now);

/* One that should be looked at: its W is past and nothing came of it. Each is told once, and again
 * after RETRY_CHECK_US. NULL: none. */
struct dest_retry *dest_retries_check(struct dest_retries *all, struct wall now);
/* When there will be one; WALL_NEVER: none. */
struct wall dest_retries_check_at(const struct dest_retries *all);

#endif
