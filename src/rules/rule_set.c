#include "rule_set.h"

#include "check.h"
#include "mem.h"

/* Compiles the pattern files. An error here is a fault of ours: the parent has compiled the same
 * bytes. */
static bool compile(struct rule_set *set, enum table_list list, enum action_place place,
                    const struct conf *conf, struct rule_checks *checks, struct buf *ret_error)
{
    size_t count = tables_count(set->tables, list);
    struct patterns_error error;

    checks->files = mem_array(count, sizeof *checks->files);
    checks->paths = mem_array(count, sizeof *checks->paths);
    for (; checks->count < count; checks->count++) {
        struct slice *path = &checks->paths[checks->count];
        struct slice text = tables_text(set->tables, list, checks->count, path);

        checks->files[checks->count] = patterns_new(text, place, conf, &error);
        if (checks->files[checks->count] == NULL) {
            (void)buf_addf(ret_error, "%.*s:%u: %s", SLICE_ARGS(*path), error.line, error.text);
            return false;
        }
    }
    return true;
}

struct rule_set *rule_set_new(int fd, const struct conf *const *current, struct buf *ret_error)
{
    const struct conf *conf = *current;
    struct rule_set *set = mem_new(sizeof *set);
    bool ok = true;

    set->refs = 1;
    set->conf = current;
    set->body_bytes = (uint64_t)conf->body_checks_size_limit;
    set->time_limit_us = conf->checks_time_limit_us;
    set->hostname = mem_string(conf->myhostname);
    set->origin = mem_string(conf->myorigin);
    set->field_bytes = (uint64_t)conf->header_size_limit;
    set->has_filter = conf->content_filter[0] != '\0';
    set->adds_missing = conf->always_add_missing_headers;
    if (fd > 0) {
        set->tables = tables_open(fd);
        ok = set->tables != NULL;
        if (!ok) {
            (void)buf_add_string(ret_error, "the tables cannot be read"); /* sticky */
        }
    }
    ok =
        ok &&
        compile(set, TABLE_HEADER_CHECKS, ACTION_IN_HEADER_CHECKS, conf, &set->header, ret_error) &&
        compile(set, TABLE_BODY_CHECKS, ACTION_IN_BODY_CHECKS, conf, &set->body, ret_error);
    if (!ok) {
        rule_set_unref(set);
        return NULL;
    }
    return set;
}

struct rule_set *rule_set_ref(struct rule_set *set)
{
    set->refs++;
    return set;
}

static void checks_fini(struct rule_checks *checks)
{
    for (size_t i = 0; i < checks->count; i++) {
        patterns_free(checks->files[i]);
    }
    mem_free(checks->files);
    mem_free(checks->paths);
}

void rule_set_unref(struct rule_set *set)
{
    if (set == NULL || --set->refs > 0) {
        return;
    }
    checks_fini(&set->header);
    checks_fini(&set->body);
    tables_close(set->tables);
    mem_free(set->hostname);
    mem_free(set->origin);
    mem_free(set);
}
