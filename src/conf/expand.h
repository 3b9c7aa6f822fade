/*
 * `$name` in values of parameters: $name, ${name}, $(name); ${name?text} is the text when the value
 * of name is not empty, ${name:text} when it is; $$ is a dollar sign.
 */
#ifndef CONF_EXPAND_H
#define CONF_EXPAND_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

#define EXPAND_STEPS_MAX 10000u /* names looked up for one value: $a$a within $b$b within .. */

/* Append to `out` the value of `text`. `lookup` gives the unexpanded value of a name, or false.
 * When false, *ret_error says what is wrong and *ret_bad where (a part of some text that lasts as
 * long as lookup's answers). */
bool expand(struct slice text, bool (*lookup)(void *context, struct slice name, struct slice *ret),
            void *context, struct buf *out, struct slice *ret_bad, const char **ret_error);

#endif
