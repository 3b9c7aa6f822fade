/*
 * Loading takes several steps, because a value may name a parameter further down:
 *
 *   read       items of the file and its includes: settings and overrides are stored as raw text,
 *              clauses are parsed
 *   evaluate   each setting is expanded and parsed into struct conf and its defaults
 *   finish     paths, policies of transports, routing tables, invalid combinations
 *
 * Every step continues after an error, so that one run prints all errors.
 */
#include "conf.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "callout_target.h"
#include "check.h"
#include "conf_private.h"
#include "expand.h"
#include "grammar.h"
#include "match.h"
#include "mem.h"
#include "milter_list.h"
#include "nearest.h"
#include "nexthop.h"
#include "route.h"

#define PROBLEM_TEXT_MAX 1024 /* bytes; quoted text is cut to QUOTE_MAX */
#define QUOTE_MAX        100
#define OVERRIDES_MAX    10000u
#define READ_CHUNK       65536

struct loader {
    struct conf *conf;
    struct conf_private *inner;
    struct conf_problems *problems;
    const char *directory; /* directory of the configuration file; absolute */
    const char *hostname;
    const char *mydomain; /* default of the parameter */
    unsigned includes, depth;
    struct layer *defaults_clause; /* values of rule 3 of policy.h */
    struct clause_body *body;      /* body of the open clause; NULL: none */
    bool body_has_values;
    bool in_defaults_clause;
    bool in_class_clause;
    size_t first_empty;        /* index of the first clause that waits for a body with values */
    const char *const *needed; /* parameters that must be valid, of conf_load_places; NULL: all */
    bool needed_is_bad;
    bool unread; /* true if a file that may set them could not be read */
    size_t clause_room, override_room;
    struct doubt *doubts, **doubts_end;
};

/* A fault in a clause whose severity depends on the dialect of the configuration, which is not
 * known yet. It is a warning if the dialect is `by`, whose reading was used, and an error
 * otherwise. */
struct doubt {
    struct doubt *next;
    const struct conf_dialect *by;
    const char *problem, *remedy; /* the text is `problem`, and for a warning also `remedy` */
    const char *file;
    unsigned line, column;
};

/* ---- problems ------------------------------------------------------------------------------- */

void problem_add(struct conf_problems *problems, enum conf_severity severity, const char *file,
                 unsigned line, unsigned column, const char *format, ...)
{
    char text[PROBLEM_TEXT_MAX];
    va_list args;

    problems->errors += severity == CONF_ERROR;
    if (problems->count == CONF_PROBLEMS_MAX) {
        problems->dropped++;
        return;
    }
    va_start(args, format);
    CHECK(vsnprintf(text, sizeof text, format, args) >= 0);
    va_end(args);
    problems->at[problems->count++] = (struct conf_problem){
        severity, mem_string(file), line, column, mem_string(text),
    };
}

void conf_problems_fini(struct conf_problems *problems)
{
    for (size_t i = 0; i < problems->count; i++) {
        mem_free(problems->at[i].file);
        mem_free(problems->at[i].text);
    }
    *problems = (struct conf_problems){.count = 0};
}

struct slice problem_quote(struct slice s)
{
    s.len = s.len > QUOTE_MAX ? QUOTE_MAX : s.len;
    return s;
}

static void put_bad_value(struct buf *out, const struct param *p, const char *name,
                          struct slice bad)
{
    (void)buf_addf(out, "%s: found `%.*s', expected ", name, SLICE_ARGS(problem_quote(bad)));
    param_add_expected(out, p); /* errors are sticky and cut the text */
    (void)buf_add_string(out,
                         p->type == PARAM_LIST && param_is_table(bad) && strcmp(name, "listen") != 0
                             ? "; tables of Postfix are not read"
                             : "");
}

static void bad_value(struct loader *l, const struct param *p, const char *name, struct slice bad,
                      const char *file, unsigned line, unsigned column)
{
    struct buf text;

    buf_init(&text, PROBLEM_TEXT_MAX);
    put_bad_value(&text, p, name, bad);
    problem_add(l->problems, CONF_ERROR, file, line, column, "%s", buf_cstr(&text));
    buf_fini(&text);
}

/* Adds the end of a warning: the value that is used instead; NULL: none. */
static void put_remedy(struct buf *out, const char *value)
{
    if (value == NULL) {
        (void)buf_add_string(out, "; what holds without it holds"); /* errors are sticky */
    } else {
        (void)buf_addf(out, "; read as `%.*s'", SLICE_ARGS(problem_quote(slice_string(value))));
    }
}

static void add_doubt(struct loader *l, const struct conf_dialect *by, const char *problem,
                      const char *remedy, const char *file, unsigned line, unsigned column)
{
    struct doubt *d = pool_new(&l->inner->pool, sizeof *d);

    *d = (struct doubt){
        .by = by,
        .problem = pool_string(&l->inner->pool, slice_string(problem)),
        .remedy = pool_string(&l->inner->pool, slice_string(remedy)),
        .file = file,
        .line = line,
        .column = column,
    };
    *l->doubts_end = d;
    l->doubts_end = &d->next;
}

/* Reports the doubts when the dialect is known. */
static void settle_doubts(struct loader *l)
{
    for (const struct doubt *d = l->doubts; d != NULL; d = d->next) {
        bool tolerated = d->by == l->inner->dialect;

        problem_add(l->problems, tolerated ? CONF_WARNING : CONF_ERROR, d->file, d->line, d->column,
                    "%s%s", d->problem, tolerated ? d->remedy : "");
    }
}

static void unknown_name(struct loader *l, const char *what, struct slice name, bool in_clause,
                         const char *file, const struct item *item)
{
    struct buf nearest;

    buf_init(&nearest, PROBLEM_TEXT_MAX);
    param_add_nearest(&nearest, name, in_clause);
    problem_add(l->problems, CONF_ERROR, file, item->line, item->column, "unknown %s `%.*s'%s",
                what, SLICE_ARGS(problem_quote(name)), buf_cstr(&nearest));
    buf_fini(&nearest);
}

/* ---- needs of tools ------------------------------------------------------------------------- */

/* Does conf_load_places take this parameter from the file? */
static bool is_place(const struct param *p)
{
    static const char *const places[] = {"state_directory", "maildrop", "control_socket", "spool",
                                         "message_size_limit"};

    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        if (strcmp(p->name, places[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_needed(const struct loader *l, const char *name)
{
    for (const char *const *at = l->needed; at != NULL && *at != NULL; at++) {
        if (strcmp(*at, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Returns the needed parameter that a mistyped name stands for; NULL: none. No daemon runs with
 * such a file. A corrected file will have the value under the right name. */
static const struct param *find_needed(const struct loader *l, struct slice typed)
{
    struct nearest n;

    nearest_init(&n, typed);
    for (const char *const *at = l->needed; at != NULL && *at != NULL; at++) {
        nearest_try(&n, *at);
    }
    return n.name == NULL ? NULL : param_find(slice_string(n.name));
}

/* ---- files ---------------------------------------------------------------------------------- */

static int file_read_here(const char *path, struct buf *content)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), error = 0;
    struct stat st;
    ssize_t n;

    if (fd < 0) {
        return -errno;
    }
    if (fstat(fd, &st) != 0) {
        error = -errno;
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        error = S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
        goto out;
    }
    do {
        size_t left = content->limit - buf_len(content);
        char *room = buf_room(content, left < READ_CHUNK ? left : READ_CHUNK);

        n = left == 0 ? 0 : read(fd, room, left < READ_CHUNK ? left : READ_CHUNK);
        if (n < 0) {
            error = -errno;
            goto out;
        }
        buf_grew(content, (size_t)n);
    } while (n > 0);
    if (buf_len(content) == content->limit) {
        error = -EFBIG;
    }
out:
    (void)close(fd); /* was only read */
    return error;
}

int file_read(const struct conf_world *world, const char *path, struct buf *content)
{
    return world != NULL && world->read != NULL
               ? world->read(world->arg, path, content->limit, content)
               : file_read_here(path, content);
}

const char *path_below(struct pool *pool, const char *directory, struct slice path)
{
    size_t len = strlen(directory);

    if (path.len > 0 && path.ptr[0] == '/') {
        return pool_string(pool, path);
    }
    len -= len == 1 && directory[0] == '/'; /* below the root one slash is enough */
    char *joined = pool_new(pool, len + 1 + path.len + 1);
    memcpy(joined, directory, len);
    joined[len] = '/';
    if (path.len > 0) {
        memcpy(joined + len + 1, path.ptr, path.len);
    }
    return joined;
}

/* ---- step 1: read --------------------------------------------------------------------------- */

static void read_text(struct loader *l, struct slice text, const char *file);

static void *grow(struct pool *pool, void *old, size_t count, size_t *room, size_t size)
{
    if (count < *room) {
        return old;
    }
    size_t wider = *room == 0 ? 16 : *room * 2;
    void *array = pool_new(pool, wider * size);
    if (count > 0) {
        memcpy(array, old, count * size);
    }
    *room = wider;
    return array;
}

static void set_parameter(struct loader *l, const struct param *p, const struct item *item,
                          const char *file)
{
    struct setting *s = &l->inner->settings[p - param_table];

    if (s->raw != NULL) {
        problem_add(l->problems, CONF_WARNING, file, item->line, item->column,
                    "%.*s was set before, at %s:%u; this value holds",
                    SLICE_ARGS(problem_quote(item->name)), s->file, s->line);
    }
    if (param_is_idle(p)) {
        problem_add(l->problems, CONF_WARNING, file, item->line, item->column, "%.*s has %s",
                    SLICE_ARGS(problem_quote(item->name)), p->meaning);
    }
    *s = (struct setting){pool_string(&l->inner->pool, item->value), file, item->value_line,
                          item->value_column};
}

static void read_parameter(struct loader *l, const struct item *item, const char *file)
{
    struct conf_private *inner = l->inner;
    const struct param *p = param_find(item->name);
    struct slice transport;

    if (p != NULL) {
        set_parameter(l, p, item, file);
        return;
    }
    if (param_is_harmless(item->name)) {
        problem_add(l->problems, CONF_WARNING, file, item->line, item->column,
                    "%.*s is Postfix's, has no effect here, and is not missed",
                    SLICE_ARGS(problem_quote(item->name)));
        return;
    }
    /* smtpd_tls_security_level is no value of a transport smtpd. */
    p = param_translation(item->name) != NULL ? NULL : param_find_override(item->name, &transport);
    if (p == NULL) {
        struct setting *meant;

        unknown_name(l, "parameter", item->name, false, file, item);
        p = find_needed(l, item->name);
        meant = p == NULL ? NULL : &inner->settings[p - param_table];
        if (meant != NULL && meant->raw == NULL) {
            *meant = (struct setting){pool_string(&inner->pool, item->value), file,
                                      item->value_line, item->value_column};
        }
        return;
    }
    if (inner->override_count == OVERRIDES_MAX) {
        problem_add(l->problems, CONF_ERROR, file, item->line, item->column,
                    "more than %u settings for single transports", OVERRIDES_MAX);
        return;
    }
    inner->overrides = grow(&inner->pool, inner->overrides, inner->override_count,
                            &l->override_room, sizeof *inner->overrides);
    inner->overrides[inner->override_count++] = (struct override){
        .param = p,
        .transport = pool_string(&inner->pool, transport),
        .name = pool_string(&inner->pool, item->name),
        .raw = pool_string(&inner->pool, item->value),
        .file = file,
        .line = item->value_line,
        .column = item->value_column,
    };
}

static void read_param_line(struct loader *l, const struct item *item, const char *file)
{
    const struct param *p = dialects_param(item->name);

    if (p == NULL) {
        const char *expected = dialects_at(0) != NULL ? dialects_at(0)->params : "none";

        problem_add(l->problems, CONF_ERROR, file, item->line, item->column,
                    "unknown PARAM `%.*s', expected %s", SLICE_ARGS(problem_quote(item->name)),
                    expected);
        return;
    }
    set_parameter(l, p, item, file);
}

/* Closes a clause with values. Previous clauses without values share its body. */
static void close_clause(struct loader *l)
{
    struct conf_private *inner = l->inner;

    if (l->body == NULL || !l->body_has_values) {
        return;
    }
    for (size_t i = l->first_empty; i < inner->clause_count; i++) {
        inner->clauses[i].body = l->body;
    }
    l->first_empty = inner->clause_count;
    l->body = NULL;
}

/* Closes the last clause of destinations or of classes. No further clause has values for those
 * without. */
static void close_kind(struct loader *l)
{
    struct conf_private *inner = l->inner;

    close_clause(l);
    for (size_t i = l->first_empty; i < inner->clause_count; i++) {
        problem_add(l->problems, CONF_WARNING, inner->clauses[i].file, inner->clauses[i].line, 1,
                    "clause `%s' has no values, and none follows whose values it could take",
                    inner->clauses[i].pattern);
    }
    l->first_empty = inner->clause_count;
}

static struct slice lower_copy(struct pool *pool, struct slice s)
{
    char *copy = pool_string(pool, s);

    for (size_t i = 0; i < s.len; i++) {
        copy[i] = ascii_lower(copy[i]);
    }
    return slice_of(copy, s.len);
}

/* Returns a half of a clause's pattern. A dialect may replace an invalid one. */
static struct slice read_pattern(struct loader *l, struct slice half,
                                 const char *error_of(struct slice pattern),
                                 const struct item *item, const char *file)
{
    const struct conf_dialect *tolerant = dialects_tolerant();
    const char *error = error_of(half);
    struct buf problem, remedy;

    if (error == NULL) {
        return half;
    }
    buf_init(&problem, PROBLEM_TEXT_MAX);
    buf_init(&remedy, PROBLEM_TEXT_MAX);
    (void)buf_addf(&problem, "pattern `%.*s': %s", SLICE_ARGS(problem_quote(item->name)), error);
    if (tolerant == NULL) {
        problem_add(l->problems, CONF_ERROR, file, item->line, item->column, "%s",
                    buf_cstr(&problem));
    } else {
        half = tolerant->tolerate_pattern(half, &l->inner->pool);
        if (error_of(half) == NULL) {
            put_remedy(&remedy, pool_string(&l->inner->pool, half));
        } else {
            (void)buf_add_string(&remedy, "; it matches nothing"); /* errors are sticky */
        }
        add_doubt(l, tolerant, buf_cstr(&problem), buf_cstr(&remedy), file, item->line,
                  item->column);
    }
    buf_fini(&problem);
    buf_fini(&remedy);
    return half;
}

static void open_clause(struct loader *l, const struct item *item, const char *file)
{
    struct conf_private *inner = l->inner;
    struct slice host = item->name, channel = slice_cut(&host, '/');
    char canonical[ROUTE_NEXTHOP_MAX];
    bool is_class = slice_equal(channel, SLICE("class")) && host.ptr != NULL;

    if (is_class != l->in_class_clause) {
        close_kind(l);
    } else {
        close_clause(l);
    }
    l->body = NULL;
    l->in_class_clause = is_class;
    if (host.ptr == NULL) {
        host = SLICE("*");
    }
    channel = read_pattern(l, channel, glob_error, item, file);
    host = read_pattern(l, host, is_class ? glob_error : nexthop_pattern_error, item, file);
    l->in_defaults_clause = slice_equal(channel, SLICE("*")) && slice_equal(host, SLICE("*"));
    if (l->in_defaults_clause) {
        struct layer *next = pool_new(&inner->pool, sizeof *next);

        if (l->defaults_clause != NULL) {
            *next = *l->defaults_clause;
        }
        l->defaults_clause = next;
        return;
    }
    if (inner->clause_count == CONF_CLAUSES_MAX) {
        problem_add(l->problems, CONF_ERROR, file, item->line, item->column, "more than %u clauses",
                    CONF_CLAUSES_MAX);
        return;
    }
    inner->clauses = grow(&inner->pool, inner->clauses, inner->clause_count, &l->clause_room,
                          sizeof *inner->clauses);
    l->body = pool_new(&inner->pool, sizeof *l->body);
    l->body->base = l->defaults_clause;
    l->body_has_values = false;
    host = is_class ? host : nexthop_canonical(host, canonical, sizeof canonical);
    inner->clauses[inner->clause_count++] = (struct clause){
        .pattern = pool_string(&inner->pool, item->name),
        .channel = slice_of(pool_string(&inner->pool, channel), channel.len),
        .lower_channel = lower_copy(&inner->pool, channel),
        .host = lower_copy(&inner->pool, host),
        .body = l->body,
        .is_class = is_class,
        .file = file,
        .line = item->line,
    };
}

/* Returns the pattern of the open clause. */
static const char *pattern_of(const struct loader *l)
{
    return l->in_defaults_clause ? "*/*"
           : l->body != NULL     ? l->inner->clauses[l->inner->clause_count - 1].pattern
                                 : "";
}

/* Is the text the name or number of a user (a group)? */
static bool account_exists(struct slice name, bool is_group)
{
    char text[256];
    unsigned long long number;

    if (slice_number(name, UINT32_MAX - 1, &number) || name.len == 0 ||
        (!is_group && slice_equal(name, SLICE(POLICY_USER_MAIL_OWNER)))) {
        return true;
    }
    if (name.len >= sizeof text) {
        return false;
    }
    memcpy(text, name.ptr, name.len);
    text[name.len] = '\0';
    return is_group ? getgrnam(text) != NULL : getpwnam(text) != NULL;
}

/* Checks user= and group=, if this process should. Appends the fault to *problem and returns
 * false. */
static bool account_ok(struct loader *l, const struct param *p, struct slice value,
                       struct buf *problem)
{
    bool is_group = strcmp(p->suffix, "group") == 0;

    if ((!is_group && strcmp(p->suffix, "user") != 0) || l->inner->world == NULL ||
        !l->inner->world->check_users || account_exists(value, is_group)) {
        return true;
    }
    (void)buf_addf(problem, "%s: there is no %s `%.*s' here", p->suffix, p->suffix,
                   SLICE_ARGS(problem_quote(value))); /* errors are sticky */
    return false;
}

/* Parses a value into a layer. Returns false after an error, with its text in *problem. */
static bool take_clause_value(struct loader *l, struct layer *layer, const struct param *p,
                              struct slice value, struct policy_origin from, struct buf *problem)
{
    struct slice bad;

    if (!layer_parse(layer, p, value, from, &l->inner->pool, &bad)) {
        put_bad_value(problem, p, p->suffix, bad);
        return false;
    }
    return account_ok(l, p, value, problem);
}

/* Parses the replacement of a value by a dialect, as take_clause_value. Returns false if there is
 * none. */
static bool take_tolerated(struct loader *l, struct layer *layer, const struct param *p,
                           struct slice value, struct policy_origin from, const char *problem)
{
    const struct conf_dialect *tolerant = dialects_tolerant();
    struct buf remedy;
    const char *read;
    bool ok;

    if (tolerant == NULL || !tolerant->tolerate(p, value, &l->inner->pool, &read)) {
        return false;
    }
    buf_init(&remedy, PROBLEM_TEXT_MAX);
    ok = read == NULL || take_clause_value(l, layer, p, slice_string(read), from, &remedy);
    if (ok) {
        put_remedy(&remedy, read);
        add_doubt(l, tolerant, problem, buf_cstr(&remedy), from.file, from.line, from.column);
    }
    buf_fini(&remedy);
    return ok;
}

static void read_clause_value(struct loader *l, const struct item *item, const char *file)
{
    const struct param *p = param_find_in_clause(item->name);
    bool is_flag = item->kind == ITEM_FLAG;
    struct slice value = is_flag ? SLICE("yes") : slice_trim(item->value);
    struct buf problem;
    struct layer scratch = {.set = {false}};
    struct layer *layer = l->in_defaults_clause ? l->defaults_clause
                          : l->body != NULL     ? &l->body->own
                                                : &scratch; /* values of a clause beyond the
                                                             * limit */

    l->body_has_values = true;
    if (p == NULL) {
        unknown_name(l, "word in a clause,", item->name, true, file, item);
        if (is_flag && find_needed(l, slice_string(pattern_of(l))) != NULL) {
            l->needed_is_bad = true; /* likely a needed parameter without its `=' */
        }
        return;
    }
    if ((strcmp(p->suffix, "weight") == 0 || strcmp(p->suffix, "fairness") == 0) !=
        l->in_class_clause) {
        problem_add(l->problems, CONF_ERROR, file, item->line, item->column,
                    l->in_class_clause ? "%s: a class has weight= and fairness= and nothing else"
                                       : "%s is for clauses class/NAME only",
                    p->suffix);
        return;
    }
    if (is_flag && p->type != PARAM_BOOL) {
        problem_add(l->problems, CONF_ERROR, file, item->line, item->column,
                    "%s needs a value: %s=...", p->suffix, p->suffix);
        return;
    }
    struct policy_origin from = {
        .file = file,
        .line = is_flag ? item->line : item->value_line,
        .column = is_flag ? item->column : item->value_column,
        .name = pattern_of(l),
    };
    buf_init(&problem, PROBLEM_TEXT_MAX);
    if (!take_clause_value(l, layer, p, value, from, &problem) &&
        !take_tolerated(l, layer, p, value, from, buf_cstr(&problem))) {
        problem_add(l->problems, CONF_ERROR, file, from.line, from.column, "%s",
                    buf_cstr(&problem));
    }
    buf_fini(&problem);
    if (param_is_idle(p)) {
        problem_add(l->problems, CONF_WARNING, file, item->line, item->column, "%s has %s",
                    p->suffix, p->meaning);
    }
}

/* Reads a file. The place of a failure is the line that names the file. */
static void read_file(struct loader *l, const char *path, const char *from_file, unsigned line,
                      unsigned column)
{
    struct buf content;
    int error;

    buf_init(&content, CONF_FILE_MAX);
    error = file_read(l->inner->world, path, &content);
    if (error != 0) {
        problem_add(l->problems, CONF_ERROR, from_file, line, column, "can't read %s: %s", path,
                    strerror(-error));
        l->unread = true;
    } else {
        read_text(l, buf_slice(&content), path);
    }
    buf_fini(&content);
}

static void read_include(struct loader *l, const struct item *item, const char *file)
{
    if (item->value.len == 0) {
        problem_add(l->problems, CONF_ERROR, file, item->line, item->column,
                    "include: a file name is expected");
        return;
    }
    if (l->depth == CONF_DEPTH_MAX || l->includes == CONF_INCLUDES_MAX) {
        problem_add(l->problems, CONF_ERROR, file, item->line, item->column,
                    "include: nested deeper than %u, or more than %u files", CONF_DEPTH_MAX,
                    CONF_INCLUDES_MAX);
        return;
    }
    l->depth++;
    l->includes++;
    read_file(l, path_below(&l->inner->pool, l->directory, item->value), file, item->value_line,
              item->value_column);
    l->depth--;
}

/* Refuses a NUL byte, because later steps use C strings. */
static bool refuse_nul(struct loader *l, struct slice text, const char *file)
{
    size_t at = slice_find(text, '\0');
    unsigned line = 1, column = 1;

    if (at == text.len) {
        return false;
    }
    for (size_t i = 0; i < at; i++) {
        column = text.ptr[i] == '\n' ? 1 : column + 1;
        line += text.ptr[i] == '\n';
    }
    problem_add(l->problems, CONF_ERROR, file, line, column, "a NUL byte has no place in a text");
    l->unread = true;
    return true;
}

static void read_text(struct loader *l, struct slice text, const char *file)
{
    const char *name = pool_string(&l->inner->pool, slice_string(file));
    struct grammar g;
    struct item item;

    if (refuse_nul(l, text, name)) {
        return;
    }
    grammar_init(&g, text);
    do {
        grammar_next(&g, &item);
        switch (item.kind) {
        case ITEM_END:
            break;
        case ITEM_PARAMETER:
            read_parameter(l, &item, name);
            break;
        case ITEM_PARAM_LINE:
            read_param_line(l, &item, name);
            break;
        case ITEM_INCLUDE:
            read_include(l, &item, name);
            break;
        case ITEM_CLAUSE:
            open_clause(l, &item, name);
            break;
        case ITEM_VALUE:
        case ITEM_FLAG:
            read_clause_value(l, &item, name);
            break;
        case ITEM_BAD:
            problem_add(l->problems, CONF_ERROR, name, item.line, item.column, "%s", item.error);
            break;
        }
    } while (item.kind != ITEM_END);
    grammar_fini(&g);
}

/* Completes the clauses after all files: closes the last ones, and sets the agents that they
 * imply. */
static void finish_clauses(struct loader *l)
{
    struct conf_private *inner = l->inner;
    size_t agent = (size_t)(param_find_in_clause(SLICE("agent")) - param_table);
    size_t command = (size_t)(param_find_in_clause(SLICE("command")) - param_table);

    close_kind(l);
    for (size_t i = 0; i < inner->clause_count; i++) {
        struct layer *own = &inner->clauses[i].body->own;

        if (own->set[command] && !own->set[agent]) {
            own->values.agent = CONF_AGENT_TA;
            own->set[agent] = true;
            own->from[agent] = own->from[command];
        }
    }
    inner->defaults_clause = l->defaults_clause;
}

/* ---- step 2: evaluate ----------------------------------------------------------------------- */

static const struct setting *setting_of(struct loader *l, const char *name)
{
    return &l->inner->settings[param_find(slice_string(name)) - param_table];
}

/* Returns the default of a parameter. */
static struct slice preset_value(struct loader *l, const struct param *p)
{
    if (strcmp(p->name, "myhostname") == 0) {
        return slice_string(l->hostname);
    }
    if (strcmp(p->name, "mydomain") == 0) {
        return slice_string(l->mydomain);
    }
    const char *preset = dialects_preset(l->inner, p);
    return slice_string(preset != NULL ? preset : p->preset);
}

static struct slice raw_value(struct loader *l, const struct param *p)
{
    const struct setting *s = &l->inner->settings[p - param_table];

    return s->raw != NULL ? slice_string(s->raw) : preset_value(l, p);
}

static bool lookup(void *context, struct slice name, struct slice *ret_value)
{
    struct loader *l = context;
    const struct param *p = param_find(name);
    struct slice transport;

    for (size_t i = l->inner->override_count; p == NULL && i > 0; i--) {
        if (slice_equal(slice_string(l->inner->overrides[i - 1].name), name)) {
            *ret_value = slice_string(l->inner->overrides[i - 1].raw);
            return true;
        }
    }
    p = p != NULL ? p : param_find_override(name, &transport);
    if (p == NULL) {
        return false;
    }
    *ret_value = raw_value(l, p);
    return true;
}

static bool is_part_of(struct slice part, struct slice whole)
{
    return part.len > 0 && memmem(whole.ptr, whole.len, part.ptr, part.len) != NULL;
}

/* Returns the place of an error in a default, which is made of other parameters (`$name'). The
 * place is that of the parameter in the file whose value has the text `bad', otherwise of the first
 * one in the file, otherwise "built-in defaults". */
static struct setting blamed_for_preset(struct loader *l, const struct param *p, struct slice bad,
                                        unsigned depth)
{
    struct setting first = {.file = "built-in defaults"};
    bool is_domain = strcmp(p->name, "mydomain") == 0; /* made of a part of that name */
    struct slice rest = is_domain ? SLICE("$myhostname") : preset_value(l, p);

    while (rest.len > 0 && depth < CONF_DEPTH_MAX) {
        const struct param *named;
        struct setting where;
        size_t len = 0;

        rest = slice_skip(rest, slice_find(rest, '$'));
        rest = slice_skip(rest, rest.len > 0 ? 1 : 0);
        while (len < rest.len && (ascii_is_alnum(rest.ptr[len]) || rest.ptr[len] == '_')) {
            len++;
        }
        named = param_find(slice_of(rest.ptr, len));
        if (named == NULL) {
            continue;
        }
        where = l->inner->settings[named - param_table];
        where = where.raw != NULL ? where : blamed_for_preset(l, named, bad, depth + 1);
        if (where.raw != NULL && (is_part_of(slice_string(where.raw), bad) ||
                                  is_part_of(bad, slice_string(where.raw)))) {
            return where;
        }
        first = first.raw != NULL ? first : where;
    }
    return first;
}

/* Has this place an error already? One mistake is reported once. */
static bool is_told(const struct loader *l, const struct setting *where)
{
    for (size_t i = 0; i < l->problems->count && where->line > 0; i++) {
        const struct conf_problem *p = &l->problems->at[i];

        if (p->severity == CONF_ERROR && p->line == where->line && p->column == where->column &&
            strcmp(p->file, where->file) == 0) {
            return true;
        }
    }
    return false;
}

/* Expands `raw`. Returns false after an error. *ret_value lasts as long as `out`. */
static bool expand_value(struct loader *l, const struct param *p, const char *name,
                         struct slice raw, const struct setting *where, struct buf *out,
                         struct slice *ret_value)
{
    struct slice bad;
    const char *error;

    buf_clear(out);
    if (strcmp(p->unit, "raw") == 0) {
        *ret_value = raw;
        return true;
    }
    if (!expand(raw, lookup, l, out, &bad, &error)) {
        struct setting at = where->raw != NULL ? *where : blamed_for_preset(l, p, bad, 0);

        if (!is_told(l, &at)) {
            problem_add(l->problems, CONF_ERROR, at.file, at.line, at.column, "%s: `%.*s' %s", name,
                        SLICE_ARGS(problem_quote(bad)), error);
        }
        return false;
    }
    *ret_value = slice_trim(buf_slice(out));
    return true;
}

/* Applies Postfix's rule for invalid feedback: a warning, and 1 as the value. Returns false if the
 * rule does not apply. */
static bool feedback_excused(struct loader *l, const struct param *p, const char *name,
                             struct slice value, const struct setting *where)
{
    if (p->type != PARAM_FEEDBACK || value.len == 0) {
        return false;
    }
    problem_add(l->problems, CONF_WARNING, where->file, where->line, where->column,
                "%s: ignoring malformed or unreasonable feedback: %.*s; 1 holds", name,
                SLICE_ARGS(problem_quote(value)));
    return true;
}

/* Parses the replacement of a value by the configuration's dialect. Returns false if there is
 * none. */
static bool tolerated(struct loader *l, const struct param *p, const char *name, struct slice value,
                      struct slice bad, const struct setting *where, void *base)
{
    const struct conf_dialect *dialect = l->inner->dialect;
    const char *read;
    struct slice still_bad;
    struct buf text;

    if (dialect == NULL || dialect->tolerate == NULL ||
        !dialect->tolerate(p, value, &l->inner->pool, &read) ||
        !param_parse(p, read == NULL ? preset_value(l, p) : slice_string(read), &l->inner->pool,
                     base, &still_bad)) {
        return false;
    }
    buf_init(&text, PROBLEM_TEXT_MAX);
    put_bad_value(&text, p, name, bad);
    put_remedy(&text, read);
    problem_add(l->problems, CONF_WARNING, where->file, where->line, where->column, "%s",
                buf_cstr(&text));
    buf_fini(&text);
    return true;
}

/* Discards an invalid setting of conf_load_places. */
static void bad_place(struct loader *l, const struct param *p)
{
    l->inner->settings[p - param_table].raw = NULL;
    l->needed_is_bad = l->needed_is_bad || is_needed(l, p->name);
    if (strcmp(p->name, "spool") == 0) {
        l->conf->spool = ""; /* the default is another spool */
    }
}

static void evaluate(struct loader *l, const struct param *p, struct buf *out)
{
    const struct setting *s = &l->inner->settings[p - param_table];
    void *base = p->suffix == NULL ? (void *)l->conf : &l->conf->defaults;
    const char *name = p->name[0] != '\0' ? p->name : p->suffix;
    struct setting where = s->raw != NULL ? *s : (struct setting){.file = "built-in defaults"};
    struct slice raw = l->needed == NULL || is_place(p) ? raw_value(l, p) : preset_value(l, p);
    size_t errors_before = l->problems->errors;
    struct slice value, bad;

    /* Parse the built-in value first, so that every member is valid even after an error. */
    if (slice_find(slice_string(p->preset), '$') == strlen(p->preset)) {
        CHECK(param_parse(p, slice_string(p->preset), &l->inner->pool, base, &bad) ||
              p->preset[0] == '\0');
    } else {
        CHECK(param_parse(p, SLICE(""), &l->inner->pool, base, &bad));
    }
    if (expand_value(l, p, name, raw, &where, out, &value) &&
        !param_parse(p, value, &l->inner->pool, base, &bad) &&
        !feedback_excused(l, p, name, value, &where) &&
        !tolerated(l, p, name, value, bad, &where, base)) {
        where = s->raw != NULL ? where : blamed_for_preset(l, p, bad, 0);
        if (!is_told(l, &where)) {
            bad_value(l, p, name, bad, where.file, where.line, where.column);
        }
    }
    if (l->needed != NULL && l->problems->errors > errors_before) {
        bad_place(l, p);
    }
}

static void evaluate_override(struct loader *l, struct override *o, struct buf *out)
{
    struct setting where = {o->raw, o->file, o->line, o->column};
    struct policy scratch;
    struct slice value, bad;

    if (!expand_value(l, o->param, o->name, slice_string(o->raw), &where, out, &value)) {
        return;
    }
    if (param_parse(o->param, value, &l->inner->pool, &scratch, &bad)) {
        o->raw = pool_string(&l->inner->pool, value);
    } else if (feedback_excused(l, o->param, o->name, value, &where)) {
        o->raw = "1";
    } else {
        bad_value(l, o->param, o->name, bad, o->file, o->line, o->column);
    }
}

/* ---- step 3: finish ------------------------------------------------------------------------- */

static void combination(struct loader *l, enum conf_severity severity, const char *name,
                        const char *text)
{
    const struct setting *s = setting_of(l, name);

    problem_add(l->problems, severity, s->raw != NULL ? s->file : "built-in defaults", s->line,
                s->column, "%s %s", name, text);
}

/* Checks a listener for logins. */
static void check_login(struct loader *l, struct slice url)
{
    const struct conf *c = l->conf;

    if (slice_starts_nocase(url, SLICE("lmtp:"))) {
        combination(l, CONF_ERROR, "listen",
                    "has auth=yes after an LMTP address: only SMTP has logins");
    }
    if (c->tls_cert[0] == '\0') {
        combination(l, CONF_ERROR, "listen",
                    "has an address for logins, which are offered with TLS only: set tls_cert");
    }
    if (c->smtpd_tls_security_level == CONF_SERVER_TLS_NONE &&
        slice_starts_nocase(url, SLICE("smtp:"))) {
        combination(l, CONF_ERROR, "listen",
                    "has auth=yes after an address that smtpd_tls_security_level = none leaves "
                    "without TLS, and so without logins");
    }
    if (c->auth_users[0] == '\0' && c->auth_dovecot[0] == '\0') {
        combination(
            l, CONF_ERROR, "listen",
            "has an address for logins, and no setting names who may log in: set auth_users or "
            "auth_dovecot");
    }
}

static void check_server_tls(struct loader *l)
{
    const struct conf *c = l->conf;

    if (c->smtpd_tls_security_level == CONF_SERVER_TLS_ENCRYPT && c->tls_cert[0] == '\0') {
        combination(l, CONF_ERROR, "smtpd_tls_security_level",
                    "= encrypt accepts mail with TLS only, and there is none: set tls_cert");
    }
}

/* Maximum bytes of sun_path, without its NUL (unix(7)). */
#define SOCKET_PATH_MAX 107

/* Checks that only one source decides about logins, and the length of the socket's path. */
static void check_dovecot(struct loader *l)
{
    const struct conf *c = l->conf;

    if (c->auth_dovecot[0] != '\0' && c->auth_users[0] != '\0') {
        combination(l, CONF_ERROR, "auth_dovecot",
                    "and auth_users are both set: Dovecot judges all logins, or none");
    }
    if (strlen(c->auth_dovecot) > SOCKET_PATH_MAX) {
        combination(l, CONF_ERROR, "auth_dovecot", "is longer than the path of a socket may be");
    }
}

/* Refuses a password in the URL, which appears in logs, lists of processes and `sluice config
 * show'. The error does not repeat the password. */
static void check_spool_secret(struct loader *l)
{
    struct slice url = slice_string(l->conf->spool), hosts;

    if (!slice_starts(url, SLICE(CONF_SPOOL_CLUSTER))) {
        return;
    }
    (void)slice_cut(&url, '/');
    (void)slice_cut(&url, '/');
    hosts = slice_cut(&url, '/');
    if (slice_find(hosts, '@') < hosts.len &&
        slice_find(slice_of(hosts.ptr, slice_find(hosts, '@')), ':') < slice_find(hosts, '@')) {
        combination(l, CONF_ERROR, "spool",
                    "has a password in its URL, which everyone sees; expected in the file that "
                    "spool_password_file names");
    }
}

/* Returns the share of the networks of a list in `whole`, in parts of 2^32. Overlapping networks
 * count once. */
static uint64_t share_of(const struct conf_list *networks, const struct cidr *whole)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < networks->count; i++) {
        struct cidr c, other;
        bool counted = false;

        if (!cidr_parse(slice_string(networks->items[i]), &c)) {
            continue;
        }
        if (c.bits <= whole->bits && cidr_match(&c, whole->address)) {
            return UINT64_C(1) << 32;
        }
        for (size_t k = 0; k < networks->count && !counted; k++) {
            counted = k != i && cidr_parse(slice_string(networks->items[k]), &other) &&
                      (other.bits < c.bits || (other.bits == c.bits && k < i)) &&
                      cidr_match(&other, c.address);
        }
        if (!counted && cidr_match(whole, c.address) && c.bits - whole->bits <= 32) {
            sum += UINT64_C(1) << (32 - (c.bits - whole->bits));
        }
    }
    return sum;
}

/* Does the list mean "all clients"? It does with more than an eighth of IPv4, or of the assigned
 * part of IPv6 (RFC 4291, 2.4). The private networks of RFC 1918 are less than a two-hundredth. */
static bool is_everybody(const struct conf_list *networks)
{
    static const struct cidr v4 = {.address = {[10] = 0xff, [11] = 0xff}, .bits = 96},
                             v6 = {.address = {[0] = 0x20}, .bits = 3};
    const uint64_t most = UINT64_C(1) << 29;

    return share_of(networks, &v4) > most || share_of(networks, &v6) > most;
}

/* Can only this machine connect to the address? */
static bool is_local_address(const struct listen_address *a)
{
    static const struct cidr v4 = {.address = {[10] = 0xff, [11] = 0xff, [12] = 127}, .bits = 104};
    static const struct cidr v6 = {.address = {[15] = 1}, .bits = 128};
    unsigned char ip[16];

    if (a->is_unix || slice_equal_nocase(a->host, SLICE("localhost"))) {
        return true;
    }
    return ip_parse(a->host, ip) && (cidr_match(&v4, ip) || cidr_match(&v6, ip));
}

/* Checks a listener of mail by HTTP. */
static void check_http(struct loader *l, const char *url, const struct listen_address *address,
                       bool login)
{
    const struct conf *c = l->conf;
    char text[PROBLEM_TEXT_MAX];
    const char *why = NULL;

    if (login) {
        combination(l, CONF_ERROR, "listen",
                    "has auth=yes after an address for HTTP: its clients have tokens");
        return;
    }
    if (!address->tls_first && !is_local_address(address)) {
        why = ", which other machines reach: tokens would cross the network in clear; expected "
              "https://";
    } else if (address->tls_first && c->tls_cert[0] == '\0') {
        why = ", and no certificate for it: set tls_cert";
    } else if (c->api_tokens[0] == '\0') {
        why = ", and no setting names who may send mail there: set api_tokens";
    }
    if (why != NULL) {
        (void)snprintf(text, sizeof text, "has %s%s", url, why); /* or is cut */
        combination(l, CONF_ERROR, "listen", text);
    }
}

/* Checks the HTTP interface, whose clients can read and delete all mail. */
static void check_control_listen(struct loader *l)
{
    const struct conf *c = l->conf;
    char text[PROBLEM_TEXT_MAX];

    for (size_t i = 0; i < c->control_listen.count; i++) {
        const char *url = c->control_listen.items[i], *why = NULL;
        struct listen_address address;

        if (!listen_parse(slice_string(url), &address) || !address.http) {
            why = "; http://HOST:PORT or https://HOST:PORT is expected";
        } else if (!address.tls_first && !is_local_address(&address)) {
            why = ", which other machines reach: tokens would cross the network in clear; expected "
                  "https://";
        } else if (address.tls_first && c->tls_cert[0] == '\0') {
            why = ", and no certificate for it: set tls_cert";
        } else if (c->api_tokens[0] == '\0') {
            why = ", and no setting names who may call: set api_tokens (sluice token add), or "
                  "leave it "
                  "empty and use control_socket";
        }
        for (size_t j = 0; why == NULL && j < c->listen.count; j++) {
            if (strcmp(url, c->listen.items[j]) == 0) {
                why = ", and so has listen: one address serves one of the two";
            }
        }
        if (why != NULL) {
            (void)snprintf(text, sizeof text, "has %s%s", url, why); /* or is cut */
            combination(l, CONF_ERROR, "control_listen", text);
            return;
        }
    }
}

static void check_web_hooks(struct loader *l)
{
    const struct conf *c = l->conf;

    if (c->web_hooks[0] != '\0' && !c->events) {
        combination(l, CONF_ERROR, "web_hooks",
                    "needs events = yes: they get what is in the "
                    "journal");
    }
    if (c->web_hook_retry_max_us < c->web_hook_retry_min_us) {
        combination(l, CONF_ERROR, "web_hook_retry_max", "is less than web_hook_retry_min");
    }
}

/* Can clients of other machines reach the listener, themselves or through a proxy? */
static bool is_open(const struct listen_address *address, const struct listen_options *options)
{
    return options->proxy || !is_local_address(address);
}

/* Warns of a filtered listener that other machines reach. Its mail passes no rule, filter or copy,
 * so only the filter should reach it. */
static void check_filtered(struct loader *l, const char *url, const struct listen_address *address,
                           const struct listen_options *options)
{
    char text[PROBLEM_TEXT_MAX];

    if (is_open(address, options)) {
        (void)snprintf(text, sizeof text,
                       "has filtered=yes after %s, which other machines reach: their mail would "
                       "meet no rule and no filter",
                       url); /* or is cut */
        combination(l, CONF_WARNING, "listen", text);
    }
}

/* Refuses a list of networks that holds all addresses. `could`: what a client could do with it. */
static void refuse_everybody(struct loader *l, const char *list, const char *url, const char *could)
{
    char text[PROBLEM_TEXT_MAX];

    (void)snprintf(text, sizeof text,
                   "holds all addresses or a large part of them, and %s is open to other machines: "
                   "anyone could %s; set allow_open_relay = yes if that is meant",
                   url, could); /* or is cut */
    combination(l, CONF_ERROR, list, text);
}

/* Refuses an open relay, which is found and abused within hours. A peer that may send the header of
 * a proxy may take any address. */
static void check_open_relay(struct loader *l)
{
    const struct conf *c = l->conf;
    struct listen_options options;
    const char *url;

    for (size_t at = 0; !c->allow_open_relay && listen_next(&c->listen, &at, &url, &options);) {
        struct listen_address address;

        if (!listen_parse(slice_string(url), &address) || address.submission || address.http) {
            continue;
        }
        if (is_open(&address, &options) && is_everybody(&c->relay_networks)) {
            refuse_everybody(l, "relay_networks", url, "send any mail");
            return;
        }
        if (options.proxy && !is_local_address(&address) &&
            is_everybody(&c->smtpd_upstream_proxy_networks)) {
            refuse_everybody(l, "smtpd_upstream_proxy_networks", url,
                             "take the address of a client that may relay");
            return;
        }
    }
}

static void check_filters(struct loader *l, const char *name, const char *value)
{
    struct milter_list list;
    struct buf error;

    buf_init(&error, PROBLEM_TEXT_MAX);
    if (!milter_list_parse(l->conf, value, &list, &error)) {
        const struct setting *s = setting_of(l, name);

        problem_add(l->problems, CONF_ERROR, s->raw != NULL ? s->file : "built-in defaults",
                    s->line, s->column, "%s: %.*s", name, SLICE_ARGS(buf_slice(&error)));
    }
    buf_fini(&error);
}

/* Checks the peers of callouts. */
static void check_callouts(struct loader *l)
{
    static const char *const names[] = {"relay_recipient_maps", "local_recipient_maps"};
    struct callout_target target;
    struct buf error;

    buf_init(&error, PROBLEM_TEXT_MAX);
    for (int local = 0; local <= 1; local++) {
        buf_clear(&error);
        if (!callout_target_of(l->conf, local == 1, &target, &error)) {
            combination(l, CONF_ERROR, names[local], buf_cstr(&error));
        }
    }
    if (target.text[0] != '\0' && l->conf->fallback_transport[0] != '\0') {
        combination(l, CONF_ERROR, "fallback_transport",
                    "needs files in local_recipient_maps: a peer's answer is known to SMTP "
                    "clients' mail alone");
    }
    buf_fini(&error);
}

/* Warns if a configuration sets how mail is delivered on this machine, but not local_domains, and
 * so may rely on a former default. */
static void check_local(struct loader *l)
{
    static const char *const lead[] = {"local_transport", "local_recipient_maps"};

    if (setting_of(l, "local_domains")->raw != NULL || conf_spool_routes(l->conf)) {
        return;
    }
    for (size_t i = 0; i < sizeof lead / sizeof lead[0]; i++) {
        if (setting_of(l, lead[i])->raw != NULL) {
            combination(l, CONF_WARNING, lead[i],
                        "has no effect, as local_domains is not set; expected local_domains = "
                        "$myhostname localhost.$mydomain localhost, for example");
            return;
        }
    }
}

static void check_combinations(struct loader *l)
{
    struct conf *c = l->conf;

    if (c->minimal_backoff_time_us > c->maximal_backoff_time_us) {
        bool maximal = setting_of(l, "maximal_backoff_time")->raw != NULL;

        combination(l, CONF_WARNING, maximal ? "maximal_backoff_time" : "minimal_backoff_time",
                    "makes maximal_backoff_time less than minimal_backoff_time; it is raised");
        c->maximal_backoff_time_us = c->minimal_backoff_time_us;
    }
    if (c->bounce_queue_lifetime_us > c->maximal_queue_lifetime_us) {
        bool bounce = setting_of(l, "bounce_queue_lifetime")->raw != NULL;

        combination(
            l, CONF_WARNING, bounce ? "bounce_queue_lifetime" : "maximal_queue_lifetime",
            "makes bounce_queue_lifetime greater than maximal_queue_lifetime; it is lowered");
        c->bounce_queue_lifetime_us = c->maximal_queue_lifetime_us;
    }
    if (c->qmgr_message_recipient_limit < c->qmgr_message_active_limit) {
        bool recipients = setting_of(l, "qmgr_message_recipient_limit")->raw != NULL;

        combination(l, CONF_WARNING,
                    recipients ? "qmgr_message_recipient_limit" : "qmgr_message_active_limit",
                    "makes qmgr_message_recipient_limit less than qmgr_message_active_limit; it is "
                    "raised");
        c->qmgr_message_recipient_limit = c->qmgr_message_active_limit;
    }
    for (size_t at = 0; at < c->listen.count;) {
        struct listen_options options, none = {.login = false};
        struct listen_address address;
        const char *url;

        (void)listen_next(&c->listen, &at, &url, &options); /* there is one */
        if (options.filtered && listen_parse(slice_string(url), &address)) {
            check_filtered(l, url, &address, &options);
        }
        if (listen_option_parse(slice_string(url), &none)) {
            combination(l, CONF_ERROR, "listen",
                        none.login      ? "has an auth=yes that no address stands before"
                        : none.filtered ? "has a filtered=yes that no address stands before"
                        : none.proxy    ? "has a proxy=yes that no address stands before"
                                        : "has a class=NAME that no address stands before");
        } else if (listen_parse(slice_string(url), &address) && address.http) {
            check_http(l, url, &address, options.login);
        } else if (options.login) {
            check_login(l, slice_string(url));
        }
    }
    check_open_relay(l);
    check_callouts(l);
    check_dovecot(l);
    check_spool_secret(l);
    check_server_tls(l);
    check_filters(l, "smtpd_milters", c->smtpd_milters);
    check_filters(l, "non_smtpd_milters", c->non_smtpd_milters);
    check_control_listen(l);
    check_web_hooks(l);
    check_local(l);
}

static bool clause_covers_pattern(const struct clause *above, struct slice channel,
                                  struct slice host)
{
    return nexthop_pattern_covers(above->lower_channel, channel) &&
           nexthop_pattern_covers(above->host, host);
}

/* Warns of clauses after a more general one. They have no effect, because the first match
 * counts. */
static void check_hidden_clauses(struct loader *l)
{
    const struct conf_private *inner = l->inner;

    for (size_t k = 1; k < inner->clause_count; k++) {
        const struct clause *c = &inner->clauses[k], *above;
        size_t found = clause_declares(c)
                           ? k
                           : clause_index_find(&inner->clause_index, c->is_class, c->lower_channel,
                                               c->host, k, clause_covers_pattern);

        if (found < k) {
            above = &inner->clauses[found];
            bool same_file = strcmp(above->file, c->file) == 0;

            problem_add(l->problems, CONF_WARNING, c->file, c->line, 1,
                        "clause `%s' has no effect: `%s' in %s%s%u above matches all that it "
                        "does, and the first that matches holds",
                        c->pattern, above->pattern, same_file ? "line " : above->file,
                        same_file ? "" : ":", above->line);
        }
    }
}

/* Refuses other uses of the transport milter, whose mail would return to it for ever. */
static void check_milter_clause(struct loader *l, const struct clause *c)
{
    size_t agent = (size_t)(param_find_in_clause(SLICE("agent")) - param_table);
    const struct layer *own = &c->body->own;

    if (own->set[agent] &&
        (own->values.agent == CONF_AGENT_MILTER) != slice_equal(c->channel, SLICE("milter"))) {
        problem_add(l->problems, CONF_ERROR, c->file, c->line, 1,
                    "clause `%s': transport milter and agent=milter go together, and are for our "
                    "own reports",
                    c->pattern);
    }
}

static void warn_of_transport(struct loader *l, const struct clause *c)
{
    struct slice rest = slice_string(l->conf->default_transport), meant = slice_cut(&rest, ':');
    /* A transport's name has no dot, so a domain is likely. */
    bool is_domain = slice_find(c->channel, '.') < c->channel.len && glob_is_plain(c->channel);

    problem_add(l->problems, CONF_WARNING, c->file, c->line, 1,
                "clause `%s' has no effect: nothing declares a transport `%.*s'%s%.*s%s%.*s%s",
                c->pattern, SLICE_ARGS(c->channel), is_domain ? ", did you mean `" : "",
                is_domain ? (int)meant.len : 0, meant.ptr, is_domain ? "/" : "",
                is_domain ? (int)c->channel.len : 0, c->channel.ptr, is_domain ? "'?" : "");
}

static bool has_empty_label(struct slice name)
{
    for (size_t i = 1; i < name.len; i++) {
        if (name.ptr[i - 1] == '.' && name.ptr[i] == '.') {
            return true;
        }
    }
    return false;
}

/* Can the host be a name or an address? Returns true if that is not obvious. */
static bool can_be_host(const struct nexthop *n)
{
    bool is_number = !n->use_mx && !n->is_address; /* like an address of IPv4, if all are digits */

    for (size_t i = 0; i < n->host.len; i++) {
        is_number = is_number && (ascii_is_digit(n->host.ptr[i]) || n->host.ptr[i] == '.');
    }
    return n->is_address || (!is_number && !has_empty_label(n->host));
}

/* Can the end of a pattern with special bytes be a port, or is there none? */
static bool can_end_with_port(struct slice pattern)
{
    size_t colon = slice_find_last(pattern, ':');
    struct slice port = slice_skip(pattern, colon + 1);
    uint16_t number;

    if (colon == pattern.len ||
        slice_find(port, ']') < port.len) { /* or it is of an IPv6 address */
        return true;
    }
    for (size_t i = 0; i < port.len; i++) {
        if (!ascii_is_digit(port.ptr[i])) {
            return true; /* a service, or a pattern */
        }
    }
    return port_parse(port, 1, &number);
}

/* Can a pattern match a next hop, or a list of them, of an SMTP or LMTP client? Returns true if
 * that is not obvious. */
static bool can_be_next_hop(struct slice pattern)
{
    struct nexthop n;

    if (pattern.len == 0 || slice_starts(pattern, SLICE("unix:"))) {
        return true; /* empty: the transport as a whole */
    }
    if (!nexthop_pattern_is_plain(pattern)) {
        return slice_find(pattern, '@') == pattern.len && !has_empty_label(pattern) &&
               can_end_with_port(pattern);
    }
    while (pattern.ptr != NULL) {
        if (!nexthop_parse(slice_trim(slice_cut(&pattern, ',')), &n) ||
            (!n.is_unix && !can_be_host(&n))) {
            return false;
        }
    }
    return true;
}

/* Returns the next transport of a clause and advances *cursor, which begins at 0; NULL at the end.
 * For a clause that names its transport the cost is one step. */
static const struct transport_slot *next_transport(const struct conf_private *inner,
                                                   const struct clause *c, size_t *cursor)
{
    size_t k = *cursor;

    if (!c->is_class && glob_is_plain(c->lower_channel)) {
        *cursor = inner->transport_count;
        return k == 0 && inner->transport_count > 0 ? slot_find(inner, c->channel) : NULL;
    }
    while (k < inner->transport_count && !clause_is_of(c, inner->transports[k].public.name)) {
        k++;
    }
    *cursor = k < inner->transport_count ? k + 1 : k;
    return k < inner->transport_count ? &inner->transports[k] : NULL;
}

/* Warns of a clause that no destination can match. */
static void check_clause_matches(struct loader *l, const struct clause *c)
{
    bool is_known = false, only_clients = true;
    const struct transport_slot *slot;
    size_t cursor = 0;

    while ((slot = next_transport(l->inner, c, &cursor)) != NULL) {
        is_known = true;
        only_clients = only_clients && (slot->public.policy.agent == CONF_AGENT_SMTP ||
                                        slot->public.policy.agent == CONF_AGENT_LMTP);
    }
    if (!is_known) {
        warn_of_transport(l, c);
    } else if (only_clients && !can_be_next_hop(c->host)) {
        problem_add(l->problems, CONF_WARNING, c->file, c->line, 1,
                    "clause `%s' can match no destination: expected a next hop of the form host, "
                    "[host], host:port, [host]:port or unix:path, or a pattern of these",
                    c->pattern);
    }
}

/* Warns of settings and clauses for transports that do not exist. */
static void check_transports(struct loader *l)
{
    struct conf_private *inner = l->inner;

    for (size_t i = 0; i < inner->override_count; i++) {
        const struct override *o = &inner->overrides[i];

        if (conf_transport_find(l->conf, slice_string(o->transport)) == NULL) {
            struct buf nearest;

            buf_init(&nearest, PROBLEM_TEXT_MAX);
            param_add_nearest(&nearest, slice_string(o->name), false);
            problem_add(l->problems, CONF_WARNING, o->file, o->line, o->column,
                        "%s has no effect: nothing declares a transport `%s'%s", o->name,
                        o->transport, buf_cstr(&nearest));
            buf_fini(&nearest);
        }
    }
    for (size_t i = 0; i < inner->clause_count; i++) {
        const struct clause *c = &inner->clauses[i];

        if (c->is_class) {
            continue;
        }
        if (!conf_spool_routes(l->conf)) {
            check_clause_matches(l, c);
        }
        check_milter_clause(l, c);
        if (conf_spool_is_remote(l->conf) && slice_equal(c->host, SLICE("*")) &&
            clause_has_ring(c)) {
            problem_add(l->problems, CONF_WARNING, c->file, c->line, 1,
                        "clause `%s': of a cluster one node delivers to all destinations that "
                        "share a maxring; maxchannel, with cluster_limits = divide, is of all",
                        c->pattern);
        }
        int agent = c->body->own.values.agent;
        if (!conf_spool_routes(l->conf) && clause_is_whole_transport(c) &&
            c->body->own.values.command == NULL &&
            (agent == CONF_AGENT_PIPE || agent == CONF_AGENT_TA)) {
            problem_add(l->problems, CONF_ERROR, c->file, c->line, 1,
                        "clause `%s' needs command=... for its agent", c->pattern);
        }
    }
}

/* Sets the id of a user given by name or number. Returns false if the name does not exist. */
static bool find_uid(const char *name, unsigned long long *ret_uid)
{
    const struct passwd *account;

    if (slice_number(slice_string(name), UINT32_MAX - 1, ret_uid)) {
        return true;
    }
    account = getpwnam(name);
    if (account != NULL) {
        *ret_uid = account->pw_uid;
    }
    return account != NULL;
}

/* Returns the fault of the user of a policy's deliveries; NULL: none. */
static const char *user_problem(const struct loader *l, const struct policy *policy)
{
    const struct conf *c = l->conf;
    const char *name = policy_user(c, policy);
    bool as_owner = strcmp(policy->user, POLICY_USER_MAIL_OWNER) == 0;
    const char *owner_name = conf_mail_owner(c);
    unsigned long long uid, owner;

    if (name[0] == '\0') {
        return !l->inner->world->as_root ? NULL
               : as_owner                ? "user=" POLICY_USER_MAIL_OWNER
                            ", but mail_owner is empty and there is no user " CONF_MAIL_OWNER
                            ", so it is root"
                          : "it needs user=NAME, as the daemon is started as root; "
                            "user=" POLICY_USER_MAIL_OWNER " would be the queue's own user";
    }
    if (!find_uid(name, &uid)) {
        return NULL; /* reported at its place */
    }
    if (uid == 0) {
        return "user=root: nothing is delivered as root";
    }
    if (!as_owner && owner_name[0] != '\0' && find_uid(owner_name, &owner) && uid == owner) {
        return "its user is mail_owner, who may read and change the whole queue; "
               "set user=" POLICY_USER_MAIL_OWNER " if that is meant";
    }
    return NULL;
}

static bool delivers_here(const struct policy *policy)
{
    return policy->agent == CONF_AGENT_MAILDIR || policy->agent == CONF_AGENT_PIPE;
}

static void check_clause_user(struct loader *l, const struct transport_slot *slot,
                              const struct clause *c)
{
    struct policy policy;
    const size_t user = (size_t)(param_find_in_clause(SLICE("user")) - param_table);
    const size_t agent = (size_t)(param_find_in_clause(SLICE("agent")) - param_table);
    const char *problem;

    if (clause_is_of_all(c) && !c->body->own.set[user] && !c->body->own.set[agent]) {
        return; /* the user is that of the transport, whose clause or parameter is checked */
    }
    policy_of_clause(l->conf, slot, c, &policy);
    problem = delivers_here(&policy) ? user_problem(l, &policy) : NULL;
    if (problem != NULL) {
        problem_add(l->problems, CONF_ERROR, c->file, c->line, 1, "clause `%s': %s", c->pattern,
                    problem);
    }
}

/* Returns the parameter that sends mail to a transport independently of maps; NULL: none. */
static const char *parameter_leading_to(const struct conf *c, const char *transport)
{
    const struct {
        const char *name, *value;
        bool is_used;
    } ways[] = {
        {"default_transport", c->default_transport, true},
        {"local_transport", c->local_transport, c->local_domains.count > 0},
        {"relay_transport", c->relay_transport, c->relay_domains.count > 0},
    };

    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct slice rest = slice_string(ways[i].value);

        if (ways[i].is_used && slice_equal(slice_cut(&rest, ':'), slice_string(transport))) {
            return ways[i].name;
        }
    }
    return NULL;
}

/* Checks the user of a transport without a clause for the whole transport. */
static void check_transport_user(struct loader *l, const struct transport_slot *slot)
{
    const char *parameter = parameter_leading_to(l->conf, slot->public.name), *problem;
    struct policy policy;
    char text[PROBLEM_TEXT_MAX];

    if (parameter == NULL) {
        return;
    }
    for (size_t i = 0; i < l->inner->clause_count; i++) {
        const struct clause *c = &l->inner->clauses[i];

        if (slice_equal(c->host, SLICE("*")) && clause_is_of(c, slot->public.name)) {
            return; /* check_clause_user checks this clause */
        }
    }
    policy_of_clause(l->conf, slot, NULL, &policy);
    problem = delivers_here(&policy) ? user_problem(l, &policy) : NULL;
    if (problem != NULL) {
        (void)snprintf(text, sizeof text, "leads to transport `%s': %s (in a clause %s/*%s)",
                       slot->public.name, problem, slot->public.name,
                       strcmp(parameter, "local_transport") == 0 ? ", or leave local_domains empty"
                                                                 : ""); /* or is cut */
        combination(l, CONF_ERROR, parameter, text);
    }
}

/* Checks the users of deliveries on this machine: never root, and the queue's owner only
 * explicitly. */
static void check_users(struct loader *l)
{
    struct conf_private *inner = l->inner;

    if (inner->world == NULL || !inner->world->check_users || conf_spool_routes(l->conf)) {
        return;
    }
    for (size_t i = 0; i < inner->clause_count; i++) {
        const struct clause *c = &inner->clauses[i];
        const struct transport_slot *slot;
        size_t cursor = 0;

        while ((slot = next_transport(inner, c, &cursor)) != NULL) {
            check_clause_user(l, slot, c);
        }
    }
    for (size_t k = 0; k < inner->transport_count; k++) {
        check_transport_user(l, &inner->transports[k]);
    }
}

static bool is_path(const struct param *p)
{
    struct slice unit = slice_string(p->unit);

    return p->type == PARAM_STRING &&
           (slice_equal(unit, SLICE("path")) || slice_equal(unit, SLICE("mailbox path")));
}

static void resolve_path(struct loader *l, const char **path)
{
    if (*path != NULL && **path != '\0') {
        *path = path_below(&l->inner->pool, l->conf->state_directory, slice_string(*path));
    }
}

/* Makes the path after a prefix absolute, as in "sqlite:queue.db". */
static void resolve_behind(struct loader *l, const char **text, const char *prefix)
{
    size_t len = strlen(prefix);

    if (strncmp(*text, prefix, len) == 0) {
        const char *path =
            path_below(&l->inner->pool, l->conf->state_directory, slice_string(*text + len));
        char *joined = pool_new(&l->inner->pool, len + strlen(path) + 1);

        memcpy(joined, prefix, len);
        memcpy(joined + len, path, strlen(path) + 1);
        *text = joined;
    }
}

static void resolve_layer_paths(struct loader *l, struct layer *layer)
{
    for (size_t i = param_policy_first; i < param_count; i++) {
        if (is_path(&param_table[i]) && layer->set[i]) {
            resolve_path(l, (const char **)((char *)&layer->values + param_table[i].offset));
        }
    }
}

static void resolve_paths(struct loader *l)
{
    struct conf *c = l->conf;

    c->state_directory =
        path_below(&l->inner->pool, l->directory, slice_string(c->state_directory));
    for (size_t i = 0; i < param_count; i++) {
        const struct param *p = &param_table[i];
        char *base = p->suffix == NULL ? (char *)c : (char *)&c->defaults;

        if (is_path(p) && strcmp(p->name, "state_directory") != 0) {
            resolve_path(l, (const char **)(base + p->offset));
        }
    }
    resolve_behind(l, &c->spool, CONF_SPOOL_SQLITE);
    if (l->inner->dialect != NULL) {
        resolve_behind(l, &c->spool, l->inner->dialect->spool_prefix);
    }
    resolve_behind(l, &c->log, "file:");
    for (size_t i = 0; i < l->inner->override_count; i++) {
        struct override *o = &l->inner->overrides[i];

        if (is_path(o->param)) {
            resolve_path(l, &o->raw);
        }
    }
    for (size_t i = 0; i < l->inner->clause_count; i++) {
        struct clause_body *body = l->inner->clauses[i].body;

        /* Bodies and bases are shared; an absolute path stays as it is. */
        resolve_layer_paths(l, &body->own);
        if (body->base != NULL) {
            resolve_layer_paths(l, body->base);
        }
    }
    if (l->defaults_clause != NULL) {
        resolve_layer_paths(l, l->defaults_clause);
    }
}

/* ---- loading -------------------------------------------------------------------------------- */

static void find_names(struct loader *l, const struct conf_world *world)
{
    char hostname[256] = "localhost";
    const struct setting *set = setting_of(l, "myhostname");

    if (world != NULL && world->hostname != NULL) {
        l->hostname = pool_string(&l->inner->pool, slice_string(world->hostname));
    } else {
        if (gethostname(hostname, sizeof hostname - 1) != 0 || hostname[0] == '\0') {
            strcpy(hostname, "localhost"); /* as in Postfix; the name can be configured */
        }
        l->hostname = pool_string(&l->inner->pool, slice_string(hostname));
    }
    const char *name = set->raw != NULL ? set->raw : l->hostname;
    const char *dot = strchr(name, '.');
    l->mydomain = dot != NULL ? dot + 1 : "localdomain";
}

/* Discards everything that conf_load_places does not take from the file. */
static void keep_places(struct loader *l)
{
    if (setting_of(l, "message_size_limit")->raw == NULL) {
        l->conf->message_size_limit = 0; /* the daemon's limit may be larger than the default */
    }
    l->inner->override_count = 0;
    l->inner->clause_count = 0;
    l->inner->defaults_clause = l->defaults_clause = NULL;
}

/* Are the needed parameters valid? An unreadable file may set any of them. */
static bool needed_is_there(struct loader *l)
{
    return !l->needed_is_bad && (!l->unread || setting_of(l, "state_directory")->raw != NULL);
}

static struct conf *load(const char *path, struct slice text, const char *name,
                         const char *directory, const struct conf_world *world,
                         const char *const *needed, struct conf_problems *problems)
{
    struct conf *conf = mem_new(sizeof *conf);
    struct loader l = {.conf = conf, .problems = problems, .needed = needed};
    struct buf out;

    l.doubts_end = &l.doubts;
    *problems = (struct conf_problems){.count = 0};
    conf->inner = l.inner = mem_new(sizeof *conf->inner);
    l.inner->world = world;
    l.directory = pool_string(&l.inner->pool, slice_string(directory));
    if (path != NULL) {
        read_file(&l, path, path, 0, 0);
    } else {
        read_text(&l, text, name);
    }
    finish_clauses(&l);
    find_names(&l, world);
    dialects_begin(l.inner, l.directory, problems);
    settle_doubts(&l);

    buf_init(&out, CONF_LINE_MAX);
    for (size_t i = 0; i < param_count; i++) {
        evaluate(&l, &param_table[i], &out);
    }
    for (size_t i = 0; i < l.inner->override_count; i++) {
        evaluate_override(&l, &l.inner->overrides[i], &out);
    }
    buf_fini(&out);
    if (needed != NULL) {
        keep_places(&l);
    }

    resolve_paths(&l);
    check_combinations(&l);
    policy_prepare(conf);
    check_transports(&l);
    check_hidden_clauses(&l);
    check_users(&l);
    route_prepare(conf, l.directory, problems);
    dialects_finish(conf, problems);
    l.inner->world = NULL;
    if (problems->errors > 0 && (needed == NULL || !needed_is_there(&l))) {
        conf_free(conf);
        return NULL;
    }
    return conf;
}

static struct conf *load_built_in(const struct conf_world *world, struct conf_problems *problems)
{
    char *cwd = getcwd(NULL, 0);
    struct conf *conf = load(NULL, slice_string(conf_default_text), "built in",
                             cwd == NULL ? "/" : cwd, world, NULL, problems);

    mem_free(cwd);
    return conf;
}

static struct conf *load_path(const char *path, const struct conf_world *world,
                              const char *const *needed, struct conf_problems *problems)
{
    struct slice s = slice_string(path);
    size_t slash = slice_find_last(s, '/');
    struct slice parent = slash == s.len ? SLICE(".") : slice_of(path, slash == 0 ? 1 : slash);
    struct pool scratch = {NULL};
    char *cwd = getcwd(NULL, 0);
    const char *directory;
    struct conf *conf;

    /* Without a working directory (removed) relative names start at `/`. */
    directory = path_below(&scratch, cwd == NULL ? "" : cwd, parent);
    conf = load(path, slice_of(NULL, 0), NULL, directory, world, needed, problems);
    mem_free(cwd);
    pool_fini(&scratch);
    return conf;
}

struct conf *conf_load(const char *path, const struct conf_world *world,
                       struct conf_problems *problems)
{
    return path == NULL ? load_built_in(world, problems) : load_path(path, world, NULL, problems);
}

struct conf *conf_load_places(const char *path, const char *const *needed,
                              struct conf_problems *problems)
{
    struct conf *conf = conf_load(path, NULL, problems);
    struct conf_problems again;

    if (conf == NULL && path != NULL) {
        conf = load_path(path, NULL, needed, &again);
        conf_problems_fini(&again); /* `problems` has all of them */
    }
    return conf;
}

struct conf *conf_load_text(struct slice text, const char *name, const char *directory,
                            const struct conf_world *world, struct conf_problems *problems)
{
    return load(NULL, text, name, directory, world, NULL, problems);
}

void conf_free(struct conf *conf)
{
    if (conf != NULL) {
        route_maps_free(conf->inner->maps);
        clause_index_fini(&conf->inner->clause_index);
        HASH_CLEAR(hh, conf->inner->transport_names);
        pool_fini(&conf->inner->pool);
        mem_free(conf->inner);
        mem_free(conf);
    }
}
