/*
 * The wall clock is set while mail waits.
 *
 * What is stored of times (when mail is due, how old it is) was true by the clock as it was then.
 * The clock of intervals says how much time has really passed, so a step of the wall clock is seen
 * as the difference of the two, at the next event. All times then move with the clock: in memory at
 * once, in the spool page by page ("walk"), so that nothing waits for a time that lies behind, no
 * age jumps, and a clock that is set right again is undone in the same way.
 *
 *   step --> walks[n]: messages with after < id <= last are stored with times of before
 *            page by page, each committed: after grows --> walk ends
 *
 * Owns the walks. Until a walk has come to a message its age is found by adding what is pending for
 * it. No mail enters from disk meanwhile, as what is due is not known.
 *
 * A clock that was set while no daemon ran can't be told from time that passed. Only mail that
 * seems to have been created in the future shows that it went back: it is due soon, and new.
 *
 * Limit: QUEUE_WALKS_MAX walks; a further step of the clock is acted on when one has ended.
 */
#ifndef QUEUE_QUEUE_CLOCK_H
#define QUEUE_QUEUE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "spool.h"
#include "times.h"

struct queue;

#define QUEUE_WALKS_MAX 8

/* The times of messages with after < id <= last are stored as they were before a step. */
struct clock_walk {
    int64_t by_us;
    bool is_clamp; /* only times in the future are wrong */
    struct msg_id after, last;
    uint64_t moved;
};

struct queue_clock {
    int64_t offset_us;                        /* wall less mono, when they were last compared */
    struct clock_walk walks[QUEUE_WALKS_MAX]; /* one after the other */
    unsigned walk_count;
    struct mono next_walk;
    struct msg_id page_after; /* where the page began whose commit is under way */
    bool page_is_last;
    bool page_under_way;
};

void queue_clock_begin(struct queue *q);

/* Was the wall clock set since the last time? Called first at each event that comes from the loop.
 */
void queue_clock_look(struct queue *q);

/* What is to be added to the times of this message, as the spool has them. */
int64_t queue_clock_pending(const struct queue_clock *c, struct msg_id id);

/* A time of now or later, as it is to be stored for this message: a walk that has not come to it is
 * going to move it. */
struct wall queue_clock_to_store(const struct queue_clock *c, struct msg_id id, struct wall t);

static inline bool queue_clock_is_walking(const struct queue_clock *c)
{
    return c->walk_count > 0;
}

/* Something that it waited for may be at hand. */
void queue_clock_at_hand(struct queue_clock *c);
/* Move the times of some messages in the spool; true when there are more. */
bool queue_clock_walk(struct queue *q);

#endif
