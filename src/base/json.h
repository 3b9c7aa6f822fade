/*
 * Building JSON (jansson) for answers and questions. What fails here fails for lack of memory only,
 * and is treated as mem.h treats that: values are new references, and taken.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <jansson.h>

#include "check.h"
#include "times.h"

/* A member of an object; replaces one of the same name. */
static inline void json_put(json_t *object, const char *name, json_t *value)
{
    CHECK(json_object_set_new(object, name, value) == 0);
}

/* A new last element of an array. */
static inline void json_add(json_t *array, json_t *value)
{
    CHECK(json_array_append_new(array, value) == 0);
}

/* Microseconds as seconds with fractions. */
static inline json_t *json_seconds(int64_t us)
{
    return json_real((double)us / (double)US_PER_S);
}

/* A time as seconds since 1970; no member for one that is not set, and for one that never comes. */
static inline void json_put_time(json_t *object, const char *name, struct wall t)
{
    if (t.us != 0 && t.us != US_FOREVER) {
        json_put(object, name, json_seconds(t.us));
    }
}

#endif
