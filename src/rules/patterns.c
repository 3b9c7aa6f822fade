#include "patterns.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "map_text.h"
#include "mem.h"

#define GROUPS_MAX 99 /* highest group that $n may name */

enum rule_kind { RULE_ACTION, RULE_IF, RULE_ENDIF };

struct rule {
    enum rule_kind kind;
    unsigned line;
    bool negated;
    pcre2_code *code; /* NULL for RULE_ENDIF */
    char *value;      /* for RULE_ACTION: as written */
    size_t after;     /* for RULE_IF: index of the rule after its endif */
};

struct patterns {
    enum action_place place;
    struct rule *rules;
    size_t count, size;
    pcre2_match_context *context;
    pcre2_match_data *match;
};

/* ---- reading -------------------------------------------------------------------------------- */

struct reader {
    struct patterns *p;
    const struct conf *conf;
    size_t open[PATTERNS_DEPTH_MAX]; /* indexes of each `if' whose endif was not read yet */
    size_t depth;
    struct patterns_error *error;
    struct slice whole;
    unsigned line;
};

__attribute__((format(printf, 3, 4))) static bool fail(struct reader *r, const char *at,
                                                       const char *format, ...)
{
    va_list args;

    r->error->line = r->line;
    r->error->column = (unsigned)(at - r->whole.ptr) + 1;
    va_start(args, format);
    (void)vsnprintf(r->error->text, sizeof r->error->text, format, args); /* cut at worst */
    va_end(args);
    return false;
}

static bool take_flags(struct reader *r, struct slice *rest, uint32_t *ret_options)
{
    static const struct {
        char letter;
        uint32_t option;
    } flags[] = {{'i', PCRE2_CASELESS}, {'m', PCRE2_MULTILINE},       {'s', PCRE2_DOTALL},
                 {'x', PCRE2_EXTENDED}, {'A', PCRE2_ANCHORED},        {'E', PCRE2_DOLLAR_ENDONLY},
                 {'U', PCRE2_UNGREEDY}, {'X', 0 /* always so, now */}};
    uint32_t options = PCRE2_CASELESS | PCRE2_DOTALL | PCRE2_MATCH_INVALID_UTF;

    while (rest->len > 0 && rest->ptr[0] != ' ' && rest->ptr[0] != '\t') {
        size_t i = 0;

        while (i < sizeof flags / sizeof flags[0] && flags[i].letter != rest->ptr[0]) {
            i++;
        }
        if (i == sizeof flags / sizeof flags[0]) {
            return fail(r, rest->ptr,
                        "expected a flag of i, m, s, x, A, E, U or a blank after the "
                        "pattern");
        }
        options ^= flags[i].option;
        *rest = slice_skip(*rest, 1);
    }
    *ret_options = options;
    return true;
}

/* Takes the pattern with its flags off the front of *rest. */
static bool take_pattern(struct reader *r, struct slice *rest, struct rule *rule)
{
    struct slice pattern;
    PCRE2_UCHAR message[200];
    PCRE2_SIZE offset;
    uint32_t options;
    size_t len = 1;
    int error;

    if (rest->len > 0 && rest->ptr[0] == '!') {
        rule->negated = true;
        *rest = slice_trim(slice_skip(*rest, 1));
    }
    if (rest->len == 0 || ascii_is_alnum(rest->ptr[0]) || rest->ptr[0] == '!' ||
        (unsigned char)rest->ptr[0] <= ' ') {
        return fail(r, rest->ptr, "expected /PATTERN/FLAGS ACTION, if /PATTERN/, or endif");
    }
    while (len < rest->len && rest->ptr[len] != rest->ptr[0]) {
        len += rest->ptr[len] == '\\' && len + 1 < rest->len ? 2 : 1;
    }
    if (len >= rest->len) {
        return fail(r, rest->ptr, "expected a `%c' at the end of the pattern", rest->ptr[0]);
    }
    pattern = slice_of(rest->ptr + 1, len - 1);
    *rest = slice_skip(*rest, len + 1);
    if (!take_flags(r, rest, &options)) {
        return false;
    }
    *rest = slice_trim(*rest);
    rule->code =
        pcre2_compile((PCRE2_SPTR)pattern.ptr, pattern.len, options, &error, &offset, NULL);
    if (rule->code == NULL) {
        (void)pcre2_get_error_message(error, message, sizeof message); /* cut at worst */
        return fail(r, pattern.ptr + offset, "the pattern is invalid: %s", (const char *)message);
    }
    return true;
}

/* Takes the number of a group after a `$` off the front; returns -1 if there is none. */
static int take_group(struct slice *text)
{
    const char open = text->len > 0 ? text->ptr[0] : '\0';
    const char close = open == '{' ? '}' : open == '(' ? ')' : '\0';
    struct slice rest = slice_skip(*text, close != '\0' ? 1 : 0), digits;
    unsigned long long number;
    size_t len = 0;

    while (len < rest.len && ascii_is_digit(rest.ptr[len])) {
        len++;
    }
    digits = slice_of(rest.ptr, len);
    rest = slice_skip(rest, len);
    if (!slice_number(digits, GROUPS_MAX, &number) ||
        (close != '\0' && (rest.len == 0 || rest.ptr[0] != close))) {
        return -1;
    }
    *text = slice_skip(rest, close != '\0' ? 1 : 0);
    return (int)number;
}

/* Is every `$` of the value followed by a group of the pattern or a `$`? */
static bool check_groups(struct reader *r, const struct rule *rule, struct slice value)
{
    uint32_t groups = 0;

    CHECK(pcre2_pattern_info(rule->code, PCRE2_INFO_CAPTURECOUNT, &groups) == 0);
    while (slice_find(value, '$') < value.len) {
        const char *at = value.ptr + slice_find(value, '$');
        int group;

        value = slice_skip(value, slice_find(value, '$') + 1);
        if (value.len > 0 && value.ptr[0] == '$') {
            value = slice_skip(value, 1);
            continue;
        }
        group = take_group(&value);
        if (group < 0) {
            return fail(r, at, "expected the number of a group after `$'; $$ is a dollar");
        }
        if (rule->negated) {
            return fail(r, at, "a negated pattern has no groups");
        }
        if ((uint32_t)group > groups) {
            return fail(r, at, "the pattern has %u groups, there is no $%d", groups, group);
        }
    }
    return true;
}

/* Closes the innermost open `if`. */
static bool close_if(struct reader *r)
{
    if (r->depth == 0) {
        return fail(r, r->whole.ptr, "endif without `if'");
    }
    r->p->rules[r->open[--r->depth]].after = r->p->count;
    return true;
}

static bool read_rule(struct reader *r, struct slice rest, struct rule *rule)
{
    struct action action;
    const char *error;

    if (slice_equal_nocase(rest, SLICE("endif"))) {
        rule->kind = RULE_ENDIF;
        return true;
    }
    if (slice_starts_nocase(rest, SLICE("if")) && rest.len > 2 && !ascii_is_alnum(rest.ptr[2])) {
        rule->kind = RULE_IF;
        rest = slice_trim(slice_skip(rest, 2));
        if (!take_pattern(r, &rest, rule)) {
            return false;
        }
        if (rest.len > 0) {
            return fail(r, rest.ptr, "expected nothing after the pattern of an `if'");
        }
        if (r->depth == PATTERNS_DEPTH_MAX) {
            return fail(r, r->whole.ptr, "more than %d nested `if'", PATTERNS_DEPTH_MAX);
        }
        r->open[r->depth++] = r->p->count;
        return true;
    }
    if (!take_pattern(r, &rest, rule)) {
        return false;
    }
    error = action_parse(rest, r->p->place, false, r->conf, &action);
    if (error != NULL) {
        return fail(r, rest.ptr, "`%.*s' %s", rest.len > 60 ? 60 : (int)rest.len, rest.ptr, error);
    }
    rule->value = mem_copy(rest.ptr, rest.len);
    return check_groups(r, rule, rest);
}

static bool add_line(struct reader *r, const struct map_line *line)
{
    struct patterns *p = r->p;
    struct rule *rule;

    r->whole = line->whole;
    r->line = line->line;
    if (p->count == PATTERNS_MAX) {
        return fail(r, r->whole.ptr, "more than %u lines of patterns", PATTERNS_MAX);
    }
    p->rules = mem_grow(p->rules, p->count, &p->size, sizeof *p->rules);
    rule = &p->rules[p->count];
    *rule = (struct rule){.line = line->line};
    if (!read_rule(r, line->whole, rule)) {
        p->count++; /* to be freed */
        return false;
    }
    p->count++;
    return rule->kind != RULE_ENDIF || close_if(r);
}

static bool read_all(struct reader *r, struct slice content)
{
    struct map_text text;
    struct map_line line;
    bool ok = true;

    map_text_init(&text, content);
    while (ok && map_text_next(&text, &line)) {
        ok = add_line(r, &line);
    }
    if (ok && text.error != NULL) {
        r->line = text.error_line;
        r->whole = SLICE("");
        ok = fail(r, r->whole.ptr, "%s", text.error);
    }
    if (ok && r->depth > 0) {
        r->line = r->p->rules[r->open[r->depth - 1]].line;
        r->whole = SLICE("");
        ok = fail(r, r->whole.ptr, "expected an endif for this `if'");
    }
    map_text_fini(&text);
    return ok;
}

struct patterns *patterns_new(struct slice text, enum action_place place, const struct conf *conf,
                              struct patterns_error *ret_error)
{
    struct patterns *p = mem_new(sizeof *p);
    struct reader r = {.p = p, .conf = conf, .error = ret_error};

    p->place = place;
    if (!read_all(&r, text)) {
        patterns_free(p);
        return NULL;
    }
    p->context = pcre2_match_context_create(NULL);
    p->match = pcre2_match_data_create(GROUPS_MAX + 1, NULL);
    CHECK(p->context != NULL);
    CHECK(p->match != NULL);
    CHECK(pcre2_set_match_limit(p->context, PATTERNS_STEPS_MAX) == 0);
    CHECK(pcre2_set_depth_limit(p->context, PATTERNS_STEPS_MAX) == 0);
    CHECK(pcre2_set_heap_limit(p->context, PATTERNS_MEMORY_KIB) == 0);
    return p;
}

void patterns_free(struct patterns *p)
{
    for (size_t i = 0; p != NULL && i < p->count; i++) {
        pcre2_code_free(p->rules[i].code);
        mem_free(p->rules[i].value);
    }
    if (p != NULL) {
        pcre2_match_context_free(p->context);
        pcre2_match_data_free(p->match);
        mem_free(p->rules);
        mem_free(p);
    }
}

/* ---- matching ------------------------------------------------------------------------------- */

/* Appends a group without control characters: a group may contain any byte, and the line ends of a
 * folded field. */
static void add_group(const struct patterns *p, struct slice subject, int group, struct buf *out)
{
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(p->match);
    PCRE2_SIZE start = at[2 * group], end = at[2 * group + 1];

    if ((uint32_t)group >= pcre2_get_ovector_count(p->match) || start == PCRE2_UNSET ||
        end <= start || end > subject.len) {
        return; /* the group did not take part in the match */
    }
    end = end - start > PATTERNS_GROUP_MAX ? start + PATTERNS_GROUP_MAX : end;
    for (PCRE2_SIZE i = start; i < end; i++) {
        char c = subject.ptr[i];

        (void)buf_add_byte(out, (unsigned char)c < ' ' || c == 127 ? ' ' : c); /* sticky */
    }
}

static void expand(const struct patterns *p, const struct rule *rule, struct slice subject,
                   struct buf *out)
{
    struct slice value = slice_string(rule->value);

    buf_clear(out);
    while (value.len > 0) {
        size_t dollar = slice_find(value, '$');

        (void)buf_add(out, slice_of(value.ptr, dollar)); /* sticky, like the next */
        value = slice_skip(value, dollar + 1);
        if (value.len > 0 && value.ptr[0] == '$') {
            (void)buf_add_byte(out, '$');
            value = slice_skip(value, 1);
        } else if (value.len > 0) {
            int group = take_group(&value);

            if (group >= 0) {
                add_group(p, subject, group, out);
            }
        }
    }
}

static enum patterns_result act(const struct patterns *p, const struct rule *rule,
                                struct slice subject, struct buf *room,
                                struct patterns_hit *ret_hit)
{
    expand(p, rule, subject, room);
    ret_hit->why = room->failed
                       ? "its text is too long"
                       : action_parse(buf_slice(room), p->place, true, NULL, &ret_hit->action);
    return ret_hit->why != NULL ? PATTERNS_BAD : PATTERNS_FOUND;
}

static const char *limit_name(int error)
{
    switch (error) {
    case PCRE2_ERROR_MATCHLIMIT:
    case PCRE2_ERROR_DEPTHLIMIT:
        return "more than 200000 steps";
    case PCRE2_ERROR_HEAPLIMIT:
    case PCRE2_ERROR_NOMEMORY:
        return "more than 20 MB of memory";
    default:
        return "an error of PCRE2";
    }
}

enum patterns_result patterns_match(const struct patterns *p, struct slice subject,
                                    struct buf *room, struct patterns_hit *ret_hit)
{
    for (size_t i = 0; i < p->count;) {
        const struct rule *rule = &p->rules[i++];
        int found;

        ret_hit->line = rule->line;
        if (rule->kind == RULE_ENDIF) {
            continue;
        }
        found = pcre2_match(rule->code, (PCRE2_SPTR)(subject.len > 0 ? subject.ptr : ""),
                            subject.len, 0, 0, p->match, p->context);
        if (found < 0 && found != PCRE2_ERROR_NOMATCH) {
            ret_hit->why = limit_name(found);
            return PATTERNS_LIMIT;
        }
        if ((found >= 0) != rule->negated) {
            if (rule->kind == RULE_ACTION) {
                return act(p, rule, subject, room, ret_hit);
            }
        } else if (rule->kind == RULE_IF) {
            i = rule->after;
        }
    }
    return PATTERNS_NONE;
}
