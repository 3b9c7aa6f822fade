/*
 * What sessions of the receive role take from a configuration, and keep when it is replaced.
 *
 * A copy, as the struct conf is freed at a reload; shared by all sessions that began under it and
 * freed with the last of them.
 */
#ifndef RECEIVE_RECEIVE_SETTINGS_H
#define RECEIVE_RECEIVE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "admission.h"
#include "filter_set.h"
#include "server.h"
#include "tls.h"

struct role;

struct receive_settings {
    unsigned refs;
    char *hostname;            /* owned, like the next */
    char *banner;              /* what follows the host name in the greeting */
    struct server_config smtp; /* borrows from this struct */
    struct server_config lmtp;
    struct server_config login;       /* smtp, and clients may log in */
    struct server_config submission;  /* and they must */
    struct tls_context *tls;          /* NULL: no STARTTLS */
    struct filter_set *filters;       /* smtpd_milters; NULL: none */
    struct filter_set *filters_apart; /* non_smtpd_milters, for mail by HTTP; NULL: none */
    struct admission_limits admission;
    size_t finishing_max; /* connections of which only the end is missing */
    uint64_t inline_max;  /* bytes of content in memory and frame */
    uint64_t memory_max;  /* bytes of all messages: smtpd_memory_limit, or more */
    uint64_t soft_errors; /* with more, answers are delayed by error_delay_us */
    int64_t error_delay_us;
    int64_t flow_delay_us;
    int64_t answer_us;     /* longest wait for the queue process */
    uint32_t inject_rcpts; /* inject_recipient_limit */
    uint64_t inject_json;  /* inject_json_limit */
};

/* From role->conf and role->files; one reference is the caller's. A certificate that is no good is
 * logged, and there is no STARTTLS then: mail goes on, as it would without one. */
struct receive_settings *receive_settings_new(const struct role *role);

struct receive_settings *receive_settings_ref(struct receive_settings *settings);

/* NULL is fine. */
void receive_settings_unref(struct receive_settings *settings);

#endif
