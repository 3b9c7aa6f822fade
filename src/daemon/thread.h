/*
 * Threads: when a destination is tried again, as ZMailer has it.
 *
 * Where a clause has an `interval`, not a message but its destination has a time of retry: W. All
 * that waits for the destination is put off until W, and W moves along the sequence `retries` each
 * time a run to the destination leaves something. Here are these states, without I/O;
 * queue_thread.c acts on them.
 *
 *   (no thread: mail goes at once) --first result--> W past --something is left--> W in the future
 *                                                      ^                               |
 *                                                      +---- W comes, or new mail -----+
 *
 * - Only what moves W first in a run counts, as then W lies in the future.
 * - W and its place in the sequence are not reset by success: they go with the thread, when nothing
 *   is left of its mail. Who knows that drops it (threads_drop); a thread that nobody looked at is
 *   told by threads_check, some time after its W.
 * - A start knows no threads: everything is due.
 *
 * Limit: THREADS_KEPT_MAX. Beyond it the thread whose W comes first is forgotten: its next failure
 * starts the sequence from its beginning.
 */
#ifndef DAEMON_THREAD_H
#define DAEMON_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "hash.h"
#include "heap.h"
#include "policy.h"
#include "retry.h"
#include "scheduler.h"
#include "slice.h"
#include "times.h"

#define THREADS_KEPT_MAX 200000
/* `retries` of no factor: the thread stays due, but is not tried faster than this. */
#define THREAD_ALWAYS_US US_PER_S
/* New mail in a stream does not have all that waits tried with each message, but so often; nor is
 * it tried itself so soon after its thread was stopped. */
#define THREAD_WAKE_US (10 * US_PER_S)
/* How long after W a thread is looked at, should nothing have come of it; and again. */
#define THREAD_CHECK_US (60 * US_PER_S)
/* And when its mail seems to have gone. */
#define THREAD_CHECK_SOON_US US_PER_S

/* What a clause says of retries. Owns the factors. */
struct thread_rules {
    struct retry_sequence sequence; /* interval_us 0: no times; without queueonly no thread */
    uint32_t *factors;              /* owned; what the sequence points to */
    bool queueonly;                 /* goes only when asked for */
    bool wakeuprestartonly;         /* new mail wakes nothing */
};

/* Take them from a policy. Nothing of it is borrowed. */
void thread_rules_init(struct thread_rules *r, const struct policy *policy);
void thread_rules_fini(struct thread_rules *r);

static inline bool thread_rules_apply(const struct thread_rules *r)
{
    return r->sequence.interval_us > 0 || r->queueonly;
}

struct thread {
    UT_hash_handle hh;
    struct heap_node by_check;
    struct wall check_at;
    struct retry_state retry; /* due: W */
    uint64_t attempts;        /* recipients tried */
    struct wall woken;        /* when it was, last */
    bool asleep;              /* mail was put off since it was woken */
    bool stopped;             /* nothing more of it goes now: an agent said so, or has died */
    struct wall stopped_at;   /* when that was last found out */
    uint32_t dest_len;
    uint32_t transport; /* the key begins here */
    char dest[];        /* NUL behind it */
};

struct threads {
    struct thread *table;
    struct heap by_check;
};

void threads_init(struct threads *t);
void threads_fini(struct threads *t);

/* NULL: it has none. */
struct thread *threads_find(const struct threads *t, uint32_t transport, struct slice dest);
/* Made when missing. May forget another. */
struct thread *threads_need(struct threads *t, uint32_t transport, struct slice dest,
                            struct wall now);
void threads_drop(struct threads *t, struct thread *thread);

/* What a run has brought; W moves when it is not in the future. */
enum thread_end {
    THREAD_DEFERRED, /* a recipient is to be tried again */
    THREAD_SILENT,   /* nobody was deferred, yet somebody is left: no word of them, a crash */
    THREAD_STOPPED,  /* nothing more of it goes now */
};
/* `not_before` is what the agent asked for with THREAD_STOPPED (us 0: nothing); what lies in the
 * past means nothing, and no more than the longest step is granted. Returns W. */
struct wall thread_ran(struct threads *t, struct thread *thread, const struct thread_rules *rules,
                       enum thread_end end, struct wall not_before, struct wall now,
                       unsigned jitter_percent, struct rng *rng);

/* The clock was set: all times move by so much. */
void threads_move(struct threads *t, int64_t by_us);

/* Is W in the future? */
bool thread_waits(const struct thread *thread, struct wall now);

/* Something of it was put off until W. */
void thread_slept(struct thread *thread);
/* May new mail wake what was put off? Not when that was just done. */
bool thread_may_be_woken(const struct thread *thread, struct wall now);
/* Does the thread wait, and was it found out less than THREAD_WAKE_US ago that nothing of it goes?
 * Then new mail waits, too. */
bool thread_is_fresh_stop(const struct thread *thread, struct wall now);
/* What was put off was made due: for new mail, which leaves W as it is, or because it was `asked
 * for`, which ends the wait. */
void thread_woken(struct thread *thread, bool asked_for, struct wall now);

/* Its mail seems to have gone: it should be looked at soon. */
void thread_check_soon(struct threads *t, struct thread *thread, struct wall now);

/* A thread that should be looked at: its W is past and nothing came of it. Each is told once, and
 * again after THREAD_CHECK_US. NULL: none. */
struct thread *threads_check(struct threads *t, struct wall now);
/* When there will be one; WALL_NEVER: none. */
struct wall threads_check_at(const struct threads *t);

#endif
