#include "checks.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "mem.h"
#include "mime.h"
#include "times.h"

/* Number of texts between two readings of the clock. */
#define TEXTS_PER_LOOK 16
/* Longest action after its groups were replaced, in bytes. */
#define ROOM_MAX (8u << 10)

struct checks {
    const struct rule_set *set;
    struct ruling *ruling;
    checks_clock *clock;
    struct mime mime;
    struct buf held;    /* a field, or the start of a line, as received */
    struct buf text;    /* a field as it is matched */
    struct buf room;    /* text of the action found */
    size_t line_start;  /* in a header: offset of the last line in `held` */
    bool in_line;       /* in a body: `held` begins within a line */
    bool passing;       /* the rest of the body line is passed on unchecked */
    bool done;          /* no further rule is matched */
    uint64_t body_left; /* bytes of this part that body_checks still match */
    unsigned visits;
    char *by; /* "by HOSTNAME (Sluice" */
    int64_t used_us, started_us;
    unsigned texts;
    checks_put *put; /* receiver and its argument while bytes are fed */
    void *arg;
};

static int64_t thread_us(void)
{
    struct timespec t;

    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
    return (int64_t)t.tv_sec * US_PER_S + t.tv_nsec / 1000;
}

struct checks *checks_new(const struct rule_set *set, struct ruling *ruling, checks_clock *clock)
{
    struct checks *c = mem_new(sizeof *c);
    struct buf by;

    c->set = set;
    c->ruling = ruling;
    c->clock = clock != NULL ? clock : thread_us;
    mime_init(&c->mime);
    buf_init(&c->held, CHECKS_FIELD_MAX);
    buf_init(&c->text, CHECKS_FIELD_MAX);
    buf_init(&c->room, ROOM_MAX);
    buf_init(&by, 1000);
    (void)buf_addf(&by, "by %.500s (Sluice", set->hostname); /* fits */
    c->by = buf_take(&by);
    return c;
}

void checks_free(struct checks *c)
{
    if (c != NULL) {
        mime_fini(&c->mime);
        buf_fini(&c->held);
        buf_fini(&c->text);
        buf_fini(&c->room);
        mem_free(c->by);
        mem_free(c);
    }
}

size_t checks_held(const struct checks *c)
{
    return buf_len(&c->held);
}

unsigned checks_visits(const struct checks *c)
{
    return c->visits;
}

/* ---- matches -------------------------------------------------------------------------------- */

static void limit(struct checks *c, unsigned code, const char *status, const char *what)
{
    if (c->ruling->code == 0) {
        c->ruling->limit = mem_string(what);
    }
    ruling_refuse(c->ruling, code, status,
                  code < 500 ? SLICE("Message can't be checked, try again later")
                             : SLICE("Message can't be checked"));
    c->done = true;
}

static void pattern_failed(struct checks *c, const struct rule_place *rule,
                           enum patterns_result result, const char *why)
{
    struct buf text;

    buf_init(&text, 8192);
    (void)buf_addf(&text, "%s %.*s:%u: the %s %s", rule->list, SLICE_ARGS(rule->file), rule->line,
                   result == PATTERNS_LIMIT ? "pattern needs" : "action", why);
    text.failed = false; /* cut at worst */
    limit(c, 451, "4.7.1", buf_cstr(&text));
    buf_fini(&text);
}

static void put_line(struct checks *c, struct slice line)
{
    c->put(c->arg, line);
    c->put(c->arg, SLICE("\r\n"));
}

static void apply(struct checks *c, enum action_place place, const struct action *action,
                  struct slice text, const struct rule_place *rule)
{
    char what[RULING_QUOTE_MAX + 16];
    struct slice quote =
        slice_of(text.ptr, text.len > RULING_QUOTE_MAX ? RULING_QUOTE_MAX : text.len);

    (void)snprintf(what, sizeof what, "%s %.*s", place == ACTION_IN_BODY_CHECKS ? "body" : "header",
                   SLICE_ARGS(quote)); /* fits */
    for (char *at = what; *at != '\0'; at++) {
        *at = *at == '\n' || *at == '\r' ? ' ' : *at;
    }
    if (action->kind == ACTION_PREPEND) {
        put_line(c, action->text);
    }
    ruling_apply(c->ruling, place, action, slice_string(what), rule);
    c->done = c->done || action_is_final(action->kind, place);
}

/* Matches a text against the files in order; the first file with a matching rule decides. */
static void examine(struct checks *c, enum table_list list, const struct rule_checks *checks,
                    struct slice text)
{
    const enum action_place place =
        list == TABLE_HEADER_CHECKS ? ACTION_IN_HEADER_CHECKS : ACTION_IN_BODY_CHECKS;

    for (size_t i = 0; i < checks->count; i++) {
        struct rule_place rule = {.list = table_list_name(list), .file = checks->paths[i]};
        struct patterns_hit hit;
        enum patterns_result result = patterns_match(checks->files[i], text, &c->room, &hit);

        rule.line = hit.line;
        if (result == PATTERNS_FOUND) {
            apply(c, place, &hit.action, text, &rule);
            break;
        }
        if (result == PATTERNS_LIMIT || result == PATTERNS_BAD) {
            pattern_failed(c, &rule, result, hit.why);
            break;
        }
    }
    if (++c->texts % TEXTS_PER_LOOK == 0 &&
        c->used_us + c->clock() - c->started_us > c->set->time_limit_us && !c->done) {
        limit(c, 451, "4.7.1", "checks_time_limit: the patterns need more time");
    }
}

/* ---- fields --------------------------------------------------------------------------------- */

static void put_held(struct checks *c)
{
    c->put(c->arg, buf_slice(&c->held));
    buf_clear(&c->held);
}

/* Makes the text of a field: without CRs and without the last line end. */
static struct slice field_text(struct checks *c)
{
    struct slice held = buf_slice(&c->held);

    buf_clear(&c->text);
    while (held.len > 0) {
        size_t cr = slice_find(held, '\r');

        (void)buf_add(&c->text, slice_of(held.ptr, cr)); /* as large as `held` */
        held = slice_skip(held, cr + 1);
    }
    held = buf_slice(&c->text);
    return held.len > 0 && held.ptr[held.len - 1] == '\n' ? slice_of(held.ptr, held.len - 1) : held;
}

static bool contains(struct slice text, const char *what)
{
    return memmem(text.ptr, text.len, what, strlen(what)) != NULL;
}

/* Checks the complete field in `held`. */
static void field_ended(struct checks *c)
{
    struct slice text;

    if (buf_len(&c->held) == 0) {
        return;
    }
    text = field_text(c);
    mime_field(&c->mime, text);
    if (c->mime.place == MIME_HEADER && slice_starts_nocase(text, SLICE("Received:")) &&
        contains(text, c->by)) {
        c->visits++;
    }
    if (!c->done && c->set->header.count > 0) {
        examine(c, TABLE_HEADER_CHECKS, &c->set->header, text);
    }
    put_held(c);
}

/* NAME: (RFC 5322, 3.6.8), perhaps with blanks before the colon, as old mail has it. */
static bool is_field(struct slice line)
{
    size_t i = 0;

    while (i < line.len && line.ptr[i] > ' ' && line.ptr[i] <= '~' && line.ptr[i] != ':') {
        i++;
    }
    if (i == 0) {
        return false;
    }
    while (i < line.len && (line.ptr[i] == ' ' || line.ptr[i] == '\t')) {
        i++;
    }
    return i < line.len && line.ptr[i] == ':';
}

static void header_ended(struct checks *c, bool by_empty_line)
{
    if (!mime_header_ended(&c->mime) && !c->done) {
        limit(c, 554, "5.6.0", "mime_nesting_limit: more than 100 parts within each other");
    }
    if (!by_empty_line) { /* this line is not part of a header */
        c->mime.place = MIME_BODY;
    }
    c->body_left = c->set->body_bytes;
}

/* ---- lines ---------------------------------------------------------------------------------- */

static struct slice without_end(struct slice line)
{
    line = line.len > 0 && line.ptr[line.len - 1] == '\n' ? slice_of(line.ptr, line.len - 1) : line;
    return line.len > 0 && line.ptr[line.len - 1] == '\r' ? slice_of(line.ptr, line.len - 1) : line;
}

static void look_at_body(struct checks *c, struct slice line)
{
    if (!c->done && c->body_left > 0 && c->set->body.count > 0) {
        c->body_left -= line.len + 2 < c->body_left ? line.len + 2 : c->body_left;
        examine(c, TABLE_BODY_CHECKS, &c->set->body, line);
    }
}

/* Checks a line of a body, or a piece of one. */
static void body_line(struct checks *c, struct slice line, bool from_start)
{
    if (from_start && mime_boundary(&c->mime, without_end(line))) {
        c->body_left = c->set->body_bytes;
    }
    look_at_body(c, without_end(line));
    c->put(c->arg, line);
}

/* Can a line of the body be passed on unchecked? Only its first byte was received yet. */
static bool passes(const struct checks *c, char first)
{
    bool looked_at = !c->done && c->set->body.count > 0 && c->body_left > 0;

    return !looked_at && (first != '-' || !mime_has_boundary(&c->mime));
}

/* ---- feeding -------------------------------------------------------------------------------- */

/* Can no rule match the rest of the message? */
static bool is_over(const struct checks *c)
{
    return buf_len(&c->held) == 0 &&
           (c->done ||
            (c->mime.place == MIME_BODY && !mime_has_boundary(&c->mime) &&
             (c->set->body.count == 0 || c->body_left == 0)) ||
            (c->mime.place != MIME_HEADER && c->set->header.count == 0 && c->set->body.count == 0));
}

/* Appends a part of a line to `held`. Returns false if the field is too long. */
static bool hold(struct checks *c, struct slice part)
{
    if (buf_add(&c->held, part)) {
        return true;
    }
    c->held.failed = false;
    limit(c, 451, "4.7.1", "CHECKS_FIELD_MAX: a header field of more than 1048576 bytes");
    put_held(c);
    c->put(c->arg, part);
    return false;
}

/* Handles a complete header line, in `held` from `start` on; the lines before it are one field. */
static void header_line(struct checks *c, size_t start)
{
    struct slice line = slice_skip(buf_slice(&c->held), start), text = without_end(line);
    const bool is_blank = text.len > 0 && (text.ptr[0] == ' ' || text.ptr[0] == '\t');
    const bool may_be_boundary = slice_starts(text, SLICE("--")) && mime_has_boundary(&c->mime);
    struct buf copy;

    if (start > 0 ? is_blank : is_field(text) && !may_be_boundary) {
        return; /* it continues the field, or begins one */
    }
    buf_init(&copy, CHECKS_FIELD_MAX);
    (void)buf_add(&copy, line); /* fits: it was in `held` */
    buf_truncate(&c->held, start);
    field_ended(c);
    line = buf_slice(&copy);
    text = without_end(line);
    if (may_be_boundary && mime_boundary(&c->mime, text)) {
        look_at_body(c, text);
        c->put(c->arg, line);
        c->body_left = c->set->body_bytes;
    } else if (is_field(text)) {
        (void)buf_add(&c->held, line); /* the same */
    } else {
        header_ended(c, text.len == 0);
        if (text.len == 0) {
            c->put(c->arg, line);
        } else {
            body_line(c, line, true);
        }
    }
    buf_fini(&copy);
}

/* Takes a line, or its received part, off the front of *in. */
static void take(struct checks *c, struct slice *in)
{
    size_t end = slice_find(*in, '\n');
    bool complete = end < in->len;
    struct slice part = slice_of(in->ptr, complete ? end + 1 : in->len);

    if (c->mime.place != MIME_BODY) {
        *in = slice_skip(*in, part.len);
        if (hold(c, part) && complete) {
            header_line(c, c->line_start);
            c->line_start = buf_len(&c->held);
        }
        return;
    }
    if (buf_len(&c->held) == 0 && c->passing) {
        *in = slice_skip(*in, part.len);
        c->put(c->arg, part);
        c->passing = !complete;
        return;
    }
    if (buf_len(&c->held) == 0 && !c->in_line && passes(c, part.ptr[0])) {
        c->passing = true;
        return;
    }
    if (buf_len(&c->held) + part.len > CHECKS_PIECE) {
        part.len = CHECKS_PIECE - buf_len(&c->held);
        complete = false;
    }
    *in = slice_skip(*in, part.len);
    (void)buf_add(&c->held, part); /* far below its limit */
    if (complete || buf_len(&c->held) == CHECKS_PIECE) {
        struct slice line = buf_slice(&c->held);

        body_line(c, line, !c->in_line);
        buf_clear(&c->held);
        c->in_line = !complete;
    }
}

static void begin(struct checks *c, checks_put *put, void *arg)
{
    c->put = put;
    c->arg = arg;
    c->started_us = c->clock();
}

static void pause_clock(struct checks *c)
{
    c->used_us += c->clock() - c->started_us;
}

void checks_feed(struct checks *c, struct slice content, checks_put *put, void *arg)
{
    begin(c, put, arg);
    while (content.len > 0 && !is_over(c)) {
        take(c, &content);
    }
    if (content.len > 0) {
        put(arg, content);
    }
    pause_clock(c);
}

void checks_end(struct checks *c, checks_put *put, void *arg)
{
    begin(c, put, arg);
    if (c->mime.place != MIME_BODY) {
        field_ended(c);
    } else if (buf_len(&c->held) > 0) {
        body_line(c, buf_slice(&c->held), !c->in_line);
        buf_clear(&c->held);
    }
    pause_clock(c);
}
