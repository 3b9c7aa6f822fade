/*
 * Command line of a transport agent, as in ZMailer's configuration: words between blanks, without
 * quoting. Leading words with `=` are the agent's environment; the next word is the program.
 * Without a leading `/` the program is MAILBIN/ta/WORD.
 *
 *     $host ${host}        the host that the agent is started for
 *     $channel ${channel}
 *     $NAME ${NAME}        a variable of the ZENV file. An unknown ${NAME} becomes empty, an
 *                          unknown $NAME stays as it is.
 *
 * An inserted value stays part of its word, whatever bytes it has. A host with a leading `-` at the
 * start of a word would be an option of the agent, so that start is refused.
 */
#ifndef ZMAILER_TA_COMMAND_H
#define ZMAILER_TA_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "slice.h"

#define TA_COMMAND_WORDS_MAX 40
#define TA_COMMAND_BYTES_MAX 65536 /* total of all words and settings */

/* Returns a variable's value, valid during the call, or NULL. */
typedef const char *ta_command_look(void *arg, struct slice name);

struct ta_command_names {
    struct slice channel, host;
    ta_command_look *look; /* look-up of ZENV variables */
    void *arg;
};

struct ta_command {
    char *words[TA_COMMAND_WORDS_MAX + 1];           /* [0] is the program's path;
                                                      * NULL-terminated */
    char *environment[TA_COMMAND_WORDS_MAX + 3 + 1]; /* settings, TZ, PATH and ZCONFIG */
    struct buf bytes;                                /* text of all of these */
};

/* Expands the command. Returns false with the fault in *ret_why. `tz` is the scheduler's time zone,
 * or NULL. Call ta_command_fini in any case. */
bool ta_command_expand(struct slice command, const struct ta_command_names *names, const char *tz,
                       struct ta_command *ret_command, const char **ret_why);

void ta_command_fini(struct ta_command *c);

/* Does the command contain the host? An agent then serves that host only. */
bool ta_command_is_host_bound(struct slice command);

#endif
