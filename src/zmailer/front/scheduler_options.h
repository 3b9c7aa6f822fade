/*
 * Command line of ZMailer's scheduler, as in scheduler(8).
 */
#ifndef ZMAILER_SCHEDULER_OPTIONS_H
#define ZMAILER_SCHEDULER_OPTIONS_H

#include <stdbool.h>

#include "buf.h"

#define SCHEDULER_USAGE_EXIT 128 /* plus the number of errors */
#define SCHEDULER_VALUE_EXIT 64  /* for invalid values of -M and -p */

enum scheduler_mode { SCHEDULER_DAEMON, SCHEDULER_FOREGROUND };

struct scheduler_options {
    enum scheduler_mode mode;
    unsigned verbose;              /* -v */
    bool verbose_late;             /* -W: has no effect, which is reported */
    bool version;                  /* -V: print the version and end */
    unsigned hash_levels;          /* -H, at most 2 */
    bool freeze;                   /* -F */
    bool headers_only;             /* -n */
    bool mailq_short;              /* -Q */
    bool read_queue_first;         /* -S */
    unsigned mailq_protocol;       /* -M */
    unsigned scan_files, scan_s;   /* -E */
    unsigned fd_limit, start_rate; /* -N, -R */
    const char *conf, *log, *statistics, *postoffice, *only, *rendezvous,
        *zenv;          /* NULL: not given */
    char *const *files; /* control files: the other arguments, up to a NULL */
};

/* Parses the command line. Returns 0, or the exit status for a wrong command line, with the reason
 * in *messages. Strings point into `argv`. */
int scheduler_options_parse(int argc, char **argv, struct scheduler_options *ret_options,
                            struct buf *messages);

/* Appends the usage text. */
void scheduler_options_usage(struct buf *out, const char *program);

#endif
