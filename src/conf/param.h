/*
 * The parameter table of params.h as data: finding a parameter by any of its names, reading and
 * writing its value.
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
    const char *name;   /* as a parameter of the whole file; "" = in clauses only */
    const char *suffix; /* in a clause and behind TRANSPORT_; NULL = not a policy value */
    const char *unit, *preset, *meaning;
    int64_t min, max;
    size_t offset, size; /* of the member of struct conf; of struct policy when suffix is set */
};

/* First the CONF_PARAMS, then the POLICY_PARAMS. */
extern const struct param param_table[];
extern const size_t param_count;
extern const size_t param_policy_first;

/* By the name in a file, its aliases included; NULL when there is none. */
const struct param *param_find(struct slice name);

/* By the name in a clause; case does not matter there. */
const struct param *param_find_in_clause(struct slice name);

/* TRANSPORT_name: which value of which transport. The longest name that fits. */
const struct param *param_find_override(struct slice name, struct slice *ret_transport);

/* What does here what this parameter of Postfix does there; NULL: it is none that we translate. */
const char *param_translation(struct slice name);

/* Is it a parameter of Postfix that says nothing here, and is no loss? */
bool param_is_harmless(struct slice name);

/* Append ", did you mean `...'?" when a name that may stand here is near: a parameter or, with
 * `in_clause`, a clause's word. */
void param_add_nearest(struct buf *out, struct slice name, bool in_clause);

/* Is it the name of a table of Postfix: a type (`hash', `ldap', ..), a colon, and which one? */
bool param_is_table(struct slice text);

/* Has it no effect here, and is known for old files only? */
bool param_is_idle(const struct param *p);

/* What a value looks like: "a number of deliveries from 1 to 100000". */
void param_add_expected(struct buf *out, const struct param *p);

/* Read `text` (trimmed) into the member of `base`, a struct conf or struct policy. When false,
 * nothing changed and *ret_bad is the part of the text that was refused. */
bool param_parse(const struct param *p, struct slice text, struct pool *pool, void *base,
                 struct slice *ret_bad);

/* Append the value as a file would have it. */
void param_print(struct buf *out, const struct param *p, const void *base);

#endif
