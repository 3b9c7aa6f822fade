/*
 * Building JSON (jansson) for requests and replies. These calls fail only for lack of memory, and
 * then abort like those of mem.h. Values are new references, which the calls take over.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <jansson.h>

#include "check.h"
#include "times.h"

/* Adds a member to an object; replaces a member of the same name. */
static inline void json_put(json_t *object, const char *name, json_t *value)
{
    CHECK(json_object_set_new(object, name, value) == 0);
}

/* Appends an element to an array. */
static inline void json_add(json_t *array, json_t *value)
{
    CHECK(json_array_append_new(array, value) == 0);
}

/* Returns microseconds as seconds with fractions. */
static inline json_t *json_seconds(int64_t us)
{
    return json_real((double)us / (double)US_PER_S);
}

/* Adds a time as seconds since 1970; adds nothing if the time is 0 or never comes. */
static inline void json_put_time(json_t *object, const char *name, struct wall t)
{
    if (t.us != 0 && t.us != US_FOREVER) {
        json_put(object, name, json_seconds(t.us));
    }
}

#endif
