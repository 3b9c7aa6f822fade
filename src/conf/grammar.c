#include "grammar.h"

#include "conf.h"

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r'; /* as in slice_trim */
}

/* Is `c` a letter, a digit, or another byte of names of transports and parameters? */
static bool is_name_byte(char c)
{
    return ascii_is_alnum(c) || c == '_' || c == '-' || c == '.';
}

static size_t skip_blanks(struct slice line, size_t at)
{
    while (at < line.len && is_blank(line.ptr[at])) {
        at++;
    }
    return at;
}

void grammar_init(struct grammar *g, struct slice text)
{
    *g = (struct grammar){.text = text};
    buf_init(&g->value, CONF_LINE_MAX);
}

void grammar_fini(struct grammar *g)
{
    buf_fini(&g->value);
}

/* ---- lines ---------------------------------------------------------------------------------- */

static struct slice peek_line(const struct grammar *g)
{
    struct slice rest = slice_skip(g->text, g->at);

    return slice_of(rest.ptr, slice_find(rest, '\n'));
}

/* Returns false at the end of the text. */
static bool take_line(struct grammar *g)
{
    if (g->at >= g->text.len) {
        return false;
    }
    g->line = peek_line(g);
    g->at += g->line.len + 1;
    g->line_number++;
    g->in_line = g->line.len;
    return true;
}

/* Does the line have only blanks or a comment? */
static bool is_empty_line(struct slice line)
{
    size_t at = skip_blanks(line, 0);

    return at == line.len || line.ptr[at] == '#';
}

static void bad(struct grammar *g, size_t at, const char *error, struct item *ret_item)
{
    *ret_item = (struct item){
        .kind = ITEM_BAD, .line = g->line_number, .column = (unsigned)at + 1, .error = error};
    g->in_line = g->line.len;
}

/* ---- words and values of clauses ------------------------------------------------------------ */

/* Reads quoted text from `at`, after the quote, perhaps over several lines. After success
 * g->in_line is after the closing quote. */
static bool quoted_value(struct grammar *g, size_t at, struct item *ret_item)
{
    unsigned line = g->line_number;

    buf_clear(&g->value);
    for (;;) {
        struct slice rest = slice_skip(g->line, at);
        size_t end = slice_find(rest, '"');

        if (end < rest.len) {
            (void)buf_add(&g->value, slice_of(rest.ptr, end)); /* errors are sticky, checked
                                                                * below */
            g->in_line = at + end + 1;
            break;
        }
        struct slice trimmed = rest;
        if (trimmed.len > 0 && trimmed.ptr[trimmed.len - 1] == '\r') {
            trimmed.len--;
        }
        if (trimmed.len == 0 || trimmed.ptr[trimmed.len - 1] != '\\') {
            bad(g, at, "a quoted value must end with `\"' on the same line", ret_item);
            return false;
        }
        (void)buf_add(&g->value, slice_of(trimmed.ptr, trimmed.len - 1));
        if (g->line.len > CONF_LINE_MAX || !take_line(g)) {
            bad(g, at, "the file ends within a quoted value", ret_item);
            return false;
        }
        at = 0;
    }
    if (g->value.failed) {
        bad(g, 0, "the value is longer than 65536 bytes", ret_item);
        ret_item->line = line;
        return false;
    }
    ret_item->value = buf_slice(&g->value);
    if (g->in_line < g->line.len && !is_blank(g->line.ptr[g->in_line])) {
        bad(g, g->in_line, "a blank is expected after the closing `\"'", ret_item);
        return false;
    }
    return true;
}

/* Reads the value at g->in_line. */
static bool word_value(struct grammar *g, struct item *ret_item)
{
    size_t at = skip_blanks(g->line, g->in_line), end = at;

    ret_item->value_line = g->line_number;
    ret_item->value_column = (unsigned)at + 1;
    if (at < g->line.len && g->line.ptr[at] == '"') {
        return quoted_value(g, at + 1, ret_item);
    }
    while (end < g->line.len && !is_blank(g->line.ptr[end])) {
        end++;
    }
    ret_item->value = slice_of(g->line.ptr + at, end - at);
    g->in_line = end;
    return true;
}

/* Reads the next word of a clause on the current line. Returns false if there is none. */
static bool clause_word(struct grammar *g, struct item *ret_item)
{
    size_t at = skip_blanks(g->line, g->in_line), end = at;

    if (at == g->line.len || g->line.ptr[at] == '#') {
        g->in_line = g->line.len;
        return false;
    }
    while (end < g->line.len && !is_blank(g->line.ptr[end]) && g->line.ptr[end] != '=') {
        end++;
    }
    if (end == at) {
        bad(g, at, "`=' without a name before it", ret_item);
        return true;
    }
    *ret_item = (struct item){.kind = ITEM_FLAG,
                              .line = g->line_number,
                              .column = (unsigned)at + 1,
                              .name = slice_of(g->line.ptr + at, end - at)};
    g->in_line = end;
    end = skip_blanks(g->line, end);
    if (end < g->line.len && g->line.ptr[end] == '=') {
        ret_item->kind = ITEM_VALUE;
        g->in_line = end + 1;
        (void)word_value(g, ret_item); /* false: ret_item has the error */
    }
    return true;
}

/* ---- lines that start in column 1 ----------------------------------------------------------- */

/* Reads `name = value` and its continuation lines. `equals` is the index of the `=`. */
static void parameter(struct grammar *g, size_t name_len, size_t equals, struct item *ret_item)
{
    size_t start = skip_blanks(g->line, equals + 1);

    *ret_item = (struct item){.kind = ITEM_PARAMETER,
                              .line = g->line_number,
                              .column = 1,
                              .value_line = g->line_number,
                              .value_column = (unsigned)start + 1,
                              .name = slice_of(g->line.ptr, name_len)};
    buf_clear(&g->value);
    (void)buf_add(&g->value, slice_trim(slice_skip(g->line, start)));
    while (g->at < g->text.len) {
        struct slice line = peek_line(g);

        if (!is_empty_line(line)) {
            if (!is_blank(line.ptr[0])) {
                break;
            }
            if (buf_len(&g->value) > 0) {
                (void)buf_add_byte(&g->value, ' ');
            }
            (void)buf_add(&g->value, slice_trim(line));
        }
        (void)take_line(g); /* the line exists: it was peeked at */
    }
    g->in_clause = false;
    if (g->value.failed) {
        struct item whole = *ret_item;

        bad(g, 0, "the value is longer than 65536 bytes", ret_item);
        ret_item->line = whole.line;
        ret_item->name = whole.name;
        return;
    }
    ret_item->value = buf_slice(&g->value);
}

/* Returns the name of a parameter that a line begins with; empty: it begins with something else. */
static struct slice parameter_name(struct slice line, size_t *ret_equals)
{
    size_t len = 0;

    while (len < line.len && is_name_byte(line.ptr[len])) {
        len++;
    }
    *ret_equals = skip_blanks(line, len);
    return slice_of(line.ptr, *ret_equals < line.len && line.ptr[*ret_equals] == '=' ? len : 0);
}

/* Reads `PARAMname = value`, which may stand between lines of a clause. */
static void param_line(struct grammar *g, struct item *ret_item)
{
    g->in_line = 0;
    (void)clause_word(g, ret_item); /* the line starts with a word */
    if (ret_item->kind == ITEM_BAD) {
        return;
    }
    if (ret_item->kind == ITEM_FLAG) {
        bad(g, ret_item->name.len, "`=' and a value are expected", ret_item);
        return;
    }
    size_t at = skip_blanks(g->line, g->in_line);
    if (at < g->line.len && g->line.ptr[at] != '#') {
        bad(g, at, "nothing is expected after the value of a PARAM line", ret_item);
        return;
    }
    ret_item->kind = ITEM_PARAM_LINE;
    ret_item->name = slice_skip(ret_item->name, 5);
    g->in_line = g->line.len;
}

static bool is_include(struct slice line)
{
    return slice_starts(line, SLICE("include")) && (line.len == 7 || is_blank(line.ptr[7]));
}

/* Determines the kind of a line that starts in column 1, and reads its first item. */
static void opening_line(struct grammar *g, struct item *ret_item)
{
    size_t equals;
    struct slice name = parameter_name(g->line, &equals);

    if (slice_starts_nocase(g->line, SLICE("PARAM"))) {
        param_line(g, ret_item);
        return;
    }
    if (equals < g->line.len && g->line.ptr[equals] == '=') {
        if (name.len == 0) {
            bad(g, 0, "`=' without a name before it", ret_item);
        } else {
            parameter(g, name.len, equals, ret_item);
        }
        return;
    }
    if (is_include(g->line)) {
        size_t at = skip_blanks(g->line, 7);

        g->in_clause = false;
        *ret_item = (struct item){.kind = ITEM_INCLUDE,
                                  .line = g->line_number,
                                  .column = 1,
                                  .value_line = g->line_number,
                                  .value_column = (unsigned)at + 1,
                                  .value = slice_trim(slice_skip(g->line, at))};
        return;
    }

    size_t end = 0;
    while (end < g->line.len && !is_blank(g->line.ptr[end])) {
        end++;
    }
    *ret_item = (struct item){.kind = ITEM_CLAUSE,
                              .line = g->line_number,
                              .column = 1,
                              .name = slice_of(g->line.ptr, end)};
    g->in_clause = true;
    g->in_line = end;
}

void grammar_next(struct grammar *g, struct item *ret_item)
{
    *ret_item = (struct item){.kind = ITEM_END, .line = g->line_number};
    if (g->in_line < g->line.len && clause_word(g, ret_item)) {
        return;
    }
    while (take_line(g)) {
        if (is_empty_line(g->line)) {
            continue;
        }
        if (g->line.len > CONF_LINE_MAX) {
            size_t equals;

            bad(g, 0, "the line is longer than 65536 bytes", ret_item);
            ret_item->name = parameter_name(g->line, &equals);
            return;
        }
        if (!is_blank(g->line.ptr[0])) {
            opening_line(g, ret_item);
            return;
        }
        if (!g->in_clause) {
            bad(g, skip_blanks(g->line, 0),
                "an indented line, but nothing before it that it continues", ret_item);
            return;
        }
        g->in_line = 0;
        if (clause_word(g, ret_item)) {
            return;
        }
    }
}
