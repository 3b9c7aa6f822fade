/*
 * Where agents get content from, and writing it as programs and files want it: lines end in LF.
 */
#ifndef AGENTS_UNIXLINES_H
#define AGENTS_UNIXLINES_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

/* Reads content piece by piece: 1 and a piece (which lasts until the next call), 0 at the end, or
 * negative errno. */
typedef int agent_read(void *arg, struct slice *ret_piece);

/* Write all of it, consumed as it goes. 0 or negative errno. Blocks. */
int agent_write(int fd, struct buf *out);

/* Read everything, convert it and write it to `fd`, behind `head` (as it is). 0 or negative errno.
 * Blocks. */
int unixlines_write(int fd, struct slice head, agent_read *read, void *arg);

#endif
