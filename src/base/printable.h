/*
 * Text from outside (addresses, replies, header fields, reasons), made fit for a log line, a report
 * or a terminal: no control characters, no broken UTF-8, and nothing invisible that would reorder,
 * hide or break the text around it. Letters of all scripts stay as they are.
 *
 * Everything that a program of ours writes to its log or to a terminal passes through here: log.c
 * and the output functions of cli/words.h do it for their callers.
 */
#ifndef BASE_PRINTABLE_H
#define BASE_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "slice.h"

/* Length of the well-formed UTF-8 sequence at the front of `s` (1..4), 0 when there is none.
 * Overlong forms, surrogates and values past U+10FFFF are not well-formed. */
size_t utf8_length(struct slice s);

/* Replace in place, one byte for one: a tab by a blank; every byte of another control character, of
 * an invisible character (U+202E, U+2028, U+200B, ...) and of what is no UTF-8 by '?'. */
void printable_fix(char *bytes, size_t len);

/* The same for a line of a log or a terminal: CR, which parts the lines of what agents and our own
 * expiry say, becomes a blank, too. */
void printable_line(char *bytes, size_t len);

/* Append at most `max` bytes of `s`, fixed like that. A cut shows as "..." and never splits a
 * sequence. False when the buffer is full. */
bool printable_add(struct buf *out, struct slice s, size_t max);

#endif
