#include "lines.h"

/* ---- to LF ---------------------------------------------------------------------------------- */

void unixlines_init(struct unixlines *u)
{
    *u = (struct unixlines){0};
}

static void add(struct unixlines *u, struct slice bytes, struct buf *out)
{
    if (bytes.len > 0 && buf_add(out, bytes)) {
        u->in_line = bytes.ptr[bytes.len - 1] != '\n';
    }
}

void unixlines_add(struct unixlines *u, struct slice in, struct buf *out)
{
    while (in.len > 0) {
        size_t cr;

        if (u->held_cr) {
            u->held_cr = false;
            if (in.ptr[0] != '\n') {
                add(u, SLICE("\r"), out);
            }
        }
        cr = slice_find(in, '\r');
        add(u, slice_of(in.ptr, cr), out);
        u->held_cr = cr < in.len;
        in = slice_skip(in, cr + 1);
    }
}

void unixlines_end(struct unixlines *u, struct buf *out)
{
    if (u->held_cr) {
        u->held_cr = false;
        add(u, SLICE("\r"), out);
    }
    if (u->in_line) {
        add(u, SLICE("\n"), out);
    }
}

/* ---- to CR LF ------------------------------------------------------------------------------- */

void wirelines_init(struct wirelines *w)
{
    w->last = '\n';
}

void wirelines_add(struct wirelines *w, struct slice in, struct buf *out)
{
    while (in.len > 0) {
        size_t end = slice_find(in, '\n');

        if (end > 0) {
            (void)buf_add(out, slice_of(in.ptr, end)); /* the buffer's error is sticky, here and
                                                        * below */
            w->last = in.ptr[end - 1];
        }
        if (end < in.len) {
            (void)buf_add(out, w->last == '\r' ? SLICE("\n") : SLICE("\r\n"));
            w->last = '\n';
        }
        in = slice_skip(in, end + 1);
    }
}

void wirelines_end(struct wirelines *w, struct buf *out)
{
    if (w->last != '\n') {
        wirelines_add(w, SLICE("\n"), out);
    }
}
