/*
 * Values of configuration files as text, both ways: intervals, sizes, feedback.
 *
 * Parsing uses the whole slice or fails; outputs are unchanged on failure. A text of the *_print
 * functions parses to the same value.
 */
#ifndef CONF_VALUE_H
#define CONF_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

/* Units of an interval, for a number without a unit. */
#define US_PER_MINUTE (60 * INT64_C(1000000))
#define US_PER_HOUR   (60 * US_PER_MINUTE)
#define US_PER_DAY    (24 * US_PER_HOUR)
#define US_PER_WEEK   (7 * US_PER_DAY)

/* Dependency of a concurrency feedback on the window. */
enum conf_feedback_form {
    CONF_FEEDBACK_CONSTANT,        /* base */
    CONF_FEEDBACK_PER_WINDOW,      /* base / concurrency */
    CONF_FEEDBACK_PER_SQRT_WINDOW, /* base / sqrt_concurrency */
};

struct conf_feedback {
    enum conf_feedback_form form;
    double base; /* 0..1 */
};

/* Parses a sum of numbers with a unit (us, ms, s, m, h, d, w): "300s", "1h5m20s", "0.5s". Without
 * its unit the last number counts in `default_unit_us`. The case of units is ignored. A result
 * above INT64_MAX fails. */
bool interval_parse(struct slice text, int64_t default_unit_us, int64_t *ret_us);

/* Prints the shortest text of whole numbers: "5d", "1h5m20s", "500ms", "0s". `us` >= 0. */
void interval_print(struct buf *out, int64_t us);

/* Parses a whole number of bytes, or of k, M, G (powers of 1024; in any case). */
bool size_parse(struct slice text, int64_t *ret_bytes);
void size_print(struct buf *out, int64_t bytes);

/* Parses a whole number with an optional minus sign. */
bool integer_parse(struct slice text, int64_t *ret_value);

/* Parses yes and no, in any case. */
bool yes_no_parse(struct slice text, bool *ret_value);

/* Parses "number", "number / number", "number / concurrency", "number / sqrt_concurrency" with 0 <=
 * base <= 1. As in Postfix, text after a lone number that does not begin with `/` is ignored
 * ("0.5x" is 0.5). */
bool feedback_parse(struct slice text, struct conf_feedback *ret_feedback);
void feedback_print(struct buf *out, const struct conf_feedback *f);

/* Returns the index of `text` in `choices` ("none|may|encrypt"), or -1; case is ignored. */
int choice_parse(struct slice text, const char *choices);

/* Returns the choice with this index, which must exist. */
struct slice choice_name(const char *choices, int index);

#endif
