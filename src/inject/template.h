/*
 * Templates: texts in which {{NAME}} is replaced by a value. In HTML the value is escaped, except
 * for {{{NAME}}}. Braces that are not closed stay unchanged.
 */
#ifndef INJECT_TEMPLATE_H
#define INJECT_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "slice.h"

/* Takes the text up to the next name, and the name, off *rest. *ret_raw: the form is {{{NAME}}}.
 * Returns false with all of *rest in *ret_before if there is no name. */
bool template_next(struct slice *rest, struct slice *ret_before, struct slice *ret_name,
                   bool *ret_raw);

/* Returns the value of a name, which must be valid as long as the text. */
typedef struct slice template_value(void *arg, struct slice name);

/* Template that is being filled in, piece by piece. Members are private to template.c. */
struct template
{
    struct slice rest;  /* borrowed */
    struct slice value; /* rest of the value that is being written */
    bool is_html, escaped;
    bool literal; /* whether `rest` contains no name */
};

void template_init(struct template *t, struct slice text, bool is_html);

/* Appends about `bytes` more bytes, at least two. Returns true at the end of the text. The buffer
 * has failed if it is full. */
bool template_put(struct template *t, size_t bytes, template_value *value, void *arg,
                  struct buf *out);

#endif
