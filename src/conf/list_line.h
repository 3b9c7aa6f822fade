/*
 * A line of a file of the configuration that lists words: logins at relays, web hooks. A line that
 * begins with # says nothing.
 */
#ifndef CONF_LIST_LINE_H
#define CONF_LIST_LINE_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

struct list_line {
    struct slice whole; /* in the caller's text, without its end */
    struct slice rest;  /* what was not read yet, without blanks around it */
    unsigned number;
};

/* The next line out of *text, of which *number counts the lines; false at its end. Empty lines and
 * those with # are there, too, with an empty rest. */
bool list_line_next(struct slice *text, unsigned *number, struct list_line *ret_line);

/* The next word; empty at the end of the line. Words end with blanks or tabs. */
struct slice list_line_word(struct list_line *line);

/* Say what is wrong as "LINE:COLUMN: WHAT". `at` is in the line; NULL: its start. Returns false. */
bool list_line_bad(struct buf *ret_error, const struct list_line *line, const char *at,
                   const char *what);

#endif
