/*
 * Converts a main.cf of Postfix to our configuration.
 *
 * Each parameter becomes an equivalent line, or a comment that explains why there is none and what
 * would be lost. Values keep their $names, which are expanded in the same way here; the named
 * parameters are in the file itself or have the same defaults in both systems.
 */
#ifndef CLI_MAIN_CF_H
#define CLI_MAIN_CF_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

struct main_cf_counts {
    unsigned kept;     /* same name and value */
    unsigned changed;  /* other name, or other form of the value */
    unsigned needless; /* nothing is lost without it */
    unsigned lost;
};

/* Appends our configuration. `text` is a whole main.cf. *out is sticky. */
void main_cf_import(struct slice text, struct buf *out, struct main_cf_counts *ret_counts);

#endif
