/*
 * The spool engine of ZMailer's POSTOFFICE directory: mail that a router writes there as files and
 * transport agents mark. postoffice_engine.h says what it does to them.
 *
 * It offers every optional part of an engine (spool_engine.h), can only be opened for writing, and
 * has parameters of its own, which it reads from the configuration when a url opens it.
 */
#ifndef ZMAILER_POSTOFFICE_H
#define ZMAILER_POSTOFFICE_H

#include <stdbool.h>
#include <stdint.h>

#include "spool.h"

/* Zeroed = as the comments say. */
struct postoffice_options {
    unsigned hash_levels;       /* 0, 1 or 2: where new files are moved to */
    uint32_t scan_files;        /* new files per scan at most; 0 = 40000 */
    int64_t scan_us;            /* and time per scan; 0 = 5 s */
    int64_t scan_interval_us;   /* from the end of a scan to the next; 0 = 10 s */
    int64_t report_interval_us; /* results of a message are gathered so long before a report */
    const char *notify_path;    /* of the socket that announces files; NULL = none */
    const char *router_notify;  /* of the router's socket; NULL = none */
    const char *hostname;       /* in the names and envelopes of files for the router; NULL =
                                   localhost */
    bool msgwriteasync;         /* such a file is not synced before it is handed over */
    const char *only;           /* control files that alone are read, once, as "A/90417 90418";
                                   NULL = all there are */
    bool keep_files;            /* nothing is removed or reported: to look at one thread */
};

/* Open the directory `where` for writing. Strings of `own` are copied; of `options`, id_floor and
 * io have an effect. Errors as of spool_open. */
int postoffice_open(const char *where, const struct spool_options *options,
                    const struct postoffice_options *own, struct buf *ret_error,
                    struct spool **ret_spool);

/* From now on spool_open opens "postoffice:DIR", with the parameters of spool_options.conf. */
void postoffice_register(void);

#endif
