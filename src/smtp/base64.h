/*
 * Base64 (RFC 4648, section 4), strict: padded, no blanks, no other alphabet. Both functions work
 * in place on buffers, whose limits bound what comes out.
 */
#ifndef SMTP_BASE64_H
#define SMTP_BASE64_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

/* Append the text of `bytes`. Beyond the buffer's limit the buffer fails, as with buf_add. */
void base64_put(struct buf *out, struct slice bytes);

/* Append the bytes of `text`, none for the empty text. False when it is not base64, or for more
 * than the buffer takes; what was appended until then stays. */
bool base64_get(struct slice text, struct buf *ret_bytes);

/* Would base64_get take it, with a buffer that is large enough? */
bool base64_is_strict(struct slice text);

#endif
