#include "line_ends.h"

#include <string.h>

#include "check.h"

/* Writes a blank for held back CRs that no LF follows. */
static char *put_bare_cr(struct line_ends *l, char *to)
{
    if (l->after_cr) {
        *to++ = ' ';
        l->in_line = true;
        l->after_cr = false;
    }
    return to;
}

/* Converts bytes without LF. Almost all text has at most one CR there, at the end. */
static char *put_line(struct line_ends *l, struct slice line, char *to)
{
    while (line.len > 0) {
        size_t plain = slice_find(line, '\r');

        if (plain > 0) {
            to = put_bare_cr(l, to);
            memcpy(to, line.ptr, plain);
            to += plain;
            l->in_line = true;
        }
        if (plain < line.len) {
            l->after_cr = true;
            plain++;
        }
        line = slice_skip(line, plain);
    }
    return to;
}

struct slice line_ends_add(struct line_ends *l, struct slice in, struct buf *out)
{
    char *start = buf_room(out, 2 * in.len + 1), *to = start;

    if (start == NULL) {
        return slice_of(NULL, 0);
    }
    while (in.len > 0) {
        size_t len = slice_find(in, '\n');

        to = put_line(l, slice_of(in.ptr, len), to);
        if (len < in.len) {
            *to++ = '\r';
            *to++ = '\n';
            *l = (struct line_ends){.after_cr = false};
            len++;
        }
        in = slice_skip(in, len);
    }
    buf_grew(out, (size_t)(to - start));
    return slice_of(start, (size_t)(to - start));
}

struct slice line_ends_pass(struct line_ends *l, struct slice in)
{
    CHECK(!l->after_cr);
    if (in.len > 0 && in.ptr[in.len - 1] == '\r') {
        l->after_cr = true;
        in.len--;
    }
    l->in_line = in.len > 0 ? in.ptr[in.len - 1] != '\n' : l->in_line;
    return in;
}

struct slice line_ends_finish(struct line_ends *l, struct buf *out)
{
    if (!l->after_cr && !l->in_line) {
        return slice_of("", 0);
    }
    l->after_cr = false; /* the LF that follows completes it */
    return line_ends_add(l, SLICE("\n"), out);
}
