/*
 * Makes text from outside (addresses, replies, header fields, reasons) fit for a log line, a report
 * or a terminal. The result has no control characters, no broken UTF-8, and no invisible characters
 * that would reorder, hide or break the text around them. Letters of all scripts stay as they are.
 *
 * All text that a program of ours writes to its log or to a terminal passes through here: log.c and
 * the output functions of cli/words.h do this for their callers.
 */
#ifndef BASE_PRINTABLE_H
#define BASE_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "slice.h"

/* Returns the length of the well-formed UTF-8 sequence at the front of `s` (1..4), 0 if there is
 * none. Overlong forms, surrogates and values past U+10FFFF are not well-formed. */
size_t utf8_length(struct slice s);

/* Replaces in place, one byte for one: a tab by a blank; every byte of another control character,
 * of an invisible character (U+202E, U+2028, U+200B, ...) and of invalid UTF-8 by '?'. */
void printable_fix(char *bytes, size_t len);

/* Makes a line of a log or a terminal printable: as printable_fix, and replaces CR by a blank, too.
 * CR separates lines within texts of agents and of our own expiry. */
void printable_line(char *bytes, size_t len);

/* Appends at most `max` bytes of `s`, made printable by printable_fix. A cut shows as "..." and
 * never splits a sequence. Returns false if the buffer is full. */
bool printable_add(struct buf *out, struct slice s, size_t max);

#endif
