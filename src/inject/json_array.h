/*
 * One large array of a JSON document, to be read element by element: all objects of it at once
 * would take ten times the memory of its text.
 *
 * This finds where the array stands, by strings and brackets alone. Whether it is JSON the parser
 * says, which gets the document without the elements, and then each of these: all are JSON, with
 * commas between them, exactly when the document is.
 */
#ifndef INJECT_JSON_ARRAY_H
#define INJECT_JSON_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "slice.h"

/* Offsets in the document of what stands between the brackets. */
struct json_array {
    size_t from, to;
};

/* Find the array that the document, an object, has under this name, written without escapes. False:
 * there is none. */
bool json_array_find(struct slice document, struct slice name, struct json_array *ret_array);

/* Append the document with nothing between the brackets. False when the buffer is full. */
bool json_array_cut(struct slice document, const struct json_array *array, struct buf *out);

/* The offset of the first byte from `at` on that is no white space. */
size_t json_skip_blanks(struct slice document, size_t at);

/* Where an offset is, as the parser counts: lines from 1, characters before it in its line. */
void json_place(struct slice document, size_t at, size_t *ret_line, size_t *ret_column);

#endif
