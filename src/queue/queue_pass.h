/*
 * A message's pass through memory, from its claim to its opening, and its recipients.
 *
 *   claimed --> pass_load --> read --> no recipient must be tried: its pass ends at once
 *                              |
 *                              +-----> its destination holds its share: parked on disk
 *                              |
 *                              +-----> pass_open --> the scheduler requests more: pass_read --> ...
 *                                         ^
 *   submitted and committed --------------+
 *
 * The end of a pass is in pass_end.h. Owns nothing.
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

/* Request of the scheduler for which a message is loaded, and the kind of mail it asked for. The
 * scheduler then has a place for the message. */
enum admitted { ADMITTED_NOT, ADMITTED_NEW, ADMITTED_DEFERRED };

/* Reads a claimed message into memory and opens it in the scheduler, or parks it. Returns true if
 * it was opened. */
bool pass_load(struct queue *q, struct msg_id id, enum admitted admitted);

/* Opens a message that was submitted with its claim, after its commit, or that was loaded. Returns
 * false if it can no longer be opened; then it goes back to disk. */
bool pass_open(struct queue *q, struct active_msg *m, bool admitted);

/* Reads of recipients that the scheduler has requested and the spool has not loaded
 * (spool_want_rcpts). The next delivery depends on them, so no decision is made until they are
 * loaded, for PASS_HOLD_US at most. After that other mail continues until all requested recipients
 * are there. */
#define PASS_HOLD_US (5 * US_PER_S)
struct awaited_reads {
    TAILQ_HEAD(, active_msg) msgs; /* messages in the order of their requests */
    unsigned soon;                 /* number of messages whose recipients are being loaded now */
    struct mono hold_until;        /* end of the hold while `soon` is not 0 */
};

void pass_reads_init(struct awaited_reads *a);

/* Answers SCHED_READ, now or when pass_reads_at_hand is called. */
void pass_read(struct queue *q, struct active_msg *m, uint32_t max);
void pass_reads_at_hand(struct queue *q);
/* Drops the pending read of a message that was taken out of the scheduler. */
void pass_read_drop(struct queue *q, struct active_msg *m);

/* Returns until when no decision may be made; us is 0 if decisions may be made now. */
struct mono pass_held_until(const struct queue *q);

/* Returns the message's class as the scheduler names it. The name may be in `room`. */
struct slice pass_sched_class(const struct queue *q, const struct spool_message *m,
                              char room[SCHED_CLASS_NAME_MAX]);

/* Gives the classes of mail in memory the weights of a new configuration. */
void pass_classes_reload(struct queue *q);

#endif
