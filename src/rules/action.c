#include "action.h"

#include <stdio.h>
#include <string.h>

#include "address.h"
#include "check.h"
#include "conf.h"
#include "route.h"

static const struct {
    const char *name, *word;
    enum action_kind kind;
} actions[] = {
    {"OK", "permit", ACTION_OK},
    {"DUNNO", "dunno", ACTION_DUNNO},
    {"REJECT", "reject", ACTION_REJECT},
    {"DEFER", "reject", ACTION_DEFER}, /* Postfix logs both as "reject" */
    {"HOLD", "hold", ACTION_HOLD},
    {"DISCARD", "discard", ACTION_DISCARD},
    {"WARN", "warning", ACTION_WARN},
    {"INFO", "info", ACTION_INFO},
    {"PREPEND", "prepend", ACTION_PREPEND},
    {"REDIRECT", "redirect", ACTION_REDIRECT},
    {"BCC", "bcc", ACTION_BCC},
    {"FILTER", "filter", ACTION_FILTER},
    {"ALIAS", "alias", ACTION_ALIAS},
};
#define ACTIONS (sizeof actions / sizeof actions[0])

const char *action_word(enum action_kind kind)
{
    CHECK(kind < ACTIONS);
    return actions[kind].word;
}

const char *action_name(enum action_kind kind)
{
    CHECK(kind < ACTIONS);
    return actions[kind].name;
}

bool action_is_final(enum action_kind kind, enum action_place place)
{
    return kind == ACTION_REJECT || kind == ACTION_DEFER || kind == ACTION_DISCARD ||
           (kind == ACTION_OK && place == ACTION_IN_ACCESS);
}

/* Is it an enhanced status of the class of the code, as 5.7.1 of 554? */
static bool is_status(struct slice word, unsigned class)
{
    unsigned long long number;
    int parts = 0;

    if (word.len >= ACTION_STATUS_MAX) {
        return false;
    }
    while (word.ptr != NULL && parts < 3) {
        struct slice part = slice_cut(&word, '.');

        if (part.len == 0 || part.len > 3 || !slice_number(part, 999, &number) ||
            (parts == 0 && number != class)) {
            return false;
        }
        parts++;
    }
    return parts == 3 && word.ptr == NULL;
}

static void take_status(struct action *a, const char *preset)
{
    struct slice rest = a->text, word = slice_cut_word(&rest);

    (void)snprintf(a->status, sizeof a->status, "%s", preset); /* fits */
    if (is_status(word, a->code / 100)) {
        (void)snprintf(a->status, sizeof a->status, "%.*s", SLICE_ARGS(word)); /* fits */
        a->text = rest;
    }
}

/* Returns the reply code that the first word is, or 0. */
static bool find_action(struct slice word, struct action *a)
{
    unsigned long long code;

    for (size_t i = 0; i < ACTION_ALIAS; i++) {
        if (slice_equal_nocase(word, slice_string(actions[i].name))) {
            a->kind = actions[i].kind;
            return true;
        }
    }
    if (word.len == 3 && slice_number(word, 599, &code) && code >= 400 && code != 421 &&
        code != 521) {
        a->kind = code < 500 ? ACTION_DEFER : ACTION_REJECT;
        a->code = (unsigned)code;
        return true;
    }
    return false;
}

static bool is_address(struct slice text)
{
    return address_is_stored(text, ADDRESS_UTF8) && address_split(text).domain.len > 0;
}

/* Is it a header field, NAME: VALUE (RFC 5322, 2.2)? */
static bool is_field(struct slice text)
{
    size_t colon = slice_find(text, ':');

    for (size_t i = 0; i < colon; i++) {
        if (text.ptr[i] <= ' ' || text.ptr[i] > '~') {
            return false;
        }
    }
    return colon > 0 && colon < text.len;
}

static const char *text_error(const struct action *a, enum action_place place, bool final,
                              const struct conf *conf)
{
    const bool can_change = !final && slice_find(a->text, '$') < a->text.len;

    if (a->text.len > ACTION_TEXT_MAX) {
        return "has more than 900 bytes after the action";
    }
    for (size_t i = 0; i < a->text.len; i++) {
        unsigned char c = (unsigned char)a->text.ptr[i];

        if ((c < ' ' && c != '\t') || c == 127) {
            return "has a control character";
        }
    }
    switch (a->kind) {
    case ACTION_REDIRECT:
    case ACTION_BCC:
        return can_change || is_address(a->text) ? NULL
                                                 : "needs a mail address with a domain after it";
    case ACTION_FILTER:
        if (a->text.len == 0) {
            return "needs a TRANSPORT:NEXTHOP after it";
        }
        if (slice_find(a->text, ' ') < a->text.len) {
            return "has more than a TRANSPORT:NEXTHOP after it";
        }
        return can_change || conf == NULL ? NULL : route_target_error(conf, a->text);
    case ACTION_PREPEND:
        if (a->text.len == 0) {
            return "needs a text after it";
        }
        return place == ACTION_IN_BODY_CHECKS || can_change || is_field(a->text)
                   ? NULL
                   : "needs a header field after it, NAME: VALUE";
    case ACTION_OK:
    case ACTION_DUNNO:
    case ACTION_REJECT:
    case ACTION_DEFER:
    case ACTION_HOLD:
    case ACTION_DISCARD:
    case ACTION_WARN:
    case ACTION_INFO:
    case ACTION_ALIAS:
        return NULL;
    }
    UNREACHABLE("no such action");
}

const char *action_parse(struct slice value, enum action_place place, bool final,
                         const struct conf *conf, struct action *ret_action)
{
    struct action a = {.kind = ACTION_DUNNO};
    struct slice word;
    const char *error;

    a.text = value;
    word = slice_cut_word(&a.text);
    if (word.len == 0) {
        return "has no action";
    }
    if (!find_action(word, &a)) {
        return "has an unknown action; expected OK, DUNNO, REJECT, DEFER, 4NN, 5NN, HOLD, DISCARD, "
               "WARN, INFO, PREPEND, REDIRECT, BCC or FILTER";
    }
    if (a.kind == ACTION_REJECT || a.kind == ACTION_DEFER) {
        if (a.code == 0) {
            a.code = a.kind == ACTION_REJECT ? (place == ACTION_IN_ACCESS ? 554 : 550)
                                             : (place == ACTION_IN_ACCESS ? 450 : 451);
        }
        take_status(&a, a.kind == ACTION_REJECT ? "5.7.1" : "4.7.1");
    }
    error = text_error(&a, place, final, conf);
    if (error == NULL) {
        *ret_action = a;
    }
    return error;
}
