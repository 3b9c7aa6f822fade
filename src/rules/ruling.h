/*
 * What the rules at arrival have decided for one message, until it is handed to the queue process.
 *
 * Access tables, header_checks and body_checks put their actions in (ruling_apply); the process
 * that takes the message in reads the result at its end. The order of actions does not matter but
 * among those of one kind: of REDIRECT and FILTER the last one counts, of HOLD and of refusals the
 * first. DISCARD goes before all others but a refusal that came first.
 */
#ifndef RULES_RULING_H
#define RULES_RULING_H

#include <stdbool.h>
#include <stddef.h>

#include "action.h"
#include "buf.h"
#include "slice.h"

#define RULING_NOTES_MAX   20   /* lines of log of one message; more are counted */
#define RULING_BCC_MAX     100  /* recipients that BCC may add; more are dropped with a note */
#define RULING_PREPEND_MAX 8192 /* bytes of fields that access tables prepend; the same */
#define RULING_QUOTE_MAX   200  /* bytes of a field or line in a line of log */

/* Where a rule stands. */
struct rule_place {
    const char *list; /* the parameter */
    struct slice file;
    unsigned line;
};

/* One action, for the log. */
struct ruling_note {
    enum action_kind kind;
    char *what; /* owned, as the next: "<a@b>: Sender address", "header Subject: x" */
    char *text; /* behind the action */
    char *rule; /* "sender_access /etc/x:12" */
};

struct ruling {
    /* A refusal of the message; code 0: there is none. Texts are owned, NULL: nothing. */
    unsigned code;
    char status[ACTION_STATUS_MAX];
    char *text;
    char *limit; /* with a refusal: which limit wants it; NULL: a rule does */
    bool discard;
    char *hold;         /* the reason: "header_checks /etc/x:12: text" */
    char *filter;       /* transport:nexthop */
    char *redirect;     /* an address */
    struct buf prepend; /* fields of access tables, each with its CRLF */
    char **bcc;
    size_t bcc_count, bcc_size;
    struct ruling_note *notes;
    size_t note_count, note_size;
    unsigned notes_dropped;
};

void ruling_init(struct ruling *r);

/* As after ruling_init. */
void ruling_clear(struct ruling *r);

/* Take in an action of a rule that fits `what`. PREPEND of checks is the caller's. A refusal, OK
 * and DUNNO of access tables are, too: they are of a recipient; they are only noted. */
void ruling_apply(struct ruling *r, enum action_place place, const struct action *action,
                  struct slice what, const struct rule_place *rule);

/* Refuse the message, unless it is refused. */
void ruling_refuse(struct ruling *r, unsigned code, const char *status, struct slice text);

#endif
