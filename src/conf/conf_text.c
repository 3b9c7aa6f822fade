/* Texts for the command line and the manual page: problems, values, explanations. */
#include <string.h>

#include "check.h"
#include "conf.h"
#include "conf_private.h"

/* Maximum bytes of a printed value; paths grow by their directory. */
#define VALUE_TEXT_MAX (2 * CONF_LINE_MAX)

/* Errors of a buf are sticky; the caller checks them at the end. */

void conf_put_place(const struct conf *conf, const char *parameter, struct buf *out)
{
    const struct param *p = param_find(slice_string(parameter));

    CHECK(p != NULL);
    if (conf->inner->settings[p - param_table].raw != NULL) {
        const struct setting *s = &conf->inner->settings[p - param_table];

        (void)buf_addf(out, "%s:%u:%u: ", s->file, s->line, s->column);
    }
}

void conf_print_problems(struct buf *out, const struct conf_problems *problems)
{
    for (size_t i = 0; i < problems->count; i++) {
        const struct conf_problem *p = &problems->at[i];

        (void)buf_add_string(out, p->file);
        if (p->line > 0) {
            (void)buf_addf(out, ":%u:%u", p->line, p->column);
        }
        (void)buf_addf(out, ": %s: %s\n", p->severity == CONF_ERROR ? "error" : "warning", p->text);
    }
    if (problems->count > 1) {
        (void)buf_addf(out, "%zu errors, %zu warnings", problems->errors,
                       problems->count + problems->dropped - problems->errors);
        (void)buf_addf(out, problems->dropped > 0 ? "; %zu of them not shown\n" : "\n",
                       problems->dropped);
    }
}

static const void *base_of(const struct conf *conf, const struct param *p)
{
    return p->suffix == NULL ? (const void *)conf : &conf->defaults;
}

/* Prints "name = value", with `$` doubled so that it does not expand again. */
static void print_parameter(struct buf *out, const char *name, const struct param *p,
                            struct slice value)
{
    bool raw = strcmp(p->unit, "raw") == 0;

    (void)buf_addf(out, "%s = ", name);
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] == '$' && !raw) {
            (void)buf_add_byte(out, '$');
        }
        (void)buf_add_byte(out, value.ptr[i]);
    }
    (void)buf_add_byte(out, '\n');
}

/* Prints a setting, with a comment above it if it has no effect. */
static void print_setting(struct buf *out, const char *name, const struct param *p,
                          const void *base, bool is_set)
{
    struct buf value;

    if (is_set && param_is_idle(p)) {
        (void)buf_addf(out, "# %s has %s\n", name, p->meaning);
    }
    buf_init(&value, VALUE_TEXT_MAX);
    param_print(&value, p, base);
    print_parameter(out, name, p, buf_slice(&value));
    buf_fini(&value);
}

/* Prints a value of a clause, in quotes if it has blanks. */
static void print_clause_value(struct buf *out, const struct param *p, const struct layer *layer)
{
    struct buf value;

    buf_init(&value, VALUE_TEXT_MAX);
    param_print(&value, p, &layer->values);
    struct slice text = buf_slice(&value);
    bool quoted = text.len == 0 || text.ptr[0] == '#' || slice_find(text, ' ') < text.len ||
                  slice_find(text, '\t') < text.len || slice_find(text, '\r') < text.len;
    (void)buf_addf(out, quoted ? "\t%s=\"%.*s\"\n" : "\t%s=%.*s\n", p->suffix, SLICE_ARGS(text));
    buf_fini(&value);
}

static void print_layer(struct buf *out, const char *pattern, const struct layer *layer)
{
    (void)buf_addf(out, "%s\n", pattern);
    for (size_t i = param_policy_first; i < param_count; i++) {
        if (layer->set[i]) {
            print_clause_value(out, &param_table[i], layer);
        }
    }
}

static void print_all(struct buf *out, const struct conf *conf, bool only_changed)
{
    const struct conf_private *inner = conf->inner;

    for (size_t i = 0; i < param_count; i++) {
        const struct param *p = &param_table[i];
        bool is_set = inner->settings[i].raw != NULL;

        if (p->name[0] != '\0' && (!only_changed || is_set)) {
            print_setting(out, p->name, p, base_of(conf, p), is_set);
        }
    }
    for (size_t i = 0; i < inner->override_count; i++) {
        const struct override *o = &inner->overrides[i];

        print_parameter(out, o->name, o->param, slice_string(o->raw));
    }
    /* Print before each clause the defaults at its start, so that the text has the same meaning
     * when it is parsed. */
    const struct layer *base = NULL;
    for (size_t i = 0; i < inner->clause_count; i++) {
        const struct clause *c = &inner->clauses[i];
        bool shared = i + 1 < inner->clause_count && inner->clauses[i + 1].body == c->body;

        if (c->body->base != base) {
            base = c->body->base;
            print_layer(out, "*/*", base);
        }
        if (shared) {
            (void)buf_addf(out, "%s\n", c->pattern);
        } else {
            print_layer(out, c->pattern, &c->body->own);
        }
    }
    if (inner->defaults_clause != base && inner->defaults_clause != NULL) {
        print_layer(out, "*/*", inner->defaults_clause);
    }
}

static void print_unknown(struct buf *out, const char *name)
{
    (void)buf_addf(out, "unknown parameter `%s'", name);
    param_add_nearest(out, slice_string(name), false);
    (void)buf_add_byte(out, '\n');
}

/* Finds a parameter, TRANSPORT_name, or a word of clauses. */
static const struct param *find_any(const char *name, struct slice *ret_transport)
{
    const struct param *p = param_find(slice_string(name));

    *ret_transport = slice_of(NULL, 0);
    p = p != NULL ? p : param_find_override(slice_string(name), ret_transport);
    return p != NULL ? p : param_find_in_clause(slice_string(name));
}

bool conf_print(struct buf *out, const struct conf *conf, const char *const *names, size_t count,
                bool only_changed)
{
    bool all_known = true;

    if (names == NULL) {
        print_all(out, conf, only_changed);
        return true;
    }
    for (size_t i = 0; i < count; i++) {
        struct slice transport;
        const struct param *p = find_any(names[i], &transport);
        const struct conf_transport *t =
            transport.ptr == NULL ? NULL : conf_transport_find(conf, transport);

        if (p == NULL || (transport.ptr != NULL && t == NULL)) {
            print_unknown(out, names[i]);
            all_known = false;
            continue;
        }
        bool is_set = conf->inner->settings[p - param_table].raw != NULL;
        if (!only_changed || t != NULL || is_set) {
            print_setting(out, names[i], p, t != NULL ? &t->policy : base_of(conf, p), is_set);
        }
    }
    return all_known;
}

/* Returns the text of the default. `conf` may be NULL. */
static const char *preset_text(const struct conf *conf, const struct param *p)
{
    const char *preset = conf != NULL ? dialects_preset(conf->inner, p) : NULL;

    preset = preset != NULL ? preset : p->preset;
    return preset[0] == '\0' ? "(empty)" : preset;
}

bool conf_explain(struct buf *out, const struct conf *conf, const char *name)
{
    struct slice transport;
    const struct param *p = find_any(name, &transport);

    if (p == NULL) {
        print_unknown(out, name);
        return false;
    }
    (void)buf_addf(out, "%s: %s\n  value: ", name, p->meaning);
    param_add_expected(out, p);
    (void)buf_addf(out, "\n  default: %s\n", preset_text(conf, p));
    if (p->suffix == NULL) {
        (void)buf_add_string(out, "  scope: everything\n");
    } else if (p->name[0] == '\0') {
        (void)buf_addf(out, "  scope: clauses, as %s=\n", p->suffix);
    } else {
        (void)buf_addf(out, "  scope: all transports as %s, one as TRANSPORT_%s, clauses as %s=\n",
                       p->name, p->suffix, p->suffix);
    }
    if (conf != NULL && (p->suffix == NULL || p->name[0] != '\0')) {
        (void)buf_add_string(out, "  now: ");
        (void)conf_print(out, conf, &name, 1, false); /* the name is known */
    }
    return true;
}

/* ---- manual page ---------------------------------------------------------------------------- */

/* Adds text for roff: no line starts with a control character, and backslashes are visible. */
static void add_roff(struct buf *out, const char *text)
{
    if (*text == '.' || *text == '\'') {
        (void)buf_add_string(out, "\\&");
    }
    for (; *text != '\0'; text++) {
        if (*text == '\\') {
            (void)buf_add_string(out, "\\e");
        } else if (*text == '-') {
            (void)buf_add_string(out, "\\-");
        } else {
            (void)buf_add_byte(out, *text);
        }
    }
}

static void man_param(struct buf *out, const struct param *p, const char *name)
{
    struct buf expected;

    buf_init(&expected, CONF_LINE_MAX);
    param_add_expected(&expected, p);
    (void)buf_addf(out, ".It Cm %s Pq default : Ql ", name);
    add_roff(out, p->preset[0] == '\0' ? "\"\"" : p->preset);
    (void)buf_add_byte(out, '\n');
    add_roff(out, p->meaning);
    (void)buf_add_string(out, ".\nExpected: ");
    add_roff(out, buf_cstr(&expected));
    (void)buf_add_string(out, ".\n");
    if (p->suffix != NULL && p->name[0] != '\0') {
        (void)buf_addf(out, "For one transport: TRANSPORT_%s; in a clause: %s.\n", p->suffix,
                       p->suffix);
    }
    buf_fini(&expected);
}

void conf_print_man(struct buf *out)
{
    static const char head[] =
        ".Dd November 21, 2026\n"
        ".Dt SLUICE.CONF 5\n"
        ".Os\n"
        ".Sh NAME\n"
        ".Nm sluice.conf\n"
        ".Nd configuration of the Sluice mail queue manager\n"
        ".Sh DESCRIPTION\n"
        "A line that starts in the first column with a name and an equals sign is a parameter.\n"
        "Lines that start with a blank continue its value.\n"
        "Within it $name, ${name} and $(name) stand for the value of another parameter,\n"
        "${name?text} for text when that value is not empty, ${name:text} when it is,\n"
        "and $$ for a dollar sign.\n"
        ".Pp\n"
        "Any other line that starts in the first column opens a clause: a shell pattern\n"
        "transport/nexthop, followed on the same and on indented lines by name=value pairs.\n"
        "Values with blanks stand in double quotes.\n"
        ".Pp\n"
        "A line include FILE reads another file in its place,\n"
        "and # begins a comment.\n"
        ".Pp\n"
        "A value that depends on the destination is the first of: the first clause that matches,\n"
        "the clause that declares the transport, the clause */*, the parameter\n"
        "TRANSPORT_name, and the parameter for all transports.\n"
        "After a clause of all transports, */NEXTHOP, the first clause NAME/* comes second.\n"
        "A clause whose pattern is NAME/* and that says agent= or command= declares a transport.\n"
        "Built-in transports are smtp, relay, lmtp, local, error, retry and discard;\n"
        "local has destination_recipient_limit 1 and destination_concurrency_limit 2.\n"
        ".Pp\n"
        "A clause class/NAME weight=N gives a class of mail N shares of the deliveries where\n"
        "several classes wait for the same destination; the first clause that matches the\n"
        "class's name holds, and a class without one has weight 1,\n"
        "class personal of default_class = auto weight 10.\n"
        "Mail without a class is a class, too, whose name is empty.\n"
        "In the same clause fairness=sender, client or sender-domain divides the class's share\n"
        "equally among those that have mail waiting, as class_fairness does with class bulk.\n"
        "The mail of each of them keeps its order.\n";
    static const char tail[] =
        ".Pp\n"
        "Relative paths start at state_directory; that itself, included files and\n"
        "transport_maps and sender_dependent_relayhost_maps start at the directory of the "
        "configuration file.\n"
        ".Pp\n"
        "Other names are known for\n"
        "local_domains (mydestination), relay_networks (mynetworks),\n"
        "notify_double_bounce (2bounce_notice_recipient),\n"
        "maxta (maxtransport, maxtransports), maxchannel (maxchannels) and maxring (maxrings).\n";

    (void)buf_add_string(out, head);
    for (size_t i = 0; dialects_at(i) != NULL; i++) {
        (void)buf_add_string(out, dialects_at(i)->manual);
    }
    (void)buf_add_string(out, tail);
    (void)buf_add_string(out, ".Sh PARAMETERS\n.Bl -tag -width Ds\n");
    for (size_t i = 0; i < param_count; i++) {
        if (param_table[i].name[0] != '\0') {
            man_param(out, &param_table[i], param_table[i].name);
        }
    }
    (void)buf_add_string(out, ".El\n.Sh VALUES OF CLAUSES\n"
                              "Besides those above, without TRANSPORT_:\n.Bl -tag -width Ds\n");
    for (size_t i = param_policy_first; i < param_count; i++) {
        if (param_table[i].name[0] == '\0') {
            man_param(out, &param_table[i], param_table[i].suffix);
        }
    }
    (void)buf_add_string(out, ".El\n.Sh SEE ALSO\n.Xr sluiced 8\n");
}
