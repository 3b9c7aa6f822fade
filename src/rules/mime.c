#include "mime.h"

#include <string.h>

#include "mem.h"

/* Longer tokens of a Content-Type are unknown. */
#define TOKEN_MAX 64

static void reset(struct mime *m)
{
    mem_free(m->boundary);
    m->boundary = NULL;
    m->is_message = m->is_encoded = m->is_digest = m->has_type = false;
}

void mime_init(struct mime *m)
{
    *m = (struct mime){.place = MIME_HEADER};
}

static void pop(struct mime *m, size_t depth)
{
    while (m->depth > depth) {
        mem_free(m->levels[--m->depth].boundary);
    }
}

void mime_fini(struct mime *m)
{
    pop(m, 0);
    reset(m);
}

/* ---- the value of a field: tokens, quoted strings, comments (RFC 2045, 5.1) ------------------ */

static void skip_blanks(struct slice *s)
{
    unsigned depth = 0;

    for (; s->len > 0; *s = slice_skip(*s, 1)) {
        char c = s->ptr[0];

        if (c == '(') {
            depth++;
        } else if (c == ')' && depth > 0) {
            depth--;
        } else if (c == '\\' && depth > 0) {
            *s = slice_skip(*s, 1);
        } else if (depth == 0 && c != ' ' && c != '\t' && c != '\r' && c != '\n') {
            return;
        }
    }
}

static bool is_token(char c)
{
    return (unsigned char)c > ' ' && strchr("()<>@,;:\\\"/[]?=", c) == NULL;
}

/* Copies a token or a quoted string into `room`, at most `max` bytes. */
static struct slice take_value(struct slice *s, char *room, size_t max)
{
    size_t len = 0;
    bool quoted;

    skip_blanks(s);
    quoted = s->len > 0 && s->ptr[0] == '"';
    *s = slice_skip(*s, quoted ? 1 : 0);
    while (s->len > 0 && (quoted ? s->ptr[0] != '"' : is_token(s->ptr[0]))) {
        if (quoted && s->ptr[0] == '\\' && s->len > 1) {
            *s = slice_skip(*s, 1);
        }
        if (len < max && s->ptr[0] != '\r' && s->ptr[0] != '\n') {
            room[len++] = s->ptr[0];
        }
        *s = slice_skip(*s, 1);
    }
    *s = slice_skip(*s, quoted ? 1 : 0);
    return slice_of(room, len);
}

static bool take_char(struct slice *s, char c)
{
    skip_blanks(s);
    if (s->len == 0 || s->ptr[0] != c) {
        return false;
    }
    *s = slice_skip(*s, 1);
    return true;
}

static void read_type(struct mime *m, struct slice value)
{
    char type_room[TOKEN_MAX], subtype_room[TOKEN_MAX], name_room[TOKEN_MAX];
    char boundary[MIME_BOUNDARY_MAX];
    struct slice type = take_value(&value, type_room, sizeof type_room), subtype = SLICE(""), name;

    reset(m);
    m->has_type = true;
    if (take_char(&value, '/')) {
        subtype = take_value(&value, subtype_room, sizeof subtype_room);
    }
    m->is_message = slice_equal_nocase(type, SLICE("message")) &&
                    (slice_equal_nocase(subtype, SLICE("rfc822")) ||
                     slice_equal_nocase(subtype, SLICE("global")));
    if (!slice_equal_nocase(type, SLICE("multipart"))) {
        return;
    }
    m->is_digest = slice_equal_nocase(subtype, SLICE("digest"));
    while (m->boundary == NULL && value.len > 0) {
        if (!take_char(&value, ';')) {
            value = slice_skip(value, 1); /* not a token: skip it */
            continue;
        }
        name = take_value(&value, name_room, sizeof name_room);
        if (take_char(&value, '=')) {
            struct slice text = take_value(&value, boundary, sizeof boundary);

            if (slice_equal_nocase(name, SLICE("boundary"))) {
                m->boundary = mem_copy(text.ptr, text.len);
            }
        }
    }
}

void mime_field(struct mime *m, struct slice field)
{
    size_t colon = slice_find(field, ':');
    struct slice name = slice_trim(slice_of(field.ptr, colon));
    struct slice value = slice_skip(field, colon + 1);
    char room[TOKEN_MAX];

    if (slice_equal_nocase(name, SLICE("Content-Type"))) {
        bool encoded = m->is_encoded;

        read_type(m, value);
        m->is_encoded = encoded;
    } else if (slice_equal_nocase(name, SLICE("Content-Transfer-Encoding"))) {
        struct slice encoding = take_value(&value, room, sizeof room);

        m->is_encoded = !slice_equal_nocase(encoding, SLICE("7bit")) &&
                        !slice_equal_nocase(encoding, SLICE("8bit")) &&
                        !slice_equal_nocase(encoding, SLICE("binary"));
    }
}

bool mime_header_ended(struct mime *m)
{
    bool in_digest = m->place == MIME_PART_HEADER && m->depth > 0 &&
                     m->levels[m->depth - 1].digest && !m->has_type;
    bool fits = true;

    if (m->boundary != NULL) {
        fits = m->depth < MIME_DEPTH_MAX;
        if (fits) {
            m->levels[m->depth++] = (struct mime_level){
                .boundary = m->boundary, .len = strlen(m->boundary), .digest = m->is_digest};
            m->boundary = NULL;
        }
        m->place = MIME_BODY;
    } else {
        m->place = (m->is_message || in_digest) && !m->is_encoded ? MIME_NESTED_HEADER : MIME_BODY;
    }
    reset(m);
    return fits;
}

bool mime_boundary(struct mime *m, struct slice line)
{
    if (!slice_starts(line, SLICE("--"))) {
        return false;
    }
    line = slice_skip(line, 2);
    for (size_t i = m->depth; i-- > 0;) {
        const struct mime_level *level = &m->levels[i];

        if (slice_starts(line, slice_of(level->boundary, level->len))) {
            bool closing = slice_starts(slice_skip(line, level->len), SLICE("--"));

            pop(m, closing ? i : i + 1);
            reset(m);
            m->place = closing ? MIME_BODY : MIME_PART_HEADER;
            return true;
        }
    }
    return false;
}

bool mime_has_boundary(const struct mime *m)
{
    return m->depth > 0;
}
