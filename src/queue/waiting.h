/*
 * How a message waits when its pass is over: one record of what was deferred in the pass.
 *
 *                       a recipient is deferred, and goes again ...
 *
 *   WAITS_NOT --------- when its destination says -------> WAITS_RETRY
 *       |                                                   |     |
 *       |                               when another one says     |
 *       |                                                   v     |
 *       |                                         WAITS_RETRIES   |
 *       |                                                   |     |
 *       +--- by the message's back-off ---> WAITS_BACKOFF <-+-----+
 *
 *   WAITS_NOT      nothing was deferred; no time and no key
 *   WAITS_RETRY    all of it waits for one destination: until retry_at, under retry_key
 *   WAITS_RETRIES  for several: until the first of their times, retry_at
 *   WAITS_BACKOFF  something waits for the message's back-off, or for retry_at if that is set and
 *                  earlier
 *
 * What waits for a destination that is dead goes by the back-off at the latest. When nothing was
 * deferred for another reason the message is parked there (`dead`), and goes on as soon as the
 * destination is well. Recipients that were not tried in this pass, as their destination's time has
 * not come, do not change that.
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

/* Valid when zeroed. Fields are written by waiting.c alone. */
struct waiting {
    enum waits state;
    bool has_lifetime;    /* something deferred has no age limit but the message's lifetime */
    struct wall retry_at; /* the first time that a destination has said; us 0: none has */
    char *retry_key;      /* owned: of WAITS_RETRY, what it is parked under; else NULL */
    char *pause_key; /* owned: something waits for the end of this pause, or of several; or NULL */
    struct owner_target dead;
};

void waiting_fini(struct waiting *w);

/* ---- transitions ---- */

/* SCHED_DEFER: recipients are deferred as their destination, or its transport, is dead. */
void waiting_for_dead(struct waiting *w, const struct sched_action *action);
/* Something is deferred for another reason. */
void waiting_not_for_dead(struct waiting *w);
/* Something deferred goes again by the message's back-off. */
void waiting_for_backoff(struct waiting *w);
/* Something deferred goes again then, as its destination says; `retry_key` is taken. NULL: that is
 * when it is given up, and it goes by the back-off before. */
void waiting_until(struct waiting *w, struct wall at, char *retry_key);
/* Something waits for the end of a pause, and changes no time; `key` is taken. */
void waiting_for_pause(struct waiting *w, char *key);
/* Something deferred has no age limit of its own. */
void waiting_for_lifetime(struct waiting *w);

/* The clock was set. */
void waiting_move(struct waiting *w, int64_t by_us);

/* ---- what follows ---- */

/* Take the record away from the message; it is the caller's to fini. */
struct waiting waiting_take(struct waiting *w);

/* The key of the pause, for the caller to free, or NULL. */
char *waiting_take_pause_key(struct waiting *w);

/* Last of all: the one retry key that all of it waits under, for the caller to free; NULL: there
 * is none. */
char *waiting_take_key(struct waiting *w);

/* Does everything that was deferred have an age limit of its own? */
static inline bool waiting_has_own_expiry(const struct waiting *w)
{
    return w->retry_at.us != 0 && !w->has_lifetime;
}

/* Does it go again by the message's back-off, or by retry_at if that is set and earlier? Else by
 * retry_at alone. */
static inline bool waiting_has_backoff(const struct waiting *w)
{
    return w->state == WAITS_NOT || w->state == WAITS_BACKOFF;
}

#endif
