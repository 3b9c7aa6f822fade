/*
 * Filters as a configuration has them, for the sessions and messages that began under it: a copy,
 * as the struct conf is freed at a reload; freed with the last that uses it.
 */
#ifndef RECEIVE_FILTER_SET_H
#define RECEIVE_FILTER_SET_H

#include <stddef.h>
#include <stdint.h>

#include "conf.h"
#include "milter.h"
#include "milter_list.h"

struct filter_set {
    unsigned refs;
    size_t count;
    struct milter_spec specs[MILTER_LIST_MAX];
    struct milter_config configs[MILTER_LIST_MAX]; /* of each */
    uint64_t body_max;   /* bytes of a body that a filter writes: message_size_limit, or no limit */
    char *hostname;      /* owned, like the next: macro j */
    char *daemon_name;   /* {daemon_name} */
    char *version;       /* v */
    uint64_t inline_max; /* spool_inline_limit */
};

/* Those of `list`, smtpd_milters or non_smtpd_milters of `conf`. NULL: there are none. */
struct filter_set *filter_set_new(const struct conf *conf, const char *list);

/* NULL is fine for both. */
struct filter_set *filter_set_ref(struct filter_set *set);
void filter_set_unref(struct filter_set *set);

#endif
