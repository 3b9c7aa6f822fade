/*
 * Converts values of Postfix's parameters to values of our configuration.
 *
 * Postfix accepts values that our table of parameters does not: negative numbers where it has no
 * lower bound, any number or time that fits into an int where it has no upper bound, a plus sign,
 * text after the unit of a time. The queue manager must start with every configuration with which
 * Postfix starts: a number becomes the nearest one that our table accepts, with a warning.
 */
#ifndef POSTFIX_POSTCONF_VALUES_H
#define POSTFIX_POSTCONF_VALUES_H

#include "buf.h"
#include "param.h"
#include "slice.h"

/* Appends a value of `p` to *out in the form of our configuration. *ret_changed: it differs from
 * the given value. Returns false if Postfix refuses the value; *out may then have a part of it.
 * Errors of *out are sticky. */
bool postconf_put_value(const struct param *p, struct slice value, struct buf *out,
                        bool *ret_changed);

/* Postfix's default_process_limit. */
#define POSTCONF_PROCESS_LIMIT 100

/* Returns the process limit in a field of master.cf or in default_process_limit; `preset` if the
 * field is not a number ("-"). */
unsigned long long postconf_process_limit(struct slice field, unsigned long long preset);

#endif
