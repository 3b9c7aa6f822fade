/*
 * xtext, the encoding of ENVID and ORCPT values (RFC 3461, section 4): printable ASCII except `+`
 * and `=` stands for itself, any other byte is `+` and two upper-case hexadecimal digits.
 */
#ifndef BASE_XTEXT_H
#define BASE_XTEXT_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

/* Is every byte an xchar or part of a hexchar? Lower-case digits are invalid, as in the RFC. */
bool xtext_valid(struct slice encoded);

/* Appends the encoding of any bytes. Returns false if the buffer is full. */
bool xtext_encode(struct slice bytes, struct buf *out);

/* Appends the decoded bytes, which may be any, NUL included. Returns false if `encoded` is not
 * valid (nothing is appended) or the buffer is full. */
bool xtext_decode(struct slice encoded, struct buf *out);

#endif
