/*
 * Files of the dashboard (web/), which are part of the program: nothing is read from disk or from
 * other machines. The files contain no data of the queue, so they need no token; the data come from
 * the API, which needs one.
 */
#ifndef CONTROL_PAGES_H
#define CONTROL_PAGES_H

#include "slice.h"

struct web_page {
    const char *path; /* "/" or "/web/NAME" */
    const char *type;
    struct slice bytes;
};

/* Returns the file with this path, or NULL. */
const struct web_page *web_page_find(struct slice path);

/* Fields for the head of each file, "NAME: VALUE\r\n", up to a NULL. They permit scripts and styles
 * of this server only, and no frames of other pages. */
extern const char *const web_page_fields[];

#endif
