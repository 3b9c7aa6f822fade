#include "scheduler_settings.h"

#include <limits.h>
#include <string.h>

#include "conf.h"
#include "mem.h"
#include "zmailer_dialect.h"
#include "zmailer_variables.h"

#define TEXT_MAX (64u << 10)

/* Appends a setting. Appends to `text` and `messages` are sticky and checked at the end. */

static void add_setting(struct buf *text, const char *name, const char *value)
{
    (void)buf_addf(text, "%s = ", name);
    for (; *value != '\0'; value++) {
        (void)buf_addf(text, *value == '$' ? "$$" : "%c", *value);
    }
    (void)buf_add_byte(text, '\n');
}

static void add_path(struct buf *text, const char *name, const char *prefix, const char *path)
{
    struct buf value;
    char *full = zmailer_absolute(path, "");

    buf_init(&value, 3 * PATH_MAX);
    (void)buf_addf(&value, "%s%s", prefix, full);
    add_setting(text, name, buf_cstr(&value));
    buf_fini(&value);
    mem_free(full);
}

static void add_number(struct buf *text, const char *name, unsigned value)
{
    (void)buf_addf(text, "%s = %u\n", name, value);
}

static const char *base_name(const char *program)
{
    const char *slash = strrchr(program, '/');

    return slash == NULL ? program : slash + 1;
}

/* Appends the names of control files relative to transport/. An absolute path below this POSTOFFICE
 * is converted. */
static void add_files(char *const *files, const char *postoffice, struct buf *text)
{
    struct buf prefix, list;

    buf_init(&prefix, 2 * PATH_MAX);
    buf_init(&list, TEXT_MAX);
    (void)buf_addf(&prefix, "%s/transport/", postoffice);
    for (; *files != NULL; files++) {
        struct slice name = slice_string(*files);

        if (slice_starts(name, buf_slice(&prefix))) {
            name = slice_skip(name, buf_len(&prefix));
        }
        (void)buf_addf(&list, "%.*s ", SLICE_ARGS(name));
    }
    text->failed = text->failed || list.failed;
    if (buf_len(&list) > 0) {
        add_setting(text, "postoffice_files", buf_cstr(&list));
    }
    buf_fini(&prefix);
    buf_fini(&list);
}

static void add_options(const struct scheduler_options *o, const struct conf *variables,
                        struct buf *text)
{
    const char *hash = conf_zenv(variables, SLICE("SCHEDULERDIRHASH"));

    if (hash == NULL || !zmailer_is_hash(hash)) {
        add_number(text, "postoffice_hash_levels", o->hash_levels);
    }
    add_number(text, "postoffice_scan_files", o->scan_files);
    (void)buf_addf(text, "postoffice_scan_time = %us\n", o->scan_s);
    add_number(text, "agent_fd_limit", o->fd_limit);
    add_number(text, "agent_start_rate", o->start_rate);
    add_number(text, "mailq_protocol", o->mailq_protocol);
    (void)buf_addf(text, "agent_freeze = %s\n", o->freeze ? "yes" : "no");
    (void)buf_addf(text, "mailq_short = %s\n", o->mailq_short ? "yes" : "no");
    (void)buf_addf(text, "read_queue_first = %s\n", o->read_queue_first ? "yes" : "no");
    (void)buf_addf(text, "report_return = %s\n", o->headers_only ? "headers" : "full");
    if (o->only != NULL) {
        add_setting(text, "deliver_only", o->only);
    }
    if (o->rendezvous != NULL) {
        add_path(text, "mailq_dump_file", "", o->rendezvous);
    }
}

/* Returns the log file in ZMailer's order: -L; none in the foreground; LOGDIR. */
static char *find_log(const struct scheduler_options *o, const struct conf *variables)
{
    if (o->log != NULL) {
        return zmailer_absolute(o->log, "");
    }
    return o->mode == SCHEDULER_FOREGROUND
               ? NULL
               : zmailer_absolute(conf_zenv(variables, SLICE("LOGDIR")), "/scheduler");
}

bool scheduler_settings_make(const struct scheduler_options *options, const char *program,
                             struct scheduler_settings *ret_settings, struct buf *messages)
{
    struct scheduler_settings *s = ret_settings;
    struct conf *variables;
    struct buf suffix;

    *s = (struct scheduler_settings){0};
    buf_init(&s->text, TEXT_MAX);
    variables = zmailer_variables(options->zenv, messages);
    if (variables == NULL) {
        return false;
    }
    s->postoffice = zmailer_absolute(
        options->postoffice != NULL ? options->postoffice : conf_postoffice(variables), "");
    s->path = zmailer_absolute(s->postoffice, "/.sluice/sluice.conf");
    s->log = find_log(options, variables);
    s->statistics = options->statistics == NULL ? NULL : zmailer_absolute(options->statistics, "");
    buf_init(&suffix, PATH_MAX);
    (void)buf_addf(&suffix, "/%s.conf", base_name(program));
    s->conf = options->conf != NULL
                  ? zmailer_absolute(options->conf, "")
                  : zmailer_absolute(conf_zenv(variables, SLICE("MAILSHARE")), buf_cstr(&suffix));
    buf_fini(&suffix);

    (void)buf_addf(&s->text,
                   "# Made by %s from its options and ZMailer's variables, at each start.\n"
                   "include %s\n",
                   base_name(program), s->conf);
    add_path(&s->text, "spool", "postoffice:", s->postoffice);
    if (variables->zenv_file[0] != '\0') {
        (void)buf_addf(&s->text, "zenv_file = %s\n", variables->zenv_file); /* not expanded */
    }
    if (s->log != NULL) {
        add_path(&s->text, "log", "file:", s->log);
    }
    if (s->statistics != NULL) {
        add_path(&s->text, "statistics_log", "", s->statistics);
    }
    add_options(options, variables, &s->text);
    add_files(options->files, s->postoffice, &s->text);
    conf_free(variables);
    if (s->text.failed) {
        (void)buf_add_string(messages, "options too long\n");
    }
    return !s->text.failed;
}

void scheduler_settings_fini(struct scheduler_settings *s)
{
    mem_free(s->postoffice);
    mem_free(s->conf);
    mem_free(s->log);
    mem_free(s->statistics);
    mem_free(s->path);
    buf_fini(&s->text);
}
