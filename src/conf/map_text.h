/*
 * The lines of a map file, as all maps of the configuration have them (transport_maps, access
 * tables, recipient tables, ..):
 *
 *     # a comment
 *     KEY    VALUE
 *     KEY    VALUE that goes
 *            on in a line that begins with a blank
 *
 * Empty lines, and lines of which the first character that is no blank is `#`, are passed over.
 * Types that Postfix writes before the name of such a file say nothing here.
 */
#ifndef CONF_MAP_TEXT_H
#define CONF_MAP_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "slice.h"

struct map_line {
    struct slice key, value; /* trimmed; the value may be empty */
    struct slice whole;      /* both, and the blanks between */
    unsigned line;           /* of its first line, from 1 */
    unsigned column;         /* of the value there, from 1 */
};

/* Fields are private to map_text.c, but for `error`. */
struct map_text {
    struct slice rest;
    struct buf joined;   /* of a line that goes on in the next ones */
    unsigned line;       /* lines that have been taken */
    const char *error;   /* why the end came early, or NULL */
    unsigned error_line; /* 0: the file as a whole */
};

/* `text` is borrowed until map_text_fini. */
void map_text_init(struct map_text *m, struct slice text);
void map_text_fini(struct map_text *m);

/* The next line; its slices last until the next call. False at the end, and at an error, which is
 * then in `error`. */
bool map_text_next(struct map_text *m, struct map_line *ret_line);

/* The name of a file without the type before it (`hash:', `texthash:'; for networks `cidr:', for
 * patterns `pcre:'), each of which names the text here. */
struct slice map_file_name(struct slice name);

#endif
