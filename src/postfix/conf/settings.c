#include "settings.h"

#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "times.h"

#define YEARS_100_S UINT64_C(3155760000)

static int compare(const void *a, const void *b)
{
    const struct settings_line *x = a, *y = b;
    int order = slice_compare(x->name, y->name);

    return order != 0 ? order : (x->name.ptr > y->name.ptr) - (x->name.ptr < y->name.ptr);
}

void settings_init(struct settings *s, struct slice text)
{
    struct slice rest;
    size_t size = 0;

    *s = (struct settings){.text = mem_copy(text.ptr, text.len)};
    rest = slice_of(s->text, text.len);
    while (rest.len > 0) {
        struct slice line = slice_cut(&rest, '\n');
        size_t at = slice_find(line, '=');
        struct slice name = slice_trim(slice_of(line.ptr, at));
        struct slice value = slice_trim(slice_skip(line, at + 1));

        if (at == line.len || name.len == 0) {
            continue;
        }
        s->text[value.ptr + value.len - s->text] = '\0'; /* overwrites the line feed, or trailing
                                                          * blanks */
        s->lines = mem_grow(s->lines, s->count, &size, sizeof *s->lines);
        s->lines[s->count++] = (struct settings_line){name, value};
    }
    if (s->count > 0) {
        qsort(s->lines, s->count, sizeof *s->lines, compare);
    }
}

void settings_fini(struct settings *s)
{
    mem_free(s->lines);
    mem_free(s->text);
    *s = (struct settings){0};
}

/* Returns the last line with that name, or NULL. */
static const struct settings_line *find(const struct settings *s, const char *name)
{
    struct slice wanted = slice_string(name);
    size_t from = 0, to = s->count;

    while (from < to) { /* finds the first line after that name */
        size_t middle = from + (to - from) / 2;

        if (slice_compare(s->lines[middle].name, wanted) <= 0) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from > 0 && slice_equal(s->lines[from - 1].name, wanted) ? &s->lines[from - 1] : NULL;
}

struct slice settings_get(const struct settings *s, const char *name)
{
    const struct settings_line *line = find(s, name);

    return line != NULL ? line->value : SLICE("");
}

bool settings_has(const struct settings *s, const char *name)
{
    return find(s, name) != NULL;
}

bool settings_is(const struct settings *s, const char *name, bool preset)
{
    struct slice value = settings_get(s, name);

    return slice_equal_nocase(value, SLICE("yes"))  ? true
           : slice_equal_nocase(value, SLICE("no")) ? false
                                                    : preset;
}

uint64_t settings_number(const struct settings *s, const char *name, uint64_t preset, uint64_t max)
{
    unsigned long long number;

    return slice_number(settings_get(s, name), max, &number) ? number : preset;
}

int64_t settings_time_us(const struct settings *s, const char *name, int64_t preset_us, char unit)
{
    static const struct {
        char name;
        uint64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}};
    struct slice value = settings_get(s, name);
    unsigned long long number;

    if (value.len > 0 && ascii_is_alpha(value.ptr[value.len - 1])) {
        unit = ascii_lower(value.ptr[value.len - 1]);
        value.len--;
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (units[i].name == unit && slice_number(value, YEARS_100_S / units[i].seconds, &number)) {
            return (int64_t)(number * units[i].seconds) * US_PER_S;
        }
    }
    return preset_us;
}

bool settings_at(const struct settings *s, size_t i, struct settings_line *ret_line)
{
    if (i >= s->count) {
        return false;
    }
    *ret_line = s->lines[i];
    return true;
}

bool settings_word(struct slice *list, struct slice *ret_word)
{
    size_t len = 0;

    while (list->len > 0 && strchr(", \t\r\n", list->ptr[0]) != NULL) {
        *list = slice_skip(*list, 1);
    }
    while (len < list->len && strchr(", \t\r\n", list->ptr[len]) == NULL) {
        len++;
    }
    *ret_word = slice_of(list->ptr, len);
    *list = slice_skip(*list, len);
    return len > 0;
}

bool settings_lists(struct slice list, struct slice word)
{
    struct slice one;

    while (settings_word(&list, &one)) {
        if (slice_equal(one, word)) {
            return true;
        }
    }
    return false;
}
