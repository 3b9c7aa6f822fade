#include "json_document.h"

#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "mem.h"

#define MARK        '\x7f'
#define FILLER      "a string with a mistake "
#define FILLER_LEN  (sizeof FILLER - 1)
#define NUMBER_SIZE 24
#define ESCAPE_LEN  6u /* "\\uXXXX" */
/* Size of the room for a string whose length is not known yet. */
#define SIMPLE_AT_ONCE 4096u
/* Depth of the document's members. */
#define ARRAY_DEPTH 2u

_Static_assert(FILLER_LEN > 20, "the parser shows shorter tokens in its messages");
_Static_assert(JSON_LONG_MIN > 20 && JSON_LONG >= JSON_LONG_MIN, "likewise");

void json_document_init(struct json_document *d, const char *const *names, size_t limit,
                        size_t long_bytes)
{
    CHECK(long_bytes >= JSON_LONG_MIN);
    *d = (struct json_document){.limit = limit, .long_bytes = long_bytes};
    while (names[d->array_count] != NULL) {
        CHECK(d->array_count < JSON_ARRAYS_MAX);
        d->arrays[d->array_count].name = names[d->array_count];
        d->array_count++;
    }
    /* A mark or filler is not longer than its string, except for DEL at the start of a short
     * one. */
    buf_init(&d->rest, limit > SIZE_MAX / 8 ? SIZE_MAX : 4 * limit + NUMBER_SIZE);
    buf_init(&d->texts, limit);
}

void json_document_fini(struct json_document *d)
{
    buf_fini(&d->rest);
    buf_fini(&d->texts);
    mem_free(d->aside);
    d->aside = NULL;
    d->aside_count = d->aside_size = 0;
}

uint64_t json_document_memory(const struct json_document *d)
{
    return buf_len(&d->rest) + buf_len(&d->texts) + d->aside_count * sizeof *d->aside;
}

static void put_rest(struct json_document *d, const char *ptr, size_t len)
{
    CHECK(buf_add(&d->rest, slice_of(ptr, len))); /* within the limit */
}

static void put_text(struct json_document *d, const char *ptr, size_t len)
{
    CHECK(buf_add(&d->texts, slice_of(ptr, len))); /* not longer than the document */
}

/* ---- strings --------------------------------------------------------------------------------- */

/* Notes that `chars` characters of the document are replaced by the last `stand_in` characters of
 * `rest`. */
static void put_aside(struct json_document *d, size_t chars, size_t stand_in)
{
    d->aside = mem_grow(d->aside, d->aside_count, &d->aside_size, sizeof *d->aside);
    d->aside[d->aside_count++] = (struct json_aside){.at = d->text_at,
                                                     .len = buf_len(&d->texts) - d->text_at,
                                                     .rest_at = buf_len(&d->rest),
                                                     .chars = chars,
                                                     .stand_in = stand_in};
}

/* Copies the bytes before the first special one: not printable ASCII, a quote, or a backslash.
 * Eight bytes are checked as one number, in which bits of 0x80 may be set above the first special
 * byte, but never below it. Writes at most `len` bytes to `to`; returns the number of valid
 * ones. */
static size_t copy_plain(const char *from, char *to, size_t len)
{
    const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
    size_t n = 0;

    for (; n + 8 <= len; n += 8) {
        uint64_t w, quote, backslash, special;

        memcpy(&w, from + n, 8);
        memcpy(to + n, &w, 8);
        w = le64toh(w);
        quote = w ^ (ones * '"');
        backslash = w ^ (ones * '\\');
        special = (w | (w - ones * ' ') | (quote - ones) | (backslash - ones)) & highs;
        if (special != 0) {
            return n + (size_t)__builtin_ctzll(special) / 8;
        }
    }
    while (n < len && (unsigned char)from[n] >= ' ' && (unsigned char)from[n] < 0x80 &&
           from[n] != '"' && from[n] != '\\') {
        to[n] = from[n];
        n++;
    }
    return n;
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static void put_utf8(struct json_document *d, uint32_t code)
{
    char out[4];
    size_t len;

    if (code < 0x80) {
        out[0] = (char)code;
        len = 1;
    } else if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        len = 2;
    } else if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        len = 3;
    } else {
        out[0] = (char)(0xf0 | code >> 18);
        out[1] = (char)(0x80 | (code >> 12 & 0x3f));
        out[2] = (char)(0x80 | (code >> 6 & 0x3f));
        out[3] = (char)(0x80 | (code & 0x3f));
        len = 4;
    }
    put_text(d, out, len);
}

/* Notes the first mistake that the parser would find, as it decodes a string only after its end. */
__attribute__((format(printf, 2, 3))) static void note_code(struct json_document *d,
                                                            const char *format, ...)
{
    va_list args;

    if (!d->mistake_is_code) {
        d->mistake_is_code = true;
        va_start(args, format);
        (void)vsnprintf(d->mistake, sizeof d->mistake, format, args); /* fits */
        va_end(args);
    }
}

/* Ends the wait for a second surrogate, which is a mistake. */
static void end_high(struct json_document *d)
{
    if (d->high != 0) {
        note_code(d, "\\u%04X", (unsigned)d->high);
        d->high = 0;
    }
}

static void take_code(struct json_document *d, uint32_t code)
{
    if (d->high != 0) {
        if (code >= 0xdc00 && code <= 0xdfff) {
            put_utf8(d, 0x10000 + ((d->high - 0xd800) << 10) + (code - 0xdc00));
        } else {
            note_code(d, "\\u%04X\\u%04X", (unsigned)d->high, (unsigned)code);
        }
        d->high = 0;
    } else if (code >= 0xd800 && code <= 0xdbff) {
        d->high = code;
    } else if (code >= 0xdc00 && code <= 0xdfff) {
        note_code(d, "\\u%04X", (unsigned)code);
    } else if (code == 0) {
        if (d->mistake[0] == '\0') {
            (void)snprintf(d->mistake, sizeof d->mistake, "\\u0000"); /* fits */
        }
    } else {
        put_utf8(d, code);
    }
}

enum taken { TAKEN, MORE, MISTAKE };

/* Checks a UTF-8 character at `ptr` that is not ASCII. *ret_len is its length, or the length of the
 * mistake. */
static enum taken look_at_char(const char *ptr, size_t len, size_t *ret_len)
{
    unsigned char c = (unsigned char)ptr[0];
    size_t want = c >= 0xc2 && c <= 0xdf   ? 2
                  : c >= 0xe0 && c <= 0xef ? 3
                  : c >= 0xf0 && c <= 0xf4 ? 4
                                           : 0;
    uint32_t code = want == 2 ? c & 0x1fu : want == 3 ? c & 0x0fu : c & 0x07u;

    *ret_len = 1;
    if (want == 0) {
        return MISTAKE;
    }
    for (size_t i = 1; i < want; i++) {
        if (i == len) {
            return MORE;
        }
        *ret_len = i + 1;
        if (((unsigned char)ptr[i] & 0xc0) != 0x80) {
            return MISTAKE;
        }
        code = code << 6 | ((unsigned char)ptr[i] & 0x3fu);
    }
    if ((want == 3 && (code < 0x800 || (code >= 0xd800 && code <= 0xdfff))) ||
        (want == 4 && (code < 0x10000 || code > 0x10ffff))) {
        return MISTAKE;
    }
    return TAKEN;
}

static enum taken take_char(struct json_document *d, const char *ptr, size_t len, size_t *ret_len)
{
    enum taken taken = look_at_char(ptr, len, ret_len);

    if (taken == TAKEN) {
        end_high(d);
        put_text(d, ptr, *ret_len);
    }
    return taken;
}

/* Handles a byte of an escape that is not allowed, at `at`. The parser checks the byte's whole
 * character first. */
static enum taken wrong_escape(const char *ptr, size_t len, size_t at, size_t *ret_len)
{
    size_t more = 1;

    if ((unsigned char)ptr[at] >= 0x80 && look_at_char(ptr + at, len - at, &more) == MORE) {
        return MORE;
    }
    *ret_len = at + more;
    return MISTAKE;
}

/* Returns the byte that a backslash and `c` represent, or NUL if it is no such escape. */
static char escaped_byte(char c)
{
    static const char bytes[256] = {['"'] = '"',  ['\\'] = '\\', ['/'] = '/',  ['b'] = '\b',
                                    ['f'] = '\f', ['n'] = '\n',  ['r'] = '\r', ['t'] = '\t'};

    return bytes[(unsigned char)c];
}

/* Takes an escape at `ptr`. The result is as for look_at_char. */
static enum taken take_escape(struct json_document *d, const char *ptr, size_t len, size_t *ret_len)
{
    uint32_t code = 0;
    char byte;

    if (len < 2) {
        return MORE;
    }
    if (ptr[1] != 'u') {
        byte = escaped_byte(ptr[1]);
        if (byte == '\0') {
            return wrong_escape(ptr, len, 1, ret_len);
        }
        end_high(d);
        put_text(d, &byte, 1);
        *ret_len = 2;
        return TAKEN;
    }
    for (size_t i = 2; i < ESCAPE_LEN; i++) {
        int value;

        if (i == len) {
            return MORE;
        }
        value = hex_value(ptr[i]);
        if (value < 0) {
            return wrong_escape(ptr, len, i, ret_len);
        }
        code = code << 4 | (uint32_t)value;
    }
    take_code(d, code);
    *ret_len = ESCAPE_LEN;
    return TAKEN;
}

/* Takes a special byte at `ptr` that is not a quote. */
static enum taken take_special(struct json_document *d, const char *ptr, size_t len,
                               size_t *ret_len)
{
    unsigned char c = (unsigned char)ptr[0];

    if (c == '\\') {
        return take_escape(d, ptr, len, ret_len);
    }
    if (c >= 0x80) {
        return take_char(d, ptr, len, ret_len);
    }
    *ret_len = 1;
    return MISTAKE; /* control character */
}

static size_t count_chars(const char *ptr, size_t len)
{
    size_t chars = 0;

    for (size_t i = 0; i < len; i++) {
        chars += ((unsigned char)ptr[i] & 0xc0) != 0x80;
    }
    return chars;
}

/* Replaces the string, so that the parser finds this mistake at the right place. */
static void put_mistake(struct json_document *d, const char *ptr, size_t len)
{
    put_rest(d, FILLER, FILLER_LEN);
    buf_truncate(&d->texts, d->text_at);
    put_aside(d, d->string_chars, FILLER_LEN);
    put_rest(d, ptr, len);
    d->wrong = true;
    d->state = JSON_WRONG;
    /* The end of the string is found by quotes and backslashes alone; the last byte is read
     * again. */
    d->escaped = len == 2 && ptr[0] == '\\';
}

/* Ends a decoded string at its quote. */
static void end_long(struct json_document *d)
{
    end_high(d);
    if (d->mistake[0] != '\0') {
        size_t len = strlen(d->mistake);

        d->string_chars -= len; /* the parser reports the end of the string */
        put_mistake(d, d->mistake, len);
    } else {
        char mark[NUMBER_SIZE];
        int len = snprintf(mark, sizeof mark, "%c%zu", MARK, d->aside_count); /* fits */

        put_rest(d, mark, (size_t)len);
        put_aside(d, d->string_chars, (size_t)len);
    }
    put_rest(d, "\"", 1);
    d->state = JSON_OUTSIDE;
}

/* Takes one more byte of an escape or character that the input has split. */
static void take_held(struct json_document *d, struct slice *in)
{
    size_t len;

    CHECK(d->held_len < JSON_HELD_MAX);
    d->held[d->held_len++] = in->ptr[0];
    switch (take_special(d, d->held, d->held_len, &len)) {
    case MORE:
        *in = slice_skip(*in, 1);
        return;
    case TAKEN:
        *in = slice_skip(*in, 1);
        d->string_chars += count_chars(d->held, d->held_len);
        break;
    case MISTAKE:
        put_mistake(d, d->held, d->held_len);
        break;
    }
    d->held_len = 0;
}

/* Takes plain bytes and escapes of two bytes, which are most of a long string. Returns false if
 * there are none. */
static bool take_simple(struct json_document *d, struct slice *in)
{
    size_t most = in->len < SIMPLE_AT_ONCE ? in->len : SIMPLE_AT_ONCE;
    const char *at = in->ptr, *end = at + most;
    char *start = buf_room(&d->texts, most), *to = start;

    CHECK(start != NULL); /* not longer than the document */
    for (;;) {
        size_t len = copy_plain(at, to, (size_t)(end - at));
        char byte;

        to += len;
        at += len;
        if (end - at < 2 || *at != '\\' || (byte = escaped_byte(at[1])) == '\0') {
            break;
        }
        *to++ = byte;
        at += 2;
    }
    if (at > in->ptr) {
        end_high(d);
    }
    most = (size_t)(at - in->ptr);
    buf_grew(&d->texts, (size_t)(to - start));
    d->string_chars += most;
    *in = slice_skip(*in, most);
    return most > 0;
}

static void take_long(struct json_document *d, struct slice *in)
{
    size_t len;

    if (d->held_len > 0) {
        take_held(d, in);
        return;
    }
    if (take_simple(d, in)) {
        return;
    }
    if (in->ptr[0] == '"') {
        end_long(d);
        *in = slice_skip(*in, 1);
        return;
    }
    switch (take_special(d, in->ptr, in->len, &len)) {
    case TAKEN:
        d->string_chars += count_chars(in->ptr, len);
        *in = slice_skip(*in, len);
        break;
    case MORE:
        CHECK(in->len < JSON_HELD_MAX);
        memcpy(d->held, in->ptr, in->len);
        d->held_len = in->len;
        *in = slice_skip(*in, in->len);
        break;
    case MISTAKE:
        put_mistake(d, in->ptr, len);
        *in = slice_skip(*in, len - 1);
        break;
    }
}

static void take(struct json_document *d, struct slice in);

/* Decodes the string at the end of `rest` as if it arrived now. If it already has a mistake it
 * stays in `rest`, as the parser shows the beginning of a token with a mistake. */
static void begin_long(struct json_document *d)
{
    struct slice in = slice_skip(buf_slice(&d->rest), d->string_at);
    struct slice raw = slice_of(mem_copy(in.ptr, in.len), in.len);
    size_t count = d->aside_count;
    bool escaped = d->escaped;

    buf_truncate(&d->rest, d->string_at);
    d->state = JSON_LONG_STRING;
    d->text_at = buf_len(&d->texts);
    d->string_chars = d->held_len = 0;
    d->high = 0;
    d->mistake[0] = '\0';
    d->mistake_is_code = d->wrong = false;
    take(d, raw); /* its only quote is at its end */
    if (d->wrong) {
        d->aside_count = count;
        buf_truncate(&d->texts, d->text_at);
        buf_truncate(&d->rest, d->string_at);
        put_rest(d, raw.ptr, raw.len);
        d->state = JSON_NAME;
        d->escaped = escaped;
    }
    mem_free((char *)(uintptr_t)raw.ptr);
}

static struct json_array *find_array(struct json_document *d, struct slice name)
{
    for (size_t i = 0; i < d->array_count; i++) {
        if (slice_equal(slice_string(d->arrays[i].name), name)) {
            return &d->arrays[i];
        }
    }
    return NULL;
}

/* Takes bytes of a string that stays in `rest`, or of one with a mistake. */
static void take_raw(struct json_document *d, struct slice *in)
{
    size_t len = 0, most = in->len;
    bool ended = false;

    if (d->state == JSON_YOUNG) { /* stop where it becomes long */
        size_t room = d->long_bytes - (buf_len(&d->rest) - d->string_at);

        most = most < room ? most : room;
    }
    while (len < most && !ended) {
        char c = in->ptr[len++];

        ended = c == '"' && !d->escaped;
        d->escaped = c == '\\' && !d->escaped;
    }
    if (d->state != JSON_WRONG) {
        put_rest(d, in->ptr, len);
    } else if (ended) {
        put_rest(d, "\"", 1);
    }
    *in = slice_skip(*in, len);
    if (ended) {
        struct slice s = slice_skip(buf_slice(&d->rest), d->string_at);

        if (d->state == JSON_YOUNG &&
            (s.ptr[0] == MARK || slice_starts_nocase(s, SLICE("\\u007f")))) {
            begin_long(d);
        } else if (d->state == JSON_NAME && d->is_object && d->depth == 1) {
            d->named = find_array(d, slice_of(s.ptr, s.len - 1));
        }
        d->state = JSON_OUTSIDE;
    } else if (d->state == JSON_YOUNG && buf_len(&d->rest) - d->string_at >= d->long_bytes) {
        begin_long(d);
    }
}

/* ---- between strings ------------------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void open_bracket(struct json_document *d, char c, size_t at)
{
    uint64_t bit;

    d->is_object = d->is_object || (d->before == '\0' && c == '{');
    d->depth++;
    bit = (uint64_t)1 << d->depth % 64;
    if (d->depth < JSON_DEPTH_KNOWN) {
        d->depths[d->depth / 64] &= ~bit;
        d->depths[d->depth / 64] |= c == '[' ? bit : 0;
    }
    if (c == '[' && d->named_and_colon != NULL && !d->named_and_colon->begun) {
        d->open = d->named_and_colon;
        d->open->begun = true;
        d->open->from = at + 1;
    }
}

static void close_bracket(struct json_document *d, char c, size_t at)
{
    if (d->open != NULL && d->depth == ARRAY_DEPTH) {
        d->open->whole = c == ']';
        d->open->to = at;
        d->open = NULL;
    }
    if (d->depth > 1) { /* after the end of the document everything is wrong */
        d->depth--;
    }
}

/* Handles a byte at this offset of `rest` that is no blank and no quote. */
static void take_sign(struct json_document *d, char c, size_t at)
{
    if (c == '[' || c == '{') {
        open_bracket(d, c, at);
    } else if (c == ']' || c == '}') {
        close_bracket(d, c, at);
    }
    d->named_and_colon = c == ':' ? d->named : NULL;
    d->named = NULL;
    d->before = c;
}

/* Is a string that begins here a value, if the document is valid so far? */
static bool is_value(const struct json_document *d)
{
    bool in_array = d->depth < JSON_DEPTH_KNOWN &&
                    (d->depths[d->depth / 64] & (uint64_t)1 << d->depth % 64) != 0;

    return d->before == ':' || (in_array && (d->before == '[' || d->before == ','));
}

static void take_outside(struct json_document *d, struct slice *in)
{
    size_t len = 0;

    while (len < in->len && in->ptr[len] != '"') {
        if (!is_blank(in->ptr[len])) {
            take_sign(d, in->ptr[len], buf_len(&d->rest) + len);
        }
        len++;
    }
    if (len < in->len) {
        len++;
        d->state = is_value(d) ? JSON_YOUNG : JSON_NAME;
        d->escaped = false;
        d->named = d->named_and_colon = NULL;
        d->before = '"';
        d->string_at = buf_len(&d->rest) + len;
    }
    put_rest(d, in->ptr, len);
    *in = slice_skip(*in, len);
}

/* ---- the document ---------------------------------------------------------------------------- */

static void take(struct json_document *d, struct slice in)
{
    while (in.len > 0) {
        switch (d->state) {
        case JSON_OUTSIDE:
            take_outside(d, &in);
            break;
        case JSON_NAME:
        case JSON_YOUNG:
        case JSON_WRONG:
            take_raw(d, &in);
            break;
        case JSON_LONG_STRING:
            take_long(d, &in);
            break;
        }
    }
}

bool json_document_add(struct json_document *d, struct slice bytes)
{
    if (bytes.len > d->limit - d->bytes) {
        return false;
    }
    d->bytes += bytes.len;
    take(d, bytes);
    return true;
}

void json_document_end(struct json_document *d)
{
    if (d->state == JSON_LONG_STRING) { /* the string has no end; the parser reports this */
        put_mistake(d, d->held, d->held_len);
        d->held_len = 0;
    }
}

const struct json_array *json_document_array(const struct json_document *d, const char *name)
{
    for (size_t i = 0; i < d->array_count; i++) {
        if (strcmp(d->arrays[i].name, name) == 0) {
            return d->arrays[i].whole ? &d->arrays[i] : NULL;
        }
    }
    UNREACHABLE("a name of json_document_init");
}

/* Returns the first complete array after `at`, or NULL. */
static const struct json_array *next_array(const struct json_document *d, size_t at)
{
    const struct json_array *first = NULL;

    for (size_t i = 0; i < d->array_count; i++) {
        const struct json_array *a = &d->arrays[i];

        if (a->whole && a->from > at && (first == NULL || a->from < first->from)) {
            first = a;
        }
    }
    return first;
}

bool json_document_cut(const struct json_document *d, struct buf *out)
{
    struct slice rest = buf_slice(&d->rest);
    const struct json_array *a;
    size_t at = 0;

    while ((a = next_array(d, at)) != NULL) {
        (void)buf_add(out, slice_of(rest.ptr + at, a->from - at)); /* errors are sticky */
        at = a->to;
    }
    return buf_add(out, slice_skip(rest, at));
}

size_t json_document_uncut(const struct json_document *d, size_t at)
{
    const struct json_array *a;
    size_t from = 0;

    while ((a = next_array(d, from)) != NULL && at > a->from) {
        at += a->to - a->from;
        from = a->to;
    }
    return at;
}

struct slice json_document_text(const struct json_document *d, const json_t *string)
{
    struct slice s = slice_of(json_string_value(string), json_string_length(string));
    unsigned long long number;

    if (s.len == 0 || s.ptr[0] != MARK) {
        return s;
    }
    number = strtoull(s.ptr + 1, NULL, 10);
    CHECK(number < d->aside_count); /* strings of clients never begin with a mark */
    return slice_of(buf_slice(&d->texts).ptr + d->aside[number].at, d->aside[number].len);
}

size_t json_skip_blanks(struct slice document, size_t at)
{
    while (at < document.len && is_blank(document.ptr[at])) {
        at++;
    }
    return at;
}

void json_document_place(const struct json_document *d, size_t at, size_t *ret_line,
                         size_t *ret_column)
{
    struct slice rest = buf_slice(&d->rest);
    size_t line = 1, begin = 0, column;

    at = at < rest.len ? at : rest.len;
    for (size_t i = 0; i < at; i++) {
        if (rest.ptr[i] == '\n') {
            line++;
            begin = i + 1;
        }
    }
    column = count_chars(rest.ptr + begin, at - begin);
    for (size_t i = 0; i < d->aside_count; i++) { /* strings contain no line ends */
        if (d->aside[i].rest_at > begin && d->aside[i].rest_at <= at) {
            column += d->aside[i].chars;
            column -= d->aside[i].stand_in;
        }
    }
    *ret_line = line;
    *ret_column = column;
}
