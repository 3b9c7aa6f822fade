#include "json_array.h"

#include <string.h>

size_t json_skip_blanks(struct slice document, size_t at)
{
    while (at < document.len && memchr(" \t\r\n", document.ptr[at], 4) != NULL) {
        at++;
    }
    return at;
}

/* From the quote at `at`: the offset behind the one that ends the string. */
static size_t skip_string(struct slice document, size_t at)
{
    size_t end = 0; /* the next quote; looked for once, or many escapes would cost a search each */

    at++;
    while (at < document.len) {
        size_t escape;

        if (end < at) {
            end = at + slice_find(slice_skip(document, at), '"');
        }
        escape = at + slice_find(slice_of(document.ptr + at, end - at), '\\');
        if (escape == end) {
            return end < document.len ? end + 1 : document.len;
        }
        at = escape + 2;
    }
    return document.len;
}

/* From the bracket at `at`: the offset of the one that closes it. */
static size_t find_close(struct slice document, size_t at)
{
    size_t depth = 0;

    while (at < document.len) {
        switch (document.ptr[at]) {
        case '"':
            at = skip_string(document, at);
            continue;
        case '[':
        case '{':
            depth++;
            break;
        case ']':
        case '}':
            if (--depth == 0) {
                return at;
            }
            break;
        default:
            break;
        }
        at++;
    }
    return document.len;
}

/* Behind a name at `at`: the offset of the bracket of its array; the document's length: it has
 * none. */
static size_t array_behind(struct slice document, size_t at)
{
    at = json_skip_blanks(document, at);
    if (at == document.len || document.ptr[at] != ':') {
        return document.len;
    }
    at = json_skip_blanks(document, at + 1);
    return at < document.len && document.ptr[at] == '[' ? at : document.len;
}

bool json_array_find(struct slice document, struct slice name, struct json_array *ret_array)
{
    size_t at = json_skip_blanks(document, 0);

    if (at == document.len || document.ptr[at] != '{' ||
        memmem(document.ptr, document.len, name.ptr, name.len) == NULL) {
        return false;
    }
    for (at++; at < document.len;) {
        char c = document.ptr[at];
        size_t end, open;

        if (c == '[' || c == '{') {
            at = find_close(document, at);
        }
        if (c != '"') {
            at++;
            continue;
        }
        end = skip_string(document, at);
        open = slice_equal(slice_of(document.ptr + at + 1, end - at < 2 ? 0 : end - at - 2), name)
                   ? array_behind(document, end)
                   : document.len;
        if (open < document.len) {
            ret_array->from = open + 1;
            ret_array->to = find_close(document, open);
            return ret_array->to < document.len && document.ptr[ret_array->to] == ']';
        }
        at = end;
    }
    return false;
}

bool json_array_cut(struct slice document, const struct json_array *array, struct buf *out)
{
    return buf_add(out, slice_of(document.ptr, array->from)) &&
           buf_add(out, slice_skip(document, array->to));
}

void json_place(struct slice document, size_t at, size_t *ret_line, size_t *ret_column)
{
    size_t line = 1, column = 0;

    for (size_t i = 0; i < at && i < document.len; i++) {
        if (document.ptr[i] == '\n') {
            line++;
            column = 0;
        } else {
            column += ((unsigned char)document.ptr[i] & 0xc0) != 0x80;
        }
    }
    *ret_line = line;
    *ret_column = column;
}
