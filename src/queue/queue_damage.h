/*
 * Messages that can't be read from the database, or whose results can't be stored in it: pages are
 * damaged, or rows are in their way. They can't be quarantined either.
 *
 * Owns the list of such messages, and the results that wait. Each stays claimed, so that nothing
 * finds it again, and other mail goes on.
 *
 *   hidden --its time, read anew--> in memory
 *
 *   resting --its time--> TRYING (its results are done again, in their order) --stored--> goes on
 *      ^                     |
 *      +--refused again------+  twice as long, QUEUE_REST_MAX_US at most
 *
 * One that could not be read is tried again after QUEUE_UNREADABLE_US: the disk may have answered
 * badly. One whose results wait has a place in the active queue, though it is not there
 * (queue_import.h), so these are bounded. One that an index names and that is not there is left
 * alone until the next start. When the result of one was stored, what was in the way of others is
 * probably gone, too, and they are tried next. Results are lost when the process ends: their mail
 * is then delivered again. The auditor logs each message once.
 */
#ifndef QUEUE_QUEUE_DAMAGE_H
#define QUEUE_QUEUE_DAMAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "batch.h"
#include "spool.h"
#include "times.h"

struct queue;
struct damaged_message;

/* A message that could not be read for a damaged page is tried again after that. */
#define QUEUE_UNREADABLE_US (600 * US_PER_S)
/* A result that could not be stored: the first time, and at most. */
#define QUEUE_REST_US     (60 * US_PER_S)
#define QUEUE_REST_MAX_US (600 * US_PER_S)
/* So many messages are tried at once: nothing else is stored meanwhile. */
#define QUEUE_REST_TRIES 50

struct damage {
    struct damaged_message *table;
    size_t resting; /* of them, those whose results wait here */
};

/* The claimed message can't be read: leave it alone until it is tried again, or until the next
 * start. */
void damage_hide(struct queue *q, struct msg_id id, const char *why, bool try_again);
/* Its results can't be stored; they are taken, all of `results`. */
void damage_rest(struct queue *q, struct msg_id id, const char *why, struct step_list *results);
bool damage_is_hidden(const struct damage *d, struct msg_id id);
/* The results of the message that wait, to which later ones are added; NULL: none do. */
struct step_list *damage_results(const struct damage *d, struct msg_id id);
/* Why, and when it is tried again; NULL: it is not hidden. */
const char *damage_why(const struct damage *d, struct msg_id id, struct mono *ret_again);

/* A result of a message was stored. `is_last`: no other of it waits to be stored. */
void damage_stored(struct queue *q, struct msg_id id, bool is_last);
/* The message is another's now, or quarantined. */
void damage_drop(struct queue *q, struct msg_id id);
/* Others want it. Its results are tried at once; without one, or the second time (`at_once`), it is
 * given back, and may be delivered again. */
void damage_leave(struct queue *q, struct msg_id id, bool at_once);
/* Try those whose time has come; to be called now and then. */
void damage_try_again(struct queue *q);
void damage_fini(struct damage *d);

#endif
