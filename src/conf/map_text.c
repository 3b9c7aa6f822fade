#include "map_text.h"

#include <string.h>

#include "conf.h"

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

void map_text_init(struct map_text *m, struct slice text)
{
    *m = (struct map_text){.rest = text};
    buf_init(&m->joined, CONF_LINE_MAX);
    if (text.len > 0 && memchr(text.ptr, '\0', text.len) != NULL) {
        const char *end = memchr(text.ptr, '\0', text.len);

        m->error = "a NUL byte has no place in a text";
        m->rest = slice_of(NULL, 0);
        m->error_line = 1;
        for (const char *at = text.ptr; at < end; at++) {
            m->error_line += *at == '\n';
        }
    }
}

void map_text_fini(struct map_text *m)
{
    buf_fini(&m->joined);
}

static bool fail(struct map_text *m, unsigned line, const char *error)
{
    m->error = error;
    m->error_line = line;
    m->rest = slice_of(NULL, 0);
    return false;
}

/* Returns the next line that is neither empty nor a comment. */
static bool next_physical(struct map_text *m, struct slice *ret_line, struct slice *ret_trimmed)
{
    while (m->rest.ptr != NULL) {
        struct slice line = slice_cut(&m->rest, '\n'), trimmed = slice_trim(line);

        m->line++;
        if (trimmed.len > 0 && trimmed.ptr[0] != '#') {
            *ret_line = line;
            *ret_trimmed = trimmed;
            return true;
        }
    }
    return false;
}

/* Returns the next such line if it continues the previous one. Otherwise consumes nothing. */
static bool next_continuation(struct map_text *m, struct slice *ret_trimmed)
{
    struct map_text before = *m;
    struct slice line;

    if (next_physical(m, &line, ret_trimmed) && is_blank(line.ptr[0])) {
        return true;
    }
    m->rest = before.rest;
    m->line = before.line;
    return false;
}

bool map_text_next(struct map_text *m, struct map_line *ret_line)
{
    struct slice line, text, more;
    size_t key_len = 0;
    bool joined = false;

    if (m->error != NULL || !next_physical(m, &line, &text)) {
        return false;
    }
    ret_line->line = m->line;
    if (text.len > CONF_LINE_MAX) {
        return fail(m, m->line, "the line is longer than 65536 bytes");
    }
    while (next_continuation(m, &more)) {
        if (!joined) {
            buf_clear(&m->joined);
            (void)buf_add(&m->joined, text); /* errors are sticky */
            joined = true;
        }
        (void)buf_add_byte(&m->joined, ' '); /* errors are sticky */
        if (!buf_add(&m->joined, more)) {
            return fail(m, m->line, "the line is longer than 65536 bytes");
        }
    }
    text = joined ? buf_slice(&m->joined) : text;
    while (key_len < text.len && !is_blank(text.ptr[key_len])) {
        key_len++;
    }
    ret_line->whole = text;
    ret_line->key = slice_of(text.ptr, key_len);
    ret_line->value = slice_trim(slice_skip(text, key_len));
    ret_line->column = (unsigned)(ret_line->value.ptr - text.ptr) + 1;
    return true;
}

struct slice map_file_name(struct slice name)
{
    static const struct slice types[] = {
        {"texthash:", 9}, {"hash:", 5}, {"cidr:", 5}, {"pcre:", 5}};

    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (slice_starts(name, types[i])) {
            return slice_skip(name, types[i].len);
        }
    }
    return name;
}
