/*
 * Converts text with any line ends to wire form, in any pieces: LF alone, CRLF and CR CR LF become
 * CRLF. Other CRs become a blank: some programs treat CR as a line end, some do not, and mail must
 * mean the same to all.
 */
#ifndef SMTP_LINE_ENDS_H
#define SMTP_LINE_ENDS_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

/* A converter: a plain value, zeroed at first. */
struct line_ends {
    bool after_cr;
    bool in_line; /* whether the last line has no end yet */
};

/* Converts `in` and appends it, which needs up to 2 * in.len + 1 bytes. Returns the appended text,
 * which lasts as buf_slice(out) does; ptr is NULL if the buffer is full. */
struct slice line_ends_add(struct line_ends *l, struct slice in, struct buf *out);

/* Passes on bytes that are in wire form already, except for a CR at their end, which is held back.
 * Returns them without it; nothing is copied. No CR may be held back before. */
struct slice line_ends_pass(struct line_ends *l, struct slice in);

/* Ends the text: adds an end to an unfinished last line. Returns the appended text. */
struct slice line_ends_finish(struct line_ends *l, struct buf *out);

#endif
