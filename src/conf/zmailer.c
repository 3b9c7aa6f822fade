#include "zmailer.h"

#include <errno.h>
#include <string.h>

#include "conf_private.h"
#include "match.h"

static const char postoffice_prefix[] = "postoffice:";

#define PREFIX_LEN (sizeof postoffice_prefix - 1)

static struct setting *setting_of(struct conf_private *inner, const char *name)
{
    return &inner->settings[param_find(slice_string(name)) - param_table];
}

static const char *join(struct pool *pool, const char *head, const char *tail)
{
    size_t head_len = strlen(head), tail_len = strlen(tail);
    char *joined = pool_new(pool, head_len + tail_len + 1);

    memcpy(joined, head, head_len);
    memcpy(joined + head_len, tail, tail_len + 1);
    return joined;
}

/* ---- variables ------------------------------------------------------------------------------ */

/* As the file has it, or compiled in; NULL: neither. */
static const char *variable(const struct conf_private *inner, struct slice name)
{
    static const struct {
        const char *name, *value;
    } compiled_in[] = {
        {"POSTOFFICE", ZMAILER_POSTOFFICE},
        {"MAILBIN", ZMAILER_MAILBIN},
        {"MAILSHARE", ZMAILER_MAILSHARE},
        {"LOGDIR", ZMAILER_LOGDIR},
    };
    const char *value = zenv_find(&inner->zenv, name);

    for (size_t i = 0; value == NULL && i < sizeof compiled_in / sizeof compiled_in[0]; i++) {
        if (slice_equal(name, slice_string(compiled_in[i].name))) {
            value = compiled_in[i].value;
        }
    }
    return value;
}

const char *conf_postoffice(const struct conf *conf)
{
    return conf->inner->is_postoffice ? conf->spool + PREFIX_LEN : NULL;
}

const char *conf_zenv(const struct conf *conf, struct slice name)
{
    return slice_equal(name, SLICE("POSTOFFICE")) && conf->inner->is_postoffice
               ? conf_postoffice(conf)
               : variable(conf->inner, name);
}

static const char *lookup(const void *conf, struct slice name)
{
    return conf_zenv(conf, name);
}

/* The file that is named must be there; the compiled-in one is of use only to a postoffice. */
static void read_variables(struct conf_private *inner, const char *directory,
                           struct conf_problems *problems)
{
    struct setting *s = setting_of(inner, "zenv_file");
    bool given = s->raw != NULL && s->raw[0] != '\0';
    const char *path = ZMAILER_ZCONFIG;
    struct buf content;
    int error;

    if (given) {
        s->raw = path = path_below(&inner->pool, directory, slice_string(s->raw));
    } else if (!inner->is_postoffice) {
        return;
    }
    buf_init(&content, CONF_FILE_MAX);
    error = file_read(inner->world, path, &content);
    if (error == 0) {
        inner->zenv_path = path;
        inner->zenv = zenv_parse(buf_slice(&content), path, &inner->pool, problems);
    } else if (given) {
        problem_add(problems, CONF_ERROR, s->file, s->line, s->column, "can't read %s: %s", path,
                    strerror(-error));
    } else if (error != -ENOENT) {
        problem_add(problems, CONF_ERROR, path, 0, 0, "can't read it: %s", strerror(-error));
    }
    buf_fini(&content);
}

/* ---- the spool ------------------------------------------------------------------------------ */

/* A value of a clause or of the defaults clause; NULL when it is silent. */
static const struct policy_origin *origin_of(const struct layer *layer, const char *name)
{
    size_t i = (size_t)(param_find_in_clause(slice_string(name)) - param_table);

    return layer != NULL && layer->set[i] ? &layer->from[i] : NULL;
}

/* Where a clause asks for transport agents; NULL: it does not. */
static const struct policy_origin *wants_ta(const struct layer *layer)
{
    const struct policy_origin *agent = origin_of(layer, "agent");

    if (agent != NULL) {
        return layer->values.agent == CONF_AGENT_TA ? agent : NULL;
    }
    return origin_of(layer, "command");
}

/* Is it a scheduler.conf as ZMailer has it? */
static bool is_scheduler_conf(struct conf_private *inner)
{
    bool found = wants_ta(inner->defaults_clause) != NULL;

    for (size_t i = 0; i < param_count; i++) {
        if (inner->settings[i].raw != NULL && !param_is_zmailer(&param_table[i])) {
            return false;
        }
    }
    for (size_t i = 0; i < inner->clause_count && !found; i++) {
        const struct clause_body *body = inner->clauses[i].body;

        found = wants_ta(&body->own) != NULL || wants_ta(body->base) != NULL;
    }
    return found && inner->override_count == 0;
}

void zmailer_begin(struct conf_private *inner, const char *directory,
                   struct conf_problems *problems)
{
    const char *spool = setting_of(inner, "spool")->raw;
    bool implied = is_scheduler_conf(inner);

    inner->is_postoffice =
        implied || (spool != NULL && strncmp(spool, postoffice_prefix, PREFIX_LEN) == 0);
    read_variables(inner, directory, problems);
    if (implied) {
        spool = join(&inner->pool, postoffice_prefix, variable(inner, SLICE("POSTOFFICE")));
        inner->postoffice_spool = spool;
    }
    if (inner->is_postoffice) {
        inner->postoffice_state = join(&inner->pool, spool + PREFIX_LEN, "/.sluice");
        inner->postoffice_notify = join(&inner->pool, spool + PREFIX_LEN, "/.scheduler.notify");
        inner->postoffice_form =
            join(&inner->pool, variable(inner, SLICE("MAILSHARE")), "/forms/delivery");
    }
}

bool zmailer_is_hash(const char *value)
{
    return strcmp(value, "1") == 0 || strcmp(value, "2") == 0;
}

const char *zmailer_preset(const struct conf_private *inner, const struct param *p)
{
    const char *notify = zenv_find(&inner->zenv, SLICE("SCHEDULERNOTIFY"));
    const char *syslog = zenv_find(&inner->zenv, SLICE("SYSLOGFLG"));
    const char *hash = zenv_find(&inner->zenv, SLICE("SCHEDULERDIRHASH"));
    const struct {
        const char *name, *preset;
    } presets[] = {
        {"spool", inner->postoffice_spool},
        {"state_directory", inner->postoffice_state},
        {"listen", ""},
        {"maildrop", ""},
        {"syslog_name", "scheduler"},
        {"shutdown_timeout", "2s"}, /* the next scheduler waits 5 s for this one to end */
        {"scheduler_syslog", syslog != NULL && strpbrk(syslog, "cC") != NULL ? "yes" : NULL},
        {"myorigin", zenv_find(&inner->zenv, SLICE("ORGDOMAIN"))},
        {"report_form", inner->postoffice_form},
        {"zenv_file", inner->zenv_path},
        {"postoffice_hash_levels", hash != NULL && zmailer_is_hash(hash) ? hash : NULL},
        {"mailqsock", "TCP:174"},
        {"mailq_dump_file", zenv_find(&inner->zenv, SLICE("RENDEZVOUS"))},
        {"notifysock", notify != NULL ? notify : inner->postoffice_notify},
        {"agent", "ta"},
        {"user", "root"},
        {"group", "daemon"},
        {"interval", "1m"},
        {"expiry", "3d"},
        {"overfeed", "150"},
        {"default_destination_concurrency_feedback", "no"},
        {"default_destination_concurrency_limit", "0"}, /* maxthr says, */
        {"default_process_limit", "0"},                 /* and maxchannel */
    };
    const char *name = p->name[0] != '\0' ? p->name : p->suffix;

    for (size_t i = 0; inner->is_postoffice && i < sizeof presets / sizeof presets[0]; i++) {
        if (strcmp(presets[i].name, name) == 0) {
            return presets[i].preset;
        }
    }
    return NULL;
}

/* ---- values of PARAM lines ------------------------------------------------------------------ */

static void expand_variables(struct conf *conf, const char *name, const char **value,
                             struct conf_problems *problems)
{
    const struct setting *s = setting_of(conf->inner, name);
    struct slice bad;
    struct buf out;

    buf_init(&out, CONF_LINE_MAX);
    if (!zenv_expand(slice_string(*value), lookup, conf, &out, &bad)) {
        problem_add(problems, CONF_ERROR, s->file, s->line, s->column,
                    "%s: `%.*s' is no variable of zenv_file", name, SLICE_ARGS(problem_quote(bad)));
    } else if (out.failed) {
        problem_add(problems, CONF_ERROR, s->file, s->line, s->column,
                    "%s: expands to more than %u bytes", name, CONF_LINE_MAX);
    } else {
        *value = pool_string(&conf->inner->pool, buf_slice(&out));
    }
    buf_fini(&out);
}

/* "TCP:PORT", "TCP:SERVICE", a bare port or service, each perhaps with "@..." behind it,
 * "UNIX:/path" and "/path" become TCP:PORT and UNIX:/path. */
static void name_mailq_socket(struct conf *conf, struct conf_problems *problems)
{
    const struct setting *s = setting_of(conf->inner, "mailqsock");
    struct slice text = slice_string(conf->mailqsock), port;
    bool is_unix = slice_starts_nocase(text, SLICE("UNIX:"));

    if (text.len == 0) {
        return;
    }
    text = slice_skip(text, is_unix ? 5 : 0);
    if (text.len > 0 && text.ptr[0] == '/') {
        conf->mailqsock = join(&conf->inner->pool, "UNIX:", pool_string(&conf->inner->pool, text));
        return;
    }
    text = slice_skip(text, slice_starts_nocase(text, SLICE("TCP:")) ? 4 : 0);
    port = slice_cut(&text, '@');
    if (is_unix || port.len == 0 || slice_find(port, ':') < port.len ||
        slice_find(port, '/') < port.len) {
        problem_add(problems, CONF_ERROR, s->file, s->line, s->column,
                    "mailqsock: found `%.*s', expected TCP:PORT, TCP:SERVICE, UNIX:/PATH or /PATH",
                    SLICE_ARGS(problem_quote(slice_string(conf->mailqsock))));
        return;
    }
    conf->mailqsock = join(&conf->inner->pool, "TCP:", pool_string(&conf->inner->pool, port));
}

static void name_notify_socket(struct conf *conf, struct conf_problems *problems)
{
    const struct setting *s = setting_of(conf->inner, "notifysock");
    struct slice path = slice_string(conf->notifysock);
    /* The one below the postoffice is as relative as that. */
    bool derived = slice_equal(path, slice_string(conf->inner->postoffice_notify));

    path = slice_skip(path, slice_starts_nocase(path, SLICE("UNIX:")) ? 5 : 0);
    if (path.len > 0 && path.ptr[0] != '/' && !derived) {
        /* Not from the configuration: then a variable says so. */
        problem_add(problems, CONF_ERROR, s->file != NULL ? s->file : conf->inner->zenv_path,
                    s->line, s->column, "notifysock: found `%.*s', expected UNIX:/PATH or /PATH",
                    SLICE_ARGS(problem_quote(path)));
        return;
    }
    conf->notifysock = pool_string(&conf->inner->pool, path);
}

/* ---- agents and spools belong together ------------------------------------------------------ */

static void check_agent(const struct conf *conf, const struct layer *layer,
                        struct conf_problems *problems)
{
    const struct policy_origin *agent = origin_of(layer, "agent"), *ta = wants_ta(layer);

    if (ta != NULL && !conf->inner->is_postoffice) {
        problem_add(problems, CONF_ERROR, ta->file, ta->line, 1,
                    "clause `%s': transport agents (command= without agent=pipe) need "
                    "spool = postoffice:DIR",
                    ta->name);
    }
    if (agent != NULL && ta == NULL && conf->inner->is_postoffice) {
        problem_add(problems, CONF_ERROR, agent->file, agent->line, 1,
                    "clause `%s': the spool is a postoffice, whose mail only transport agents "
                    "take: command=, without agent=, is expected",
                    agent->name);
    }
}

static void check_clauses(const struct conf *conf, struct conf_problems *problems)
{
    const struct conf_private *inner = conf->inner;
    const struct layer *base = NULL;
    const struct clause_body *last = NULL;

    for (size_t i = 0; i < inner->clause_count; i++) {
        const struct clause *c = &inner->clauses[i];

        if (c->body->base != base) {
            base = c->body->base;
            check_agent(conf, base, problems);
        }
        if (c->is_class || c->body == last) {
            continue;
        }
        last = c->body;
        check_agent(conf, &last->own, problems);
        if (inner->is_postoffice && origin_of(&last->own, "command") == NULL &&
            origin_of(last->base, "command") == NULL) {
            problem_add(problems, CONF_WARNING, c->file, c->line, 1,
                        "clause `%s' has no command: its mail waits until it has", c->pattern);
        }
    }
    if (inner->defaults_clause != base) {
        check_agent(conf, inner->defaults_clause, problems);
    }
}

void zmailer_finish(struct conf *conf, struct conf_problems *problems)
{
    expand_variables(conf, "authfile", &conf->authfile, problems);
    expand_variables(conf, "mailqsock", &conf->mailqsock, problems);
    expand_variables(conf, "notifysock", &conf->notifysock, problems);
    name_mailq_socket(conf, problems);
    name_notify_socket(conf, problems);
    check_clauses(conf, problems);
}
