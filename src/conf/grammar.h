/*
 * The grammar of configuration files: text in, items with their positions out.
 *
 *     name = value            parameter: a line that starts in column 1 with a name and a `=`
 *       more of the value       a line with a leading blank continues it; joined by one blank
 *     PARAMname = value       a dialect's parameter: the value is a word or stands in quotes
 *     include FILE            another file's items in this place
 *     pattern word=value ..   clause: any other line that starts in column 1
 *       word=value flag ..      indented lines belong to the clause that was opened last
 *     # text                  comment; also where a clause's word could start, and between the
 *                             lines of a value
 *
 * A clause's value is a word or stands in double quotes, which must close on the same line unless
 * it ends in a backslash; there is no way to write a quote within quotes. Blanks may surround the
 * `=`. A parameter's value is the rest of the line, `#` and quotes included, as in main.cf.
 *
 * Knows no parameter's name and expands nothing. Takes any bytes.
 */
#ifndef CONF_GRAMMAR_H
#define CONF_GRAMMAR_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

enum item_kind {
    ITEM_END,
    ITEM_PARAMETER,  /* name, value */
    ITEM_PARAM_LINE, /* name (behind PARAM), value */
    ITEM_INCLUDE,    /* value */
    ITEM_CLAUSE,     /* name is the pattern */
    ITEM_VALUE,      /* name, value: of the clause that was opened last */
    ITEM_FLAG,       /* name: likewise */
    ITEM_BAD,        /* error; what follows on the line is passed over */
};

struct item {
    enum item_kind kind;
    unsigned line, column;             /* of the name, from 1; columns count bytes */
    unsigned value_line, value_column; /* of the value */
    struct slice name, value;          /* until the next call */
    const char *error;                 /* what was found and what was expected; static */
};

struct grammar {
    struct slice text; /* borrowed */
    size_t at;         /* where the next line starts */
    unsigned line_number;
    struct slice line; /* the current one, without its end */
    size_t in_line;    /* a clause's words go on here; line.len = none left */
    bool in_clause;    /* indented lines have a clause to belong to */
    struct buf value;  /* where values of several lines are joined */
};

/* `text` must last until grammar_fini. */
void grammar_init(struct grammar *g, struct slice text);
void grammar_fini(struct grammar *g);

/* The next item; ITEM_END again and again at the end. */
void grammar_next(struct grammar *g, struct item *ret_item);

#endif
