/*
 * Converts a message's content for standard output: lines end with LF, and header or body can be
 * selected. The input can be split anywhere.
 */
#ifndef CLI_CONTENT_CUT_H
#define CLI_CONTENT_CUT_H

#include <stdbool.h>

#include "buf.h"
#include "lines.h"
#include "slice.h"

enum shown_part {
    CONTENT_ALL,
    CONTENT_HEADER, /* without the empty line after it */
    CONTENT_BODY,
};

/* Members are private to content_cut.c. */
struct content_cut {
    enum shown_part part;
    bool for_terminal; /* control characters become '?' */
    bool in_body;
    bool at_line_start;
    struct unixlines lines;
    struct buf text; /* the current piece with converted lines */
};

/* Longest piece of input in bytes. */
#define CONTENT_CUT_PIECE_MAX 65536

void content_cut_init(struct content_cut *c, enum shown_part part, bool for_terminal);
void content_cut_fini(struct content_cut *c);

/* Appends the selected part of `in` to `out`: at most in.len + 2 bytes. */
void content_cut_add(struct content_cut *c, struct slice in, struct buf *out);

/* Ends the input. */
void content_cut_end(struct content_cut *c, struct buf *out);

#endif
