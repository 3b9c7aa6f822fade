/*
 * Translates complaints about the configuration that is made from Postfix's: finds the place in
 * Postfix's files that caused each.
 */
#ifndef POSTFIX_POSTCONF_PLACES_H
#define POSTFIX_POSTCONF_PLACES_H

#include "buf.h"
#include "slice.h"

/* Prefix of our lines in main.cf. */
#define POSTCONF_OWN_PREFIX "sluice_"

struct postconf_places {
    const char *path;      /* path of our configuration in complaints */
    const char *directory; /* directory of main.cf, master.cf and sluice.cf */
    struct slice text;     /* our configuration, which ends with `own` */
    struct slice main_cf, own;
};

/* Returns the line of main.cf that sets a parameter last; 0 = none. */
unsigned postconf_line_of(struct slice main_cf, struct slice name);

/* Appends the complaints, complete lines "PATH:LINE:COLUMN: text", each with its place in main.cf,
 * master.cf or sluice.cf. */
void postconf_put_places(const struct postconf_places *p, struct slice complaints, struct buf *out);

/* Appends the notes of postconf_translate as warnings, each with its place in main.cf or
 * master.cf. */
void postconf_put_notes(const struct postconf_places *p, struct slice notes, struct buf *out);

#endif
