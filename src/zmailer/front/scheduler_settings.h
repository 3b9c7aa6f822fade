/*
 * From the scheduler's command line to a configuration: ZMailer's variables and the options become
 * a text that includes scheduler.conf. It is a configuration like others: `sluice -c` reads it.
 */
#ifndef ZMAILER_SCHEDULER_SETTINGS_H
#define ZMAILER_SCHEDULER_SETTINGS_H

#include <stdbool.h>

#include "buf.h"
#include "scheduler_options.h"

/* What has been decided; owned. */
struct scheduler_settings {
    char *postoffice; /* absolute */
    char *conf;       /* scheduler.conf, absolute */
    char *log;        /* absolute; NULL: standard error */
    char *statistics; /* absolute; NULL: none */
    char *path;       /* where the text belongs: POSTOFFICE/.sluice/sluice.conf */
    struct buf text;
};

/* False with lines about what is wrong in *messages. `program` is argv[0]: scheduler.conf is named
 * after it. Release with scheduler_settings_fini in any case. */
bool scheduler_settings_make(const struct scheduler_options *options, const char *program,
                             struct scheduler_settings *ret_settings, struct buf *messages);
void scheduler_settings_fini(struct scheduler_settings *s);

#endif
