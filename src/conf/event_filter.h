/*
 * Filter of events: checks a line of the journal (docs/events.md) against conditions on its
 * members.
 *
 * Lines begin with {"number":N, and have no blanks between members. All members with conditions
 * must match; one of the values of a member is enough.
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

/* A filter; all zero: every event passes. Fields are private to event_filter.c. */
struct event_filter {
    struct {
        unsigned member;
        char *text; /* owned */
    } values[EVENT_VALUES_MAX];
    size_t count;
};

/* Adds a condition. Returns false if the member or the event does not exist, or the filter is
 * full. */
bool event_filter_add(struct event_filter *f, struct slice member, struct slice value);
bool event_filter_holds(const struct event_filter *f, struct slice line);
void event_filter_fini(struct event_filter *f);

/* Returns the name of event number `i`, from 0; NULL after the last. */
const char *event_filter_event(size_t i);

/* Returns the number of a line; 0: none. */
uint64_t event_number(struct slice line);
/* Returns the "event" of a line. */
struct slice event_name(struct slice line);

#endif
