/*
 * Postfix's configuration, as a daemon of Postfix finds it: parameters from postconf(1), process
 * limits from master.cf, and our own lines.
 */
#ifndef POSTFIX_POSTCONF_H
#define POSTFIX_POSTCONF_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "settings.h"

/* Bytes of all that is read; Postfix's own list of parameters has 40 kB. */
#define POSTCONF_MAX ((size_t)4 << 20)

/* What is asked for: values of -o options, "name=value" each. */
struct postconf_source {
    const char *directory; /* of main.cf and master.cf */
    const char *const *overrides;
    size_t override_count;
};

/* Append all parameters to *out, "name = value" lines with every $name expanded, and of main.cf
 * those that postconf does not know (TRANSPORT_name of a program that it does not know). False:
 * *ret_error says why. Runs the command, as this process's user. */
bool postconf_read(const struct postconf_source *source, struct buf *out, struct buf *ret_error);

/* Append what is to be known of the services of master.cf, "NAME_process_limit = NUMBER" lines. */
bool postconf_read_limits(const struct postconf_source *source, unsigned long preset,
                          struct buf *out, struct buf *ret_error);

/* Append where Postfix logs, as our parameter `log` has it. */
void postconf_put_log(const struct settings *s, struct buf *out);

/* Append our configuration to *out: what it has of Postfix's parameters and of `log`, then the
 * lines "sluice_NAME = value" of main.cf without that prefix, then `own`, the text of sluice.cf. */
void postconf_translate(const struct settings *s, struct slice limits, struct slice main_cf,
                        struct slice own, struct slice log, struct buf *out);

/* The whole text of a file of that directory; a missing one is empty. */
bool postconf_read_file(const struct postconf_source *source, const char *name, struct buf *out,
                        struct buf *ret_error);

#endif
