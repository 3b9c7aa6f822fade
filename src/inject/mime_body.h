/*
 * Body of a MIME part (RFC 2045), written piece by piece: a text in the encoding that it needs, or
 * bytes that are base64 already.
 *
 * mime_body_text --> mime_body_examine ... --> `encoding` is known --+
 *                                                                     v
 * mime_body_base64 -------------------------------------> mime_body_write ...
 *
 * A call reads about as many bytes as it is given, so that a large part takes as many turns of the
 * event loop as it needs. The encoders are GMime's.
 *
 * A line of a text ends with LF, CRLF or CR; the last line may have no end. The output has CRLF,
 * also inside base64 (6.8). Embed the struct; members except `encoding` and `in_line` are private
 * to mime_body.c.
 */
#ifndef INJECT_MIME_BODY_H
#define INJECT_MIME_BODY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "slice.h"

enum mime_body_encoding {
    MIME_BODY_7BIT,   /* unchanged: ASCII in lines that are not too long */
    MIME_BODY_QUOTED, /* quoted-printable */
    MIME_BODY_BASE64,
};

struct mime_body {
    enum mime_body_encoding encoding;
    struct slice whole, rest; /* borrowed: all bytes, and those left to examine or to write */
    bool is_text;             /* whether it is a text; otherwise base64 in one line */
    bool has_cr, is_long;     /* whether it has a CR, and a line that is too long */
    bool begun;               /* whether output was written */
    bool in_line;             /* whether the output does not end with a line end */
    size_t line_bytes;        /* length of the line that is being examined */
    size_t high;              /* number of bytes that are not ASCII */
    int encoder_state;        /* state of the encoder between pieces */
    uint32_t encoder_save;
};

/* Begins a body: mime_body_text with UTF-8 without NUL, mime_body_base64 with valid base64 in one
 * line. The bytes are borrowed until the body is written. */
void mime_body_text(struct mime_body *b, struct slice text);
void mime_body_base64(struct mime_body *b, struct slice base64);

/* Reads the text to choose its encoding. Returns true at its end. */
bool mime_body_examine(struct mime_body *b, size_t bytes);

/* Appends the next piece. Returns true at the end of the body. The buffer has failed if it is
 * full. */
bool mime_body_write(struct mime_body *b, size_t bytes, struct buf *out);

#endif
