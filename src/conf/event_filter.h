/*
 * Which events: a line of the journal (docs/events.md) against conditions on its members.
 *
 * Lines begin with {"number":N, and have no blanks between their members. All conditions have to
 * hold; of several values for one member one has to.
 *
 * Limit: EVENT_VALUES_MAX values.
 */
#ifndef CONF_EVENT_FILTER_H
#define CONF_EVENT_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slice.h"

#define EVENT_VALUES_MAX 64u

/* Fields are private to event_filter.c. All zero: every event. */
struct event_filter {
    struct {
        unsigned member;
        char *text; /* owned */
    } values[EVENT_VALUES_MAX];
    size_t count;
};

/* False: there is no such member, no event of that name, or no place for more. */
bool event_filter_add(struct event_filter *f, struct slice member, struct slice value);
bool event_filter_holds(const struct event_filter *f, struct slice line);
void event_filter_fini(struct event_filter *f);

/* All names of events: event_filter_event(0) .. until NULL. */
const char *event_filter_event(size_t i);

/* Of a line; 0: it has none. */
uint64_t event_number(struct slice line);
/* Its "event". */
struct slice event_name(struct slice line);

#endif
