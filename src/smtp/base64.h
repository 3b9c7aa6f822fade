/*
 * Base64 (RFC 4648, section 4), strict: padded, no blanks, no other alphabet. Both functions append
 * to a buffer, whose limit bounds the output.
 */
#ifndef SMTP_BASE64_H
#define SMTP_BASE64_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

/* Appends the encoding of `bytes`. Beyond its limit the buffer fails, as with buf_add. */
void base64_put(struct buf *out, struct slice bytes);

/* Appends the decoded bytes of `text`, none for the empty text. Returns false if `text` is not
 * base64, or has more bytes than the buffer can hold; bytes appended before that stay. */
bool base64_get(struct slice text, struct buf *ret_bytes);

/* Can base64_get decode `text`, with a buffer that is large enough? */
bool base64_is_strict(struct slice text);

#endif
