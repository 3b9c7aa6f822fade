/*
 * ZMailer's dialect of configuration (conf/dialect.h): scheduler.conf, and the effect of a
 * postoffice spool on any configuration.
 *
 * A spool `postoffice:DIR` changes the built-in defaults to those of ZMailer's manual page. It also
 * replaces the agents of the built-in transports: transport agents serve all channels. A file is a
 * scheduler.conf if it has clauses with commands and sets only ZMailer's parameters; it then has a
 * postoffice spool at POSTOFFICE.
 */
#ifndef ZMAILER_ZMAILER_DIALECT_H
#define ZMAILER_ZMAILER_DIALECT_H

#include <stdbool.h>

#include "slice.h"

struct conf;

/* Returns the directory of a spool postoffice:DIR, or NULL for other spools. Borrowed from
 * `conf`. */
const char *conf_postoffice(const struct conf *conf);

/* Returns the value of ZMailer's variable `name` from zenv_file, or NULL if the file does not set
 * it. POSTOFFICE is always the directory of a postoffice spool. POSTOFFICE, MAILBIN, MAILSHARE and
 * LOGDIR have compiled-in values and are never NULL. Borrowed from `conf`. */
const char *conf_zenv(const struct conf *conf, struct slice name);

/* Is it a valid value of SCHEDULERDIRHASH? */
bool zmailer_is_hash(const char *value);

#endif
