/*
 * One line of the journal of events (docs/events.md) as a line of a mail log.
 *
 *     received, report       the message became active: it has come
 *     delivered, deferred,   a recipient was tried; `unreached` when its status is 4.4.x or 5.4.x
 *     bounced, expired       (network), `unattempted` when no time was spent on it
 *     removed                it is gone
 *
 * Addresses and replies in it are from outside: what is not JSON of the expected types is not
 * understood.
 */
#ifndef SIM_TRACE_EVENT_H
#define SIM_TRACE_EVENT_H

#include <jansson.h>

#include "slice.h"
#include "trace_line.h"

/* Is it an event, whether understood or not? No line of a mail log begins so. */
bool trace_event_is(struct slice line);

/* Slices of *ret_line point into the result, which the caller releases (NULL is fine). */
json_t *trace_event_read(struct slice line, struct trace_line *ret_line);

#endif
