/*
 * The command line of ZMailer's scheduler, read as scheduler(8) has it.
 */
#ifndef ZMAILER_SCHEDULER_OPTIONS_H
#define ZMAILER_SCHEDULER_OPTIONS_H

#include <stdbool.h>

#include "buf.h"

#define SCHEDULER_USAGE_EXIT 128 /* plus the number of errors */
#define SCHEDULER_VALUE_EXIT 64  /* -M and -p with values that are none */

enum scheduler_mode { SCHEDULER_DAEMON, SCHEDULER_FOREGROUND };

struct scheduler_options {
    enum scheduler_mode mode;
    unsigned verbose;              /* -v */
    bool verbose_late;             /* -W: told that it means nothing here */
    bool version;                  /* -V: print it, and that is all */
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
    char *const *files; /* control files: what is left of the arguments, ends with NULL */
};

/* 0, or the exit status of a command line that can't be obeyed; *messages says why. Strings are
 * those of `argv`. */
int scheduler_options_parse(int argc, char **argv, struct scheduler_options *ret_options,
                            struct buf *messages);

/* The usage text. */
void scheduler_options_usage(struct buf *out, const char *program);

#endif
