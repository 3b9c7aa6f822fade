/*
 * Messages that can't be read from the database, or whose results can't be stored there, because
 * pages are damaged or foreign rows have their keys. For the same reason they can't be quarantined.
 *
 * Owns the list of such messages, and the results that wait. Each message stays claimed, so that no
 * search finds it again while other mail continues.
 *
 *   hidden --its time, read again--> in memory
 *
 *   resting --its time--> TRYING (its results are stored again, in order) --stored--> continues
 *      ^                     |
 *      +--refused again------+  twice as long, QUEUE_REST_MAX_US at most
 *
 * An unreadable message is tried again after QUEUE_UNREADABLE_US, since the disk may have failed
 * only once. A message that an index names but that does not exist is hidden until the next start.
 *
 * A message whose results wait has a place in the active queue, though it is not there
 * (queue_import.h); this limits their number. When a message's results are stored, the cause has
 * probably gone for the others, too, and they are tried next. Results of deliveries outlive the
 * process (unstored.h), so their mail is not delivered again. The auditor logs each message once.
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

/* Wait of a message that could not be read because of a damaged page. */
#define QUEUE_UNREADABLE_US (600 * US_PER_S)
/* Wait of results that could not be stored: the first one, and the longest. */
#define QUEUE_REST_US     (60 * US_PER_S)
#define QUEUE_REST_MAX_US (600 * US_PER_S)
/* Messages whose results are tried in one batch; nothing else is stored meanwhile. */
#define QUEUE_REST_TRIES 50

struct damage {
    struct damaged_message *table;
    size_t resting; /* number of messages in the table whose results wait here */
};

/* Hides a claimed message that can't be read until it is tried again (`try_again`), or until the
 * next start. */
void damage_hide(struct queue *q, struct msg_id id, const char *why, bool try_again);
/* Keeps the results of a message that could not be stored; takes all of `results`. */
void damage_rest(struct queue *q, struct msg_id id, const char *why, struct step_list *results);
/* Keeps results of the previous process (unstored.h) at the start; they are tried at once. */
void damage_resume(struct queue *q, struct msg_id id, struct step_list *results);
bool damage_is_hidden(const struct damage *d, struct msg_id id);
/* Returns the waiting results of a message, to which later ones are appended; NULL if there are
 * none. */
struct step_list *damage_results(const struct damage *d, struct msg_id id);
/* Returns why a message is hidden, and in *ret_again when it is tried again; NULL if it is not
 * hidden. */
const char *damage_why(const struct damage *d, struct msg_id id, struct mono *ret_again);

/* Notes that a result of a message was stored. `is_last`: no other result of it waits for a
 * commit. */
void damage_stored(struct queue *q, struct msg_id id, bool is_last);
/* Drops a message that another node owns now, or that was quarantined. */
void damage_drop(struct queue *q, struct msg_id id);
/* Prepares the release of a message that another node or program needs. Its waiting results are
 * tried at once; with `at_once` they are dropped, so that the message may be delivered again. A
 * message without waiting results is given back to the spool. */
void damage_leave(struct queue *q, struct msg_id id, bool at_once);
/* Tries the messages whose time has come; called about once a second. */
void damage_try_again(struct queue *q);
void damage_fini(struct damage *d);

#endif
