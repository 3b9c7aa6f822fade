/*
 * A queue of an engine's events, in order, until spool_next_event returns them.
 */
#ifndef SPOOL_TOLD_EVENTS_H
#define SPOOL_TOLD_EVENTS_H

#include <stdarg.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "spool.h"

struct told_event;

struct told_events {
    STAILQ_HEAD(, told_event) waiting; /* owned */
    struct told_event *last;           /* owned; the event that was returned last */
};

void told_events_init(struct told_events *t);
void told_events_fini(struct told_events *t);

/* Adds an event. Its text is cut at SPOOL_DIAGNOSTIC_MAX. */
void told_events_add(struct told_events *t, enum spool_event_type type, struct msg_id id,
                     const char *format, va_list args) __attribute__((format(printf, 4, 0)));

/* Removes the oldest event, whose text lasts until the next call. Returns false if there is
 * none. */
bool told_events_next(struct told_events *t, struct spool_event *ret_event);

#endif
