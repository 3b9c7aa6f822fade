/*
 * Values of tables that rewrite addresses: virtual_alias_maps, alias_maps and the canonical maps.
 *
 *     NAME    ADDRESS, ADDRESS    # virtual_alias_maps; one address in canonical maps
 *     NAME:   ADDRESS, ADDRESS    # alias_maps, the form of /etc/aliases
 *
 * Addresses are separated by commas or blanks. An address without a domain is at myorigin.
 * `@domain` stands for the same local part there. Commands, files and lists in files, which
 * Postfix's local(8) knows, are faults. In the stored form each address but the first follows a
 * line feed.
 */
#ifndef RULES_ALIAS_VALUE_H
#define RULES_ALIAS_VALUE_H

#include <stdbool.h>

#include "buf.h"
#include "conf.h"
#include "slice.h"

/* Forms that differ between the tables. */
enum alias_form {
    ALIAS_FORM_VIRTUAL,
    ALIAS_FORM_LOCAL, /* no @domain; \name is a name */
    ALIAS_FORM_ONE,   /* exactly one address */
};

/* Writes the stored form of a value to *out, which is cleared first. Returns NULL, or the fault as
 * words that continue the key. */
const char *alias_value_parse(struct slice text, enum alias_form form, const struct conf *conf,
                              struct buf *out);

/* Splits a line of alias_maps at the colon after the name. Writes the name as a local part, quoted
 * if it must be, to *ret_name. Returns NULL or the fault. */
const char *alias_line_split(struct slice line, struct buf *ret_name, struct slice *ret_value);

#endif
