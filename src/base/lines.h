/*
 * Ends of lines: content as mail travels (CR LF) and as files and programs have it (LF), for any
 * split of the input. A plain value each; fields are private to lines.c.
 */
#ifndef BASE_LINES_H
#define BASE_LINES_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

/* To LF. Only a CR in front of an LF goes; others are content. The last line gets an end if it has
 * none. */
struct unixlines {
    bool held_cr; /* the input so far ended in a CR that is not written yet */
    bool in_line; /* the output does not end in LF */
};

void unixlines_init(struct unixlines *u);

/* Append `in`, converted, to `out`, whose sticky error tells when it is full. At most one byte more
 * than `in` has. */
void unixlines_add(struct unixlines *u, struct slice in, struct buf *out);

/* The input is over. */
void unixlines_end(struct unixlines *u, struct buf *out);

/* To CR LF. What ends in CR LF already stays. */
struct wirelines {
    char last; /* byte of the input; LF at its beginning */
};

void wirelines_init(struct wirelines *w);

/* At most twice as many bytes as `in` has. */
void wirelines_add(struct wirelines *w, struct slice in, struct buf *out);

/* The input is over: the last line gets an end if it has none. */
void wirelines_end(struct wirelines *w, struct buf *out);

#endif
