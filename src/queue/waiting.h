/*
 * How a message waits after its pass: one record of the recipients that were deferred in the pass.
 *
 *                       a recipient is deferred, and is tried again ...
 *
 *   WAITS_NOT ------ at its destination's time ------> WAITS_RETRY
 *       |                                                |     |
 *       |                     at another one's time, too |     |
 *       |                                                v     |
 *       |                                      WAITS_RETRIES   |
 *       |                                                |     |
 *       +--- by the message's back-off --> WAITS_BACKOFF <-----+
 *
 *   WAITS_NOT      no recipient was deferred; no time and no key
 *   WAITS_RETRY    all deferred recipients wait for one destination, until retry_at, by retry_key
 *   WAITS_RETRIES  they wait for several destinations: until the first of their times, retry_at
 *   WAITS_BACKOFF  a recipient waits for the message's back-off, or for retry_at if that is set and
 *                  earlier
 *
 * Recipients that wait for a dead destination are tried after the back-off at the latest. If none
 * was deferred for another reason, the message is parked there (`dead`), and continues as soon as
 * the destination is alive. Recipients that were not tried in this pass, because their
 * destination's time has not come, do not change that.
 */
#ifndef QUEUE_WAITING_H
#define QUEUE_WAITING_H

#include <stdbool.h>

#include "owner.h"
#include "scheduler.h"
#include "times.h"

enum waits {
    WAITS_NOT,
    WAITS_RETRY,
    WAITS_RETRIES,
    WAITS_BACKOFF,
};

/* How a message waits; valid when zeroed. Only waiting.c writes the fields. */
struct waiting {
    enum waits state;
    bool has_lifetime;    /* a deferred recipient has no age limit but the message's lifetime */
    struct wall retry_at; /* first time set by a destination; us 0: none */
    char *retry_key;      /* key of WAITS_RETRY to park the message under; owned; else NULL */
    char *pause_key;      /* key of a pause that a recipient waits for, or of several; owned */
    struct owner_target dead;
};

void waiting_fini(struct waiting *w);

/* ---- transitions ---- */

/* Notes SCHED_DEFER: recipients are deferred since their destination or transport is dead. */
void waiting_for_dead(struct waiting *w, const struct sched_action *action);
/* Notes that a recipient is deferred for another reason. */
void waiting_not_for_dead(struct waiting *w);
/* Notes that a deferred recipient is tried again by the message's back-off. */
void waiting_for_backoff(struct waiting *w);
/* Notes that a deferred recipient is tried again at its destination's time `at`; takes `retry_key`.
 * NULL: the recipient expires at that time, and is tried by the back-off before. */
void waiting_until(struct waiting *w, struct wall at, char *retry_key);
/* Notes that a recipient waits for the end of a pause, which changes no time; takes `key`. */
void waiting_for_pause(struct waiting *w, char *key);
/* Notes that a deferred recipient has no age limit of its own. */
void waiting_for_lifetime(struct waiting *w);

/* Moves the time after a step of the clock. */
void waiting_move(struct waiting *w, int64_t by_us);

/* ---- results ---- */

/* Takes the record away from the message; the caller finishes it. */
struct waiting waiting_take(struct waiting *w);

/* Returns the key of the pause, which the caller frees, or NULL. */
char *waiting_take_pause_key(struct waiting *w);

/* Returns the one retry key for all deferred recipients, which the caller frees, or NULL. Called
 * last. */
char *waiting_take_key(struct waiting *w);

/* Has each deferred recipient an age limit of its own? */
static inline bool waiting_has_own_expiry(const struct waiting *w)
{
    return w->retry_at.us != 0 && !w->has_lifetime;
}

/* Is the message due by its back-off, or by retry_at if that is set and earlier? Otherwise only by
 * retry_at. */
static inline bool waiting_has_backoff(const struct waiting *w)
{
    return w->state == WAITS_NOT || w->state == WAITS_BACKOFF;
}

#endif
