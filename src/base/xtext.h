/*
 * xtext, the encoding of ENVID and ORCPT values (RFC 3461, section 4): printable ASCII stands for
 * itself except `+` and `=`, any other byte is `+` and two upper-case hexadecimal digits.
 */
#ifndef BASE_XTEXT_H
#define BASE_XTEXT_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

/* Is every byte an xchar or part of a hexchar? Lower-case digits are refused, as the RFC does. */
bool xtext_valid(struct slice encoded);

/* Append the encoding of any bytes. False when the buffer is full. */
bool xtext_encode(struct slice bytes, struct buf *out);

/* Append what `encoded` stands for, which may be any bytes, NUL included. False when it is not
 * valid (nothing is appended) or the buffer is full. */
bool xtext_decode(struct slice encoded, struct buf *out);

#endif
