#include "line_ends.h"

struct slice line_ends_add(struct line_ends *l, struct slice in, struct buf *out)
{
    char *start = buf_room(out, 2 * in.len + 1), *to = start;

    if (start == NULL) {
        return slice_of(NULL, 0);
    }
    for (size_t i = 0; i < in.len; i++) {
        char c = in.ptr[i];

        if (l->after_cr && c != '\n') {
            *to++ = ' ';
            l->in_line = true;
        }
        l->after_cr = c == '\r';
        if (c == '\n') {
            *to++ = '\r';
        }
        if (c != '\r') {
            *to++ = c;
            l->in_line = c != '\n';
        }
    }
    buf_grew(out, (size_t)(to - start));
    return slice_of(start, (size_t)(to - start));
}

struct slice line_ends_finish(struct line_ends *l, struct buf *out)
{
    if (!l->after_cr && !l->in_line) {
        return slice_of("", 0);
    }
    l->after_cr = false; /* the LF that was missing behind it */
    return line_ends_add(l, SLICE("\n"), out);
}
