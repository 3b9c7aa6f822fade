/*
 * The command line of a transport agent, as ZMailer's configuration has it: words between blanks,
 * no quoting. Leading words with `=` are the agent's environment, the next is the program; without
 * a leading `/` it is MAILBIN/ta/WORD.
 *
 *     $host ${host}        the host that the agent is started for
 *     $channel ${channel}
 *     $NAME ${NAME}        a variable of the ZENV file. ${NAME} unknown: nothing is filled in;
 *                          $NAME unknown: it stands for itself
 *
 * What is filled in stays part of its word, whatever bytes it has. A word that a host begins with
 * `-` would be an option to the agent: such a start is refused.
 */
#ifndef ZMAILER_TA_COMMAND_H
#define ZMAILER_TA_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "slice.h"

#define TA_COMMAND_WORDS_MAX 40
#define TA_COMMAND_BYTES_MAX 65536 /* of all words and settings */

/* A variable's value, or NULL; lasts during the call that asks. */
typedef const char *ta_command_look(void *arg, struct slice name);

struct ta_command_names {
    struct slice channel, host;
    ta_command_look *look; /* ZENV */
    void *arg;
};

struct ta_command {
    char *words[TA_COMMAND_WORDS_MAX + 1];           /* [0] the program's path; NULL-terminated */
    char *environment[TA_COMMAND_WORDS_MAX + 3 + 1]; /* settings, TZ, PATH and ZCONFIG */
    struct buf bytes;                                /* where they all are */
};

/* False: *ret_why says what is wrong with the command. `tz` is the scheduler's, or NULL. Release it
 * with ta_command_fini in any case. */
bool ta_command_expand(struct slice command, const struct ta_command_names *names, const char *tz,
                       struct ta_command *ret_command, const char **ret_why);

void ta_command_fini(struct ta_command *c);

/* Does it name the host? Then an agent serves that one only. */
bool ta_command_is_host_bound(struct slice command);

#endif
