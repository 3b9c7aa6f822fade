/*
 * Delays in log lines, in Postfix's format.
 */
#ifndef QUEUE_DELAY_TEXT_H
#define QUEUE_DELAY_TEXT_H

#include <stdint.h>

#define DELAY_TEXT_MAX 32

/* Formats a delay with two significant digits, at most `digits` of them after the point, without
 * trailing zeros. A negative delay counts as 0. Returns a string somewhere in `out`. */
const char *delay_text(int64_t us, int64_t digits, char out[DELAY_TEXT_MAX]);

#endif
