/*
 * ZENV: the variables of ZMailer's zmailer.conf.
 *
 * Lines are NAME=value: the value is the whole text after the `=` without leading blanks, without
 * quoting and expansion. The first line of a name applies. Empty lines and lines that begin with
 * `#` are comments; any other line causes a warning.
 */
#ifndef ZMAILER_ZENV_H
#define ZMAILER_ZENV_H

#include <stdbool.h>

#include "buf.h"
#include "pool.h"
#include "slice.h"

#define ZENV_COUNT_MAX 1000u /* largest number of variables in a file */

struct conf_problems;

struct zenv {
    struct zenv_variable *variables; /* in a pool, in the order of the file */
    size_t count;
};

/* Parses `text`, the contents of `file`; allocates strings in `pool`. Faults go to `problems`. */
struct zenv zenv_parse(struct slice text, const char *file, struct pool *pool,
                       struct conf_problems *problems);

/* Returns the value of a variable, or NULL if no line sets it. */
const char *zenv_find(const struct zenv *zenv, struct slice name);

/* Appends `text` with each ${NAME} replaced by the result of `lookup`. Returns false if `lookup`
 * returns NULL or a bracket is not closed; *ret_bad is then that part of `text`. A `$` without a
 * bracket is copied. */
bool zenv_expand(struct slice text, const char *(*lookup)(const void *context, struct slice name),
                 const void *context, struct buf *out, struct slice *ret_bad);

#endif
