/*
 * Combined actions of all rules for one message, until it is submitted to the queue process.
 *
 * Access tables, header_checks and body_checks add their actions (ruling_apply); the accepting
 * process reads the result at the end of the message. The order matters only among actions of one
 * kind: the last REDIRECT and the last FILTER apply, the first HOLD and the first refusal. DISCARD
 * overrides all other actions except an earlier refusal.
 */
#ifndef RULES_RULING_H
#define RULES_RULING_H

#include <stdbool.h>
#include <stddef.h>

#include "action.h"
#include "buf.h"
#include "slice.h"

#define RULING_NOTES_MAX   20   /* log lines for one message; further ones are only counted */
#define RULING_BCC_MAX     100  /* recipients added by BCC; further ones are dropped with a note */
#define RULING_PREPEND_MAX 8192 /* bytes prepended by access tables; more is dropped with a note */
#define RULING_QUOTE_MAX   200  /* bytes of a field or line in a line of log */

/* Place of a rule. */
struct rule_place {
    const char *list; /* name of the parameter */
    struct slice file;
    unsigned line;
};

/* One action, for the log. */
struct ruling_note {
    enum action_kind kind;
    char *what; /* owned; the matched text: "<a@b>: Sender address", "header Subject: x" */
    char *text; /* owned; the text after the action */
    char *rule; /* owned; "sender_access /etc/x:12" */
};

struct ruling {
    /* Texts are owned, and NULL if there is none. */
    unsigned code; /* reply code of a refusal of the message; 0 if there is none */
    char status[ACTION_STATUS_MAX];
    char *text;
    char *limit; /* the limit that caused the refusal; NULL if a rule did */
    bool discard;
    char *hold;         /* reason: "header_checks /etc/x:12: text" */
    char *filter;       /* transport:nexthop */
    char *redirect;     /* an address */
    struct buf prepend; /* fields prepended by access tables, each with its CRLF */
    char **bcc;
    size_t bcc_count, bcc_size;
    struct ruling_note *notes;
    size_t note_count, note_size;
    unsigned notes_dropped;
};

void ruling_init(struct ruling *r);

/* Frees all actions; the ruling is as after ruling_init. */
void ruling_clear(struct ruling *r);

/* Adds the action of a rule that matched `what`. The caller carries out PREPEND of checks, and
 * refusals, OK and DUNNO of access tables, which concern one recipient; those are only noted. */
void ruling_apply(struct ruling *r, enum action_place place, const struct action *action,
                  struct slice what, const struct rule_place *rule);

/* Refuses the message, unless it is refused already. */
void ruling_refuse(struct ruling *r, unsigned code, const char *status, struct slice text);

#endif
