/*
 * Mail comes from the spool into memory: when the spool is asked, and for how much there is room.
 *
 * Owns the time of the next look, `next_due`: no unclaimed message is due before it. A part of the
 * queue process that makes mail due or gives a claim back must say so (import_now, import_by). A
 * time that is too early costs a look that finds nothing; one that is too late would leave mail
 * waiting, so only a look that has found nothing moves it back, or import_pause while the storage
 * fails.
 *
 * Promises: new and deferred mail alternate; new mail does not overtake new mail that waits on
 * disk, but for the places that are reserved for classes with little mail in memory.
 *
 * Limit: OWNER_FEED_MAX messages per turn, qmgr_message_active_limit in memory.
 */
#ifndef QUEUE_QUEUE_IMPORT_H
#define QUEUE_QUEUE_IMPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "owner.h"
#include "slice.h"
#include "times.h"

struct queue;

/* Private to queue_import.c, but for `count`. */
struct import {
    struct wall next_due;
    struct owner_feed feed;
    bool new_waits; /* unclaimed new mail is on disk: newer mail must not overtake it */
    struct mono next_full_warning;
    uint64_t count; /* messages imported since the start */
};

/* Some mail is due now, or may be: look in this turn or the next. */
void import_now(struct import *im);
/* Some mail is due then. */
void import_by(struct import *im, struct wall due);
/* The storage fails: no look before that. */
void import_pause(struct import *im, struct wall until);
/* New mail was left unclaimed, due at once. */
void import_new_mail(struct import *im);

/* When to look. */
static inline struct wall import_at(const struct import *im)
{
    return im->next_due;
}
bool import_is_due(const struct import *im);

/* Is there a place in memory for any message? Others may be reserved. */
bool import_has_place(const struct queue *q);
/* May a submission of this class go into memory at once, past what waits on disk? */
bool import_lets_in(const struct queue *q, struct slice class_name);

/* Bring messages into memory, as far as one turn allows. True when there may be more right now. */
bool import_some(struct queue *q);

#endif
