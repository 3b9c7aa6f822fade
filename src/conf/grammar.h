/*
 * The grammar of configuration files: text in, items with their positions out.
 *
 *     name = value            parameter: a line that starts in column 1 with a name and a `=`
 *       more of the value       a line with a leading blank continues it; joined by one blank
 *     PARAMname = value       parameter of a dialect: the value is a word or quoted
 *     include FILE            items of another file in this place
 *     pattern word=value ..   clause: any other line that starts in column 1
 *       word=value flag ..      indented lines belong to the last clause
 *     # text                  comment; also where a word of a clause may start, and between the
 *                             lines of a value
 *
 * A value of a clause is a word or in double quotes, which must close on the same line unless it
 * ends in a backslash. A quote within quotes is not possible. Blanks may surround the `=`. A
 * parameter's value is the rest of the line, `#` and quotes included, as in main.cf.
 *
 * This module has no names of parameters and expands nothing. It accepts any bytes.
 */
#ifndef CONF_GRAMMAR_H
#define CONF_GRAMMAR_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

enum item_kind {
    ITEM_END,
    ITEM_PARAMETER,  /* has name and value */
    ITEM_PARAM_LINE, /* has name (after PARAM) and value */
    ITEM_INCLUDE,    /* has value */
    ITEM_CLAUSE,     /* has the pattern as name */
    ITEM_VALUE,      /* has name and value, of the last clause */
    ITEM_FLAG,       /* has name, of the last clause */
    ITEM_BAD,        /* has error, and the name of a parameter that is too long; the rest of the
                      * line is ignored */
};

struct item {
    enum item_kind kind;
    unsigned line, column;             /* of the name, from 1; columns count bytes */
    unsigned value_line, value_column; /* of the value, from 1 */
    struct slice name, value;          /* valid until the next call */
    const char *error;                 /* "found .., expected .."; static */
};

struct grammar {
    struct slice text; /* borrowed */
    size_t at;         /* offset of the next line */
    unsigned line_number;
    struct slice line; /* current line without its end */
    size_t in_line;    /* offset of the next word of a clause; line.len: none */
    bool in_clause;    /* true if indented lines belong to a clause */
    struct buf value;  /* joined lines of a value */
};

/* Begins with `text`, which must last until grammar_fini. */
void grammar_init(struct grammar *g, struct slice text);
void grammar_fini(struct grammar *g);

/* Returns the next item in *ret_item; ITEM_END at the end and after it. */
void grammar_next(struct grammar *g, struct item *ret_item);

#endif
