/*
 * Text from outside, made fit for a log line or a report: no control characters, no broken UTF-8.
 */
#ifndef SMTP_PRINTABLE_H
#define SMTP_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "slice.h"

/* Length of the well-formed UTF-8 sequence at the front of `s` (1..4), 0 when there is none.
 * Overlong forms, surrogates and values past U+10FFFF are not well-formed. */
size_t utf8_length(struct slice s);

/* Replace in place, one byte for one: a tab by a blank, any other control character (the C1
 * controls of Unicode, too) and every byte that belongs to no UTF-8 sequence by '?'. */
void printable_fix(char *bytes, size_t len);

/* Append at most `max` bytes of `s`, fixed like that. A cut shows as "..." and never splits a
 * sequence. False when the buffer is full. */
bool printable_add(struct buf *out, struct slice s, size_t max);

#endif
