#include "name_lines.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "check.h"
#include "class_name.h"
#include "mem.h"

bool name_lines_senders_are_valid(struct slice senders)
{
    if (senders.len == 0 || senders.len > NAME_LINES_SENDERS_MAX) {
        return false;
    }
    while (senders.ptr != NULL) {
        struct slice one = slice_cut(&senders, ',');

        if (slice_find(one, '@') == one.len || one.ptr[one.len - 1] == '@') {
            return false;
        }
        for (size_t i = 0; i < one.len; i++) {
            if ((unsigned char)one.ptr[i] <= ' ' || one.ptr[i] == ':' || one.ptr[i] == 127) {
                return false;
            }
        }
    }
    return true;
}

bool name_lines_may_send(struct slice senders, struct slice sender)
{
    struct slice domain = slice_skip(sender, slice_find_last(sender, '@')); /* with its @ */

    if (senders.len == 0 || sender.len == 0) {
        return true;
    }
    while (senders.ptr != NULL) {
        struct slice one = slice_cut(&senders, ',');

        if (slice_equal_nocase(one, one.ptr[0] == '@' ? domain : sender)) {
            return true;
        }
    }
    return false;
}

void name_lines_put_end(struct buf *out, struct slice class_name, struct slice senders)
{
    if (class_name.len > 0) {
        (void)buf_addf(out, ":class=%.*s", SLICE_ARGS(class_name)); /* the error is sticky */
    }
    if (senders.len > 0) {
        (void)buf_addf(out, ":senders=%.*s", SLICE_ARGS(senders));
    }
    (void)buf_add_byte(out, '\n');
}

/* ---- reading -------------------------------------------------------------------------------- */

static bool bad(struct buf *ret_error, unsigned number, const char *start, const char *at,
                const char *what)
{
    buf_clear(ret_error);
    (void)buf_addf(ret_error, "%u:%zu: %s", number, (size_t)(at - start) + 1, what);
    return false;
}

static bool read_setting(const struct name_lines_form *form, struct name_line *line,
                         struct slice setting, const char **ret_what)
{
    struct slice value = setting, name = slice_cut(&value, '='), parsed;
    char room[CLASS_NAME_MAX];

    if (slice_equal(name, SLICE("class"))) {
        *ret_what = "expected the name of a class";
        line->class_name = value;
        return value.ptr != NULL && class_name_parse(value, room, &parsed);
    }
    if (slice_equal(name, SLICE("senders"))) {
        *ret_what = "expected addresses or @DOMAINs with commas between them";
        line->senders = value;
        return value.ptr != NULL && name_lines_senders_are_valid(value);
    }
    *ret_what = form->setting_expected;
    return form->read_setting != NULL && form->read_setting(line, name, value, ret_what);
}

static struct name_line *line_at(const struct name_lines *l, size_t n)
{
    return (struct name_line *)(void *)(l->lines + n * l->form->size);
}

static bool read_line(struct name_lines *l, struct slice text, unsigned number,
                      struct buf *ret_error)
{
    const struct name_lines_form *form = l->form;
    const char *start = text.ptr, *what;
    struct slice name = slice_cut(&text, ':'), word = slice_cut(&text, ':');
    struct slice scheme = slice_string(form->scheme);
    struct name_line *line;

    if (l->count == form->most) {
        return bad(ret_error, number, start, start, form->too_many);
    }
    line = line_at(l, l->count);
    line->number = number;
    if (!form->name_is_valid(name)) {
        return bad(ret_error, number, start, start, form->name_expected);
    }
    if (!slice_starts(word, scheme) || !form->read_verifier(line, slice_skip(word, scheme.len))) {
        return bad(ret_error, number, start, name.ptr + name.len, form->verifier_expected);
    }
    while (text.ptr != NULL) {
        struct slice setting = slice_cut(&text, ':');

        if (!read_setting(form, line, setting, &what)) {
            return bad(ret_error, number, start, setting.ptr, what);
        }
    }
    if (form->missing != NULL && (what = form->missing(line)) != NULL) {
        return bad(ret_error, number, start, start, what);
    }
    l->text[name.ptr - l->text + (ptrdiff_t)name.len] = '\0'; /* in place of the colon */
    line->name = name.ptr;
    l->count++;
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct name_line *const *)a)->name,
                  (*(const struct name_line *const *)b)->name);
}

/* Sorts the lines by name; returns false if a name occurs twice. */
static bool sort(struct name_lines *l, struct buf *ret_error)
{
    l->by_name = mem_array(l->count + 1, sizeof *l->by_name);
    for (size_t i = 0; i < l->count; i++) {
        l->by_name[i] = line_at(l, i);
    }
    qsort(l->by_name, l->count, sizeof *l->by_name, by_name);
    for (size_t i = 1; i < l->count; i++) {
        const struct name_line *a = l->by_name[i - 1], *b = l->by_name[i];

        if (strcmp(a->name, b->name) == 0) {
            unsigned later = a->number > b->number ? a->number : b->number;

            buf_clear(ret_error);
            (void)buf_addf(ret_error, "%u:1: the name stands in line %u, too", later,
                           a->number + b->number - later);
            return false;
        }
    }
    return true;
}

bool name_lines_read(struct name_lines *l, const struct name_lines_form *form, struct slice text,
                     struct buf *ret_error)
{
    size_t lines = 1;
    struct slice rest;
    unsigned number = 0;
    bool good = true;

    for (size_t i = 0; i < text.len; i++) {
        lines += text.ptr[i] == '\n';
    }
    *l = (struct name_lines){.form = form, .size = lines < form->most ? lines : form->most};
    l->lines = mem_array(l->size, form->size);
    l->text = mem_array(text.len + 1, 1);
    if (text.len > 0) {
        memcpy(l->text, text.ptr, text.len);
    }
    rest = slice_of(l->text, text.len);
    while (good && rest.len > 0) {
        struct slice line = slice_trim(slice_cut(&rest, '\n'));

        number++;
        if (line.len > 0 && line.ptr[0] != '#') {
            good = read_line(l, line, number, ret_error);
        }
    }
    if (!good || !sort(l, ret_error)) {
        name_lines_fini(l);
        return false;
    }
    return true;
}

void name_lines_fini(struct name_lines *l)
{
    OPENSSL_cleanse(l->lines, l->size * l->form->size);
    mem_free(l->lines);
    mem_free(l->by_name);
    mem_free(l->text);
}

/* ---- finding -------------------------------------------------------------------------------- */

const struct name_line *name_lines_at(const struct name_lines *l, size_t n)
{
    return n < l->count ? line_at(l, n) : NULL;
}

const struct name_line *name_lines_find(const struct name_lines *l, struct slice name)
{
    size_t low = 0, high = l->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = slice_compare(name, slice_string(l->by_name[middle]->name));

        if (order == 0) {
            return l->by_name[middle];
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}
