#include "receive_settings.h"

#include <string.h>
#include <sys/resource.h>

#include "check.h"
#include "log.h"
#include "mem.h"
#include "role.h"
#include "slice.h"
#include "stream.h"

/* Descriptors outside sessions: listeners, channels, log, event loop, and memfds in transit. A
 * session needs its socket, perhaps a memfd, and one for each filter. Connections in stream_finish
 * have a part of the rest. */
#define FDS_RESERVED    64
#define FDS_PER_SESSION 2
#define FINISHING_PART  8

static uint32_t at_most(int64_t value, uint32_t max)
{
    return value < 0 ? 0 : value > max ? max : (uint32_t)value;
}

/* Returns a text of the configuration, cut to the limit of the engine. */
static char *text_of(const char *text, size_t max)
{
    size_t len = strlen(text);

    return mem_copy(text, len < max ? len : max);
}

/* Returns smtpd_banner without the host name at its start, which the engine adds. */
static char *banner_of(const struct conf *conf)
{
    struct slice banner = slice_string(conf->smtpd_banner);
    struct slice hostname = slice_string(conf->myhostname);

    if (slice_starts(banner, hostname)) {
        banner = slice_trim(slice_skip(banner, hostname.len));
    }
    return text_of(banner.len == 0 ? "ESMTP" : banner.ptr, SERVER_TEXT_MAX);
}

static struct tls_context *tls_of(const struct role *role)
{
    const struct conf *conf = role->conf;
    struct tls_context *tls;
    struct buf error;

    if (conf->tls_cert[0] == '\0') {
        return NULL;
    }
    buf_init(&error, 1000);
    tls = tls_server_new(role_file(role, slice_string(conf->tls_cert)),
                         role_file(role, slice_string(conf->tls_key)), &error);
    if (tls == NULL) {
        log_error("tls_cert %s, tls_key %s: %s: STARTTLS is not offered", conf->tls_cert,
                  conf->tls_key, buf_cstr(&error));
    }
    buf_fini(&error);
    return tls;
}

/* Returns smtpd_connection_limit, or less if descriptors are short. */
static uint64_t places_max(const struct conf *conf, size_t filters, size_t *ret_finishing_max)
{
    uint64_t wanted = (uint64_t)conf->smtpd_connection_limit, possible, finishing;
    struct rlimit files;

    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    possible = files.rlim_cur > FDS_RESERVED ? files.rlim_cur - FDS_RESERVED : 0;
    finishing = possible / FINISHING_PART;
    *ret_finishing_max = finishing < STREAM_FINISH_MAX ? (size_t)finishing : STREAM_FINISH_MAX;
    possible = (possible - *ret_finishing_max) / (FDS_PER_SESSION + filters);
    possible = possible < 1 ? 1 : possible;
    if (wanted <= possible) {
        return wanted;
    }
    log_warning("smtpd_connection_limit = %llu needs more descriptors than there are: %llu "
                "sessions at most",
                (unsigned long long)wanted, (unsigned long long)possible);
    return possible;
}

static uint64_t or_no_limit(int64_t value)
{
    return value == 0 ? UINT64_MAX : (uint64_t)value;
}

static struct admission_limits admission_limits(const struct conf *conf, size_t filters,
                                                size_t *ret_finishing_max)
{
    uint64_t places = places_max(conf, filters, ret_finishing_max);

    return (struct admission_limits){
        .places = places,
        .reserve = places * (uint64_t)conf->smtpd_connection_reserve / 100,
        .address_max = or_no_limit(conf->smtpd_client_connection_count_limit),
        .share_percent = (uint64_t)conf->smtpd_client_connection_share,
        .patience_us = conf->smtpd_overload_patience_us,
        .address_bits4 = (unsigned)conf->smtpd_client_ipv4_prefix_length,
        .address_bits6 = (unsigned)conf->smtpd_client_ipv6_prefix_length,
        .network_bits4 = (unsigned)conf->smtpd_client_ipv4_network_length,
        .network_bits6 = (unsigned)conf->smtpd_client_ipv6_network_length,
    };
}

/* Returns smtpd_memory_limit, or enough for two messages of the largest size. */
static uint64_t memory_max(const struct conf *conf)
{
    uint64_t limit = (uint64_t)conf->smtpd_memory_limit;
    uint64_t message = (uint64_t)conf->message_size_limit;

    return message > limit / 2 ? 2 * message : limit;
}

struct receive_settings *receive_settings_new(const struct role *role)
{
    const struct conf *conf = role->conf;
    struct receive_settings *s = mem_new(sizeof *s);
    struct server_limits *limits = &s->smtp.limits;

    s->refs = 1;
    s->hostname = text_of(conf->myhostname, SERVER_HELO_MAX);
    s->banner = banner_of(conf);
    s->tls = tls_of(role);

    server_config_default(&s->smtp);
    s->smtp.hostname = s->hostname;
    s->smtp.banner = s->banner;
    s->smtp.starttls = s->tls != NULL;
    s->smtp.accept_no_domain = true; /* $myorigin completes them */
    s->smtp.etrn = conf->fast_flush_domains.count > 0;
    limits->message_bytes = (uint64_t)conf->message_size_limit;
    limits->header_bytes = (uint64_t)conf->header_section_size_limit;
    limits->command_bytes = at_most(conf->line_length_limit, UINT32_MAX);
    limits->recipients = at_most(conf->smtpd_recipient_limit, WIRE_RCPTS_MAX);
    limits->hops = at_most(conf->hopcount_limit, UINT32_MAX);
    limits->errors = at_most(conf->smtpd_hard_error_limit, UINT32_MAX);
    limits->junk_commands = at_most(conf->smtpd_junk_command_limit, UINT32_MAX);
    limits->command_us = limits->content_us = conf->smtpd_timeout_us;
    limits->content_rate_min = (uint64_t)conf->smtpd_min_data_rate;
    limits->handshake_us = conf->smtpd_starttls_timeout_us;
    limits->transaction_us = conf->smtpd_transaction_timeout_us;
    limits->session_us = conf->smtpd_session_timeout_us;
    s->lmtp = s->smtp;
    s->lmtp.lmtp = true;
    s->login = s->submission = s->smtp;
    s->smtp.starttls = s->tls != NULL && conf->smtpd_tls_security_level != CONF_SERVER_TLS_NONE;
    s->smtp.require_tls = s->login.require_tls =
        conf->smtpd_tls_security_level == CONF_SERVER_TLS_ENCRYPT;
    s->login.login = s->submission.login = SASL_MECHANISMS;
    s->submission.require_tls = s->submission.require_login = true;

    s->filters = filter_set_new(conf, conf->smtpd_milters);
    s->filters_apart = filter_set_new(conf, conf->non_smtpd_milters);
    s->admission =
        admission_limits(conf, s->filters == NULL ? 0 : s->filters->count, &s->finishing_max);
    s->inline_max = (uint64_t)conf->spool_inline_limit;
    s->memory_max = memory_max(conf);
    s->soft_errors = (uint64_t)conf->smtpd_soft_error_limit;
    s->error_delay_us = conf->smtpd_error_sleep_time_us;
    s->flow_delay_us = conf->in_flow_delay_us;
    s->answer_us = conf->qmgr_ipc_timeout_us;
    s->inject_rcpts = at_most(conf->inject_recipient_limit, WIRE_RCPTS_MAX);
    s->inject_json = (uint64_t)conf->inject_json_limit;
    return s;
}

struct receive_settings *receive_settings_ref(struct receive_settings *settings)
{
    settings->refs++;
    return settings;
}

void receive_settings_unref(struct receive_settings *settings)
{
    if (settings == NULL || --settings->refs > 0) {
        return;
    }
    tls_context_free(settings->tls);
    filter_set_unref(settings->filters);
    filter_set_unref(settings->filters_apart);
    mem_free(settings->hostname);
    mem_free(settings->banner);
    mem_free(settings);
}
