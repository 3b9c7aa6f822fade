/*
 * A main.cf of Postfix, as far as it can be said in our configuration.
 *
 * Each parameter becomes the line that means the same here, or a comment that says why there is
 * none and what would be lost. Values keep their $names: ours are expanded in the same way, and
 * those that they need are in the file itself or among the defaults that both share.
 */
#ifndef CLI_MAIN_CF_H
#define CLI_MAIN_CF_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"

struct main_cf_counts {
    unsigned kept;     /* the same name and value */
    unsigned changed;  /* another name, or form of the value */
    unsigned needless; /* nothing is lost without it */
    unsigned lost;
};

/* Append our configuration. `text` is all of a main.cf. *out is sticky. */
void main_cf_import(struct slice text, struct buf *out, struct main_cf_counts *ret_counts);

#endif
