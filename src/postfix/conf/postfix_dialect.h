/*
 * Postfix's dialect of configuration (conf/dialect.h): what a spool `postfix:DIR`, Postfix's queue
 * directory, means for a configuration.
 *
 * All transports are served by Postfix's agents, and where Postfix's trivial-rewrite says mail
 * goes. Built-in defaults are such that mail goes in the order of Postfix's own queue manager: no
 * classes, no shares, no memory of destinations, no jitter.
 */
#ifndef POSTFIX_POSTFIX_DIALECT_H
#define POSTFIX_POSTFIX_DIALECT_H

struct conf;

/* Before the first configuration is loaded. */
void postfix_dialect_register(void);

/* The directory of a spool postfix:DIR; NULL for other spools. Borrowed from `conf`. */
const char *conf_postfix_directory(const struct conf *conf);

/* The file of a configuration's bundle that has Postfix's parameters, as settings.h reads them. */
#define POSTFIX_PARAMETERS "postfix.parameters"

#endif
