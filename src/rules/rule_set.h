/*
 * All rules of a configuration, for the processes that accept mail: the tables, and the compiled
 * patterns. A rule set is reference counted: a message keeps the rules under which it began when
 * the configuration is replaced.
 */
#ifndef RULES_RULE_SET_H
#define RULES_RULE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "conf.h"
#include "patterns.h"
#include "table.h"

struct rule_checks {
    struct patterns **files; /* in the order of the parameter */
    struct slice *paths;     /* path of each file */
    size_t count;
};

struct rule_set {
    unsigned refs;
    const struct conf *const *conf; /* borrowed; the current configuration, perhaps a later one */
    struct tables *tables;          /* owned; NULL if there are none */
    struct rule_checks header, body;
    uint64_t body_bytes;   /* body_checks_size_limit */
    int64_t time_limit_us; /* checks_time_limit */
    char *hostname;        /* myhostname */
    char *origin;          /* myorigin */
    uint64_t field_bytes;  /* header_size_limit */
    bool adds_missing;     /* always_add_missing_headers */
    bool has_filter;       /* whether content_filter is set */
};

/* Returns a rule set with one reference, or NULL and the reason in *ret_error. `fd` is an image
 * (table.h), which stays the caller's, or less than 1 if there are no tables. *current is the
 * configuration; it may be replaced, but must exist as long as the set. */
struct rule_set *rule_set_new(int fd, const struct conf *const *current, struct buf *ret_error);
struct rule_set *rule_set_ref(struct rule_set *set);
void rule_set_unref(struct rule_set *set); /* may be NULL */

#endif
