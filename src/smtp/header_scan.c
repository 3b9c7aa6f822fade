#include "header_scan.h"

#include "check.h"

void header_scan_init(struct header_scan *s)
{
    *s = (struct header_scan){.place = HEADER_SCAN_LINE_START};
}

void header_scan_fini(struct header_scan *s)
{
    for (size_t i = 0; i < s->count; i++) {
        buf_fini(&s->fields[i].value);
    }
    header_scan_init(s);
}

size_t header_scan_want(struct header_scan *s, struct slice name, size_t value_max)
{
    CHECK(s->count < HEADER_SCAN_FIELDS_MAX);
    CHECK(s->bytes == 0);
    CHECK(name.len > 0);
    s->fields[s->count] = (struct header_scan_field){.name = name, .value_max = value_max};
    buf_init(&s->fields[s->count].value, value_max);
    return s->count++;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_name_byte(char c)
{
    return c > ' ' && c < 127 && c != ':';
}

static void name_begin(struct header_scan *s)
{
    s->place = HEADER_SCAN_NAME;
    s->in_field = false;
    s->matching = (1u << s->count) - 1;
    s->name_len = 0;
}

static void name_add(struct header_scan *s, char c)
{
    for (size_t i = 0; i < s->count; i++) {
        struct slice name = s->fields[i].name;

        if (s->name_len >= name.len || ascii_lower(name.ptr[s->name_len]) != ascii_lower(c)) {
            s->matching &= ~(1u << i);
        }
    }
    s->name_len++;
}

/* Starts a value, at the colon. */
static void value_begin(struct header_scan *s)
{
    s->in_field = true;
    s->after_cr = false;
    s->field = s->count;
    for (size_t i = 0; i < s->count; i++) {
        if ((s->matching & 1u << i) != 0 && s->name_len == s->fields[i].name.len &&
            !s->fields[i].found) {
            s->fields[i].found = true;
            s->field = i;
        }
    }
    s->place = s->field < s->count ? HEADER_SCAN_VALUE : HEADER_SCAN_SKIP;
}

/* Cuts the line, or its part in the input, from the front of *in. Returns true if its end is
 * there. */
static bool take_line(struct slice *in, struct slice *ret_line)
{
    size_t lf = slice_find(*in, '\n');
    bool whole = lf < in->len;

    *ret_line = slice_of(in->ptr, lf);
    *in = slice_skip(*in, whole ? lf + 1 : lf);
    return whole;
}

/* Adds to a value, up to its limit; blanks in front of the value are dropped. */
static void value_add(struct header_scan_field *f, struct slice bytes)
{
    size_t room;

    while (buf_len(&f->value) == 0 && bytes.len > 0 &&
           (is_blank(bytes.ptr[0]) || bytes.ptr[0] == '\r')) {
        bytes = slice_skip(bytes, 1);
    }
    room = f->value_max - buf_len(&f->value);
    (void)buf_add(&f->value, slice_of(bytes.ptr, bytes.len < room ? bytes.len : room)); /* fits */
}

static void value_feed(struct header_scan *s, struct slice *in)
{
    struct header_scan_field *f = &s->fields[s->field];
    struct slice line;
    bool whole = take_line(in, &line);

    if (s->after_cr && !(whole && line.len == 0)) {
        value_add(f, SLICE("\r"));
    }
    s->after_cr = line.len > 0 && line.ptr[line.len - 1] == '\r';
    if (s->after_cr) {
        line.len--;
    }
    value_add(f, line);
    if (whole) {
        s->after_cr = false;
        s->place = HEADER_SCAN_LINE_START;
    }
}

static void line_start(struct header_scan *s, char c)
{
    if (is_blank(c) && s->in_field) {
        s->place = s->field < s->count ? HEADER_SCAN_VALUE : HEADER_SCAN_SKIP;
    } else if (is_name_byte(c)) {
        name_begin(s);
    } else {
        s->place = HEADER_SCAN_ENDED;
    }
}

void header_scan_feed(struct header_scan *s, struct slice in)
{
    struct slice line;
    uint32_t left = HEADER_SCAN_BYTES_MAX - s->bytes;
    bool more = in.len > left;

    in.len = more ? left : in.len;
    s->bytes += s->place == HEADER_SCAN_ENDED ? 0 : (uint32_t)in.len;
    while (in.len > 0 && s->place != HEADER_SCAN_ENDED) {
        switch (s->place) {
        case HEADER_SCAN_LINE_START:
            line_start(s, in.ptr[0]); /* the byte is left for the next place */
            break;
        case HEADER_SCAN_NAME:
        case HEADER_SCAN_COLON:
            if (in.ptr[0] == ':') {
                value_begin(s);
            } else if (is_blank(in.ptr[0])) {
                s->place = HEADER_SCAN_COLON;
            } else if (s->place == HEADER_SCAN_NAME && is_name_byte(in.ptr[0])) {
                name_add(s, in.ptr[0]);
            } else {
                s->place = HEADER_SCAN_ENDED;
            }
            in = slice_skip(in, 1);
            break;
        case HEADER_SCAN_VALUE:
            value_feed(s, &in);
            break;
        case HEADER_SCAN_SKIP:
            if (take_line(&in, &line)) {
                s->place = HEADER_SCAN_LINE_START;
            }
            break;
        case HEADER_SCAN_ENDED:
            UNREACHABLE("the loop does not run then");
        }
    }
    if (more && s->place != HEADER_SCAN_ENDED) {
        s->cut = true;
        s->place = HEADER_SCAN_ENDED;
    }
}

bool header_scan_found(const struct header_scan *s, size_t number)
{
    CHECK(number < s->count);
    return s->fields[number].found;
}

struct slice header_scan_value(const struct header_scan *s, size_t number)
{
    CHECK(number < s->count);
    return slice_trim(buf_slice(&s->fields[number].value));
}

bool header_scan_was_cut(const struct header_scan *s)
{
    return s->cut;
}
