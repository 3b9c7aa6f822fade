/*
 * Makes a configuration from the scheduler's command line: a text with the options and ZMailer's
 * variables that includes scheduler.conf. It can be read like any other, for example by `sluice
 * -c`.
 */
#ifndef ZMAILER_SCHEDULER_SETTINGS_H
#define ZMAILER_SCHEDULER_SETTINGS_H

#include <stdbool.h>

#include "buf.h"
#include "scheduler_options.h"

/* Result of the command line; owned. */
struct scheduler_settings {
    char *postoffice; /* absolute path */
    char *conf;       /* absolute path of scheduler.conf */
    char *log;        /* absolute path; NULL: standard error */
    char *statistics; /* absolute path; NULL: none */
    char *path;       /* path of `text` as a file: POSTOFFICE/.sluice/sluice.conf */
    struct buf text;
};

/* Makes the settings. Returns false on error, with one line per fault in *messages. `program` is
 * argv[0], which gives scheduler.conf its name. Call scheduler_settings_fini in any case. */
bool scheduler_settings_make(const struct scheduler_options *options, const char *program,
                             struct scheduler_settings *ret_settings, struct buf *messages);
void scheduler_settings_fini(struct scheduler_settings *s);

#endif
