/*
 * The body of a MIME part (RFC 2045), written piece by piece: a text in the encoding that it needs,
 * or bytes that are base64 already.
 *
 *     mime_body_text --> mime_body_examine ... --> `encoding` is known --+
 *                                                                       v
 *     mime_body_base64 -------------------------------------> mime_body_write ...
 *
 * A call looks at about as many bytes as it is told, so that a large part takes as many turns of
 * the event loop as it needs. The encoders are GMime's.
 *
 * A line of a text ends with LF, CRLF or CR, and its last line perhaps with none of them; what is
 * written has CRLF, in base64, too (6.8). Embed it; fields but `encoding` and
 * `in_line` are private to
 * mime_body.c.
 */
#ifndef INJECT_MIME_BODY_H
#define INJECT_MIME_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

enum mime_body_encoding {
    MIME_BODY_7BIT,   /* as it is: ASCII in lines that are not too long */
    MIME_BODY_QUOTED, /* quoted-printable */
    MIME_BODY_BASE64,
};

struct mime_body {
    enum mime_body_encoding encoding;
    struct slice whole, rest; /* borrowed: all, and what is left to examine or to write */
    bool is_text;             /* else base64 in one line */
    bool has_cr, is_long;     /* it has a CR; a line is too long */
    bool begun;               /* some of it is written */
    bool in_line;             /* and that does not end with a line end */
    size_t line_bytes;        /* of the line that is examined */
    size_t high;              /* bytes that are not ASCII */
    int encoder_state;        /* the encoder's, between pieces */
    uint32_t encoder_save;
};

/* A text, UTF-8 without NUL; base64 in one line, without an error. Borrowed until all of it is
 * written. */
void mime_body_text(struct mime_body *b, struct slice text);
void mime_body_base64(struct mime_body *b, struct slice base64);

/* Find out which encoding it needs. False: there is more to look at. */
bool mime_body_examine(struct mime_body *b, size_t bytes);

/* Append the next of it. False: there is more to write. When the buffer is full it has failed. */
bool mime_body_write(struct mime_body *b, size_t bytes, struct buf *out);

#endif
