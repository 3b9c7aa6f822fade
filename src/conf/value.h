/*
 * The spelled-out values of configuration files: intervals, sizes, feedback, and their way back.
 *
 * Parsing takes all of the slice or fails; outputs are untouched on failure. What is written by the
 * *_print functions is read back as the same value.
 */
#ifndef CONF_VALUE_H
#define CONF_VALUE_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

/* Units of an interval, for the number that carries none. */
#define US_PER_MINUTE (60 * INT64_C(1000000))
#define US_PER_HOUR   (60 * US_PER_MINUTE)
#define US_PER_DAY    (24 * US_PER_HOUR)
#define US_PER_WEEK   (7 * US_PER_DAY)

/* How a concurrency feedback depends on the window. */
enum conf_feedback_form {
    CONF_FEEDBACK_CONSTANT,        /* base */
    CONF_FEEDBACK_PER_WINDOW,      /* base / concurrency */
    CONF_FEEDBACK_PER_SQRT_WINDOW, /* base / sqrt_concurrency */
};

struct conf_feedback {
    enum conf_feedback_form form;
    double base; /* 0..1 */
};

/* Numbers with a unit (us, ms, s, m, h, d, w), one after the other: "300s", "1h5m20s", "0.5s". The
 * last may lack its unit and then counts in `default_unit_us`. Case of units does not matter. A
 * result above INT64_MAX fails. */
bool interval_parse(struct slice text, int64_t default_unit_us, int64_t *ret_us);

/* The shortest spelling with whole numbers: "5d", "1h5m20s", "500ms", "0s". `us` >= 0. */
void interval_print(struct buf *out, int64_t us);

/* A whole number of bytes, or of k, M, G (powers of 1024; case does not matter). */
bool size_parse(struct slice text, int64_t *ret_bytes);
void size_print(struct buf *out, int64_t bytes);

/* A whole number with an optional minus sign. */
bool integer_parse(struct slice text, int64_t *ret_value);

/* yes and no, in any case. */
bool yes_no_parse(struct slice text, bool *ret_value);

/* "number", "number / number", "number / concurrency", "number / sqrt_concurrency" with 0 <= base
 * <= 1. As in Postfix, text behind a lone number that does not begin with `/` is passed over
 * ("0.5x" is 0.5). */
bool feedback_parse(struct slice text, struct conf_feedback *ret_feedback);
void feedback_print(struct buf *out, const struct conf_feedback *f);

/* The index of `text` in `choices` ("none|may|encrypt"), or -1; case does not matter. */
int choice_parse(struct slice text, const char *choices);

/* The choice with this index; CHECKs that there is one. */
struct slice choice_name(const char *choices, int index);

#endif
