/*
 * A message's pass through memory, from its claim to its opening, and its recipients.
 *
 *   claimed --> pass_load --> read --> nothing is to be tried: its pass ends at once
 *                              |
 *                              +-----> its destination holds its share: parked on disk
 *                              |
 *                              +-----> pass_open --> the scheduler asks: pass_read --> ...
 *                                         ^
 *   submitted and committed --------------+
 *
 * Its end is in pass_end.h. Owns nothing.
 */
#ifndef QUEUE_QUEUE_PASS_H
#define QUEUE_QUEUE_PASS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "active.h"
#include "scheduler.h"
#include "slice.h"
#include "spool.h"
#include "times.h"

struct queue;

/* A message was claimed: read it into memory and open it in the scheduler, or park it. `admitted`:
 * the scheduler has asked for it and has a place for it. True when it was opened. */
bool pass_load(struct queue *q, struct msg_id id, bool admitted);

/* Open a message that was submitted with its claim, after its commit, or was loaded. When it can't
 * be opened any more it goes back to disk: false. */
bool pass_open(struct queue *q, struct active_msg *m, bool admitted);

/* Recipients that the scheduler has asked for and the spool has not at hand (spool_want_rcpts).
 * Which delivery is next depends on them, so nothing is decided until they are there, but for
 * PASS_HOLD_US at most: then other mail goes on, until all that was asked for has come. */
#define PASS_HOLD_US (5 * US_PER_S)
struct awaited_reads {
    TAILQ_HEAD(, active_msg) msgs; /* in the order of asking */
    unsigned soon;                 /* of these: what they wait for is on its way */
    struct mono hold_until;        /* while there are such */
};

void pass_reads_init(struct awaited_reads *a);

/* Answer SCHED_READ, now or from pass_reads_at_hand. */
void pass_read(struct queue *q, struct active_msg *m, uint32_t max);
void pass_reads_at_hand(struct queue *q);
/* The message was taken out of the scheduler: it waits for no answer any more. */
void pass_read_drop(struct queue *q, struct active_msg *m);

/* Until when nothing may be decided; us 0: it may. */
struct mono pass_held_until(const struct queue *q);

/* The message's class as the scheduler knows it; it may lie in `room`. */
struct slice pass_sched_class(const struct queue *q, const struct spool_message *m,
                              char room[SCHED_CLASS_NAME_MAX]);

/* Give the classes of mail in memory their weights of a new configuration. */
void pass_classes_reload(struct queue *q);

#endif
