/*
 * A message's content for standard output: lines end in LF, and of header and body only what was
 * asked for. For any split of the input.
 */
#ifndef CLI_CONTENT_CUT_H
#define CLI_CONTENT_CUT_H

#include <stdbool.h>

#include "buf.h"
#include "lines.h"
#include "slice.h"

enum shown_part {
    CONTENT_ALL,
    CONTENT_HEADER, /* without the empty line behind it */
    CONTENT_BODY,
};

/* Fields are private to content_cut.c. */
struct content_cut {
    enum shown_part part;
    bool for_terminal; /* control characters become '?' */
    bool in_body;
    bool at_line_start;
    struct unixlines lines;
    struct buf text; /* the piece at hand, with its lines converted */
};

/* Longest piece of input. */
#define CONTENT_CUT_PIECE_MAX 65536

void content_cut_init(struct content_cut *c, enum shown_part part, bool for_terminal);
void content_cut_fini(struct content_cut *c);

/* Append what is wanted of `in` to `out`: at most in.len + 2 bytes. */
void content_cut_add(struct content_cut *c, struct slice in, struct buf *out);

/* The input is over. */
void content_cut_end(struct content_cut *c, struct buf *out);

#endif
