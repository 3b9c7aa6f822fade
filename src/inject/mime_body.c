#include "mime_body.h"

#include <stdint.h>
#include <string.h>

#include <gmime/gmime-encodings.h>

#include "check.h"

#define LINE_MAX_BYTES 997u   /* RFC 5322, 2.1.1 */
#define BASE64_LINE    76u    /* RFC 2045, 6.8 */
#define ENCODE_AT_ONCE 16384u /* bytes that the encoder gets at once */

void mime_body_text(struct mime_body *b, struct slice text)
{
    *b = (struct mime_body){.whole = text, .rest = text, .is_text = true};
}

void mime_body_base64(struct mime_body *b, struct slice base64)
{
    *b = (struct mime_body){.whole = base64, .rest = base64, .encoding = MIME_BODY_BASE64};
}

/* Takes the next bytes off the rest, without separating CR and LF. */
static struct slice take(struct mime_body *b, size_t bytes)
{
    struct slice piece = slice_of(b->rest.ptr, b->rest.len < bytes ? b->rest.len : bytes);

    CHECK(bytes > 0);
    if (b->is_text && piece.len > 0 && piece.len < b->rest.len &&
        piece.ptr[piece.len - 1] == '\r' && piece.ptr[piece.len] == '\n') {
        piece.len++;
    }
    b->rest = slice_skip(b->rest, piece.len);
    return piece;
}

/* ---- choosing the encoding ------------------------------------------------------------------- */

static size_t count_high(struct slice s)
{
    const uint64_t highs = 0x8080808080808080u;
    size_t n = 0, i = 0;

    for (; i + sizeof(uint64_t) <= s.len; i += sizeof(uint64_t)) {
        uint64_t word;

        memcpy(&word, s.ptr + i, sizeof word);
        word &= highs;
        n += word == 0 ? 0 : (size_t)__builtin_popcountll(word);
    }
    for (; i < s.len; i++) {
        n += (unsigned char)s.ptr[i] > 127;
    }
    return n;
}

static const char *last_of(struct slice s, char c)
{
    return s.len == 0 ? NULL : memrchr(s.ptr, c, s.len);
}

/* Measures lines that end with LF only. A line fits if its LF is within the allowed bytes. The
 * search begins at the end of these bytes, so that one search skips many short lines. */
static void measure_lf_lines(struct mime_body *b, struct slice s)
{
    const char *last = NULL;
    size_t most = LINE_MAX_BYTES - b->line_bytes + 1; /* including the LF */

    while (s.len >= most) {
        last = last_of(slice_of(s.ptr, most), '\n');
        if (last == NULL) {
            b->is_long = true;
            return;
        }
        s = slice_skip(s, (size_t)(last + 1 - s.ptr));
        b->line_bytes = 0;
        most = LINE_MAX_BYTES + 1;
    }
    last = last_of(s, '\n');
    b->line_bytes = last == NULL ? b->line_bytes + s.len : (size_t)(s.ptr + s.len - last) - 1;
}

static void measure_lines(struct mime_body *b, struct slice s)
{
    while (s.len > 0 && !b->is_long) {
        size_t cr = b->has_cr ? slice_find(s, '\r') : s.len;

        measure_lf_lines(b, slice_of(s.ptr, cr));
        if (cr < s.len) {
            b->line_bytes = 0;
            cr++;
        }
        s = slice_skip(s, cr);
    }
}

/* Chooses like GMime: base64 if 17 % of the bytes or more are not ASCII. */
static enum mime_body_encoding choose(const struct mime_body *b)
{
    if (b->high == 0) {
        return b->is_long ? MIME_BODY_QUOTED : MIME_BODY_7BIT;
    }
    return b->high >= (size_t)((double)b->whole.len * 17 / 100) ? MIME_BODY_BASE64
                                                                : MIME_BODY_QUOTED;
}

bool mime_body_examine(struct mime_body *b, size_t bytes)
{
    struct slice piece = take(b, bytes);

    CHECK(b->is_text);
    b->has_cr = b->has_cr || slice_find(piece, '\r') < piece.len;
    b->high += count_high(piece);
    measure_lines(b, piece);
    if (b->rest.len > 0) {
        return false;
    }
    b->encoding = choose(b);
    b->rest = b->whole;
    return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Copies lines with this line end instead of their own; `to` has room for twice the length. */
static size_t put_lines(const struct mime_body *b, struct slice s, struct slice line_end, char *to)
{
    char *start = to;

    while (s.len > 0) {
        size_t len = slice_find(s, '\n');

        if (b->has_cr) {
            len = slice_find(slice_of(s.ptr, len), '\r');
        }
        memcpy(to, s.ptr, len);
        to += len;
        if (len < s.len) {
            memcpy(to, line_end.ptr, line_end.len);
            to += line_end.len;
            len += s.ptr[len] == '\r' && len + 1 < s.len && s.ptr[len + 1] == '\n' ? 2 : 1;
        }
        s = slice_skip(s, len);
    }
    return (size_t)(to - start);
}

static void write_lines(const struct mime_body *b, struct slice piece, struct buf *out)
{
    char *to = buf_room(out, 2 * piece.len);

    if (to != NULL) {
        buf_grew(out, put_lines(b, piece, SLICE("\r\n"), to));
    }
}

/* Writes lines of base64; `piece` begins at the start of a line. */
static void write_base64(struct mime_body *b, struct slice piece, struct buf *out)
{
    char *start = buf_room(out, piece.len + 2 * (piece.len / BASE64_LINE + 1)), *to = start;

    while (to != NULL && piece.len > 0) {
        size_t len = piece.len < BASE64_LINE ? piece.len : BASE64_LINE;

        if (b->begun) {
            *to++ = '\r';
            *to++ = '\n';
        }
        b->begun = true;
        memcpy(to, piece.ptr, len);
        to += len;
        piece = slice_skip(piece, len);
    }
    if (start != NULL) {
        buf_grew(out, (size_t)(to - start));
    }
}

/* Appends the encoder's output, whose line ends are LF. */
static void put_encoded(struct slice s, struct buf *out)
{
    while (s.len > 0) {
        size_t len = slice_find(s, '\n');

        (void)buf_add(out, slice_of(s.ptr, len)); /* errors of the buffer are sticky */
        if (len < s.len) {
            (void)buf_add_string(out, "\r\n");
            len++;
        }
        s = slice_skip(s, len);
    }
}

/* Returns an encoder in the state after the previous piece. */
static GMimeEncoding encoder_of(const struct mime_body *b)
{
    GMimeEncoding encoder;

    g_mime_encoding_init_encode(&encoder, b->encoding == MIME_BODY_QUOTED
                                              ? GMIME_CONTENT_ENCODING_QUOTEDPRINTABLE
                                              : GMIME_CONTENT_ENCODING_BASE64);
    if (b->begun) {
        encoder.state = b->encoder_state;
        encoder.save = b->encoder_save;
    }
    return encoder;
}

static void encode(struct mime_body *b, struct slice piece, bool last, struct buf *out)
{
    GMimeEncoding encoder = encoder_of(b);
    struct slice line_end = b->encoding == MIME_BODY_QUOTED ? SLICE("\n") : SLICE("\r\n");
    char lines[2 * ENCODE_AT_ONCE + 2];
    size_t len = put_lines(b, piece, line_end, lines), room;
    struct buf encoded;
    char *to;

    room = g_mime_encoding_outlen(&encoder, len);
    buf_init(&encoded, room);
    to = buf_room(&encoded, room);
    CHECK(to != NULL);
    len = last ? g_mime_encoding_flush(&encoder, lines, len, to)
               : g_mime_encoding_step(&encoder, lines, len, to);
    buf_grew(&encoded, len);
    put_encoded(buf_slice(&encoded), out);
    buf_fini(&encoded);
    b->begun = true;
    b->encoder_state = encoder.state;
    b->encoder_save = encoder.save;
}

bool mime_body_write(struct mime_body *b, size_t bytes, struct buf *out)
{
    size_t before = buf_len(out);

    if (!b->is_text) {
        size_t lines = bytes < BASE64_LINE ? 1 : bytes / BASE64_LINE;

        write_base64(b, take(b, lines * BASE64_LINE), out);
    } else if (b->encoding == MIME_BODY_7BIT) {
        write_lines(b, take(b, bytes), out);
    } else {
        struct slice piece = take(b, bytes < ENCODE_AT_ONCE ? bytes : ENCODE_AT_ONCE);

        encode(b, piece, b->rest.len == 0, out);
    }
    if (buf_len(out) > before) {
        b->in_line = buf_slice(out).ptr[buf_len(out) - 1] != '\n';
    }
    return b->rest.len == 0;
}
