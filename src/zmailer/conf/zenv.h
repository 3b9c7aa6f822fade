/*
 * ZENV: the variables of ZMailer's zmailer.conf.
 *
 * Lines NAME=value: the value is all that stands behind the `=`, without leading blanks; nothing is
 * quoted and nothing expands. The first line of a name holds. Empty lines and lines whose first
 * byte is `#` say nothing; any other line is worth a warning.
 */
#ifndef ZMAILER_ZENV_H
#define ZMAILER_ZENV_H

#include <stdbool.h>

#include "buf.h"
#include "pool.h"
#include "slice.h"

#define ZENV_COUNT_MAX 1000u /* variables of one file */

struct conf_problems;

struct zenv {
    struct zenv_variable *variables; /* in a pool, in the order of the file */
    size_t count;
};

/* The variables of `text`, which stood in `file`; strings are made in `pool`. What is wrong goes to
 * `problems`. */
struct zenv zenv_parse(struct slice text, const char *file, struct pool *pool,
                       struct conf_problems *problems);

/* NULL: no line sets it. */
const char *zenv_find(const struct zenv *zenv, struct slice name);

/* Append `text` with each ${NAME} replaced by what `lookup` knows of NAME. False when it knows
 * nothing (NULL) or a bracket is not closed; *ret_bad is that part of `text` then. A `$` without a
 * bracket is a byte like others. */
bool zenv_expand(struct slice text, const char *(*lookup)(const void *context, struct slice name),
                 const void *context, struct buf *out, struct slice *ret_bad);

#endif
