#include "template.h"

#include <string.h>

#include "check.h"

bool template_next(struct slice *rest, struct slice *ret_before, struct slice *ret_name,
                   bool *ret_raw)
{
    const char *open = rest->len > 0 ? memmem(rest->ptr, rest->len, "{{", 2) : NULL;
    const char *close, *start;

    *ret_before = *rest;
    if (open == NULL) {
        *rest = slice_of(NULL, 0);
        return false;
    }
    *ret_before = slice_of(rest->ptr, (size_t)(open - rest->ptr));
    *ret_raw = (size_t)(open - rest->ptr) + 2 < rest->len && open[2] == '{';
    start = open + (*ret_raw ? 3 : 2);
    close = memmem(start, (size_t)(rest->ptr + rest->len - start), *ret_raw ? "}}}" : "}}",
                   *ret_raw ? 3 : 2);
    if (close == NULL) {
        *ret_before = *rest;
        *rest = slice_of(NULL, 0);
        return false;
    }
    *ret_name = slice_trim(slice_of(start, (size_t)(close - start)));
    *rest = slice_skip(*rest, (size_t)(close - rest->ptr) + (*ret_raw ? 3 : 2));
    return true;
}

void template_init(struct template *t, struct slice text, bool is_html)
{
    *t = (struct template){.rest = text, .is_html = is_html};
}

static void put_escaped(struct slice s, struct buf *out)
{
    for (size_t i = 0; i < s.len; i++) {
        switch (s.ptr[i]) {
        case '&':
            (void)buf_add_string(out, "&amp;"); /* errors are sticky, here and below */
            break;
        case '<':
            (void)buf_add_string(out, "&lt;");
            break;
        case '>':
            (void)buf_add_string(out, "&gt;");
            break;
        case '"':
            (void)buf_add_string(out, "&quot;");
            break;
        case '\'':
            (void)buf_add_string(out, "&#39;");
            break;
        default:
            (void)buf_add_byte(out, s.ptr[i]);
        }
    }
}

/* Writes a piece of the value. Returns its length. */
static size_t put_value(struct template *t, size_t bytes, struct buf *out)
{
    struct slice piece = slice_of(t->value.ptr, t->value.len < bytes ? t->value.len : bytes);

    if (t->escaped) {
        put_escaped(piece, out);
    } else {
        (void)buf_add(out, piece);
    }
    t->value = slice_skip(t->value, piece.len);
    return piece.len;
}

/* Writes text before the next name. Returns its length. */
static size_t put_text(struct template *t, size_t bytes, struct buf *out)
{
    size_t len = t->rest.len < bytes ? t->rest.len : bytes;
    const char *open = t->literal ? NULL : memmem(t->rest.ptr, len, "{{", 2);

    if (open != NULL) {
        len = (size_t)(open - t->rest.ptr);
    } else if (len < t->rest.len && !t->literal && t->rest.ptr[len - 1] == '{') {
        len--; /* another one may follow */
    }
    (void)buf_add(out, slice_of(t->rest.ptr, len));
    t->rest = slice_skip(t->rest, len);
    return len;
}

bool template_put(struct template *t, size_t bytes, template_value *value, void *arg,
                  struct buf *out)
{
    size_t done = 0;

    CHECK(bytes >= 2);
    while (t->value.len + t->rest.len > 0 && done + 1 < bytes && !out->failed) {
        struct slice rest = t->rest, before, name;
        bool raw;

        if (t->value.len > 0) {
            done += put_value(t, bytes - done, out);
        } else if (t->literal || !slice_starts(t->rest, SLICE("{{"))) {
            done += put_text(t, bytes - done, out);
        } else if (template_next(&rest, &before, &name, &raw)) {
            t->rest = rest;
            t->value = value(arg, name);
            t->escaped = t->is_html && !raw;
            done++;
        } else {
            t->literal = true;
        }
    }
    return t->value.len + t->rest.len == 0;
}
