/*
 * The command line that Postfix's master(8) gives to a daemon.
 */
#ifndef POSTFIX_MANAGER_OPTIONS_H
#define POSTFIX_MANAGER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"

/* -o options of one daemon. */
#define MANAGER_OVERRIDES_MAX 100

struct manager_options {
    const char *program;                          /* in the tag of log lines: "qmgr" */
    const char *directory;                        /* of main.cf, from the environment */
    const char *overrides[MANAGER_OVERRIDES_MAX]; /* "name=value"; borrowed from argv */
    size_t override_count;
    bool unprivileged; /* -u: become mail_owner */
    bool chroot;       /* -c */
};

/* False: it is not what a queue manager is started with; *ret_error says what was expected.
 * `program` is set in any case. */
bool manager_options_parse(int argc, char **argv, struct manager_options *ret,
                           struct buf *ret_error);

#endif
