/*
 * Values of a configuration that sessions of the receive role keep after a reload.
 *
 * A copy, because a reload frees the struct conf. All sessions that began under the configuration
 * share it; the last reference frees it.
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
    char *hostname;            /* owned, also the next member */
    char *banner;              /* text after the host name in the greeting */
    struct server_config smtp; /* borrows from this struct */
    struct server_config lmtp;
    struct server_config login;       /* as smtp, and clients may log in */
    struct server_config submission;  /* as login, and clients must log in */
    struct tls_context *tls;          /* NULL: no STARTTLS */
    struct filter_set *filters;       /* smtpd_milters; NULL: none */
    struct filter_set *filters_apart; /* non_smtpd_milters, for mail by HTTP; NULL: none */
    struct admission_limits admission;
    size_t finishing_max; /* maximum connections in stream_finish */
    uint64_t inline_max;  /* maximum bytes of content in memory and frame */
    uint64_t memory_max;  /* maximum bytes of all messages: smtpd_memory_limit, or more */
    uint64_t soft_errors; /* number of errors above which answers are delayed by error_delay_us */
    int64_t error_delay_us;
    int64_t flow_delay_us;
    int64_t answer_us;     /* maximum wait for the queue or auth process */
    uint32_t inject_rcpts; /* inject_recipient_limit */
    uint64_t inject_json;  /* inject_json_limit */
};

/* Returns the settings by role->conf and role->files, with one reference. An invalid certificate is
 * logged and STARTTLS is not offered, but mail is accepted. */
struct receive_settings *receive_settings_new(const struct role *role);

struct receive_settings *receive_settings_ref(struct receive_settings *settings);

/* Drops a reference. NULL is allowed. */
void receive_settings_unref(struct receive_settings *settings);

#endif
