/*
 * External changes: what other programs do to the spool (a router adds control files, an operator
 * moves them, transport agents mark recipients), found now and then and acted on.
 *
 * Owns when the spool is polled next, and the control files that are to be read again. Engines that
 * no other program writes to tell of nothing.
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
    struct event *readable; /* the spool has a change to tell of; NULL: it never has */
    struct wall poll_at;    /* when to look at the latest */
    bool looked;            /* all of the spool has been looked through once */
    STAILQ_HEAD(, resync) resyncs;
};

/* The spool is open: listen to it. Outside a batch, as are the others. */
void external_begin(struct queue *q);
/* Before the spool is closed. */
void external_end(struct external *e);

/* Look at what was changed, if it is time, and act on it. */
void external_turn(struct queue *q);
/* Look in the next turn, whenever it would be time. */
void external_look(struct queue *q);
/* The clock was set, or the spool was told to scan: poll it in the next turn. */
void external_poll_soon(struct external *e);
/* When external_turn is to be called at the latest. */
static inline struct wall external_at(const struct external *e)
{
    return e->poll_at;
}
static inline bool external_has_looked(const struct external *e)
{
    return e->looked;
}

/* Act on what the spool has to tell by now. */
void external_tell(struct queue *q);

/* Read this control file again, as soon as there is no batch. */
void external_resync(struct external *e, struct slice path);

#endif
