/*
 * Clauses of a configuration with the effect of limits (verb `limit` of intervention.h).
 *
 * All limits that match a destination apply to it, the most specific one last, but only the first
 * clause that matches. So a clause has the values of all limits that match everything that the
 * clause matches, and stands before each clause that matches more. Where two limits have a part in
 * common, such as `*.example` and the transport `smtp`, this part gets a clause of its own. The
 * common part of two patterns that no pattern describes, as of `a*` and `*b`, has the values of the
 * clause that comes first, which is that of the limit with precedence.
 */
#ifndef QUEUE_LIMIT_CLAUSES_H
#define QUEUE_LIMIT_CLAUSES_H

#include <stddef.h>

#include <jansson.h>

#include "buf.h"
#include "intervention.h"

/* A clause. */
struct limit_clause {
    char *pattern;  /* owned */
    json_t *values; /* owned; {"name": "value"} */
};

/* Makes the clauses of `count` limits, in the order of a configuration. Returns an array of
 * *ret_count clauses. */
struct limit_clause *limit_clauses_new(const struct intervention *const *limits, size_t count,
                                       size_t *ret_count);
void limit_clauses_free(struct limit_clause *clauses, size_t count);

#endif
