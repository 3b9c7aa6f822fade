#include "zenv.h"

#include "conf.h"
#include "conf_private.h"

struct zenv_variable {
    const char *name, *value;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Parses a line. Returns false if it is neither NAME=value nor empty or a comment. */
static bool parse_line(struct zenv *zenv, struct slice line, struct pool *pool)
{
    struct slice value = line, name = slice_cut(&value, '=');

    if (line.len == 0 || line.ptr[0] == '#') {
        return true;
    }
    if (value.ptr == NULL || name.len == 0 || slice_find(name, ' ') < name.len ||
        slice_find(name, '\t') < name.len) {
        return slice_trim(line).len == 0;
    }
    while (value.len > 0 && is_blank(value.ptr[0])) {
        value = slice_skip(value, 1);
    }
    if (zenv_find(zenv, name) == NULL) {
        zenv->variables[zenv->count++] =
            (struct zenv_variable){pool_string(pool, name), pool_string(pool, value)};
    }
    return true;
}

struct zenv zenv_parse(struct slice text, const char *file, struct pool *pool,
                       struct conf_problems *problems)
{
    struct zenv zenv = {pool_new(pool, ZENV_COUNT_MAX * sizeof *zenv.variables), 0};

    for (unsigned line_number = 1; text.len > 0; line_number++) {
        struct slice line = slice_cut(&text, '\n');

        if (slice_find(line, '\0') < line.len || line.len > CONF_LINE_MAX ||
            zenv.count == ZENV_COUNT_MAX) {
            problem_add(problems, CONF_ERROR, file, line_number, 1,
                        "a NUL byte, a line longer than %u bytes, or more than %u variables",
                        CONF_LINE_MAX, ZENV_COUNT_MAX);
            break;
        }
        if (!parse_line(&zenv, line, pool)) {
            problem_add(problems, CONF_WARNING, file, line_number, 1,
                        "not NAME=value: the line sets nothing");
        }
    }
    return zenv;
}

const char *zenv_find(const struct zenv *zenv, struct slice name)
{
    for (size_t i = 0; i < zenv->count; i++) {
        if (slice_equal(slice_string(zenv->variables[i].name), name)) {
            return zenv->variables[i].value;
        }
    }
    return NULL;
}

bool zenv_expand(struct slice text, const char *(*lookup)(const void *context, struct slice name),
                 const void *context, struct buf *out, struct slice *ret_bad)
{
    while (text.len > 0) {
        size_t plain = slice_find(text, '$');
        struct slice at = slice_skip(text, plain);

        if (!slice_starts(at, SLICE("${"))) {
            plain += at.len > 0;                           /* include the dollar sign itself */
            (void)buf_add(out, slice_of(text.ptr, plain)); /* sticky */
            text = slice_skip(text, plain);
            continue;
        }
        size_t end = slice_find(at, '}');
        struct slice name = slice_of(at.ptr + 2, end < at.len ? end - 2 : 0);
        const char *value = end < at.len ? lookup(context, name) : NULL;

        if (value == NULL) {
            *ret_bad = slice_of(at.ptr, end < at.len ? end + 1 : at.len);
            return false;
        }
        (void)buf_add(out, slice_of(text.ptr, plain));
        (void)buf_add_string(out, value);
        text = slice_skip(at, end + 1);
    }
    return true;
}
