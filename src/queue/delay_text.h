/*
 * Delays in log lines, as Postfix writes them.
 */
#ifndef QUEUE_DELAY_TEXT_H
#define QUEUE_DELAY_TEXT_H

#include <stdint.h>

#define DELAY_TEXT_MAX 32

/* Two significant digits, at most `digits` behind the point, no trailing zeros. The text stands
 * somewhere in `out`. Less than 0 is 0. */
const char *delay_text(int64_t us, int64_t digits, char out[DELAY_TEXT_MAX]);

#endif
