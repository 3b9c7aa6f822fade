/*
 * Events that an engine has for its owner (spool_next_event), in order, until they are pulled.
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
    struct told_event *last;           /* that was given out last; owned */
};

void told_events_init(struct told_events *t);
void told_events_fini(struct told_events *t);

/* Add one. Its text is cut at SPOOL_DIAGNOSTIC_MAX. */
void told_events_add(struct told_events *t, enum spool_event_type type, struct msg_id id,
                     const char *format, va_list args) __attribute__((format(printf, 4, 0)));

/* Take the oldest, whose text lasts until the next is taken. False: there is none. */
bool told_events_next(struct told_events *t, struct spool_event *ret_event);

#endif
