/*
 * Expansion of `$name` in values of parameters: $name, ${name}, $(name). ${name?text} is the text
 * if the value of name is not empty, ${name:text} if it is; $$ is a dollar sign.
 */
#ifndef CONF_EXPAND_H
#define CONF_EXPAND_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

#define EXPAND_STEPS_MAX 10000u /* maximum lookups for one value: $a$a within $b$b within .. */

/* Appends the value of `text` to `out`. `lookup` returns the unexpanded value of a name, or false.
 * Returns false after an error: *ret_error is its text, and *ret_bad its place (in a text that
 * lasts as long as results of lookup). */
bool expand(struct slice text, bool (*lookup)(void *context, struct slice name, struct slice *ret),
            void *context, struct buf *out, struct slice *ret_bad, const char **ret_error);

#endif
