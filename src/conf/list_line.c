#include "list_line.h"

#include <stddef.h>

bool list_line_next(struct slice *text, unsigned *number, struct list_line *ret_line)
{
    if (text->len == 0) {
        return false;
    }
    ret_line->whole = slice_cut(text, '\n');
    ret_line->rest = slice_trim(ret_line->whole);
    ret_line->number = ++*number;
    if (ret_line->rest.len > 0 && ret_line->rest.ptr[0] == '#') {
        ret_line->rest.len = 0;
    }
    return true;
}

struct slice list_line_word(struct list_line *line)
{
    struct slice word;
    size_t len = 0;

    line->rest = slice_trim(line->rest);
    while (len < line->rest.len && line->rest.ptr[len] != ' ' && line->rest.ptr[len] != '\t') {
        len++;
    }
    word = slice_of(line->rest.ptr, len);
    line->rest = slice_trim(slice_skip(line->rest, len));
    return word;
}

bool list_line_bad(struct buf *ret_error, const struct list_line *line, const char *at,
                   const char *what)
{
    size_t column = at != NULL ? (size_t)(at - line->whole.ptr) + 1 : 1;

    buf_clear(ret_error);
    (void)buf_addf(ret_error, "%u:%zu: %s", line->number, column, what);
    return false;
}
