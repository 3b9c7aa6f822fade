#include "ruling.h"

#include <stdio.h>
#include <string.h>

#include "mem.h"

#define RULE_TEXT_MAX 4352 /* bytes: a path with the words around it */

void ruling_init(struct ruling *r)
{
    *r = (struct ruling){.code = 0};
    buf_init(&r->prepend, RULING_PREPEND_MAX);
}

void ruling_clear(struct ruling *r)
{
    mem_free(r->text);
    mem_free(r->limit);
    mem_free(r->hold);
    mem_free(r->filter);
    mem_free(r->redirect);
    buf_fini(&r->prepend);
    for (size_t i = 0; i < r->bcc_count; i++) {
        mem_free(r->bcc[i]);
    }
    mem_free(r->bcc);
    for (size_t i = 0; i < r->note_count; i++) {
        mem_free(r->notes[i].what);
        mem_free(r->notes[i].text);
        mem_free(r->notes[i].rule);
    }
    mem_free(r->notes);
    ruling_init(r);
}

static char *rule_text(const struct rule_place *rule)
{
    struct buf text;

    buf_init(&text, RULE_TEXT_MAX);
    (void)buf_addf(&text, "%s %.*s:%u", rule->list, SLICE_ARGS(rule->file), rule->line);
    text.failed = false; /* cut at worst */
    return buf_take(&text);
}

static void note(struct ruling *r, const struct action *action, struct slice what,
                 const struct rule_place *rule)
{
    if (r->note_count == RULING_NOTES_MAX) {
        r->notes_dropped++;
        return;
    }
    r->notes = mem_grow(r->notes, r->note_count, &r->note_size, sizeof *r->notes);
    r->notes[r->note_count++] =
        (struct ruling_note){.kind = action->kind,
                             .what = mem_copy(what.ptr, what.len),
                             .text = mem_copy(action->text.ptr, action->text.len),
                             .rule = rule_text(rule)};
}

static void replace(char **text, struct slice with)
{
    mem_free(*text);
    *text = mem_copy(with.ptr, with.len);
}

static void hold(struct ruling *r, const struct action *action, const struct rule_place *rule)
{
    char *place = rule_text(rule);
    struct buf text;

    if (r->hold == NULL) {
        buf_init(&text, RULE_TEXT_MAX + ACTION_TEXT_MAX + 2);
        (void)buf_addf(&text, "%s%s%.*s", place, action->text.len > 0 ? ": " : "",
                       SLICE_ARGS(action->text)); /* fits */
        r->hold = buf_take(&text);
    }
    mem_free(place);
}

static void add_bcc(struct ruling *r, const struct action *action)
{
    if (r->bcc_count == RULING_BCC_MAX) {
        r->notes_dropped++;
        return;
    }
    r->bcc = mem_grow(r->bcc, r->bcc_count, &r->bcc_size, sizeof *r->bcc);
    r->bcc[r->bcc_count++] = mem_copy(action->text.ptr, action->text.len);
}

static void prepend(struct ruling *r, const struct action *action)
{
    if (buf_len(&r->prepend) + action->text.len + 2 > RULING_PREPEND_MAX) {
        r->notes_dropped++;
        return;
    }
    (void)buf_addf(&r->prepend, "%.*s\r\n", SLICE_ARGS(action->text)); /* fits */
}

void ruling_refuse(struct ruling *r, unsigned code, const char *status, struct slice text)
{
    if (r->code == 0) {
        r->code = code;
        (void)snprintf(r->status, sizeof r->status, "%s", status); /* cut at worst */
        replace(&r->text, text);
    }
}

void ruling_apply(struct ruling *r, enum action_place place, const struct action *action,
                  struct slice what, const struct rule_place *rule)
{
    const bool in_access = place == ACTION_IN_ACCESS;

    switch (action->kind) {
    case ACTION_OK:
    case ACTION_DUNNO:
        return;
    case ACTION_REJECT:
    case ACTION_DEFER:
        if (in_access) {
            return; /* the reply is logged */
        }
        ruling_refuse(r, action->code, action->status,
                      action->text.len > 0            ? action->text
                      : action->kind == ACTION_REJECT ? SLICE("message content rejected")
                                                      : SLICE("message content deferred"));
        break;
    case ACTION_HOLD:
        hold(r, action, rule);
        break;
    case ACTION_DISCARD:
        r->discard = true;
        break;
    case ACTION_WARN:
    case ACTION_INFO:
        break;
    case ACTION_PREPEND:
        if (in_access) {
            prepend(r, action);
        }
        break;
    case ACTION_REDIRECT:
        replace(&r->redirect, action->text);
        break;
    case ACTION_BCC:
        add_bcc(r, action);
        break;
    case ACTION_FILTER:
        replace(&r->filter, action->text);
        break;
    case ACTION_ALIAS:
        break;
    }
    note(r, action, what, rule);
}
