/*
 * Texts in which {{NAME}} stands for a value; in HTML the value is escaped, but that of {{{NAME}}}.
 * Braces that are not closed are themselves.
 */
#ifndef INJECT_TEMPLATE_H
#define INJECT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "slice.h"

/* Take the next "{{NAME}}" out of *rest: what stands before it, and the name; `raw` for
 * "{{{NAME}}}". False: there is none, and *ret_before is all. */
bool template_next(struct slice *rest, struct slice *ret_before, struct slice *ret_name,
                   bool *ret_raw);

/* The value of a name; it lasts as long as the text. */
typedef struct slice template_value(void *arg, struct slice name);

/* A text that is being filled in, piece by piece. Fields are private to template.c. */
struct template
{
    struct slice rest;  /* borrowed */
    struct slice value; /* what is left of the one that is put */
    bool is_html, escaped;
    bool literal; /* no name is left in `rest` */
};

void template_init(struct template *t, struct slice text, bool is_html);

/* Append about `bytes` more of it, at least two. False: there is more to append. When the buffer is
 * full it has failed. */
bool template_put(struct template *t, size_t bytes, template_value *value, void *arg,
                  struct buf *out);

#endif
