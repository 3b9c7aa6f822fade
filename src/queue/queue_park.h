/*
 * Mail that waits on disk for the share of its destination: parked messages.
 *
 * The scheduler says when mail of one class for a destination holds its share of the active queue
 * and when more is wanted; the spool keeps what waits under a key (see park_key.h). A key that
 * means nothing any more (a transport that was removed from the configuration) does no harm: what
 * is parked under it goes on when it falls due.
 *
 * Owns what the scheduler has asked for (SCHED_ADMIT) and was not given yet, and how far it has
 * been told of the keys in the spool, as it knows none after a start.
 */
#ifndef QUEUE_QUEUE_PARK_H
#define QUEUE_QUEUE_PARK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "owner.h"
#include "route.h"
#include "scheduler.h"
#include "slice.h"
#include "spool.h"
#include "times.h"

struct queue;
struct admission;

/* The longest key: a transport's name, a slash, a destination, a tab and a class. */
#define PARK_KEY_MAX (SPOOL_ROUTE_MAX + 1 + SCHED_DEST_NAME_MAX + 1 + SCHED_CLASS_NAME_MAX)

struct parked_wake {
    STAILQ_ENTRY(parked_wake) next;
    char *key; /* owned */
};

struct parked_mail {
    STAILQ_HEAD(, admission) admissions; /* what the scheduler asks for */
    STAILQ_HEAD(, admission) awaited;    /* .. and the spool has not at hand yet */
    STAILQ_HEAD(, parked_wake) wakes;    /* keys of which not all could be woken yet */
    char *told;            /* owned: keys up to this one were told to the scheduler; NULL: all */
    struct mono next_tell; /* of more of them, though there is other work */
};

void park_init(struct parked_mail *p);
void park_fini(struct parked_mail *p);

/* The scheduler is to be told of all keys, as after a start: it may not know of some. */
void park_tell_all(struct parked_mail *p);

/* ---- keys ---- */

/* As park_key.h has it; to be freed. */
char *park_key(const struct queue *q, uint32_t transport, struct slice dest,
               struct slice class_name);
/* Is mail with this key to stay on disk? */
bool park_is_full(const struct queue *q, struct slice key);
/* Does the scheduler know that mail is parked under it? True for a key that means nothing to it. */
bool park_is_known(const struct queue *q, struct slice key);
/* Something was parked under this key. */
void park_tell(struct queue *q, struct slice key);

/* ---- where a message waits ---- */

/* One more recipient of a message goes there; see owner.h. */
void park_target_add(struct queue *q, struct owner_target *t, const struct route *route);
/* The key to park the message under, to be freed; NULL when it is to be opened. */
char *park_target_full(const struct queue *q, const struct owner_target *t,
                       struct slice sched_class);

/* ---- coming back ---- */

/* SCHED_ADMIT: answered by park_admit_some, after a commit: what is opened must be durable. */
void park_admit(struct parked_mail *p, const struct sched_action *action);
/* Answer some; true when there are more. */
bool park_admit_some(struct queue *q);
/* What was awaited may be at hand now. */
void park_at_hand(struct queue *q);

static inline bool park_has_admissions(const struct parked_mail *p)
{
    return !STAILQ_EMPTY(&p->admissions);
}

/* After a start: tell the scheduler what is parked, bit by bit; true while there is more. */
bool park_tell_some(struct queue *q);
static inline bool park_is_telling(const struct parked_mail *p)
{
    return p->told != NULL;
}

#endif
