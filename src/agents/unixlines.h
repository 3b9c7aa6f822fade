/*
 * Content as mail travels (lines end in CRLF) to content as programs and files want it (LF), for
 * any split of the input; and where agents get content from.
 *
 * Only a CR in front of an LF goes; others are content. The last line gets an end if it has none.
 */
#ifndef AGENTS_UNIXLINES_H
#define AGENTS_UNIXLINES_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

/* Reads content piece by piece: 1 and a piece (which lasts until the next call), 0 at the end, or
 * negative errno. */
typedef int agent_read(void *arg, struct slice *ret_piece);

/* A plain value; fields are private to unixlines.c. */
struct unixlines {
    bool held_cr; /* the input so far ended in a CR that is not written yet */
    bool in_line; /* the output does not end in LF */
};

void unixlines_init(struct unixlines *u);

/* Append `in`, converted, to `out`, whose sticky error tells when it is full. */
void unixlines_add(struct unixlines *u, struct slice in, struct buf *out);

/* The input is over. */
void unixlines_end(struct unixlines *u, struct buf *out);

/* Read everything, convert it and write it to `fd`, behind `head` (as it is). 0 or negative errno.
 * Blocks. */
int unixlines_write(int fd, struct slice head, agent_read *read, void *arg);

#endif
