/*
 * Any bytes in a column of type text. What the database would refuse, as it is no UTF-8 or has a
 * NUL, and what begins with a byte 2, is stored as a byte 2 and its bytes in hexadecimal digits.
 */
#ifndef CLUSTER_MARKED_TEXT_H
#define CLUSTER_MARKED_TEXT_H

#include <stdbool.h>

#include "slice.h"
#include "text_pool.h"

/* Is it stored as it is? */
bool marked_text_is_plain(struct slice text);
/* What is not: its size when stored, and the bytes, written to `at`. */
size_t marked_text_size(struct slice text);
void marked_text_write(char *at, struct slice text);

/* The text that was stored as `stored`: that itself, or a copy in the pool. False: it is none, has
 * a NUL, or is longer than `max`. */
bool marked_text_read(struct slice stored, size_t max, struct text_pool *pool,
                      struct slice *ret_text);

#endif
