/*
 * Actions of rules: the right side of access tables and of header_checks and body_checks, with
 * Postfix's meaning (access(5), header_checks(5)):
 *
 *     OK                      no further table of this list is searched; in checks: as DUNNO
 *     DUNNO                   as if the rule did not exist
 *     REJECT [STATUS] [text]  the recipient (in checks: the message) is refused with 554 (550)
 *     5NN [STATUS] text       refused with this code
 *     DEFER [STATUS] [text]   the client should try again: 450, in checks 451
 *     4NN [STATUS] text       deferred with this code
 *     HOLD [text]             the message goes to hold
 *     DISCARD [text]          the message is dropped, after a reply as if it were queued
 *     WARN [text], INFO       a line of log only
 *     PREPEND text            a header field before all others; in checks a line before this one
 *     REDIRECT address        the message goes only there, without filter and copies
 *     BCC address             one more recipient
 *     FILTER transport:nexthop    the message goes there first (as with content_filter)
 *
 * After any action but OK, REJECT, DEFER and DISCARD the next table or line is searched, too.
 * STATUS is an enhanced status code (RFC 3463) of the reply's class.
 */
#ifndef RULES_ACTION_H
#define RULES_ACTION_H

#include <stdbool.h>

#include "slice.h"

struct conf;

enum action_kind {
    ACTION_OK,
    ACTION_DUNNO,
    ACTION_REJECT,
    ACTION_DEFER,
    ACTION_HOLD,
    ACTION_DISCARD,
    ACTION_WARN,
    ACTION_INFO,
    ACTION_PREPEND,
    ACTION_REDIRECT,
    ACTION_BCC,
    ACTION_FILTER,
    ACTION_ALIAS, /* not in tables of rules: a recipient that stands for others */
};

/* Place of a rule, which determines the actions it may have. */
enum action_place { ACTION_IN_ACCESS, ACTION_IN_HEADER_CHECKS, ACTION_IN_BODY_CHECKS };

#define ACTION_STATUS_MAX 12  /* "5.7.1", NUL included */
#define ACTION_TEXT_MAX   900 /* bytes after the action, which become part of a reply or field */

struct action {
    enum action_kind kind;
    unsigned code;                  /* reply code of REJECT and DEFER */
    char status[ACTION_STATUS_MAX]; /* enhanced status of REJECT and DEFER */
    struct slice text;              /* text after the action; borrowed, may be empty */
};

/* Parses `value`. Returns NULL, or the fault as words that continue "the value ..". With `final`
 * the text is checked as it will be used. Otherwise it belongs to a pattern, where $1 is replaced
 * later, and text that a replacement could change is not checked. `conf` has the transports; may be
 * NULL. */
const char *action_parse(struct slice value, enum action_place place, bool final,
                         const struct conf *conf, struct action *ret_action);

/* Returns Postfix's word for the log: "reject", "hold". */
const char *action_word(enum action_kind kind);

/* Returns the name as rules have it: "REJECT". */
const char *action_name(enum action_kind kind);

/* Does the action end the search through the list of tables, or through the message? */
bool action_is_final(enum action_kind kind, enum action_place place);

#endif
