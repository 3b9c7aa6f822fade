#include "dialect.h"

#include <string.h>
#include <unistd.h>

#include "check.h"
#include "conf_private.h"

/* Dialects that the program has registered: the only data that configurations share. */
static const struct conf_dialect *dialects[CONF_DIALECTS_MAX];
static size_t dialect_count;

void conf_dialect_register(const struct conf_dialect *dialect)
{
    for (size_t i = 0; i < dialect_count; i++) {
        if (dialects[i] == dialect) {
            return;
        }
    }
    CHECK(dialect_count < CONF_DIALECTS_MAX);
    dialects[dialect_count++] = dialect;
}

const char *conf_dialect_made(void)
{
    for (size_t i = 0; i < dialect_count; i++) {
        const char *path = dialects[i]->made_path;

        if (path != NULL && access(path, F_OK) == 0) {
            return path;
        }
    }
    return NULL;
}

const struct conf_dialect *dialects_at(size_t n)
{
    return n < dialect_count ? dialects[n] : NULL;
}

void *conf_dialect_data(const struct conf_private *inner, const struct conf_dialect *dialect)
{
    for (size_t i = 0; i < dialect_count; i++) {
        if (dialects[i] == dialect) {
            return inner->dialect_data[i];
        }
    }
    UNREACHABLE("only a dialect that is registered has data");
}

void dialects_begin(struct conf_private *inner, const char *directory,
                    struct conf_problems *problems)
{
    for (size_t i = 0; i < dialect_count; i++) {
        bool is_its = dialects[i]->begin(inner, directory, problems, &inner->dialect_data[i]);

        inner->dialect = is_its && inner->dialect == NULL ? dialects[i] : inner->dialect;
    }
}

void dialects_finish(struct conf *conf, struct conf_problems *problems)
{
    for (size_t i = 0; i < dialect_count; i++) {
        dialects[i]->finish(conf, problems);
    }
}

const char *dialects_preset(const struct conf_private *inner, const struct param *p)
{
    return inner->dialect == NULL
               ? NULL
               : inner->dialect->preset(conf_dialect_data(inner, inner->dialect), p);
}

const struct param *dialects_param(struct slice name)
{
    for (size_t i = 0; i < dialect_count; i++) {
        const char *found = dialects[i]->param_named(name);

        if (found != NULL) {
            return param_find(slice_string(found));
        }
    }
    return NULL;
}

const struct conf_dialect *dialects_tolerant(void)
{
    size_t i = 0;

    while (i < dialect_count && dialects[i]->tolerate == NULL) {
        i++;
    }
    return dialects_at(i);
}

bool dialects_know_spool(struct slice url)
{
    for (size_t i = 0; i < dialect_count; i++) {
        struct slice prefix = slice_string(dialects[i]->spool_prefix);

        if (slice_starts(url, prefix) && url.len > prefix.len) {
            return true;
        }
    }
    return false;
}

/* ---- the configuration's dialect ------------------------------------------------------------ */

bool conf_spool_is_shared(const struct conf *conf)
{
    return conf->inner->dialect != NULL && conf->inner->dialect->is_shared;
}

bool conf_spool_is_remote(const struct conf *conf)
{
    return slice_starts(slice_string(conf->spool), SLICE(CONF_SPOOL_CLUSTER));
}

bool conf_spool_routes(const struct conf *conf)
{
    return conf->inner->dialect != NULL && conf->inner->dialect->routes;
}

bool conf_spool_uses_services(const struct conf *conf)
{
    return conf->inner->dialect != NULL && conf->inner->dialect->uses_services;
}

bool conf_new_mail_first(const struct conf *conf)
{
    return conf->inner->dialect != NULL && conf->inner->dialect->new_first &&
           conf->qmgr_destination_share == 0;
}

bool conf_spool_routes_by_mailbox(const struct conf *conf)
{
    return conf->inner->dialect != NULL && conf->inner->dialect->by_mailbox;
}

const char *conf_spool_path(const struct conf *conf, bool *ret_is_directory)
{
    const struct conf_dialect *dialect = conf->inner->dialect;
    const char *prefix = dialect != NULL ? dialect->spool_prefix : CONF_SPOOL_SQLITE;

    *ret_is_directory = dialect != NULL;
    return slice_starts(slice_string(conf->spool), slice_string(prefix))
               ? conf->spool + strlen(prefix)
               : NULL;
}

/* Parameters that have effect only at the start of the daemon. */
static const char *const at_start[] = {
    "chroot_directory",     "cluster_node",        "cluster_standby",
    "control_socket_group", "control_socket_mode", "deliver_processes",
    "deliver_user",         "events_file",         "log",
    "mail_owner",           "read_queue_first",    "receive_processes",
    "receive_user",         "scheduler_syslog",    "spool_inline_limit",
    "statistics_log",       "syslog_name",
};

bool conf_differs(const struct conf *a, const struct conf *b, const char *parameter)
{
    struct buf x, y;
    bool differs;

    buf_init(&x, (size_t)2 * CONF_LINE_MAX);
    buf_init(&y, (size_t)2 * CONF_LINE_MAX);
    CHECK(conf_print(&x, a, &parameter, 1, false) && conf_print(&y, b, &parameter, 1, false));
    differs = !slice_equal(buf_slice(&x), buf_slice(&y));
    buf_fini(&x);
    buf_fini(&y);
    return differs;
}

void conf_put_delayed(const struct conf *old, const struct conf *new, struct buf *out)
{
    for (size_t i = 0; i < sizeof at_start / sizeof at_start[0]; i++) {
        bool is_of_cluster = strncmp(at_start[i], "cluster_", strlen("cluster_")) == 0;

        if ((!is_of_cluster || conf_spool_is_remote(new)) && conf_differs(old, new, at_start[i])) {
            (void)buf_addf(out, "%s\n", at_start[i]); /* errors are sticky */
        }
    }
    for (size_t i = 0; i < dialect_count; i++) {
        dialects[i]->put_delayed(old, new, out);
    }
}
