/*
 * Complaints about the configuration that is made of Postfix's: where in its files the cause is.
 */
#ifndef POSTFIX_POSTCONF_PLACES_H
#define POSTFIX_POSTCONF_PLACES_H

#include "buf.h"
#include "slice.h"

/* What our lines begin with in main.cf. */
#define POSTCONF_OWN_PREFIX "sluice_"

struct postconf_places {
    const char *path;      /* by which complaints name our configuration */
    const char *directory; /* of main.cf, master.cf and sluice.cf */
    struct slice text;     /* our configuration, which ends with `own` */
    struct slice main_cf, own;
};

/* The line of main.cf that sets a parameter last; 0: none does. */
unsigned postconf_line_of(struct slice main_cf, struct slice name);

/* Append the complaints, whole lines "PATH:LINE:COLUMN: text", with the place in main.cf, master.cf
 * or sluice.cf that each is about. */
void postconf_put_places(const struct postconf_places *p, struct slice complaints, struct buf *out);

#endif
