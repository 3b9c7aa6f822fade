/*
 * What a configuration of ZMailer's means: for conf.c, conf_text.c and policy.c.
 *
 *   text read --zmailer_begin--> variables read, spool known --values evaluated, with
 *   zmailer_preset--> --zmailer_finish--> ${NAME} expanded, sockets named, rules checked
 *
 * A spool `postoffice:DIR` changes built-in defaults, to those of ZMailer's manual page, and takes
 * the built-in transports' agents: all channels are served by transport agents. A file that has
 * clauses with commands and sets no parameter but those of ZMailer is a scheduler.conf as it is,
 * and has a postoffice spool at POSTOFFICE.
 */
#ifndef CONF_ZMAILER_H
#define CONF_ZMAILER_H

#include "conf.h"

struct conf_private;
struct param;

/* Between reading and evaluating. `directory` is that of the configuration file. */
void zmailer_begin(struct conf_private *inner, const char *directory,
                   struct conf_problems *problems);

/* The built-in default that a postoffice spool gives a parameter; NULL: that of the table. */
const char *zmailer_preset(const struct conf_private *inner, const struct param *p);

/* Does SCHEDULERDIRHASH say something with this value? */
bool zmailer_is_hash(const char *value);

/* When all values, paths and policies are there. */
void zmailer_finish(struct conf *conf, struct conf_problems *problems);

#endif
