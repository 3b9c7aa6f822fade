/*
 * The dashboard's files (web/), which are part of the program: no file is read for them, and
 * nothing of them comes from another machine. They hold nothing of the queue, so they need no
 * token; what they show is asked of the API, with one.
 */
#ifndef CONTROL_PAGES_H
#define CONTROL_PAGES_H

#include "slice.h"

struct web_page {
    const char *path; /* "/" or "/web/NAME" */
    const char *type;
    struct slice bytes;
};

/* NULL: there is none. */
const struct web_page *web_page_find(struct slice path);

/* Fields of the head of each, "NAME: VALUE\r\n"; NULL ends them. Scripts and styles come from here
 * alone, and no other page may frame these. */
extern const char *const web_page_fields[];

#endif
