#include "long_lines.h"

#include <string.h>

#include "check.h"

/* Returns how many bytes at the start of `in` can be used as they are. */
static size_t unchanged(struct long_lines *l, struct slice in)
{
    size_t used = 0;

    while (used < in.len && l->held_len == 0) {
        const char *lf = memchr(in.ptr + used, '\n', in.len - used);
        size_t len = lf != NULL ? (size_t)(lf - (in.ptr + used)) : in.len - used;

        if (l->column + len > LONG_LINES_WISHED) {
            break; /* a part of this line could be passed, but such lines are rare */
        }
        l->column = lf != NULL ? 0 : l->column + len;
        used += len + (lf != NULL ? 1 : 0);
    }
    return used;
}

static void release(struct long_lines *l, size_t len, struct buf *out)
{
    CHECK(buf_add(out, slice_of(l->held, len)));
    l->held_len -= len;
    memmove(l->held, l->held + len, l->held_len);
}

/* Position of the break in the octets that are held. */
static size_t break_of(const struct long_lines *l)
{
    size_t at = l->held_len - 1;

    for (size_t i = 0; i < l->held_len; i++) {
        if (l->held[i] == ' ' || l->held[i] == '\t') {
            return i;
        }
    }
    while (at > l->held_len - 4 && ((unsigned char)l->held[at] & 0xc0) == 0x80) {
        at--; /* a later octet of a character */
    }
    return at;
}

/* Ends the line, as the octets that are held are too many for it. */
static void break_line(struct long_lines *l, struct buf *out)
{
    size_t at = break_of(l);
    bool at_white = l->held[at] == ' ' || l->held[at] == '\t';

    release(l, at, out);
    CHECK(buf_add_string(out, at_white ? "\r\n" : "\r\n "));
    l->column = at_white ? 0 : 1;
    l->column += l->held_len;
    release(l, l->held_len, out);
}

/* Appends bytes of `in` up to the end of the line, and returns their number, more than 0. */
static size_t add_line(struct long_lines *l, struct slice in, struct buf *out)
{
    size_t used = 0;

    while (used < in.len) {
        char byte = in.ptr[used++];

        if (byte == '\n') {
            release(l, l->held_len, out);
            CHECK(buf_add_byte(out, byte));
            l->column = 0;
            return used;
        }
        if (l->column < LONG_LINES_WISHED) {
            CHECK(buf_add_byte(out, byte));
            l->column++;
            continue;
        }
        /* A CR that ends the line is no part of it, so one octet may be too many for now. */
        if (l->held_len == LONG_LINES_HELD_MAX) {
            break_line(l, out);
            CHECK(buf_add_byte(out, byte));
            l->column++;
            continue;
        }
        l->held[l->held_len++] = byte;
        if (l->held_len == LONG_LINES_HELD_MAX && byte != '\r') {
            break_line(l, out);
        }
    }
    return used;
}

bool long_lines_next(struct long_lines *l, struct slice *in, struct buf *room,
                     struct slice *ret_part)
{
    size_t used = unchanged(l, *in);

    *ret_part = slice_of(in->ptr, used);
    if (used == 0) {
        buf_clear(room);
        used = in->len > 0 ? add_line(l, *in, room) : 0;
        *ret_part = buf_slice(room);
    }
    *in = slice_skip(*in, used);
    return used > 0;
}

void long_lines_finish(struct long_lines *l, struct buf *out)
{
    release(l, l->held_len, out);
    l->column = 0;
}
