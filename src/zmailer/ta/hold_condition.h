/*
 * What the agent hold waits for: the host word of a recipient.
 *
 *     NS:name/type        a name server has an answer, or says that there is none
 *     TIMEOUT:seconds     that time since 1970 has come
 *     AGE:1d2h3m4s        the message is as old as that
 *     IO:anything         one time out of ten
 *     SCRIPT:name/word    MAILBIN/bin/name, run with the word, ends with status 0
 *     HOME:user           the user's home directory is there
 *
 * The word in front of the colon may have any case.
 */
#ifndef ZMAILER_HOLD_CONDITION_H
#define ZMAILER_HOLD_CONDITION_H

#include <sys/socket.h>

#include "conf.h"
#include "slice.h"
#include "times.h"

struct hold_world {
    const struct conf *zenv;             /* MAILBIN and what scripts get */
    struct sockaddr_storage name_server; /* ss_family 0: the system's */
    int script_timeout_s;
};

enum hold_outcome {
    HOLD_OVER,      /* it holds */
    HOLD_NO_ANSWER, /* of a name server, for now */
    HOLD_NOT_YET,
    HOLD_UNKNOWN, /* there is no such condition */
};

/* Look now. `arrived` is when the message came. Blocks. */
enum hold_outcome hold_condition(const struct hold_world *world, struct slice condition,
                                 struct wall arrived, struct wall now);

#endif
