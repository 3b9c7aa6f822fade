/*
 * Steps of the wall clock while mail waits.
 *
 * Stored times (when mail is due, how old it is) were right by the wall clock of that moment. The
 * monotonic clock shows how much time has really passed. So a step of the wall clock shows, at the
 * next event, as a change of the difference of the two clocks. All times then move with the wall
 * clock: in memory at once, in the spool page by page (a walk). So no mail waits for a wrong time,
 * no age jumps, and the correction of a wrong step undoes it.
 *
 *   step --> walks[n]: messages with after < id <= last are stored with times from before the step
 *            page by page, each committed: after grows --> walk ends
 *
 * Owns the walks. Until a walk has reached a message, its age is corrected by what is pending for
 * it. No mail is read from disk meanwhile, as it is unknown what is due.
 *
 * A step while no daemon ran can't be distinguished from time that passed. Only mail with a
 * creation time in the future shows that the clock went back: that mail is due soon and counts as
 * new.
 *
 * Limit: QUEUE_WALKS_MAX walks; a further step is handled when a walk has ended.
 */
#ifndef QUEUE_QUEUE_CLOCK_H
#define QUEUE_QUEUE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "spool.h"
#include "times.h"

struct queue;

#define QUEUE_WALKS_MAX 8

/* A walk: messages with after < id <= last are stored with times from before a step. */
struct clock_walk {
    int64_t by_us;
    bool is_clamp; /* correct only times in the future */
    struct msg_id after, last;
    uint64_t moved;
};

struct queue_clock {
    int64_t offset_us;                        /* wall minus monotonic time at the last comparison */
    struct clock_walk walks[QUEUE_WALKS_MAX]; /* walks in progress, oldest step first */
    unsigned walk_count;
    struct mono next_walk;
    struct msg_id page_after; /* start of the page whose commit is in flight */
    bool page_is_last;
    bool page_under_way;
};

/* Begins with the present clock. On a node of a cluster, corrects a clock that differs from that of
 * the other nodes (spool_clock_off_us), for this process only. A later change of the correction is
 * handled as a step. */
void queue_clock_begin(struct queue *q);

/* Convert a time between the clock of this machine's other processes and the clock of this one. */
struct wall queue_clock_of_others(const struct queue *q, struct wall t);
struct wall queue_clock_for_others(const struct queue *q, struct wall t);

/* Detects a step of the wall clock and handles it. Called first at each event from the loop. */
void queue_clock_look(struct queue *q);

/* Returns the time to add to the stored times of this message. */
int64_t queue_clock_pending(const struct queue_clock *c, struct msg_id id);

/* Converts a time for storage: a walk that has not reached the message will move it. */
struct wall queue_clock_to_store(const struct queue_clock *c, struct msg_id id, struct wall t);

static inline bool queue_clock_is_walking(const struct queue_clock *c)
{
    return c->walk_count > 0;
}

/* Lets a walk continue that waited for data of the spool. */
void queue_clock_at_hand(struct queue_clock *c);
/* Moves the times of some messages in the spool. Returns true if there are more. */
bool queue_clock_walk(struct queue *q);

#endif
