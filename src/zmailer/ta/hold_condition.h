/*
 * Conditions of the agent hold. The host word of a recipient is the condition that the recipient
 * waits for:
 *
 *     NS:name/type        a name server has an answer, or reports that none exists
 *     TIMEOUT:seconds     this number of seconds since 1970 is reached
 *     AGE:1d2h3m4s        the message has this age
 *     IO:anything         true one time out of ten
 *     SCRIPT:name/word    MAILBIN/bin/name, run with the word as argument, exits with 0
 *     HOME:user           the user's home directory exists
 *
 * The word before the colon may have any case.
 */
#ifndef ZMAILER_HOLD_CONDITION_H
#define ZMAILER_HOLD_CONDITION_H

#include <sys/socket.h>

#include "conf.h"
#include "slice.h"
#include "times.h"

struct hold_world {
    const struct conf *zenv;             /* has MAILBIN and the variables that scripts get */
    struct sockaddr_storage name_server; /* name server to query; ss_family 0: the system's */
    int script_timeout_s;
};

enum hold_outcome {
    HOLD_OVER,      /* the condition is met */
    HOLD_NO_ANSWER, /* the name server has no answer now */
    HOLD_NOT_YET,
    HOLD_UNKNOWN, /* no such condition */
};

/* Tests a condition and returns its outcome. `arrived` is the arrival of the message. Blocks. */
enum hold_outcome hold_condition(const struct hold_world *world, struct slice condition,
                                 struct wall arrived, struct wall now);

#endif
