/*
 * Method. Two properties of every byte matter: whether it ends a line, and its value. Line ends are
 * found with memchr() for LF, from line to line. Values are checked once per input for all of it:
 * 8-bit bytes by words, NUL with memchr(). A CR is searched only inside a line, so a well-formed
 * line costs two memchr() and a few comparisons. Only the header section is examined byte by byte.
 *
 *   AT_START --'.'--> AFTER_DOT --CR--> DOT_CR --LF--> ENDED       (dotted only)
 *     ^  |               |                |
 *     |  other         other: the dot   other: the dot is dropped, the CR stays
 *     |  v               v is dropped     v
 *     | IN_LINE <-------------------------+
 *     |  |  ^
 *     |  CR other
 *     |  v  |
 *     +-LF- AFTER_CR
 *
 * With content_accept_bare_lf, LF without CR is read as CRLF everywhere, and CRs without LF as a
 * blank: each is a piece of its own, for which a constant is returned. A CR is held back until the
 * next other byte. Without it, a line of one dot between bare LFs is looked for by a state next to
 * these (enum content_dot).
 */
#include "content.h"

#include <string.h>

#include "check.h"

static const char carriage_return[1] = "\r";
static const char line_end[2] = "\r\n";
static const char blank[1] = " ";

void content_init(struct content *c, enum content_framing framing)
{
    *c = (struct content){.framing = framing, .place = CONTENT_AT_START};
}

void content_accept_bare_lf(struct content *c)
{
    CHECK(c->facts.bytes == 0);
    c->bare_lf = true;
}

static bool has_8bit(struct slice bytes)
{
    const uint64_t high = UINT64_C(0x8080808080808080);
    size_t i = 0;

    while (bytes.len - i >= 4 * sizeof(uint64_t)) {
        uint64_t words[4];

        memcpy(words, bytes.ptr + i, sizeof words);
        if (((words[0] | words[1] | words[2] | words[3]) & high) != 0) {
            return true;
        }
        i += sizeof words;
    }
    for (; i < bytes.len; i++) {
        if ((unsigned char)bytes.ptr[i] > 127) {
            return true;
        }
    }
    return false;
}

/* Ends the header section before the line at c->field_at, where the body began. */
static void end_header(struct content *c)
{
    c->part = CONTENT_BODY;
    c->facts.header_ended = true;
    c->facts.header_bytes = c->field_at;
}

static void count_field(struct content *c)
{
    struct slice name;

    if (c->name_len > CONTENT_NAME_MAX) {
        return;
    }
    name = slice_of(c->name, c->name_len);
    if (slice_equal_nocase(name, SLICE("Received"))) {
        c->facts.received++;
    } else if (slice_equal_nocase(name, SLICE("Delivered-To"))) {
        c->facts.delivered_to++;
    }
}

/* Processes one byte of content at offset `at`, while in the header section. `line_start` is true
 * for the first byte after a CRLF: a bare LF is just a byte of a value. */
static void header_byte(struct content *c, char byte, uint64_t at, bool line_start)
{
    if (line_start) {
        c->part = CONTENT_FIELD_START;
    }
    switch (c->part) {
    case CONTENT_FIELD_START:
        if ((byte == ' ' || byte == '\t') && at > 0) {
            c->part = CONTENT_FIELD_VALUE;
            break;
        }
        c->field_at = at;
        c->name_len = 0;
        if (byte == '\r') {
            c->part = CONTENT_HEADER_BREAK;
            break;
        }
        c->part = CONTENT_FIELD_NAME;
        /* fall through */
    case CONTENT_FIELD_NAME:
        if (byte == ':' && c->name_len > 0) {
            count_field(c);
            c->part = CONTENT_FIELD_VALUE;
        } else if ((byte == ' ' || byte == '\t') && c->name_len > 0) {
            c->part = CONTENT_FIELD_BLANK;
        } else if (byte > ' ' && byte < 127 && byte != ':') {
            if (c->name_len < CONTENT_NAME_MAX) {
                c->name[c->name_len] = byte;
            }
            c->name_len++;
        } else {
            end_header(c);
        }
        break;
    case CONTENT_FIELD_BLANK:
        if (byte == ':') {
            count_field(c);
            c->part = CONTENT_FIELD_VALUE;
        } else if (byte != ' ' && byte != '\t') {
            end_header(c);
        }
        break;
    case CONTENT_FIELD_VALUE:
        if ((unsigned char)byte > 127) {
            c->facts.flags |= CONTENT_HEADER_8BIT;
        }
        break;
    case CONTENT_HEADER_BREAK:
        /* LF: the empty line. Any other byte: a line that begins with a bare CR is not a field. */
        end_header(c);
        break;
    case CONTENT_BODY:
        break;
    }
}

/* Examines the header section in `bytes`, which are content and begin at offset facts.bytes.
 * `place` is the place of the first of them. */
static void header_scan(struct content *c, struct slice bytes, enum content_place place)
{
    uint64_t at = c->facts.bytes;

    for (size_t i = 0; i < bytes.len && c->part != CONTENT_BODY; i++) {
        char byte = bytes.ptr[i];

        header_byte(c, byte, at + i, place == CONTENT_AT_START);
        if (byte == '\n' && place == CONTENT_AFTER_CR) {
            place = CONTENT_AT_START;
        } else {
            place = byte == '\r' ? CONTENT_AFTER_CR : CONTENT_IN_LINE;
        }
    }
    /* A line counts once it is known to be a field, so that the number never decreases. */
    if (c->part == CONTENT_FIELD_VALUE) {
        c->facts.header_bytes = at + bytes.len;
    }
}

static void line_grew(struct content *c, size_t len)
{
    c->line_bytes += len;
    if (c->line_bytes > c->facts.longest_line) {
        c->facts.longest_line = c->line_bytes;
        if (c->line_bytes > CONTENT_LINE_ADVISED) {
            c->facts.flags |= CONTENT_LONG_LINE;
        }
    }
}

/* Counts a CR that was returned as a byte of its line, because no LF follows. */
static void bare_cr(struct content *c)
{
    c->facts.flags |= CONTENT_BARE_CR;
    line_grew(c, 1);
}

/* Accounts for bytes of one line, without LF, and for CRs in them. Leaves c->place at IN_LINE or
 * AFTER_CR. */
static void line_bytes(struct content *c, struct slice bytes)
{
    const char *cr;

    if (bytes.len == 0) {
        return;
    }
    if (c->place == CONTENT_AFTER_CR) {
        bare_cr(c);
    }
    cr = memchr(bytes.ptr, '\r', bytes.len);
    if (cr != NULL && cr != bytes.ptr + bytes.len - 1) {
        c->facts.flags |= CONTENT_BARE_CR;
    }
    /* The next byte shows whether a CR at the end belongs to the line. */
    if (bytes.ptr[bytes.len - 1] == '\r') {
        line_grew(c, bytes.len - 1);
        c->place = CONTENT_AFTER_CR;
    } else {
        line_grew(c, bytes.len);
        c->place = CONTENT_IN_LINE;
    }
}

static void line_feed(struct content *c)
{
    if (c->place == CONTENT_AFTER_CR) {
        c->place = CONTENT_AT_START;
        c->facts.lines++;
        c->line_bytes = 0;
    } else {
        c->facts.flags |= CONTENT_BARE_LF;
        line_grew(c, 1);
        c->place = CONTENT_IN_LINE;
        c->dot = c->framing == CONTENT_DOTTED ? CONTENT_DOT_AWAITED : CONTENT_DOT_NONE;
    }
}

/* Looks for a line of one dot after a bare LF, in the bytes that follow it. */
static void look_for_dot(struct content *c, const char *at, const char *end)
{
    for (; at < end && c->dot != CONTENT_DOT_NONE; at++) {
        bool ends = *at == '\n' && c->dot != CONTENT_DOT_AWAITED;

        if (ends) {
            c->facts.flags |= CONTENT_FALSE_END;
        }
        if (c->dot == CONTENT_DOT_AWAITED && *at == '.') {
            c->dot = CONTENT_DOT_SEEN;
        } else if (c->dot == CONTENT_DOT_SEEN && *at == '\r') {
            c->dot = CONTENT_DOT_SEEN_CR;
        } else {
            c->dot = CONTENT_DOT_NONE;
        }
    }
}

/* Updates the facts by `bytes` of content. `place` is the place of the first of them; c->place is
 * already after them. */
static void account(struct content *c, struct slice bytes, enum content_place place)
{
    if ((c->facts.flags & CONTENT_8BIT) == 0 && has_8bit(bytes)) {
        c->facts.flags |= CONTENT_8BIT;
    }
    if ((c->facts.flags & CONTENT_NUL) == 0 && memchr(bytes.ptr, '\0', bytes.len) != NULL) {
        c->facts.flags |= CONTENT_NUL;
    }
    if (c->part != CONTENT_BODY) {
        header_scan(c, bytes, place);
    }
    c->facts.bytes += bytes.len;
}

/* Returns the length of the content at the start of `in` that needs no change: up to a dot at the
 * start of a line. */
static size_t run_length(struct content *c, struct slice in)
{
    const char *at = in.ptr, *end = in.ptr + in.len;

    while (at < end) {
        const char *lf, *cr;

        look_for_dot(c, at, end);

        if (c->place == CONTENT_AT_START && *at == '.' && c->framing == CONTENT_DOTTED) {
            break;
        }
        lf = memchr(at, '\n', (size_t)(end - at));
        cr = c->bare_lf ? memchr(at, '\r', (size_t)((lf != NULL ? lf : end) - at)) : NULL;
        if (cr != NULL && cr + 1 != lf) {
            line_bytes(c, slice_of(at, (size_t)(cr - at)));
            return (size_t)(cr - in.ptr); /* the CR is the next piece */
        }
        if (lf == NULL) {
            line_bytes(c, slice_of(at, (size_t)(end - at)));
            return in.len;
        }
        line_bytes(c, slice_of(at, (size_t)(lf - at)));
        if (c->bare_lf && c->place != CONTENT_AFTER_CR) {
            return (size_t)(lf - in.ptr); /* the LF is the next piece */
        }
        line_feed(c);
        at = lf + 1;
    }
    return (size_t)(at - in.ptr);
}

/* Returns a blank for a CR without LF at the given place. */
static struct slice put_blank(struct content *c, enum content_place place)
{
    const struct slice bytes = slice_of(blank, sizeof blank);

    line_grew(c, bytes.len);
    c->place = CONTENT_IN_LINE;
    account(c, bytes, place);
    return bytes;
}

bool content_feed(struct content *c, struct slice in, size_t *ret_used, struct slice *ret_content)
{
    enum content_place place = c->place;

    CHECK(in.len > 0);
    CHECK(c->place != CONTENT_ENDED);
    *ret_content = slice_of(in.ptr, 0);
    *ret_used = 1;

    if (c->held_cr && in.ptr[0] != '\r' && in.ptr[0] != '\n') {
        c->held_cr = false;
        *ret_used = 0;
        *ret_content = put_blank(c, place);
        return false;
    }
    if (in.ptr[0] == '\r' && c->bare_lf && place != CONTENT_AFTER_DOT) {
        c->held_cr = place != CONTENT_DOT_CR;
        return false;
    }
    c->held_cr = false;
    if (in.ptr[0] == '\n' && c->bare_lf) {
        if (place == CONTENT_AFTER_DOT || place == CONTENT_DOT_CR) {
            c->place = CONTENT_ENDED;
            return true;
        }
        if (place != CONTENT_AFTER_CR) {
            c->place = CONTENT_AFTER_CR; /* as if one had come */
            line_feed(c);
            *ret_content = slice_of(line_end, sizeof line_end);
            account(c, *ret_content, place);
            return false;
        }
    }
    switch (place) {
    case CONTENT_AT_START:
        if (in.ptr[0] == '.' && c->framing == CONTENT_DOTTED) {
            c->place = CONTENT_AFTER_DOT;
            return false;
        }
        break;
    case CONTENT_AFTER_DOT:
        if (in.ptr[0] == '\r') {
            c->place = CONTENT_DOT_CR;
            return false;
        }
        if (in.ptr[0] == '\n') {
            c->facts.flags |= CONTENT_FALSE_END;
        }
        /* The dot was stuffing: the next byte is the first of the line, even if it is a dot. */
        c->place = CONTENT_IN_LINE;
        place = CONTENT_AT_START;
        break;
    case CONTENT_DOT_CR:
        if (in.ptr[0] == '\n') {
            c->place = CONTENT_ENDED;
            return true;
        }
        *ret_used = 0;
        if (c->bare_lf) {
            *ret_content = put_blank(c, CONTENT_AT_START);
            return false;
        }
        c->place = CONTENT_AFTER_CR;
        *ret_content = slice_of(carriage_return, 1);
        account(c, *ret_content, CONTENT_AT_START);
        return false;
    case CONTENT_IN_LINE:
    case CONTENT_AFTER_CR:
        break;
    case CONTENT_ENDED:
        UNREACHABLE("checked above");
    }
    *ret_used = run_length(c, in);
    *ret_content = slice_of(in.ptr, *ret_used);
    account(c, *ret_content, place);
    return false;
}

void content_pass(struct content *c, size_t bytes)
{
    CHECK(c->framing == CONTENT_COUNTED && c->part == CONTENT_BODY);
    CHECK(c->place != CONTENT_ENDED);
    c->facts.bytes += bytes;
    c->place = CONTENT_IN_LINE;
}

void content_finish(struct content *c)
{
    if (c->place == CONTENT_AFTER_CR) {
        bare_cr(c);
    }
    if (c->part == CONTENT_FIELD_NAME || c->part == CONTENT_FIELD_BLANK ||
        c->part == CONTENT_HEADER_BREAK) {
        end_header(c); /* the last line did not become a field */
    }
    c->place = CONTENT_ENDED;
}
