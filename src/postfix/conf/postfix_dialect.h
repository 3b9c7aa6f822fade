/*
 * Postfix's dialect of configuration (conf/dialect.h): how a spool `postfix:DIR`, Postfix's queue
 * directory, changes a configuration.
 *
 * Postfix's agents serve all transports, and Postfix's trivial-rewrite routes mail. Built-in
 * defaults keep mail in the order of Postfix's own queue manager: no classes, no shares, no memory
 * of destinations, no jitter.
 */
#ifndef POSTFIX_POSTFIX_DIALECT_H
#define POSTFIX_POSTFIX_DIALECT_H

struct conf;

/* Registers the dialect; call it before the first configuration is loaded. */
void postfix_dialect_register(void);

/* Returns the directory of a spool postfix:DIR, borrowed from `conf`; NULL for other spools. */
const char *conf_postfix_directory(const struct conf *conf);

/* Name of the file in a configuration's bundle with Postfix's parameters, in the form of
 * settings.h. */
#define POSTFIX_PARAMETERS "postfix.parameters"

#endif
