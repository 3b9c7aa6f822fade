/*
 * All rules of a configuration, as the processes that take mail in have them: the tables, and the
 * patterns compiled. Counted: a message goes on with the rules under which it began when the
 * configuration is replaced.
 */
#ifndef RULES_RULE_SET_H
#define RULES_RULE_SET_H

#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "conf.h"
#include "patterns.h"
#include "table.h"

struct rule_checks {
    struct patterns **files; /* in the order of the parameter */
    struct slice *paths;     /* of the tables */
    size_t count;
};

struct rule_set {
    unsigned refs;
    struct tables *tables; /* owned; NULL: there are none */
    struct rule_checks header, body;
    uint64_t body_bytes;   /* body_checks_size_limit */
    int64_t time_limit_us; /* checks_time_limit */
    char *hostname;        /* myhostname */
};

/* `fd` is an image (table.h), which stays the caller's; less than 1: there are no tables. One
 * reference is the caller's. NULL: it can't be used; *ret_error says why. */
struct rule_set *rule_set_new(int fd, const struct conf *conf, struct buf *ret_error);
struct rule_set *rule_set_ref(struct rule_set *set);
void rule_set_unref(struct rule_set *set); /* NULL is fine */

#endif
