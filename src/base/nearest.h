/*
 * Suggests a known name for a mistyped one.
 *
 *     nearest_init(&n, typed);
 *     for each known name: nearest_try(&n, name);
 *     if (n.name != NULL) "did you mean n.name?"
 */
#ifndef BASE_NEAREST_H
#define BASE_NEAREST_H

#include <stddef.h>

#include "slice.h"

struct nearest {
    struct slice typed; /* borrowed */
    const char *name;   /* borrowed; nearest name so far, the first of equals; NULL: none is near */
    size_t distance;    /* distance below which a name replaces `name` */
};

void nearest_init(struct nearest *n, struct slice typed);

/* Keeps `name` if it is nearer than all names before. Case of ASCII letters does not matter. */
void nearest_try(struct nearest *n, const char *name);

#endif
