/*
 * A file of JSON objects, one a line, as recordings come. Empty lines are passed over.
 *
 * Bytes from outside: lines have a limit, and what is wrong is told once, with file, line and
 * column.
 */
#ifndef REPLAY_JSONLINES_H
#define REPLAY_JSONLINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <jansson.h>

#include "buf.h"

#define JSONLINES_LINE_MAX (16u << 20) /* bytes */

struct jsonlines {
    const char *path; /* borrowed */
    FILE *in;         /* owned */
    struct buf ahead; /* read, not used yet */
    size_t used;      /* bytes of `ahead` that are the current line */
    bool ended;
    unsigned number; /* of the line, from 1; 0 before the first */
};

/* 0 or negative errno (-EISDIR for a directory). `path` must outlive the reader. */
int jsonlines_open(struct jsonlines *j, const char *path);
void jsonlines_close(struct jsonlines *j);

enum jsonlines_event {
    JSONLINES_OBJECT, /* *ret_object is the caller's */
    JSONLINES_END,
    JSONLINES_BAD, /* *error says what and where, without an end of line */
};

enum jsonlines_event jsonlines_next(struct jsonlines *j, json_t **ret_object, struct buf *error);

/* Append "FILE:LINE: " of the line that was read last. */
void jsonlines_add_place(const struct jsonlines *j, struct buf *out);

#endif
