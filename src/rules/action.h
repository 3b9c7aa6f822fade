/*
 * What a rule at arrival wants: the right side of access tables and of header_checks and
 * body_checks, with Postfix's meaning (access(5), header_checks(5)):
 *
 *     OK                      no further table of this list is asked; of checks: as DUNNO
 *     DUNNO                   as if the rule were not there
 *     REJECT [STATUS] [text]  the recipient, of checks the message, is refused: 554, of checks 550
 *     5NN [STATUS] text       the same with this code
 *     DEFER [STATUS] [text]   the client is asked to try again: 450, of checks 451
 *     4NN [STATUS] text       the same with this code
 *     HOLD [text]             the message goes to hold
 *     DISCARD [text]          the client is told that the message is queued, and it is dropped
 *     WARN [text], INFO       a line of log, and nothing else
 *     PREPEND text            a header field before all others; of checks a line before this one
 *     REDIRECT address        it goes there alone, by no filter, without copies
 *     BCC address             one more recipient
 *     FILTER transport:nexthop    the message goes there first (content_filter)
 *
 * After all but OK, REJECT, DEFER and DISCARD the next tables, or lines, are asked as well. STATUS
 * is an enhanced status code (RFC 3463) of the reply's class.
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
};

/* Where the rule stands: what it may say differs. */
enum action_place { ACTION_IN_ACCESS, ACTION_IN_HEADER_CHECKS, ACTION_IN_BODY_CHECKS };

#define ACTION_STATUS_MAX 12  /* "5.7.1", NUL included */
#define ACTION_TEXT_MAX   900 /* bytes behind the action: it goes into a reply or a field */

struct action {
    enum action_kind kind;
    unsigned code;                  /* of REJECT and DEFER */
    char status[ACTION_STATUS_MAX]; /* the same */
    struct slice text;              /* what stands behind; borrowed, may be empty */
};

/* Read `value`. NULL, or what is wrong with it, to be put behind it. With `final` the text is as it
 * will be used; else it is a pattern's, in which $1 stands for what is found later, and what that
 * could change is not judged. `conf` (may be NULL) knows the transports. */
const char *action_parse(struct slice value, enum action_place place, bool final,
                         const struct conf *conf, struct action *ret_action);

/* "reject", "hold", ..: Postfix's word for the log. */
const char *action_word(enum action_kind kind);

/* The name as rules have it: "REJECT". */
const char *action_name(enum action_kind kind);

/* Does it end the list of tables, or the message? */
bool action_is_final(enum action_kind kind, enum action_place place);

#endif
