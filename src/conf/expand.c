#include "expand.h"

#include "conf.h"

struct expander {
    bool (*lookup)(void *context, struct slice name, struct slice *ret);
    void *context;
    struct buf *out;
    unsigned depth, steps;
    struct slice bad;
    const char *error;
};

static bool expand_text(struct expander *e, struct slice text);

static bool fail(struct expander *e, struct slice bad, const char *error)
{
    e->bad = bad;
    e->error = error;
    return false;
}

static size_t name_len(struct slice s)
{
    size_t len = 0;

    while (len < s.len && (ascii_is_alnum(s.ptr[len]) || s.ptr[len] == '_')) {
        len++;
    }
    return len;
}

/* Returns the index of the bracket that closes the one at s[0], or s.len. */
static size_t closing(struct slice s, char open, char close)
{
    size_t depth = 0;

    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == open) {
            depth++;
        } else if (s.ptr[i] == close && --depth == 0) {
            return i;
        }
    }
    return s.len;
}

static bool find(struct expander *e, struct slice name, struct slice *ret_value)
{
    if (++e->steps > EXPAND_STEPS_MAX) {
        return fail(e, name, "expands to too many values");
    }
    if (!e->lookup(e->context, name, ret_value)) {
        return fail(e, name, "is no known parameter");
    }
    return true;
}

/* Expands the text in brackets: a name, perhaps with `?text` or `:text`. */
static bool expand_bracketed(struct expander *e, struct slice inside)
{
    size_t len = name_len(inside);
    struct slice name = slice_of(inside.ptr, len), rest = slice_skip(inside, len), value;

    if (len == 0 || (rest.len > 0 && rest.ptr[0] != '?' && rest.ptr[0] != ':')) {
        return fail(e, inside, "is no name of a parameter");
    }
    if (!find(e, name, &value)) {
        return false;
    }
    if (rest.len == 0) {
        return expand_text(e, value);
    }

    /* Expand the value to see whether it is empty, then remove the expansion. */
    size_t before = buf_len(e->out);
    if (!expand_text(e, value)) {
        return false;
    }
    bool empty = slice_trim(slice_skip(buf_slice(e->out), before)).len == 0;
    buf_truncate(e->out, before);
    return (rest.ptr[0] == ':') != empty || expand_text(e, slice_skip(rest, 1));
}

/* Expands the text after a `$`, and removes it from *rest. */
static bool expand_dollar(struct expander *e, struct slice *rest)
{
    char open = rest->len > 0 ? rest->ptr[0] : '\0';
    struct slice value;
    size_t len;

    if (open == '$') {
        *rest = slice_skip(*rest, 1);
        (void)buf_add_byte(e->out, '$'); /* errors are sticky, checked in expand_text */
        return true;
    }
    if (open == '{' || open == '(') {
        len = closing(*rest, open, open == '{' ? '}' : ')');
        if (len == rest->len) {
            return fail(e, *rest, "has a bracket that nothing closes");
        }
        struct slice inside = slice_of(rest->ptr + 1, len - 1);
        *rest = slice_skip(*rest, len + 1);
        return expand_bracketed(e, inside);
    }
    len = name_len(*rest);
    if (len == 0) {
        return fail(e, *rest, "follows a `$' and is no name; a dollar sign is written `$$'");
    }
    struct slice name = slice_of(rest->ptr, len);
    *rest = slice_skip(*rest, len);
    return find(e, name, &value) && expand_text(e, value);
}

static bool expand_text(struct expander *e, struct slice text)
{
    if (++e->depth > CONF_DEPTH_MAX) {
        return fail(e, text, "contains itself, or is nested too deep");
    }
    while (text.len > 0) {
        size_t plain = slice_find(text, '$');

        (void)buf_add(e->out, slice_of(text.ptr, plain)); /* errors are sticky, checked below */
        text = slice_skip(text, plain);
        if (text.len > 0) {
            text = slice_skip(text, 1);
            if (!expand_dollar(e, &text)) {
                return false;
            }
        }
        if (e->out->failed) {
            return fail(e, text, "makes the value longer than 65536 bytes");
        }
    }
    e->depth--;
    return true;
}

bool expand(struct slice text, bool (*lookup)(void *context, struct slice name, struct slice *ret),
            void *context, struct buf *out, struct slice *ret_bad, const char **ret_error)
{
    struct expander e = {.lookup = lookup, .context = context, .out = out};

    if (!expand_text(&e, text)) {
        *ret_bad = e.bad;
        *ret_error = e.error;
        return false;
    }
    return true;
}
