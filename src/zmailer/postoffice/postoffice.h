/*
 * Spool engine of ZMailer's POSTOFFICE directory: mail that a router writes there as files and
 * transport agents mark. postoffice_engine.h describes the changes that the engine makes to the
 * files.
 *
 * The engine offers every optional part of an engine (spool_engine.h) and can only be opened for
 * writing. It has parameters of its own, which it reads from the configuration when a URL opens it.
 */
#ifndef ZMAILER_POSTOFFICE_H
#define ZMAILER_POSTOFFICE_H

#include <stdbool.h>
#include <stdint.h>

#include "spool.h"

/* Options of the engine; all zero: the defaults given below. */
struct postoffice_options {
    unsigned hash_levels;       /* 0, 1 or 2 levels of directories into which new files are moved */
    uint32_t scan_files;        /* largest number of new files in a scan; 0 = 40000 */
    int64_t scan_us;            /* longest scan; 0 = 5 s */
    int64_t scan_interval_us;   /* time from the end of a scan to the next; 0 = 10 s */
    int64_t report_interval_us; /* time for which results of a message are collected before a
                                 * report */
    const char *notify_path;    /* path of the socket on which files are announced; NULL = none */
    const char *router_notify;  /* path of the router's socket; NULL = none */
    const char *hostname;       /* host name in the names and envelopes of files for the router;
                                 * NULL = localhost */
    bool msgwriteasync;         /* hand files to the router without syncing them */
    const char *only;           /* only these control files are read, once, as in "A/90417 90418";
                                 * NULL = all files */
    bool keep_files;            /* remove and report nothing, to examine one thread */
};

/* Opens the directory `where` for writing. Strings of `own` are copied. Only id_floor and io of
 * `options` have an effect. Returns errors as spool_open does. */
int postoffice_open(const char *where, const struct spool_options *options,
                    const struct postoffice_options *own, struct buf *ret_error,
                    struct spool **ret_spool);

/* Registers the engine: spool_open then opens "postoffice:DIR" with the parameters of
 * spool_options.conf. */
void postoffice_register(void);

#endif
