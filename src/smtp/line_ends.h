/*
 * Text of any line ends made text in wire form, in any pieces: LF alone and CRLF become CRLF. A CR
 * that no LF follows becomes a blank: some programs take it for a line end, some do not, and mail
 * must mean the same to all.
 */
#ifndef SMTP_LINE_ENDS_H
#define SMTP_LINE_ENDS_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

/* A plain value; zeroed at first. */
struct line_ends {
    bool after_cr;
    bool in_line; /* the last line has no end yet */
};

/* Append `in`, which takes up to 2 * in.len + 1 bytes. Returns what was appended, which lasts as
 * buf_slice(out) does; ptr NULL when the buffer is full. */
struct slice line_ends_add(struct line_ends *l, struct slice in, struct buf *out);

/* The same for bytes that are known to be in wire form already, but for a CR at their end, which is
 * held back: returns them without it, and nothing is copied. There is no CR held back before. */
struct slice line_ends_pass(struct line_ends *l, struct slice in);

/* The text is over: the last line gets an end when it has none. Returns what was appended. */
struct slice line_ends_finish(struct line_ends *l, struct buf *out);

#endif
