/*
 * Method. The header section is read in pieces: a line, or CLEANUP_PIECE bytes of a longer one. A
 * piece that begins a line decides what the line is; the pieces of a field are held until a line
 * begins that does not continue it.
 *
 *   TOP ---`From ' line--> FROM_LINE --end of the line--> TOP
 *    |  \
 *    |   +--field--> HEADER --any other line, or the empty one--> BODY
 *    +----------------------any other line, or the empty one------^
 *
 * In BODY, all bytes pass unread.
 */
#include "cleanup.h"

#include <string.h>

#include "check.h"

static const struct slice line_end = {"\r\n", 2};

/* Kinds of fields. */
enum field_kind {
    FIELD_REMOVED = 1 << 8, /* the lower bits are of enum header_presence */
    FIELD_SENDERS = 1 << 9,
    FIELD_RCPTS = 1 << 10,
};

static const struct {
    const char *name;
    unsigned kind;
} kinds[] = {
    {"Bcc", FIELD_REMOVED},
    {"Resent-Bcc", FIELD_REMOVED},
    {"Return-Path", FIELD_REMOVED},
    {"Content-Length", FIELD_REMOVED},
    {"Date", HEADER_DATE},
    {"Message-ID", HEADER_MESSAGE_ID},
    {"From", HEADER_FROM | FIELD_SENDERS},
    {"To", FIELD_RCPTS},
    {"Cc", FIELD_RCPTS},
    {"Sender", FIELD_SENDERS},
    {"Reply-To", FIELD_SENDERS},
    {"Mail-Followup-To", FIELD_SENDERS},
    {"Errors-To", FIELD_SENDERS},
    {"Apparently-To", FIELD_RCPTS},
    {"Return-Receipt-To", FIELD_SENDERS},
    {"Disposition-Notification-To", FIELD_SENDERS},
    {"Resent-From", FIELD_SENDERS},
    {"Resent-Sender", FIELD_SENDERS},
    {"Resent-Reply-To", FIELD_SENDERS},
    {"Resent-To", FIELD_RCPTS},
    {"Resent-Cc", FIELD_RCPTS},
};

void cleanup_begin(struct cleanup *c, const struct cleanup_rules *rules)
{
    uint64_t max;

    cleanup_fini(c);
    *c = (struct cleanup){.rules = *rules, .place = CLEANUP_TOP};
    max = rules->field_bytes < CLEANUP_FIELD_MAX ? rules->field_bytes : CLEANUP_FIELD_MAX;
    c->rules.field_bytes = max;
    /* A line of one blank counts as two bytes and has three. */
    buf_init(&c->held, 2 * (size_t)max + 3 * CLEANUP_PIECE);
    buf_init(&c->room, (size_t)max + 2 * CLEANUP_PIECE + CLEANUP_COMPLETED_MAX);
}

void cleanup_fini(struct cleanup *c)
{
    buf_fini(&c->held);
    buf_fini(&c->room);
}

size_t cleanup_held(const struct cleanup *c)
{
    return buf_len(&c->held);
}

static void put(struct cleanup *c, struct slice bytes)
{
    if (bytes.len > 0) {
        c->written += bytes.len;
        c->rules.put(c->rules.arg, bytes);
    }
}

/* ---- addresses ------------------------------------------------------------------------------ */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Address that is being read: of an angle bracket, or of a list element without one. */
struct mailbox {
    size_t words; /* separated by blanks or comments */
    size_t start, end;
    bool in_word;
    bool has_domain;
    bool left; /* it has a form that is not changed, or was changed */
};

/* The addresses of a field. */
struct addresses {
    const struct cleanup_rules *rules;
    bool of_sender;
    struct slice value;
    size_t copied; /* bytes of `value` that are in `out` */
    struct buf *out;
};

/* Returns the offset after the quoted string, comment or domain literal that begins at `at`; 0 if
 * that has no end. */
static size_t skip_quoted(struct slice s, size_t at)
{
    char open = s.ptr[at], close = open == '(' ? ')' : open == '[' ? ']' : '"';
    size_t depth = 0;

    for (; at < s.len; at++) {
        if (s.ptr[at] == '\\') {
            at++;
        } else if (s.ptr[at] == close && (open != '"' || depth > 0)) {
            if (--depth == 0) {
                return at + 1;
            }
        } else if (s.ptr[at] == open) {
            depth++;
        }
    }
    return 0;
}

/* Appends the origin at the end of the address if it has no domain, and writes its canonical form,
 * unless it is none: an encoded word, several words, or nothing. */
static void finish_mailbox(struct mailbox *m, struct addresses *a)
{
    struct slice word = slice_of(a->value.ptr + m->start, m->end - m->start), form;
    char room[ADDRESS_MAX];
    struct buf whole;

    if (!m->left && m->words == 1 && !slice_starts(word, SLICE("=?"))) {
        buf_init(&whole, word.len + ADDRESS_MAX);
        (void)buf_add(&whole, word); /* fits, as does the next */
        if (!m->has_domain) {
            (void)buf_addf(&whole, "@%.*s", SLICE_ARGS(a->rules->origin));
        }
        form = a->rules->canonical == NULL
                   ? buf_slice(&whole)
                   : a->rules->canonical(a->rules->arg, a->of_sender, buf_slice(&whole), room);
        (void)buf_add(a->out,
                      slice_of(a->value.ptr + a->copied, m->start - a->copied)); /* sticky */
        (void)buf_add(a->out, form);
        buf_fini(&whole);
        a->copied = m->end;
    }
    *m = (struct mailbox){.words = 0};
}

static void add_word(struct mailbox *m, size_t start, size_t end)
{
    if (!m->in_word) {
        m->words++;
        m->start = start;
    }
    m->in_word = true;
    m->end = end;
}

/* Writes the value of a field with the changed addresses (RFC 5322, 3.4). Returns false if it is no
 * list of addresses; the output is then of no use. */
static bool change_addresses(struct addresses *a)
{
    const struct slice value = a->value;
    struct mailbox m = {.words = 0};
    bool in_angle = false;
    size_t at = 0;

    while (at < value.len) {
        char byte = value.ptr[at];
        size_t next = at + 1;

        if (byte == '"' || byte == '(' || byte == '[') {
            next = skip_quoted(value, at);
            if (next == 0) {
                return false;
            }
        }
        if (is_blank(byte) || byte == '\r' || byte == '\n' || byte == '(') {
            m.in_word = false;
        } else if (byte == '<') {
            if (in_angle) {
                return false;
            }
            in_angle = true;
            m = (struct mailbox){.words = 0};
        } else if (byte == '>') {
            if (!in_angle) {
                return false;
            }
            in_angle = false;
            finish_mailbox(&m, a);
            m.left = true; /* the list element has its address */
        } else if ((byte == ',' || byte == ';') && !in_angle) {
            finish_mailbox(&m, a);
        } else if (byte == ':' && !in_angle) {
            m = (struct mailbox){.words = 0}; /* the name of a group */
        } else {
            m.left = m.left || (byte == '@' && m.has_domain) || strchr("!%:,;\\", byte) != NULL;
            m.has_domain = m.has_domain || byte == '@' || byte == '[';
            add_word(&m, at, next);
        }
        at = next;
    }
    if (in_angle) {
        return false;
    }
    finish_mailbox(&m, a);
    (void)buf_add(a->out, slice_skip(value, a->copied)); /* errors are sticky */
    return !a->out->failed;
}

/* Passes on a field of addresses, changed if it then stays within its limits. The decision depends
 * on the result alone, so that a second clean-up decides the same. */
static void put_addresses(struct cleanup *c, struct slice field, bool of_sender)
{
    size_t colon = slice_find(field, ':') + 1;
    struct addresses a = {.rules = &c->rules,
                          .of_sender = of_sender,
                          .value = slice_skip(field, colon),
                          .out = &c->room};
    size_t grown;

    buf_clear(&c->room);
    (void)buf_add(&c->room, slice_of(field.ptr, colon)); /* errors are sticky */
    if (!change_addresses(&a)) {
        put(c, field);
        return;
    }
    grown = buf_len(&c->room) > field.len ? buf_len(&c->room) - field.len : 0;
    if (grown > 0 &&
        (c->counted > c->rules.field_bytes || grown > c->rules.field_bytes - c->counted ||
         c->written + buf_len(&c->room) > CLEANUP_COMPLETED_MAX)) {
        put(c, field);
    } else {
        put(c, buf_slice(&c->room));
    }
}

/* ---- fields --------------------------------------------------------------------------------- */

/* Returns the length of the name of a field that begins with `text`; 0: it begins no field. */
static size_t name_length(struct slice text)
{
    size_t len = 0, colon;

    while (len < text.len && text.ptr[len] > ' ' && text.ptr[len] < 127 && text.ptr[len] != ':') {
        len++;
    }
    colon = len;
    while (colon < text.len && is_blank(text.ptr[colon])) {
        colon++;
    }
    return colon < text.len && text.ptr[colon] == ':' ? len : 0;
}

static unsigned kind_of(struct slice name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (slice_equal_nocase(name, slice_string(kinds[i].name))) {
            return kinds[i].kind;
        }
    }
    return 0;
}

/* Passes on the held field, or drops it. */
static void end_field(struct cleanup *c)
{
    struct slice field = slice_of(buf_slice(&c->held).ptr, c->field_len);
    unsigned kind;

    if (field.len == 0) {
        return;
    }
    kind = kind_of(slice_of(field.ptr, name_length(field)));
    c->present |= kind & (HEADER_FROM | HEADER_DATE | HEADER_MESSAGE_ID);
    if ((kind & (FIELD_SENDERS | FIELD_RCPTS)) != 0 && c->rules.origin.len > 0) {
        put_addresses(c, field, (kind & FIELD_SENDERS) != 0);
    } else if ((kind & FIELD_REMOVED) == 0) {
        put(c, field);
    }
    buf_consume(&c->held, c->field_len);
    c->field_len = 0;
}

static void put_missing(struct cleanup *c)
{
    const unsigned all = HEADER_FROM | HEADER_DATE | HEADER_MESSAGE_ID;
    struct header_missing values = {.from = {"", 0}};
    struct buf fields;

    if (c->rules.values == NULL || (c->present & all) == all) {
        return;
    }
    c->rules.values(c->rules.arg, &values);
    buf_init(&fields, CLEANUP_MISSING_MAX);
    CHECK(header_put_missing(c->present, &values, &fields)); /* all parts have limits */
    put(c, buf_slice(&fields));
    buf_fini(&fields);
}

/* Passes on the held piece, the first of the body. `is_empty`: it is the empty line. */
static void begin_body(struct cleanup *c, bool is_empty)
{
    put_missing(c);
    if (!is_empty) {
        put(c, line_end);
    }
    c->place = CLEANUP_BODY;
    put(c, buf_slice(&c->held));
    buf_clear(&c->held);
}

/* ---- pieces --------------------------------------------------------------------------------- */

/* Is it the separator of a mailbox file, perhaps quoted, which old mail has on top? */
static bool is_from_line(struct slice text)
{
    while (text.len > 0 && text.ptr[0] == '>') {
        text = slice_skip(text, 1);
    }
    return slice_starts(text, SLICE("From ")) && name_length(text) == 0;
}

/* Ends the last line of the field, if it has no end. */
static void end_last_line(struct cleanup *c)
{
    const char *end = buf_slice(&c->held).ptr + c->field_len;

    CHECK(buf_len(&c->held) == c->field_len);
    if (c->field_len < line_end.len ||
        memcmp(end - line_end.len, line_end.ptr, line_end.len) != 0) {
        CHECK(buf_add(&c->held, line_end));
    }
    c->field_len = buf_len(&c->held);
}

/* Adds the held piece, of `len` bytes without line end, to the field. Leaves out bytes over the
 * limit, and all after them. */
static void extend_field(struct cleanup *c, size_t len, bool ends_line)
{
    uint64_t max = c->rules.field_bytes, room = max > c->counted ? max - c->counted : 0;
    uint64_t joint = c->field_len > 0 && !c->in_line; /* the line end before the piece counts */

    if (c->field_len == 0) { /* the name of a field is never cut */
        size_t name = slice_find(buf_slice(&c->held), ':') + 1;

        room = room > name ? room : name;
    }
    if (room >= len + joint) {
        c->counted += len + joint;
        c->field_len = buf_len(&c->held);
        return;
    }
    len = room > joint ? (size_t)(room - joint) : 0;
    c->counted = UINT64_MAX;
    c->field_len += len;
    buf_truncate(&c->held, c->field_len);
    if (ends_line) {
        end_last_line(c);
    }
}

/* Handles a piece that begins a line and does not continue a field. */
static void begin_line(struct cleanup *c, size_t len, bool ends_line)
{
    struct slice text = slice_of(buf_slice(&c->held).ptr, len);

    if (c->place == CLEANUP_TOP && is_from_line(text)) {
        buf_clear(&c->held);
        c->place = ends_line ? CLEANUP_TOP : CLEANUP_FROM_LINE;
    } else if (name_length(text) > 0) {
        c->place = CLEANUP_HEADER;
        c->counted = 0;
        extend_field(c, len, ends_line);
    } else {
        begin_body(c, ends_line && len == 0);
    }
}

/* Handles the held piece, of `len` bytes without line end. */
static void end_piece(struct cleanup *c, size_t len, bool ends_line)
{
    bool continues = c->in_line || (c->field_len > 0 && len > 0 &&
                                    is_blank(buf_slice(&c->held).ptr[c->field_len]));

    if (c->place == CLEANUP_FROM_LINE) {
        buf_clear(&c->held);
        c->place = ends_line ? CLEANUP_TOP : CLEANUP_FROM_LINE;
    } else if (continues) {
        extend_field(c, len, ends_line);
    } else {
        end_field(c);
        begin_line(c, len, ends_line);
    }
    c->in_line = !ends_line;
}

/* Handles the first CLEANUP_PIECE bytes of what is held as a piece, and holds the one or two after
 * them. */
static void split_piece(struct cleanup *c)
{
    struct slice rest = slice_skip(buf_slice(&c->held), c->field_len + CLEANUP_PIECE);
    char tail[2];

    CHECK(rest.len > 0);
    CHECK(rest.len <= sizeof tail);
    memcpy(tail, rest.ptr, rest.len);
    buf_truncate(&c->held, c->field_len + CLEANUP_PIECE);
    end_piece(c, CLEANUP_PIECE, false);
    if (c->place == CLEANUP_BODY) {
        put(c, slice_of(tail, rest.len));
    } else {
        CHECK(buf_add(&c->held, slice_of(tail, rest.len)));
    }
}

/* Reads up to the end of a piece. */
static void read_piece(struct cleanup *c, struct slice *in)
{
    const size_t full = CLEANUP_PIECE + line_end.len;
    size_t len = buf_len(&c->held) - c->field_len, take;
    struct slice piece;

    take = slice_find(*in, '\n') + 1;
    take = take < in->len ? take : in->len;
    take = take < full - len ? take : full - len;
    CHECK(buf_add(&c->held, slice_of(in->ptr, take)));
    *in = slice_skip(*in, take);
    piece = slice_skip(buf_slice(&c->held), c->field_len);
    if (piece.len >= line_end.len &&
        memcmp(piece.ptr + piece.len - line_end.len, line_end.ptr, line_end.len) == 0) {
        end_piece(c, piece.len - line_end.len, true);
    } else if (piece.len == full) {
        split_piece(c);
    }
}

void cleanup_feed(struct cleanup *c, struct slice content)
{
    while (content.len > 0 && c->place != CLEANUP_BODY) {
        read_piece(c, &content);
    }
    put(c, content);
}

void cleanup_end(struct cleanup *c)
{
    if (c->place != CLEANUP_BODY && buf_len(&c->held) - c->field_len > CLEANUP_PIECE) {
        split_piece(c);
    }
    if (c->place != CLEANUP_BODY && buf_len(&c->held) > c->field_len) {
        end_piece(c, buf_len(&c->held) - c->field_len, false);
    }
    if (c->place == CLEANUP_BODY) {
        return;
    }
    if (c->field_len > 0) {
        end_last_line(c);
    }
    end_field(c);
    put_missing(c);
    c->place = CLEANUP_BODY;
}
