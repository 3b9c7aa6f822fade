/*
 * Accepts values as ZMailer's scheduler reads them, where the table of parameters refuses them.
 *
 * ZMailer's scheduler reads a number or interval up to the first byte that can't belong to it. It
 * cuts lists that are too long, and takes any value of a flag for yes. A file with which it starts
 * must start this program, too: with the value that it would read or, if that is useless, as if the
 * line were absent. A value that it refuses itself is an error here, too.
 */
#ifndef ZMAILER_TOLERANCE_H
#define ZMAILER_TOLERANCE_H

#include <stdbool.h>

#include "slice.h"

struct param;
struct pool;

/* Implements `tolerate` of struct conf_dialect. */
bool tolerance_of_value(const struct param *p, struct slice value, struct pool *pool,
                        const char **ret_value);

/* Implements `tolerate_pattern` of struct conf_dialect. */
struct slice tolerance_of_pattern(struct slice pattern, struct pool *pool);

#endif
