#include "header_edit.h"

#include <string.h>

#include "header.h"
#include "mem.h"

struct field {
    struct slice name, whole;
    char *owned; /* memory of both slices; NULL: they point into the given header */
};

struct header_edit {
    struct field *fields; /* owned */
    size_t count, size;
    size_t changes, bytes;
};

struct header_edit *header_edit_new(struct slice header)
{
    struct header_edit *h = mem_new(sizeof *h);
    struct header_field field;

    while (header_next(&header, &field)) {
        h->fields = mem_grow(h->fields, h->count, &h->size, sizeof *h->fields);
        h->fields[h->count++] = (struct field){.name = field.name, .whole = field.whole};
    }
    return h;
}

void header_edit_free(struct header_edit *h)
{
    if (h == NULL) {
        return;
    }
    for (size_t i = 0; i < h->count; i++) {
        mem_free(h->fields[i].owned);
    }
    mem_free(h->fields);
    mem_free(h);
}

/* Counts a change that adds `bytes`; returns false at a limit. */
static bool count_change(struct header_edit *h, size_t bytes)
{
    if (h->changes == HEADER_EDIT_CHANGES_MAX || bytes > HEADER_EDIT_BYTES_MAX - h->bytes) {
        return false;
    }
    h->changes++;
    h->bytes += bytes;
    return true;
}

static struct field make_field(struct slice name, struct slice value)
{
    size_t len = name.len + 1 + value.len + 2;
    char *text = mem_array(len, 1);

    memcpy(text, name.ptr, name.len);
    text[name.len] = ':';
    if (value.len > 0) {
        memcpy(text + name.len + 1, value.ptr, value.len);
    }
    memcpy(text + len - 2, "\r\n", 2);
    return (struct field){
        .name = slice_of(text, name.len), .whole = slice_of(text, len), .owned = text};
}

bool header_edit_insert(struct header_edit *h, uint32_t index, struct slice name,
                        struct slice value)
{
    size_t at = index < h->count ? index : h->count;

    if (!count_change(h, name.len + value.len + 3)) {
        return false;
    }
    h->fields = mem_grow(h->fields, h->count, &h->size, sizeof *h->fields);
    memmove(&h->fields[at + 1], &h->fields[at], (h->count - at) * sizeof *h->fields);
    h->fields[at] = make_field(name, value);
    h->count++;
    return true;
}

bool header_edit_add(struct header_edit *h, struct slice name, struct slice value)
{
    return header_edit_insert(h, UINT32_MAX, name, value);
}

bool header_edit_change(struct header_edit *h, uint32_t index, struct slice name,
                        struct slice value)
{
    bool remove = slice_trim(value).len == 0;
    uint32_t seen = 0;
    size_t at = 0;

    while (at < h->count &&
           !(slice_equal_nocase(h->fields[at].name, name) && ++seen == (index > 0 ? index : 1))) {
        at++;
    }
    if (at == h->count) {
        return remove || header_edit_add(h, name, value);
    }
    if (!count_change(h, remove ? 0 : name.len + value.len + 3)) {
        return false;
    }
    mem_free(h->fields[at].owned);
    if (remove) {
        h->count--;
        memmove(&h->fields[at], &h->fields[at + 1], (h->count - at) * sizeof *h->fields);
    } else {
        h->fields[at] = make_field(name, value);
    }
    return true;
}

bool header_edit_changed(const struct header_edit *h)
{
    return h->changes > 0;
}

bool header_edit_put(const struct header_edit *h, struct buf *out)
{
    for (size_t i = 0; i < h->count; i++) {
        (void)buf_add(out, h->fields[i].whole);
        if (h->fields[i].whole.len == 0 ||
            h->fields[i].whole.ptr[h->fields[i].whole.len - 1] != '\n') {
            (void)buf_add(out, SLICE("\r\n")); /* the message ended in the middle of its header */
        }
    }
    return !out->failed;
}
