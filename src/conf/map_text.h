/*
 * Lines of a map file, common to all maps of the configuration (transport_maps, access tables,
 * recipient tables, ..):
 *
 *     # a comment
 *     KEY    VALUE
 *     KEY    VALUE that goes
 *            on in a line that begins with a blank
 *
 * Empty lines and lines whose first nonblank character is `#` are ignored. A type of Postfix before
 * the name of such a file has no meaning here.
 */
#ifndef CONF_MAP_TEXT_H
#define CONF_MAP_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "slice.h"

struct map_line {
    struct slice key, value; /* trimmed; the value may be empty */
    struct slice whole;      /* key, blanks and value */
    unsigned line;           /* number of its first line, from 1 */
    unsigned column;         /* column of the value there, from 1 */
};

/* Reader of lines. Its fields are private to map_text.c, except `error` and `error_line`. */
struct map_text {
    struct slice rest;
    struct buf joined;   /* joined text of a continued line */
    unsigned line;       /* number of lines read */
    const char *error;   /* reason of an early end, or NULL */
    unsigned error_line; /* 0: the whole file */
};

/* Begins with `text`, which is borrowed until map_text_fini. */
void map_text_init(struct map_text *m, struct slice text);
void map_text_fini(struct map_text *m);

/* Reads the next line; its slices last until the next call. Returns false at the end, and after an
 * error, which is in `error`. */
bool map_text_next(struct map_text *m, struct map_line *ret_line);

/* Returns the name of a file without the type before it (`hash:', `texthash:'; for networks
 * `cidr:', for patterns `pcre:'). Each type stands for the text file here. */
struct slice map_file_name(struct slice name);

#endif
