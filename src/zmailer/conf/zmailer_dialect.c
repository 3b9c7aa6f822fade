#include "zmailer_dialect.h"

#include <errno.h>
#include <string.h>

#include "conf_private.h"
#include "door.h"
#include "match.h"
#include "tolerance.h"
#include "zenv.h"

static const char postoffice_prefix[] = "postoffice:";

#define PREFIX_LEN   (sizeof postoffice_prefix - 1)
#define MAILQ_PRESET "TCP:174"

/* Data of this dialect for one configuration. */
struct zmailer {
    struct zenv zenv;
    const char *zenv_path; /* file of the variables; NULL: none */
    bool is_postoffice;    /* the spool is ZMailer's; the members below are set */
    const char *spool;     /* value of `spool` if nothing sets it; NULL: it is set */
    const char *state, *notify, *form;
};

static const struct conf_dialect dialect;

static struct zmailer *zmailer_of(const struct conf *conf)
{
    return conf_dialect_data(conf->inner, &dialect);
}

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

/* Returns a variable from the file, or its compiled-in value; NULL if it has neither. */
static const char *variable(const struct zmailer *z, struct slice name)
{
    static const struct {
        const char *name, *value;
    } compiled_in[] = {
        {"POSTOFFICE", ZMAILER_POSTOFFICE},
        {"MAILBIN", ZMAILER_MAILBIN},
        {"MAILSHARE", ZMAILER_MAILSHARE},
        {"LOGDIR", ZMAILER_LOGDIR},
    };
    const char *value = zenv_find(&z->zenv, name);

    for (size_t i = 0; value == NULL && i < sizeof compiled_in / sizeof compiled_in[0]; i++) {
        if (slice_equal(name, slice_string(compiled_in[i].name))) {
            value = compiled_in[i].value;
        }
    }
    return value;
}

const char *conf_postoffice(const struct conf *conf)
{
    return zmailer_of(conf)->is_postoffice ? conf->spool + PREFIX_LEN : NULL;
}

const char *conf_zenv(const struct conf *conf, struct slice name)
{
    return slice_equal(name, SLICE("POSTOFFICE")) && zmailer_of(conf)->is_postoffice
               ? conf_postoffice(conf)
               : variable(zmailer_of(conf), name);
}

static const char *lookup(const void *conf, struct slice name)
{
    return conf_zenv(conf, name);
}

/* Reads the variables. A file that is named must exist; the compiled-in one is read for a
 * postoffice only. */
static void read_variables(struct zmailer *z, struct conf_private *inner, const char *directory,
                           struct conf_problems *problems)
{
    struct setting *s = setting_of(inner, "zenv_file");
    bool given = s->raw != NULL && s->raw[0] != '\0';
    const char *path = ZMAILER_ZCONFIG;
    struct buf content;
    int error;

    if (given) {
        s->raw = path = path_below(&inner->pool, directory, slice_string(s->raw));
    } else if (!z->is_postoffice) {
        return;
    }
    buf_init(&content, CONF_FILE_MAX);
    error = file_read(inner->world, path, &content);
    if (error == 0) {
        z->zenv_path = path;
        z->zenv = zenv_parse(buf_slice(&content), path, &inner->pool, problems);
    } else if (given) {
        problem_add(problems, CONF_ERROR, s->file, s->line, s->column, "can't read %s: %s", path,
                    strerror(-error));
    } else if (error != -ENOENT) {
        problem_add(problems, CONF_ERROR, path, 0, 0, "can't read it: %s", strerror(-error));
    }
    buf_fini(&content);
}

/* ---- the spool ------------------------------------------------------------------------------ */

/* Returns the place where a clause or the defaults clause sets a value, or NULL. */
static const struct policy_origin *origin_of(const struct layer *layer, const char *name)
{
    size_t i = (size_t)(param_find_in_clause(slice_string(name)) - param_table);

    return layer != NULL && layer->set[i] ? &layer->from[i] : NULL;
}

/* Returns the place where a clause requests transport agents, or NULL. */
static const struct policy_origin *wants_ta(const struct layer *layer)
{
    const struct policy_origin *agent = origin_of(layer, "agent");

    if (agent != NULL) {
        return layer->values.agent == CONF_AGENT_TA ? agent : NULL;
    }
    return origin_of(layer, "command");
}

/* Names after PARAM, and ours, which have `_` for `-`. */
static const struct {
    const char *alias, *name;
} params[] = {
    {"mailqsock", "mailqsock"},
    {"mailqpath", "mailqsock"}, /* this name is in ZMailer's manual page, but not in its program */
    {"authfile", "authfile"},
    {"notifysock", "notifysock"},
    {"global-report-interval", "global_report_interval"},
    {"msgwriteasync", "msgwriteasync"},
    {"store-error-on-error", "store_error_on_error"},
};

static const char *param_named(struct slice name)
{
    for (size_t i = 0; i < sizeof params / sizeof params[0]; i++) {
        if (slice_equal_nocase(name, slice_string(params[i].alias))) {
            return params[i].name;
        }
    }
    return NULL;
}

/* Is it a parameter of a PARAM line, or zenv_file? */
static bool is_ours(const struct param *p)
{
    for (size_t i = 0; i < sizeof params / sizeof params[0]; i++) {
        if (strcmp(p->name, params[i].name) == 0) {
            return true;
        }
    }
    return strcmp(p->name, "zenv_file") == 0;
}

/* Is it a scheduler.conf in ZMailer's form? */
static bool is_scheduler_conf(struct conf_private *inner)
{
    bool found = wants_ta(inner->defaults_clause) != NULL;

    for (size_t i = 0; i < param_count; i++) {
        if (inner->settings[i].raw != NULL && !is_ours(&param_table[i])) {
            return false;
        }
    }
    for (size_t i = 0; i < inner->clause_count && !found; i++) {
        const struct clause_body *body = inner->clauses[i].body;

        found = wants_ta(&body->own) != NULL || wants_ta(body->base) != NULL;
    }
    return found && inner->override_count == 0;
}

static bool begin(struct conf_private *inner, const char *directory, struct conf_problems *problems,
                  void **ret_data)
{
    struct zmailer *z = pool_new(&inner->pool, sizeof *z);
    const char *spool = setting_of(inner, "spool")->raw;
    bool implied = is_scheduler_conf(inner);

    z->is_postoffice =
        implied || (spool != NULL && strncmp(spool, postoffice_prefix, PREFIX_LEN) == 0);
    read_variables(z, inner, directory, problems);
    if (implied) {
        spool = join(&inner->pool, postoffice_prefix, variable(z, SLICE("POSTOFFICE")));
        z->spool = spool;
    }
    if (z->is_postoffice) {
        z->state = join(&inner->pool, spool + PREFIX_LEN, "/.sluice");
        z->notify = join(&inner->pool, spool + PREFIX_LEN, "/.scheduler.notify");
        z->form = join(&inner->pool, variable(z, SLICE("MAILSHARE")), "/forms/delivery");
    }
    *ret_data = z;
    return z->is_postoffice;
}

bool zmailer_is_hash(const char *value)
{
    return strcmp(value, "1") == 0 || strcmp(value, "2") == 0;
}

static const char *preset(const void *data, const struct param *p)
{
    const struct zmailer *z = data;
    const char *notify = zenv_find(&z->zenv, SLICE("SCHEDULERNOTIFY"));
    const char *syslog = zenv_find(&z->zenv, SLICE("SYSLOGFLG"));
    const char *hash = zenv_find(&z->zenv, SLICE("SCHEDULERDIRHASH"));
    const struct {
        const char *name, *preset;
    } presets[] = {
        {"spool", z->spool},
        {"state_directory", z->state},
        {"listen", ""},
        {"maildrop", ""},
        {"syslog_name", "scheduler"},
        {"shutdown_timeout", "2s"}, /* the next scheduler waits 5 s for this one to end */
        {"scheduler_syslog", syslog != NULL && strpbrk(syslog, "cC") != NULL ? "yes" : NULL},
        {"myorigin", zenv_find(&z->zenv, SLICE("ORGDOMAIN"))},
        {"report_form", z->form},
        {"zenv_file", z->zenv_path},
        {"postoffice_hash_levels", hash != NULL && zmailer_is_hash(hash) ? hash : NULL},
        {"mailqsock", MAILQ_PRESET},
        {"mailq_dump_file", zenv_find(&z->zenv, SLICE("RENDEZVOUS"))},
        {"notifysock", notify != NULL ? notify : z->notify},
        {"agent", "ta"},
        {"user", "root"},
        {"group", "daemon"},
        {"interval", "1m"},
        {"expiry", "3d"},
        {"overfeed", "150"},
        {"default_destination_concurrency_feedback", "no"},
        {"default_destination_concurrency_limit", "0"}, /* maxthr is the limit instead */
        {"default_process_limit", "0"},                 /* maxchannel is the limit instead */
    };
    const char *name = p->name[0] != '\0' ? p->name : p->suffix;

    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        if (strcmp(presets[i].name, name) == 0) {
            return presets[i].preset;
        }
    }
    return NULL;
}

/* ---- values of PARAM lines ------------------------------------------------------------------ */

/* Reports a bad value of a PARAM line, or of the variable in its place. In a postoffice it is a
 * warning, and `used` takes the place of the value, because ZMailer's scheduler would start,
 * too. */
static void bad_param(const struct conf *conf, const char *name, const char *problem,
                      struct slice value, const char *used, struct conf_problems *problems)
{
    const struct setting *s = setting_of(conf->inner, name);
    const struct zmailer *z = zmailer_of(conf);
    struct slice remedy = problem_quote(slice_string(z->is_postoffice ? used : ""));

    problem_add(problems, z->is_postoffice ? CONF_WARNING : CONF_ERROR,
                s->file != NULL ? s->file : z->zenv_path, s->line, s->column, "%s: `%.*s' %s%s%.*s",
                name, SLICE_ARGS(problem_quote(value)), problem, remedy.len > 0 ? "; used: " : "",
                SLICE_ARGS(remedy));
}

static void expand_variables(struct conf *conf, const char *name, const char **value,
                             struct conf_problems *problems)
{
    struct slice bad;
    struct buf out;

    buf_init(&out, CONF_LINE_MAX);
    if (!zenv_expand(slice_string(*value), lookup, conf, &out, &bad)) {
        bad_param(conf, name, "is no variable of zenv_file", bad, *value, problems);
    } else if (out.failed) {
        bad_param(conf, name, "expands to more bytes than a line may have", slice_string(*value),
                  *value, problems);
    } else {
        *value = pool_string(&conf->inner->pool, buf_slice(&out));
    }
    buf_fini(&out);
}

/* Converts "TCP:PORT", "TCP:SERVICE", a port or service alone, each with an optional "@...",
 * "UNIX:/path" and "/path" to TCP:PORT and UNIX:/path. */
static void name_mailq_socket(struct conf *conf, struct conf_problems *problems)
{
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
        bad_param(conf, "mailqsock", "is none of TCP:PORT, TCP:SERVICE, UNIX:/PATH and /PATH",
                  slice_string(conf->mailqsock), MAILQ_PRESET, problems);
        conf->mailqsock = MAILQ_PRESET;
        return;
    }
    conf->mailqsock = join(&conf->inner->pool, "TCP:", pool_string(&conf->inner->pool, port));
}

static void name_notify_socket(struct conf *conf, struct conf_problems *problems)
{
    const struct zmailer *z = zmailer_of(conf);
    const char *variable_says = zenv_find(&z->zenv, SLICE("SCHEDULERNOTIFY"));
    struct slice path = slice_string(conf->notifysock);
    /* the default socket is relative if the postoffice is */
    bool derived = slice_equal(path, slice_string(z->notify));

    path = slice_skip(path, slice_starts_nocase(path, SLICE("UNIX:")) ? 5 : 0);
    if (path.len > 0 && path.ptr[0] != '/' && !derived) {
        const char *used =
            variable_says != NULL && variable_says[0] == '/' ? variable_says : z->notify;

        bad_param(conf, "notifysock", "is neither UNIX:/PATH nor /PATH", path, used, problems);
        path = slice_string(used);
    }
    conf->notifysock = pool_string(&conf->inner->pool, path);
}

/* ---- agents and spools belong together ------------------------------------------------------ */

static void check_agent(const struct conf *conf, const struct layer *layer,
                        struct conf_problems *problems)
{
    const struct policy_origin *agent = origin_of(layer, "agent"), *ta = wants_ta(layer);

    if (ta != NULL && !zmailer_of(conf)->is_postoffice) {
        problem_add(problems, CONF_ERROR, ta->file, ta->line, 1,
                    "clause `%s': transport agents (command= without agent=pipe) need "
                    "spool = postoffice:DIR",
                    ta->name);
    }
    if (agent != NULL && ta == NULL && zmailer_of(conf)->is_postoffice) {
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
        if (zmailer_of(conf)->is_postoffice && origin_of(&last->own, "command") == NULL &&
            origin_of(last->base, "command") == NULL) {
            problem_add(problems, CONF_WARNING, c->file, c->line, 1,
                        "clause `%s' has no command: its mail waits until it has", c->pattern);
        }
    }
    if (inner->defaults_clause != base) {
        check_agent(conf, inner->defaults_clause, problems);
    }
}

static void finish(struct conf *conf, struct conf_problems *problems)
{
    expand_variables(conf, "authfile", &conf->authfile, problems);
    expand_variables(conf, "mailqsock", &conf->mailqsock, problems);
    expand_variables(conf, "notifysock", &conf->notifysock, problems);
    name_mailq_socket(conf, problems);
    name_notify_socket(conf, problems);
    check_clauses(conf, problems);
}

/* ---- the dialect ---------------------------------------------------------------------------- */

/* Adjusts a policy. Without maxthr a thread has one agent. The store returns the oldest mail first;
 * with ageorder no small job may pass it. */
static void adjust(struct policy *policy)
{
    policy->maxthr = policy->maxthr == 0 ? 1 : policy->maxthr;
    policy->delivery_slot_cost = policy->ageorder ? 0 : policy->delivery_slot_cost;
}

static bool lists_differ(const struct conf_list *a, const struct conf_list *b)
{
    bool differ = a->count != b->count;

    for (size_t i = 0; i < a->count && !differ; i++) {
        differ = strcmp(a->items[i], b->items[i]) != 0;
    }
    return differ;
}

static const char *router_socket(const struct conf *conf)
{
    const char *path = conf_zenv(conf, SLICE("ROUTERNOTIFY"));

    return path == NULL ? "" : path;
}

/* Appends the parameters that the postoffice engine reads only when it is opened. */
static void put_delayed(const struct conf *old, const struct conf *new, struct buf *out)
{
    const struct {
        const char *name;
        bool differs;
    } delayed[] = {
        {"global_report_interval",
         old->global_report_interval_us != new->global_report_interval_us},
        {"msgwriteasync", old->msgwriteasync != new->msgwriteasync},
        {"notifysock", strcmp(old->notifysock, new->notifysock) != 0},
        {"ROUTERNOTIFY", strcmp(router_socket(old), router_socket(new)) != 0},
        {"myhostname",
         conf_postoffice(new) != NULL && strcmp(old->myhostname, new->myhostname) != 0},
        {"postoffice_hash_levels", old->postoffice_hash_levels != new->postoffice_hash_levels},
        {"postoffice_scan_files", old->postoffice_scan_files != new->postoffice_scan_files},
        {"postoffice_scan_time", old->postoffice_scan_time_us != new->postoffice_scan_time_us},
        {"postoffice_files", lists_differ(&old->postoffice_files, &new->postoffice_files)},
        {"deliver_only", (old->deliver_only[0] != '\0') != (new->deliver_only[0] != '\0')},
    };

    for (size_t i = 0; i < sizeof delayed / sizeof delayed[0]; i++) {
        if (delayed[i].differs) {
            (void)buf_addf(out, "%s\n", delayed[i].name); /* sticky */
        }
    }
}

static const struct conf_dialect dialect = {
    .spool_prefix = postoffice_prefix,
    .is_shared = true,
    .routes = true,
    .manual =
        ".Pp\n"
        "A line PARAMname = value is a parameter of ZMailer's scheduler.\n"
        "A file that has clauses with commands, and no parameters but PARAM lines, is a\n"
        "scheduler.conf of ZMailer: its spool is postoffice:DIR, with DIR being POSTOFFICE in\n"
        "zenv_file or compiled in.\n"
        "Where the spool is a postoffice, all mail goes to transport agents, clauses that declare\n"
        "a transport mean nothing to other clauses, and some defaults are those of ZMailer:\n"
        "user root, group daemon, interval 1m, expiry 3d, overfeed 150, maxthr 1 (and no\n"
        "limits of Postfix's), destination_concurrency_feedback no, mailqsock TCP:174,\n"
        "listen and maildrop empty, state_directory DIR/.sluice, syslog_name scheduler, "
        "shutdown_timeout 2s,\n"
        "notifysock the variable SCHEDULERNOTIFY or else DIR/.scheduler.notify.\n",
    .params = "mailqsock, authfile, notifysock, global-report-interval, msgwriteasync or "
              "store-error-on-error",
    .param_named = param_named,
    .begin = begin,
    .preset = preset,
    .tolerate = tolerance_of_value,
    .tolerate_pattern = tolerance_of_pattern,
    .adjust = adjust,
    .finish = finish,
    .put_delayed = put_delayed,
};

void zmailer_open_conf(void)
{
    conf_dialect_register(&dialect);
}
