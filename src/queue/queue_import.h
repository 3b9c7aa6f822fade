/*
 * Import: brings mail from the spool into memory; decides when to search, and how much fits.
 *
 * Owns the time of the next search, `next_due`: no unclaimed message is due before that time. A
 * part of the queue process that makes mail due or unclaims mail must call import_now or import_by.
 * A time that is too early costs one search in vain; a time that is too late would leave mail
 * waiting. So only a search that has found nothing moves the time back, or import_pause while the
 * storage fails.
 *
 * Promises: new and deferred mail alternate (owner.h). New mail does not overtake new mail that
 * waits on disk, except into places that are reserved for classes with little mail in memory.
 *
 * Limits: OWNER_FEED_MAX messages per turn, qmgr_message_active_limit in memory.
 */
#ifndef QUEUE_QUEUE_IMPORT_H
#define QUEUE_QUEUE_IMPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "owner.h"
#include "slice.h"
#include "times.h"

struct queue;

/* State of the import, private to queue_import.c except `count`. */
struct import {
    struct wall next_due;
    struct owner_feed feed;
    bool new_waits; /* unclaimed new mail is on disk; newer mail must not overtake it */
    struct mono next_full_warning;
    uint64_t count; /* messages imported since the start */
};

/* Makes this turn or the next search, since mail may be due now. */
void import_now(struct import *im);
/* Makes a turn search at `due` at the latest, since mail is due then. */
void import_by(struct import *im, struct wall due);
/* Delays the next search while the storage fails. */
void import_pause(struct import *im, struct wall until);
/* Notes that new mail was left unclaimed, due at once. */
void import_new_mail(struct import *im);

/* Returns the time of the next search. */
static inline struct wall import_at(const struct import *im)
{
    return im->next_due;
}
bool import_is_due(const struct import *im);

/* Has memory a place for any message? Other places may be reserved, or promised to mail that the
 * scheduler has requested. */
bool import_has_place(const struct queue *q);
/* May a submission of this class go into memory at once, past the mail that waits on disk? */
bool import_lets_in(const struct queue *q, struct slice class_name);
/* Counts a submission that goes into memory. */
void import_let_in(struct import *im);

/* Brings messages into memory, as many as one turn allows. Returns true if there may be more right
 * now. */
bool import_some(struct queue *q);

#endif
