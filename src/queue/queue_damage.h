/*
 * Messages on damaged pages of the database: they can be neither read nor quarantined.
 *
 * Owns the list of such messages. Each stays claimed, so that nothing finds it again and other mail
 * goes on. One that could not be read is tried again after QUEUE_UNREADABLE_US: the disk may have
 * answered badly. One whose results could not be stored is left alone until the next start, because
 * each further try would deliver it once more. The auditor logs each, and a repair of the spool
 * brings them back.
 */
#ifndef QUEUE_QUEUE_DAMAGE_H
#define QUEUE_QUEUE_DAMAGE_H

#include <stdbool.h>

#include "spool.h"

struct queue;
struct damaged_message;

/* A message that could not be read for a damaged page is tried again after that. */
#define QUEUE_UNREADABLE_US (600 * US_PER_S)

struct damage {
    struct damaged_message *table;
};

/* The claimed message is on pages that can't be read or written: leave it alone until it is tried
 * again, or until the next start. */
void damage_hide(struct queue *q, struct msg_id id, const char *why, bool try_again);
bool damage_is_hidden(const struct damage *d, struct msg_id id);
/* Give back those whose time has come; to be called now and then. */
void damage_try_again(struct queue *q);
void damage_fini(struct damage *d);

#endif
