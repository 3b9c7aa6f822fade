/*
 * Converts one line of the journal of events (docs/events.md) to a line of a mail log.
 *
 *     received, report       the message became active: it has arrived
 *     delivered, deferred,   a recipient was tried; `unreached` if its status is 4.4.x or 5.4.x
 *     bounced, expired       (network), `unattempted` if no time was spent on it
 *     removed                the message is gone
 *
 * Addresses and replies in it come from outside: lines that are not JSON of the expected types are
 * ignored.
 */
#ifndef SIM_TRACE_EVENT_H
#define SIM_TRACE_EVENT_H

#include <jansson.h>

#include "slice.h"
#include "trace_line.h"

/* Is the line an event, known or not? No line of a mail log begins like one. */
bool trace_event_is(struct slice line);

/* Reads an event. Slices of *ret_line point into the result, which the caller releases (NULL is
 * allowed). */
json_t *trace_event_read(struct slice line, struct trace_line *ret_line);

#endif
