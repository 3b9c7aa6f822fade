/*
 * ZMailer's dialect of configuration (conf/dialect.h): scheduler.conf, and what a postoffice spool
 * means for every other configuration.
 *
 * A spool `postoffice:DIR` changes built-in defaults, to those of ZMailer's manual page, and takes
 * the built-in transports' agents: all channels are served by transport agents. A file that has
 * clauses with commands and sets no parameter but those of ZMailer is a scheduler.conf as it is,
 * and has a postoffice spool at POSTOFFICE.
 */
#ifndef ZMAILER_ZMAILER_DIALECT_H
#define ZMAILER_ZMAILER_DIALECT_H

#include <stdbool.h>

#include "slice.h"

struct conf;

/* The directory of a spool postoffice:DIR; NULL for other spools. Borrowed from `conf`. */
const char *conf_postoffice(const struct conf *conf);

/* The value of ZMailer's variable `name`, from zenv_file; NULL when it is not set there. POSTOFFICE
 * is the directory of a postoffice spool, whatever the file says; that, MAILBIN, MAILSHARE and
 * LOGDIR have compiled-in values and are never NULL. Borrowed from `conf`. */
const char *conf_zenv(const struct conf *conf, struct slice name);

/* Does SCHEDULERDIRHASH say something with this value? */
bool zmailer_is_hash(const char *value);

#endif
