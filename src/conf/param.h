/*
 * The parameter table of params.h as data: finds a parameter by any of its names, parses and prints
 * its value.
 */
#ifndef CONF_PARAM_H
#define CONF_PARAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "params.h"
#include "pool.h"
#include "slice.h"

enum param_type {
    PARAM_STRING,
    PARAM_LIST,
    PARAM_BOOL,
    PARAM_INT,
    PARAM_SIZE,
    PARAM_TIME,
    PARAM_CHOICE,
    PARAM_FEEDBACK,
};

struct param {
    enum param_type type;
    const char *name;   /* name of a parameter of the whole file; "": in clauses only */
    const char *suffix; /* name in a clause and after TRANSPORT_; NULL: no policy value */
    const char *unit, *preset, *meaning;
    int64_t min, max;
    size_t offset, size; /* place of the member in struct conf, or in struct policy if `suffix` is
                          * set */
};

/* Rows of CONF_PARAMS, then of POLICY_PARAMS. */
extern const struct param param_table[];
extern const size_t param_count;
extern const size_t param_policy_first;

/* Finds a parameter by its name in a file, or an alias; NULL: none. */
const struct param *param_find(struct slice name);

/* Finds a parameter by its name in a clause, in any case; NULL: none. */
const struct param *param_find_in_clause(struct slice name);

/* Splits TRANSPORT_name, by the longest name that fits, into value and transport; NULL: none. */
const struct param *param_find_override(struct slice name, struct slice *ret_transport);

/* Returns the replacement of a parameter of Postfix, for an error text; NULL: none. */
const char *param_translation(struct slice name);

/* Is the name a parameter of Postfix that can be ignored without loss? */
bool param_is_harmless(struct slice name);

/* Appends ", did you mean `...'?" if the name is similar to a parameter or, with `in_clause`, to a
 * word of clauses. */
void param_add_nearest(struct buf *out, struct slice name, bool in_clause);

/* Is the text the name of a table of Postfix: a type (`hash', `ldap', ..), a colon, and a name? */
bool param_is_table(struct slice text);

/* Is the parameter accepted for old files only, without effect? */
bool param_is_idle(const struct param *p);

/* Appends a description of valid values: "a number of deliveries from 1 to 100000". */
void param_add_expected(struct buf *out, const struct param *p);

/* Parses `text` (trimmed) into the member of `base`, a struct conf or struct policy. Returns false
 * without a change if the text is invalid; *ret_bad is then its invalid part. */
bool param_parse(const struct param *p, struct slice text, struct pool *pool, void *base,
                 struct slice *ret_bad);

/* Appends the value in the syntax of a file. */
void param_print(struct buf *out, const struct param *p, const void *base);

#endif
