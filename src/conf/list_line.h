/*
 * A line of a file of the configuration that lists words: logins at relays, web hooks. A line that
 * begins with # is a comment.
 */
#ifndef CONF_LIST_LINE_H
#define CONF_LIST_LINE_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

struct list_line {
    struct slice whole; /* the line without its end, in the caller's text */
    struct slice rest;  /* unread part, without surrounding blanks */
    unsigned number;
};

/* Cuts the next line from *text, and counts it in *number. Returns false at the end of the text.
 * Empty lines and comments have an empty rest. */
bool list_line_next(struct slice *text, unsigned *number, struct list_line *ret_line);

/* Returns the next word; empty at the end of the line. Words end with blanks or tabs. */
struct slice list_line_word(struct list_line *line);

/* Prints an error as "LINE:COLUMN: WHAT". `at` is in the line; NULL: its start. Returns false. */
bool list_line_bad(struct buf *ret_error, const struct list_line *line, const char *at,
                   const char *what);

#endif
