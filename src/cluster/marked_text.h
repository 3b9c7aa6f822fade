/*
 * Marked text: any bytes in a column of type text. Bytes that the database would refuse (not UTF-8,
 * or with a NUL), and texts that begin with a byte 2, are stored as a byte 2 and hexadecimal
 * digits.
 */
#ifndef CLUSTER_MARKED_TEXT_H
#define CLUSTER_MARKED_TEXT_H

#include <stdbool.h>

#include "slice.h"
#include "text_pool.h"

/* Can the text be stored unchanged? */
bool marked_text_is_plain(struct slice text);
/* Returns the stored size of a text that must be marked; marked_text_write writes it to `at`. */
size_t marked_text_size(struct slice text);
void marked_text_write(char *at, struct slice text);

/* Decodes a stored text: *ret_text is `stored` itself, or a copy in the pool. Returns false if it
 * is invalid, contains a NUL, or is longer than `max`. */
bool marked_text_read(struct slice stored, size_t max, struct text_pool *pool,
                      struct slice *ret_text);

#endif
