#include "filter_set.h"

#include "check.h"
#include "mem.h"

struct filter_set *filter_set_new(const struct conf *conf, const char *list)
{
    struct milter_list parsed;
    struct filter_set *set;
    struct buf error;

    buf_init(&error, 1000);
    CHECK(milter_list_parse(conf, list, &parsed, &error)); /* conf_load checked it */
    buf_fini(&error);
    if (parsed.count == 0) {
        return NULL;
    }
    set = mem_new(sizeof *set);
    set->refs = 1;
    set->count = parsed.count;
    for (size_t i = 0; i < parsed.count; i++) {
        set->specs[i] = parsed.at[i];
        set->configs[i] =
            (struct milter_config){.command_timeout_us = parsed.at[i].command_timeout_us,
                                   .content_timeout_us = parsed.at[i].content_timeout_us,
                                   .version = parsed.at[i].protocol};
    }
    set->body_max = conf->message_size_limit == 0 ? UINT64_MAX : (uint64_t)conf->message_size_limit;
    set->inline_max = (uint64_t)conf->spool_inline_limit;
    set->hostname = mem_string(conf->myhostname);
    set->daemon_name = mem_string(conf->milter_macro_daemon_name);
    set->version = mem_string(conf->milter_macro_v);
    return set;
}

struct filter_set *filter_set_ref(struct filter_set *set)
{
    if (set != NULL) {
        set->refs++;
    }
    return set;
}

void filter_set_unref(struct filter_set *set)
{
    if (set == NULL || --set->refs > 0) {
        return;
    }
    mem_free(set->hostname);
    mem_free(set->daemon_name);
    mem_free(set->version);
    mem_free(set);
}
