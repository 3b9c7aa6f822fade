#include "postfix_dialect.h"

#include <string.h>

#include "conf_private.h"

static const char prefix[] = "postfix:";

#define PREFIX_LEN (sizeof prefix - 1)

const char *conf_postfix_directory(const struct conf *conf)
{
    return strncmp(conf->spool, prefix, PREFIX_LEN) == 0 ? conf->spool + PREFIX_LEN : NULL;
}

static const char *param_named(struct slice name)
{
    (void)name;
    return NULL; /* PARAM lines belong to another system */
}

static bool begin(struct conf_private *inner, const char *directory, struct conf_problems *problems,
                  void **ret_data)
{
    const struct setting *spool = &inner->settings[param_find(SLICE("spool")) - param_table];

    (void)directory;
    (void)problems;
    *ret_data = NULL;
    return spool->raw != NULL && strncmp(spool->raw, prefix, PREFIX_LEN) == 0;
}

static const char *preset(const void *data, const struct param *p)
{
    static const struct {
        const char *name, *preset;
    } presets[] = {
        {"listen", ""},
        {"maildrop", ""},
        {"default_class", "none"},
        {"retry_jitter", "0"},
        {"qmgr_destination_share", "0"},
        {"qmgr_failing_share", "100"},
        {"destination_memory_time", "0"},
        {"concurrency_feedback_rule", "postfix"},
        {"shutdown_timeout", "0"},
    };

    (void)data;
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        if (strcmp(p->name, presets[i].name) == 0) {
            return presets[i].preset;
        }
    }
    return NULL;
}

static void adjust(struct policy *policy)
{
    policy->agent = CONF_AGENT_POSTFIX;
}

static void finish(struct conf *conf, struct conf_problems *problems)
{
    (void)conf;
    (void)problems;
}

/* Lists changed parameters that the engine has only read when the spool was opened. */
static void put_delayed(const struct conf *old, const struct conf *new, struct buf *out)
{
    static const char *const delayed[] = {
        "hash_queue_depth",
        "hash_queue_names",
        "qmgr_message_active_limit",
        "qmgr_message_recipient_limit",
        "qmgr_message_recipient_minimum",
        "queue_run_delay",
    };

    if (!slice_starts(slice_string(old->spool), slice_string(prefix))) {
        return;
    }
    for (size_t i = 0; i < sizeof delayed / sizeof delayed[0]; i++) {
        if (conf_differs(old, new, delayed[i])) {
            (void)buf_addf(out, "%s\n", delayed[i]); /* errors are sticky */
        }
    }
}

static const struct conf_dialect dialect = {
    .spool_prefix = prefix,
    .routes = true,
    .by_mailbox = true,
    .uses_services = true,
    .new_first = true,
    .made_path = "/var/lib/postfix/sluice/qmgr.conf", /* in the usual data_directory */
    .manual =
        ".Pp\n"
        "Where the spool is postfix:DIR, DIR being Postfix's queue directory, the daemon is\n"
        ".Xr sluice-qmgr 8 ,\n"
        "which takes this configuration from Postfix's main.cf.\n"
        "All mail goes to Postfix's agents, and some defaults are such that it goes in the order\n"
        "of Postfix's own queue manager: listen and maildrop empty, default_class none,\n"
        "retry_jitter 0, qmgr_destination_share 0, qmgr_failing_share 100,\n"
        "destination_memory_time 0, concurrency_feedback_rule postfix, shutdown_timeout 0.\n",
    .params = "",
    .param_named = param_named,
    .begin = begin,
    .preset = preset,
    .adjust = adjust,
    .finish = finish,
    .put_delayed = put_delayed,
};

void postfix_dialect_register(void)
{
    conf_dialect_register(&dialect);
}
