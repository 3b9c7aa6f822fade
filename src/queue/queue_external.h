/*
 * External changes: what other programs change in the spool while it is open. A router adds control
 * files, an operator moves them, transport agents mark recipients.
 *
 * Owns the time of the next poll, and the control files that must be read again. Engines whose
 * store no other program writes have no external changes.
 */
#ifndef QUEUE_QUEUE_EXTERNAL_H
#define QUEUE_QUEUE_EXTERNAL_H

#include <stdbool.h>
#include <sys/queue.h>

#include "slice.h"
#include "spool.h"
#include "times.h"

struct event;
struct queue;
struct resync;

struct external {
    struct event *readable; /* event of the spool's descriptor for changes; NULL: it has none */
    struct wall poll_at;    /* latest time of the next poll */
    bool looked;            /* the whole spool has been read once */
    STAILQ_HEAD(, resync) resyncs;
};

/* Begins to watch the spool. Called after the spool was opened, outside a batch, like the functions
 * below. */
void external_begin(struct queue *q);
/* Ends watching, before the spool is closed. */
void external_end(struct external *e);

/* Polls the spool if it is time, and applies the changes. */
void external_turn(struct queue *q);
/* Makes the next turn search the whole spool. */
void external_look(struct queue *q);
/* Makes the next turn poll the spool, after the clock was set or the spool was asked to scan. */
void external_poll_soon(struct external *e);
/* Returns the latest time of the next external_turn. */
static inline struct wall external_at(const struct external *e)
{
    return e->poll_at;
}
static inline bool external_has_looked(const struct external *e)
{
    return e->looked;
}

/* Applies the events that the spool has ready. */
void external_tell(struct queue *q);

/* Reads a control file again, as soon as there is no open batch. */
void external_resync(struct external *e, struct slice path);

#endif
