/*
 * Filters of a configuration, for the sessions and messages that began under it. A copy, because a
 * reload frees the struct conf. The last reference frees the set.
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
    struct milter_config configs[MILTER_LIST_MAX]; /* configuration of each filter's engine */
    uint64_t body_max;   /* maximum bytes of a new body: message_size_limit, or UINT64_MAX */
    char *hostname;      /* macro j; owned */
    char *daemon_name;   /* macro {daemon_name}; owned */
    char *version;       /* macro v; owned */
    uint64_t inline_max; /* spool_inline_limit */
};

/* Returns the filters of `list`, smtpd_milters or non_smtpd_milters of `conf`; NULL: none. */
struct filter_set *filter_set_new(const struct conf *conf, const char *list);

/* Add and drop a reference. NULL is allowed for both. */
struct filter_set *filter_set_ref(struct filter_set *set);
void filter_set_unref(struct filter_set *set);

#endif
