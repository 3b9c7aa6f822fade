/*
 * Postfix's configuration, as a daemon of Postfix reads it: parameters from postconf(1), process
 * limits from master.cf, and our own lines.
 */
#ifndef POSTFIX_POSTCONF_H
#define POSTFIX_POSTCONF_H

#include <stdbool.h>
#include <stddef.h>

#include "buf.h"
#include "settings.h"

/* Limit of all text that is read, in bytes; Postfix's own list of parameters has 40 kB. */
#define POSTCONF_MAX ((size_t)4 << 20)

/* Source of parameters; overrides are the values of -o options, each "name=value". */
struct postconf_source {
    const char *directory; /* directory of main.cf and master.cf */
    const char *const *overrides;
    size_t override_count;
};

/* Appends all parameters to *out, as "name = value" lines with every $name expanded. Adds
 * parameters of main.cf that postconf does not know (TRANSPORT_name of an unknown program). Returns
 * false with the cause in *ret_error. Runs postconf as this process's user. */
bool postconf_read(const struct postconf_source *source, struct buf *out, struct buf *ret_error);

/* Appends "NAME_process_limit = NUMBER" lines for the services of master.cf; `s` has
 * default_process_limit. Returns false with the cause in *ret_error. Runs postconf as this
 * process's user. */
bool postconf_read_limits(const struct postconf_source *source, const struct settings *s,
                          struct buf *out, struct buf *ret_error);

/* Appends the destination of Postfix's log, as a value of our parameter `log`. */
void postconf_put_log(const struct settings *s, struct buf *out);

/* Appends our configuration to *out: the values from Postfix's parameters and `log`, then the lines
 * "sluice_NAME = value" of main.cf without that prefix, then `own`, the text of sluice.cf. Appends
 * a line to *notes for each value that Postfix accepts and that differs here (postconf_values.h).
 * Errors of both are sticky. */
void postconf_translate(const struct settings *s, struct slice limits, struct slice main_cf,
                        struct slice own, struct slice log, struct buf *out, struct buf *notes);

/* Reads the complete text of a file of that directory; a missing file is empty. Returns false with
 * the cause in *ret_error. */
bool postconf_read_file(const struct postconf_source *source, const char *name, struct buf *out,
                        struct buf *ret_error);

#endif
