#include "downgrade.h"

#include <stdint.h>
#include <string.h>

#include "check.h"
#include "mem.h"

#define DEPTH_MAX    32
#define BOUNDARY_MAX 250 /* RFC 2046 allows 70 */
/* Octets at the start of a line that are looked at. */
#define LOOK_MAX       511
#define TYPE_MAX       4095 /* octets of a Content-Type that are looked at */
#define QP_COLUMNS_MAX 75   /* and the = of a soft line break */

/* Part that the current line belongs to. */
enum place {
    PLACE_FIELDS,
    PLACE_TEXT, /* a body that is converted */
    PLACE_KEPT, /* a body that stays as it is */
    /* Before the first and after the last part of a multipart, which readers ignore. */
    PLACE_PREAMBLE,
    PLACE_EPILOGUE
};

enum field { FIELD_OTHER, FIELD_TYPE, FIELD_ENCODING, FIELD_REPEATED };

enum type { TYPE_PLAIN, TYPE_MULTIPART, TYPE_MESSAGE, TYPE_KEPT };

struct multipart {
    bool is_signed;
    bool is_digest;
    uint8_t len;
    char boundary[BOUNDARY_MAX];
};

struct downgrade {
    enum place place;
    bool unfit;
    bool in_line; /* in a line of more than LOOK_MAX octets, whose start was processed */
    struct buf line;

    /* The current header section. */
    bool of_message; /* not of a part */
    bool has_version;
    bool has_type, has_encoding;
    bool odd_encoding; /* too long to be read, and passed on */
    enum field field;
    struct buf type;     /* value of Content-Type */
    struct buf encoding; /* the whole field Content-Transfer-Encoding, which waits for the end */

    /* Quoted-printable. */
    size_t column;
    bool after_break; /* a soft line break */
    bool held_cr;
    char held_blank; /* which may end the line; '\0': none */

    size_t depth;
    struct multipart open[DEPTH_MAX];
};

static void begin_fields(struct downgrade *d, bool of_message)
{
    d->place = PLACE_FIELDS;
    d->of_message = of_message;
    d->has_version = d->has_type = d->has_encoding = d->odd_encoding = false;
    d->field = FIELD_OTHER;
    buf_clear(&d->type);
    buf_clear(&d->encoding);
}

struct downgrade *downgrade_new(void)
{
    struct downgrade *d = mem_new(sizeof *d);

    buf_init(&d->line, LOOK_MAX);
    buf_init(&d->type, TYPE_MAX);
    buf_init(&d->encoding, LOOK_MAX);
    begin_fields(d, true);
    return d;
}

void downgrade_free(struct downgrade *d)
{
    if (d != NULL) {
        buf_fini(&d->line);
        buf_fini(&d->type);
        buf_fini(&d->encoding);
        mem_free(d);
    }
}

bool downgrade_unfit(const struct downgrade *d)
{
    return d->unfit;
}

static void put(struct buf *out, struct slice bytes)
{
    CHECK(buf_add(out, bytes));
}

/* Is the current place signed? The preamble of a multipart/signed is not, by itself. */
static bool in_signed(const struct downgrade *d)
{
    size_t depth = d->place == PLACE_PREAMBLE ? d->depth - 1 : d->depth;

    for (size_t i = 0; i < depth; i++) {
        if (d->open[i].is_signed) {
            return true;
        }
    }
    return false;
}

static bool is_8bit(char c)
{
    return (unsigned char)c >= 0x80;
}

/* ---- values of fields ------------------------------------------------------------------------ */

/* Skips white space and comments. */
static struct slice skip_blank(struct slice s)
{
    unsigned open = 0;

    while (s.len > 0) {
        char c = s.ptr[0];

        if (c == '\\' && open > 0 && s.len > 1) {
            s = slice_skip(s, 1);
        } else if (c == '(') {
            open++;
        } else if (c == ')' && open > 0) {
            open--;
        } else if (open == 0 && c != ' ' && c != '\t' && c != '\r' && c != '\n') {
            break;
        }
        s = slice_skip(s, 1);
    }
    return s;
}

/* Cuts a token (RFC 2045, 5.1), empty if there is none, and the blanks after it. */
static struct slice cut_token(struct slice *s)
{
    size_t len = 0;
    struct slice token;

    while (len < s->len && s->ptr[len] > ' ' && s->ptr[len] != 0x7f &&
           strchr("()<>@,;:\\\"/[]?=", s->ptr[len]) == NULL) {
        len++;
    }
    token = slice_of(s->ptr, len);
    *s = skip_blank(slice_skip(*s, len));
    return token;
}

/* Cuts the value of a parameter, a token or a quoted string, into `out`. Values that do not fit are
 * cut. A token may have octets that it must not have; many boundaries do. */
static void cut_value(struct slice *s, struct buf *out)
{
    bool quoted = s->len > 0 && s->ptr[0] == '"';

    for (*s = slice_skip(*s, quoted ? 1 : 0); s->len > 0; *s = slice_skip(*s, 1)) {
        char c = s->ptr[0];

        if (quoted ? c == '"' : c == ';' || c == ' ' || c == '\t' || c == '\r' || c == '\n') {
            break;
        }
        if (quoted && c == '\\' && s->len > 1) {
            *s = slice_skip(*s, 1);
            c = s->ptr[0];
        }
        if (c != '\r' && c != '\n') {
            (void)buf_add_byte(out, c);
        }
    }
    *s = skip_blank(slice_skip(*s, quoted && s->len > 0 ? 1 : 0));
}

/* Finds the parameter `boundary` after the type. Returns whether it is there and not too long. */
static bool find_boundary(struct slice s, struct multipart *ret_part)
{
    struct buf value;
    bool found = false;

    buf_init(&value, TYPE_MAX);
    while (s.len > 0 && !found) {
        struct slice name;

        s = skip_blank(slice_skip(s, s.ptr[0] == ';' ? 1 : 0));
        name = cut_token(&s);
        if (s.len == 0 || s.ptr[0] != '=') {
            s = slice_skip(s, slice_find(s, ';')); /* not a parameter */
            continue;
        }
        s = skip_blank(slice_skip(s, 1));
        buf_clear(&value);
        cut_value(&s, &value);
        found = slice_equal_nocase(name, SLICE("boundary"));
    }
    found = found && buf_len(&value) > 0 && buf_len(&value) <= BOUNDARY_MAX;
    if (found) {
        ret_part->len = (uint8_t)buf_len(&value);
        memcpy(ret_part->boundary, buf_slice(&value).ptr, ret_part->len);
    }
    buf_fini(&value);
    return found;
}

/* Reads the Content-Type. For TYPE_MULTIPART the boundary is in *ret_part. */
static enum type read_type(struct slice value, struct multipart *ret_part)
{
    struct slice s = skip_blank(value), type, subtype;

    type = cut_token(&s);
    if (type.len == 0 || s.len == 0 || s.ptr[0] != '/') {
        return TYPE_PLAIN; /* unreadable: text/plain (RFC 2045, 5.2) */
    }
    s = skip_blank(slice_skip(s, 1));
    subtype = cut_token(&s);
    if (slice_equal_nocase(type, SLICE("multipart"))) {
        ret_part->is_signed = slice_equal_nocase(subtype, SLICE("signed"));
        ret_part->is_digest = slice_equal_nocase(subtype, SLICE("digest"));
        return find_boundary(s, ret_part) ? TYPE_MULTIPART : TYPE_KEPT;
    }
    if (slice_equal_nocase(type, SLICE("message"))) {
        return slice_equal_nocase(subtype, SLICE("rfc822")) ||
                       slice_equal_nocase(subtype, SLICE("global"))
                   ? TYPE_MESSAGE
                   : TYPE_KEPT;
    }
    return TYPE_PLAIN;
}

/* Is the body encoded already, or in an encoding that is unknown here? */
static bool is_encoded(struct slice field)
{
    static const char *const plain[] = {"7bit", "8bit", "binary"};
    struct slice s = skip_blank(slice_skip(field, slice_find(field, ':') + 1)), word;

    word = cut_token(&s);
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        if (slice_equal_nocase(word, slice_string(plain[i]))) {
            return false;
        }
    }
    return word.len > 0;
}

/* ---- quoted-printable ------------------------------------------------------------------------ */

static void qp_put(struct downgrade *d, char c, bool as_it_is, struct buf *out)
{
    static const char digits[] = "0123456789ABCDEF";
    unsigned char byte = (unsigned char)c;

    if (d->column + (as_it_is ? 1 : 3) > QP_COLUMNS_MAX) {
        put(out, SLICE("=\r\n"));
        d->column = 0;
        d->after_break = true;
    }
    if (d->after_break && d->column == 0 && c == '-') {
        as_it_is = false; /* the line could look like a boundary */
    }
    if (as_it_is) {
        CHECK(buf_add_byte(out, c));
        d->column++;
    } else {
        CHECK(buf_addf(out, "=%c%c", digits[byte >> 4], digits[byte & 15]));
        d->column += 3;
    }
}

/* Writes what was held back. */
static void qp_release(struct downgrade *d, bool at_end_of_line, struct buf *out)
{
    if (d->held_blank != '\0') {
        qp_put(d, d->held_blank, !at_end_of_line, out);
        d->held_blank = '\0';
    }
    if (d->held_cr) {
        qp_put(d, '\r', false, out);
        d->held_cr = false;
    }
}

static void qp_byte(struct downgrade *d, char c, struct buf *out)
{
    if (c == '\n') {
        bool crlf = d->held_cr;

        d->held_cr = false;
        qp_release(d, true, out);
        put(out, crlf ? SLICE("\r\n") : SLICE("\n"));
        d->column = 0;
        d->after_break = false;
    } else if (c == '\r' && !d->held_cr) {
        d->held_cr = true;
    } else {
        qp_release(d, false, out);
        if (c == '\r') {
            d->held_cr = true;
        } else if (c == ' ' || c == '\t') {
            d->held_blank = c;
        } else {
            qp_put(d, c, c > ' ' && c < 0x7f && c != '=', out);
        }
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Passes bytes of a body, or of a field. */
static void on_bytes(struct downgrade *d, struct slice bytes, struct buf *out)
{
    bool is_signed = in_signed(d);

    switch (d->place) {
    case PLACE_FIELDS:
        if (d->field == FIELD_ENCODING) {
            if (!buf_add(&d->encoding, bytes)) { /* no encoding is so long */
                put(out, buf_slice(&d->encoding));
                put(out, bytes);
                buf_clear(&d->encoding);
                d->odd_encoding = true;
                d->field = FIELD_OTHER;
            }
            return;
        }
        if (d->field == FIELD_REPEATED) {
            return;
        }
        if (d->field == FIELD_TYPE) {
            (void)buf_add(&d->type, bytes);
        }
        put(out, bytes);
        return;
    case PLACE_KEPT:
    case PLACE_PREAMBLE:
    case PLACE_EPILOGUE:
        for (size_t i = 0; i < bytes.len; i++) {
            bool bad = is_8bit(bytes.ptr[i]);

            d->unfit = d->unfit || (bad && is_signed);
            CHECK(buf_add_byte(out, bad && d->place != PLACE_KEPT ? '?' : bytes.ptr[i]));
        }
        return;
    case PLACE_TEXT:
        for (size_t i = 0; i < bytes.len; i++) {
            qp_byte(d, bytes.ptr[i], out);
        }
        return;
    }
}

/* Passes on the field that waited, unless the body got another encoding. */
static void put_encoding(struct downgrade *d, const char *changed, struct buf *out)
{
    if (changed != NULL) {
        CHECK(buf_addf(out, "Content-Transfer-Encoding: %s\r\n", changed));
    } else {
        put(out, buf_slice(&d->encoding));
    }
}

/* Returns the type of the current body. A part of a multipart/digest is a message by default (RFC
 * 2046, 5.1.5). */
static enum type type_of_body(const struct downgrade *d, struct multipart *ret_part)
{
    if (!d->has_type && !d->of_message && d->depth > 0 && d->open[d->depth - 1].is_digest) {
        return TYPE_MESSAGE;
    }
    return read_type(buf_slice(&d->type), ret_part);
}

/* Ends a header section and enters its body. */
static void end_fields(struct downgrade *d, struct slice empty_line, struct buf *out)
{
    struct multipart part = {0};
    enum type type = type_of_body(d, &part);
    bool encoded = d->odd_encoding || (d->has_encoding && is_encoded(buf_slice(&d->encoding)));
    bool keep = in_signed(d) || encoded;
    bool become_mime = d->of_message && !d->has_version;
    bool followed = false;
    const char *changed = NULL;

    d->place = PLACE_KEPT;
    switch (type) {
    case TYPE_PLAIN:
        if (!keep) {
            d->place = PLACE_TEXT;
            changed = "quoted-printable";
        }
        break;
    case TYPE_MULTIPART:
    case TYPE_MESSAGE:
        /* A multipart can't be encoded, whatever its field contains (RFC 2045, 6.4). */
        followed = type == TYPE_MESSAGE ? !encoded : d->depth < DEPTH_MAX;
        changed = followed && !keep && d->has_encoding ? "7bit" : NULL;
        break;
    case TYPE_KEPT:
        break;
    }
    if (become_mime && !keep && (followed || d->place == PLACE_TEXT)) {
        put(out, SLICE("MIME-Version: 1.0\r\n"));
        if (!d->has_type) {
            put(out, SLICE("Content-Type: text/plain; charset=unknown-8bit\r\n"));
        }
    }
    put_encoding(d, changed, out);
    put(out, empty_line);
    d->column = 0;
    d->after_break = false;
    if (followed && type == TYPE_MULTIPART) {
        d->open[d->depth++] = part;
        d->place = PLACE_PREAMBLE;
    } else if (followed) {
        begin_fields(d, true);
    }
}

/* Is the line a boundary of an open multipart? It then ends the inner ones. */
static bool is_boundary(struct downgrade *d, struct slice line, bool *ret_last)
{
    if (!slice_starts(line, SLICE("--"))) {
        return false;
    }
    line = slice_skip(line, 2);
    for (size_t i = d->depth; i-- > 0;) {
        struct slice boundary = slice_of(d->open[i].boundary, d->open[i].len);

        if (slice_starts(line, boundary)) {
            struct slice rest = slice_skip(line, boundary.len);

            *ret_last = slice_starts(rest, SLICE("--"));
            if (slice_trim(slice_skip(rest, *ret_last ? 2 : 0)).len == 0) {
                d->depth = i + 1;
                return true;
            }
        }
    }
    return false;
}

/* Chooses the field that begins with the line. */
static enum field field_of(struct downgrade *d, struct slice line)
{
    size_t colon = slice_find(line, ':');
    struct slice name = slice_trim(slice_of(line.ptr, colon));

    if (colon == line.len) {
        return FIELD_OTHER; /* not a field */
    }
    if (slice_equal_nocase(name, SLICE("MIME-Version"))) {
        d->has_version = true;
    } else if (slice_equal_nocase(name, SLICE("Content-Transfer-Encoding"))) {
        bool repeated = d->has_encoding;

        d->has_encoding = true;
        return repeated ? FIELD_REPEATED : FIELD_ENCODING;
    } else if (slice_equal_nocase(name, SLICE("Content-Type")) && !d->has_type) {
        d->has_type = true;
        return FIELD_TYPE;
    }
    return FIELD_OTHER;
}

/* Processes a line, with its end, or the first LOOK_MAX octets of it. */
static void on_line(struct downgrade *d, struct slice line, struct buf *out)
{
    struct slice text = line;
    bool last;

    if (is_boundary(d, line, &last)) {
        if (d->place == PLACE_FIELDS) {
            put_encoding(d, NULL, out); /* a part without a body */
        }
        put(out, line);
        if (last) {
            d->depth--;
            d->place = PLACE_EPILOGUE;
        } else {
            begin_fields(d, false);
        }
        return;
    }
    if (d->place != PLACE_FIELDS) {
        on_bytes(d, line, out);
        return;
    }
    if (slice_trim(line).len == 0 && (line.ptr[0] == '\r' || line.ptr[0] == '\n')) {
        end_fields(d, line, out);
        return;
    }
    if (line.ptr[0] != ' ' && line.ptr[0] != '\t') {
        d->field = field_of(d, line);
        if (d->field == FIELD_TYPE) {
            size_t colon = slice_find(line, ':') + 1;

            put(out, slice_of(line.ptr, colon));
            text = slice_skip(line, colon);
        }
    }
    on_bytes(d, text, out);
}

void downgrade_add(struct downgrade *d, struct slice in, struct buf *out)
{
    while (in.len > 0) {
        const char *lf = memchr(in.ptr, '\n', in.len);
        size_t len = lf != NULL ? (size_t)(lf - in.ptr) + 1 : in.len;

        if (d->in_line) {
            on_bytes(d, slice_of(in.ptr, len), out);
            d->in_line = lf == NULL;
            in = slice_skip(in, len);
            continue;
        }
        if (len > LOOK_MAX - buf_len(&d->line)) {
            len = LOOK_MAX - buf_len(&d->line);
            lf = NULL;
            d->in_line = true;
        }
        CHECK(buf_add(&d->line, slice_of(in.ptr, len)));
        if (lf != NULL || d->in_line) {
            on_line(d, buf_slice(&d->line), out);
            buf_clear(&d->line);
        }
        in = slice_skip(in, len);
    }
}

void downgrade_finish(struct downgrade *d, struct buf *out)
{
    if (buf_len(&d->line) > 0) {
        on_line(d, buf_slice(&d->line), out);
        buf_clear(&d->line);
    }
    if (d->place == PLACE_FIELDS) {
        put_encoding(d, NULL, out);
    }
    qp_release(d, true, out);
}
