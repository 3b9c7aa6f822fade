/*
 * The command line that Postfix's master(8) passes to a daemon.
 */
#ifndef POSTFIX_MANAGER_OPTIONS_H
#define POSTFIX_MANAGER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"

/* Limit of -o options. */
#define MANAGER_OVERRIDES_MAX 100

struct manager_options {
    const char *program;                          /* name in the tag of log lines: "qmgr" */
    const char *directory;                        /* directory of main.cf, from the environment */
    const char *overrides[MANAGER_OVERRIDES_MAX]; /* "name=value"; borrowed from argv */
    size_t override_count;
    bool unprivileged; /* -u: run as mail_owner */
    bool chroot;       /* -c: run in a chroot */
};

/* Parses the command line. Returns false if it is not that of a queue manager; *ret_error has the
 * expected form. Sets `program` in any case. */
bool manager_options_parse(int argc, char **argv, struct manager_options *ret,
                           struct buf *ret_error);

#endif
