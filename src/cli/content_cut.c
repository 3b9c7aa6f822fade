#include "content_cut.h"

#include <string.h>

#include "check.h"
#include "printable.h"

void content_cut_init(struct content_cut *c, enum shown_part part, bool for_terminal)
{
    *c = (struct content_cut){.part = part, .for_terminal = for_terminal, .at_line_start = true};
    unixlines_init(&c->lines);
    buf_init(&c->text, CONTENT_CUT_PIECE_MAX + 2);
}

void content_cut_fini(struct content_cut *c)
{
    buf_fini(&c->text);
}

/* Appends lines or parts of lines. The caller has reserved the room. */
static void add(const struct content_cut *c, struct slice text, struct buf *out)
{
    while (text.len > 0) {
        size_t len = slice_find(text, '\n');
        char *room = buf_room(out, len + 1);
        bool ended = len < text.len;

        if (room == NULL) {
            return; /* sticky */
        }
        memcpy(room, text.ptr, len + ended);
        if (c->for_terminal) {
            printable_fix(room, len);
        }
        buf_grew(out, len + ended);
        text = slice_skip(text, len + ended);
    }
}

static void select_part(struct content_cut *c, struct buf *out)
{
    struct slice text = buf_slice(&c->text);

    CHECK(!c->text.failed);
    while (text.len > 0) {
        bool ends_header = !c->in_body && c->at_line_start && text.ptr[0] == '\n';
        size_t end = c->in_body ? text.len : slice_find(text, '\n');
        size_t len = end < text.len ? end + 1 : text.len;

        if (c->part == CONTENT_ALL || (!ends_header && (c->part == CONTENT_BODY) == c->in_body)) {
            add(c, slice_of(text.ptr, len), out);
        }
        c->in_body = c->in_body || ends_header;
        c->at_line_start = text.ptr[len - 1] == '\n';
        text = slice_skip(text, len);
    }
    buf_clear(&c->text);
}

void content_cut_add(struct content_cut *c, struct slice in, struct buf *out)
{
    CHECK(in.len <= CONTENT_CUT_PIECE_MAX);
    unixlines_add(&c->lines, in, &c->text);
    select_part(c, out);
}

void content_cut_end(struct content_cut *c, struct buf *out)
{
    unixlines_end(&c->lines, &c->text);
    select_part(c, out);
}
