/*
 * Parked messages: mail that waits on disk for the share of its destination.
 *
 * The scheduler decides when mail of one class for a destination holds its share of the active
 * queue, and when it wants more. The spool keeps parked mail under a key (park_key.h). A key that
 * is no longer valid (its transport was removed from the configuration) does no damage: its mail
 * continues when it is due.
 *
 * Owns the requests of the scheduler (SCHED_ADMIT) that are not answered yet. Also owns the
 * position up to which the scheduler has received the keys in the spool; after a start, none.
 */
#ifndef QUEUE_QUEUE_PARK_H
#define QUEUE_QUEUE_PARK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "owner.h"
#include "park_key.h"
#include "route.h"
#include "scheduler.h"
#include "slice.h"
#include "spool.h"
#include "times.h"

struct queue;
struct admission;
struct ageing;

/* Longest key: the prefix of new mail, transport, slash, destination, tab and class. */
#define PARK_KEY_MAX                                                                               \
    (sizeof PARK_KEY_NEW - 1 + SPOOL_ROUTE_MAX + 1 + SCHED_DEST_NAME_MAX + 1 + SCHED_CLASS_NAME_MAX)

struct parked_wake {
    STAILQ_ENTRY(parked_wake) next;
    char *key; /* owned */
};

struct parked_mail {
    STAILQ_HEAD(, admission) admissions; /* requests of the scheduler */
    STAILQ_HEAD(, admission) awaited;    /* requests for mail that the spool has not loaded yet */
    STAILQ_HEAD(, parked_wake) wakes;    /* keys whose mail is woken in several turns */
    STAILQ_HEAD(, ageing) ageing; /* destinations whose parked new mail becomes deferred mail */
    struct mono next_ageing;
    char *told;            /* last key that the scheduler has received; NULL: all; owned */
    struct mono next_tell; /* time of the next keys, even while there is other work */
};

void park_init(struct parked_mail *p);
void park_fini(struct parked_mail *p);

/* Makes the scheduler receive all keys again, as after a start, since some may be missing. */
void park_tell_all(struct parked_mail *p);

/* ---- keys ---- */

/* Returns the key in the form of park_key.h; the caller frees it. `is_new`: the mail was never
 * deferred. */
char *park_key(const struct queue *q, uint32_t transport, struct slice dest,
               struct slice class_name, bool is_new);
/* Must mail with this key stay on disk? */
bool park_is_full(const struct queue *q, struct slice key);
/* Lets the destination of the key be tried again if it is dead. */
void park_revive(struct queue *q, struct slice key);
/* Has the scheduler noted that mail is parked under this key? True for a key that has no meaning
 * for the scheduler. */
bool park_is_known(const struct queue *q, struct slice key);
/* Notifies the scheduler that mail was parked under this key. */
void park_tell(struct queue *q, struct slice key);

/* ---- where a message waits ---- */

/* Adds the destination of one more recipient to a message's target (owner.h). */
void park_target_add(struct queue *q, struct owner_target *t, const struct route *route);
/* Returns the key to park the message under, which the caller frees; NULL if the message must be
 * opened. `is_new`: it was never deferred. */
char *park_target_full(const struct queue *q, const struct owner_target *t,
                       struct slice sched_class, bool is_new);

/* ---- return to memory ---- */

/* Queues a request (SCHED_ADMIT). park_admit_some answers it after a commit, since opened mail must
 * be durable. */
void park_admit(struct parked_mail *p, const struct sched_action *action);
/* Answers some requests. Returns true if there are more. */
bool park_admit_some(struct queue *q);
/* Repeats the requests for which the spool may have loaded the mail. */
void park_at_hand(struct queue *q);

/* Handles SCHED_DEST_DEAD: new mail that is parked there becomes deferred mail, as in Postfix, so
 * that later mail need not wait for it when the destination is alive again. */
void park_died(struct queue *q, const struct sched_action *action);
/* Turns some parked new mail into deferred mail; the rest follows at park_ageing_at. */
void park_age_some(struct queue *q);
struct mono park_ageing_at(const struct parked_mail *p);

static inline bool park_has_admissions(const struct parked_mail *p)
{
    return !STAILQ_EMPTY(&p->admissions);
}

/* Notifies the scheduler of some of the parked keys after a start. Returns true if there are
 * more. */
bool park_tell_some(struct queue *q);
static inline bool park_is_telling(const struct parked_mail *p)
{
    return p->told != NULL;
}

#endif
