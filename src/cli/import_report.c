#include "import_report.h"

#include <string.h>

#include "mem.h"

static const char *const danger_words[DANGERS] = {
    [DANGER_LOSS] = "could lose mail",
    [DANGER_REFUSAL] = "could refuse mail",
    [DANGER_RELAY] = "could relay for strangers",
    [DANGER_CLEAR] = "could send in clear text",
    [DANGER_ACCEPT] = "could accept mail that Postfix refuses",
    [DANGER_OTHER] = "differs",
};

void import_report_init(struct import_report *r)
{
    *r = (struct import_report){.pool = {NULL}};
}

void import_report_fini(struct import_report *r)
{
    mem_free(r->lines);
    mem_free(r->notes);
    mem_free(r->reasons);
    pool_fini(&r->pool);
}

static const char *copy(struct import_report *r, struct slice text)
{
    char *s = pool_string(&r->pool, text);

    for (size_t i = 0; i < text.len; i++) {
        s[i] = s[i] == '\n' ? ' ' : s[i];
    }
    return s;
}

void import_note(struct import_report *r, enum import_outcome outcome, enum import_danger danger,
                 const char *place, struct slice name, struct slice value, const char *why)
{
    r->notes = mem_grow(r->notes, r->note_count, &r->note_size, sizeof *r->notes);
    r->notes[r->note_count++] = (struct import_note){
        .outcome = outcome,
        .danger = danger,
        .place = copy(r, slice_string(place)),
        .name = copy(r, name),
        .value = copy(r, value),
        .why = copy(r, slice_string(why)),
    };
}

void import_line(struct import_report *r, const char *name, const char *text, const char *place,
                 struct slice source, struct slice value)
{
    r->lines = mem_grow(r->lines, r->line_count, &r->line_size, sizeof *r->lines);
    r->lines[r->line_count++] = (struct import_line){
        .name = copy(r, slice_string(name)),
        .text = pool_string(&r->pool, slice_string(text)),
        .place = copy(r, slice_string(place)),
        .source = copy(r, source),
        .value = copy(r, value),
    };
}

void import_reason(struct import_report *r, const char *reason)
{
    for (size_t i = 0; i < r->reason_count; i++) {
        if (strcmp(r->reasons[i], reason) == 0) {
            return;
        }
    }
    r->reasons = mem_grow((void *)r->reasons, r->reason_count, &r->reason_size, sizeof *r->reasons);
    r->reasons[r->reason_count++] = copy(r, slice_string(reason));
}

size_t import_count(const struct import_report *r, enum import_outcome outcome)
{
    size_t n = 0;

    for (size_t i = 0; i < r->note_count; i++) {
        n += r->notes[i].outcome == outcome;
    }
    return n;
}

static bool is_decision(const struct import_note *n)
{
    return n->outcome == IMPORT_LOST && n->danger != DANGER_OTHER;
}

size_t import_decisions(const struct import_report *r)
{
    size_t n = 0;

    for (size_t i = 0; i < r->note_count; i++) {
        n += is_decision(&r->notes[i]);
    }
    return n;
}

/* ---- printing; all errors of *out are sticky ------------------------------------------------ */

static void print_note(struct buf *out, const struct import_note *n)
{
    (void)buf_addf(out, "# %s: %s = %s\n#   ", n->place, n->name, n->value);
    if (n->outcome == IMPORT_LOST && n->danger != DANGER_OTHER) {
        (void)buf_addf(out, "%s: ", danger_words[n->danger]);
    }
    (void)buf_addf(out, "%s\n", n->why);
}

static void print_outcome(const struct import_report *r, enum import_outcome outcome,
                          const char *title, struct buf *out)
{
    bool titled = false;

    for (size_t i = 0; i < r->note_count; i++) {
        const struct import_note *n = &r->notes[i];

        if (n->outcome == outcome && !is_decision(n)) {
            (void)buf_addf(out, "%s", titled ? "" : title);
            titled = true;
            print_note(out, n);
        }
    }
}

static void print_advice(const struct import_report *r, struct buf *out)
{
    if (r->reason_count == 0) {
        (void)buf_add_string(out,
                             "# Which way suits: standalone. Sluice can replace this Postfix.\n");
        return;
    }
    (void)buf_add_string(out, "# Which way suits: keep Postfix and let sluice-qmgr run its queue "
                              "(docs/postfix.md), because of\n");
    for (size_t i = 0; i < r->reason_count; i++) {
        (void)buf_addf(out, "#   - %s\n", r->reasons[i]);
    }
    (void)buf_add_string(out, "# The configuration below is for the other way, without Postfix.\n");
}

static void print_head(const struct import_report *r, const char *source, struct buf *out)
{
    (void)buf_addf(out, "# From %s, by sluice config import.\n#\n", source);
    print_advice(r, out);
    if (import_decisions(r) > 0) {
        (void)buf_add_string(out, "\n# ---- A person must decide about these; worst first\n");
    }
    for (int danger = 0; danger < DANGER_OTHER; danger++) {
        for (size_t i = 0; i < r->note_count; i++) {
            if (is_decision(&r->notes[i]) && (int)r->notes[i].danger == danger) {
                print_note(out, &r->notes[i]);
            }
        }
    }
    (void)buf_add_string(out, "\n");
}

static unsigned lines_of(struct slice text)
{
    unsigned lines = 0;

    for (size_t at = slice_find(text, '\n'); at < text.len; at = slice_find(text, '\n')) {
        text = slice_skip(text, at + 1);
        lines++;
    }
    return lines;
}

void import_print(struct import_report *r, const char *source, struct buf *out)
{
    unsigned next;

    print_head(r, source, out);
    next = lines_of(buf_slice(out)) + 1;
    for (size_t i = 0; i < r->line_count; i++) {
        struct import_line *line = &r->lines[i];

        line->first = next;
        line->count = lines_of(slice_string(line->text)) + 1;
        next += line->count;
        (void)buf_addf(out, "%s\n", line->text);
    }
    print_outcome(r, IMPORT_LOST, "\n# ---- Differs, without danger\n", out);
    print_outcome(r, IMPORT_NEIGHBOUR, "\n# ---- The business of another program\n", out);
    print_outcome(r, IMPORT_NEEDLESS, "\n# ---- Not needed here\n", out);
}

void import_print_decisions(const struct import_report *r, struct buf *out)
{
    for (int danger = 0; danger < DANGER_OTHER; danger++) {
        for (size_t i = 0; i < r->note_count; i++) {
            const struct import_note *n = &r->notes[i];

            if (is_decision(n) && (int)n->danger == danger) {
                (void)buf_addf(out, "%s: %s: %s: %s\n", n->place, n->name, danger_words[danger],
                               n->why);
            }
        }
    }
}

const struct import_line *import_line_at(const struct import_report *r, unsigned number)
{
    for (size_t i = 0; i < r->line_count; i++) {
        if (number >= r->lines[i].first && number - r->lines[i].first < r->lines[i].count) {
            return &r->lines[i];
        }
    }
    return NULL;
}
