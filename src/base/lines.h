/*
 * Ends of lines: converts content between CR LF, as mail travels, and LF, as in files and programs,
 * for any split of the input. A plain value each; fields are private to lines.c.
 */
#ifndef BASE_LINES_H
#define BASE_LINES_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

/* Converter to LF. It removes only a CR before an LF; other CRs are content. It adds an end to an
 * unfinished last line. */
struct unixlines {
    bool held_cr; /* whether the input so far ended in a CR that is not written yet */
    bool in_line; /* whether the output so far does not end in LF */
};

void unixlines_init(struct unixlines *u);

/* Converts `in` and appends it to `out`, whose sticky error shows when `out` is full. Adds at most
 * one byte more than `in` has. */
void unixlines_add(struct unixlines *u, struct slice in, struct buf *out);

/* Ends the conversion. */
void unixlines_end(struct unixlines *u, struct buf *out);

/* Converter to CR LF. Lines that end in CR LF already are not changed. */
struct wirelines {
    char last; /* last byte of the input; LF at its beginning */
};

void wirelines_init(struct wirelines *w);

/* Converts `in` and appends it to `out`; adds at most twice as many bytes as `in` has. */
void wirelines_add(struct wirelines *w, struct slice in, struct buf *out);

/* Ends the conversion: adds an end to an unfinished last line. */
void wirelines_end(struct wirelines *w, struct buf *out);

#endif
