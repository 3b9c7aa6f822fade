/*
 * Reads Postfix's configuration as the queue manager does at its start, and also master.cf, and
 * prints findings, each with its place:
 *
 *     error    the queue manager would not start, or mail would not be delivered
 *     warning  a setting has no effect, or another one than in Postfix
 *     note     information for the operator
 */
#include "postfix_check.h"

#include <stdarg.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "bundle.h"
#include "postconf.h"
#include "postconf_places.h"
#include "postconf_values.h"
#include "settings.h"

#define FIELDS        8 /* name type private unpriv chroot wakeup maxproc command */
#define COMPLAINTS    65536
#define ARGUMENTS_MAX 4096
#define PLACE_MAX     4200

struct check {
    const char *directory;
    FILE *out;
    struct buf parameters, main_cf, master_cf, own;
    struct settings s;
    unsigned errors;
};

/* A service of master.cf. */
struct service {
    unsigned line;
    struct slice field[FIELDS];
    struct slice arguments;
};

enum { NAME, TYPE, PRIVATE, UNPRIV, CHROOT, WAKEUP, MAXPROC, COMMAND };

static void tell(struct check *c, const char *kind, const char *file, unsigned line,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));

static void tell(struct check *c, const char *kind, const char *file, unsigned line,
                 const char *format, ...)
{
    va_list args;

    if (line > 0) {
        fprintf(c->out, "%s/%s:%u: %s: ", c->directory, file, line, kind);
    } else {
        fprintf(c->out, "%s/%s: %s: ", c->directory, file, kind);
    }
    va_start(args, format);
    vfprintf(c->out, format, args);
    va_end(args);
    fputc('\n', c->out);
    c->errors += strcmp(kind, "error") == 0;
}

static unsigned line_of(const struct check *c, const char *name)
{
    return postconf_line_of(buf_slice(&c->main_cf), slice_string(name));
}

/* ---- master.cf ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool take_field(struct slice *s, struct slice *ret_field)
{
    *s = slice_trim(*s);
    *ret_field = slice_of(s->ptr, 0);
    while (ret_field->len < s->len && !is_blank(s->ptr[ret_field->len])) {
        ret_field->len++;
    }
    *s = slice_skip(*s, ret_field->len);
    return ret_field->len > 0;
}

/* Reads the next service; *line counts lines. The text of the arguments is in `room`, which is
 * cleared first. */
static bool next_service(struct slice *rest, unsigned *line, struct buf *room, struct service *ret)
{
    while (rest->len > 0) {
        struct slice text = slice_cut(rest, '\n');
        size_t count = 0;

        *line += 1;
        if (text.len == 0 || is_blank(text.ptr[0]) || text.ptr[0] == '#') {
            continue;
        }
        ret->line = *line;
        while (count < FIELDS && take_field(&text, &ret->field[count])) {
            count++;
        }
        if (count < FIELDS) {
            continue; /* master(8) reports it */
        }
        buf_clear(room);
        (void)buf_add(room, slice_trim(text)); /* all errors are sticky */
        while (rest->len > 0 && (is_blank(rest->ptr[0]) || rest->ptr[0] == '#')) {
            text = slice_cut(rest, '\n');
            *line += 1;
            if (text.ptr[0] != '#') {
                (void)buf_add_byte(room, ' ');
                (void)buf_add(room, slice_trim(text));
            }
        }
        room->failed = false; /* a longer text is cut */
        ret->arguments = buf_slice(room);
        return true;
    }
    return false;
}

static bool find_service(const struct check *c, const char *name, struct buf *room,
                         struct service *ret)
{
    struct slice rest = buf_slice(&c->master_cf);
    unsigned line = 0;

    while (next_service(&rest, &line, room, ret)) {
        if (slice_equal(ret->field[NAME], slice_string(name)) &&
            !slice_equal(ret->field[TYPE], SLICE("inet"))) {
            return true;
        }
    }
    return false;
}

static bool is(const struct service *v, int field, const char *value)
{
    return slice_equal(v->field[field], slice_string(value));
}

static void look_at_manager(struct check *c)
{
    struct buf room;
    struct service v;

    buf_init(&room, ARGUMENTS_MAX);
    if (!find_service(c, "qmgr", &room, &v)) {
        tell(c, "error", "master.cf", 0, "there is no service qmgr");
        buf_fini(&room);
        return;
    }
    if (!is(&v, TYPE, "unix")) {
        tell(c, "error", "master.cf", v.line, "qmgr: found type `%.*s', expected unix",
             SLICE_ARGS(v.field[TYPE]));
    }
    if (!is(&v, PRIVATE, "n")) {
        tell(c, "error", "master.cf", v.line, "qmgr: found private `%.*s', expected n",
             SLICE_ARGS(v.field[PRIVATE]));
    }
    if (!is(&v, MAXPROC, "1")) {
        tell(c, "error", "master.cf", v.line, "qmgr: found a process limit of `%.*s', expected 1",
             SLICE_ARGS(v.field[MAXPROC]));
    }
    if (is(&v, CHROOT, "y")) {
        tell(c, "note", "master.cf", v.line,
             "qmgr: chroot has no effect; seccomp and Landlock hold it to its directories");
    }
    if (is(&v, COMMAND, "sluice-qmgr")) {
        tell(c, "note", "master.cf", v.line, "sluice-qmgr is the queue manager");
    } else if (!is(&v, COMMAND, "qmgr")) {
        tell(c, "warning", "master.cf", v.line, "`%.*s' is the queue manager, not Postfix's",
             SLICE_ARGS(v.field[COMMAND]));
    }
    buf_fini(&room);
}

static void look_at_services(struct check *c)
{
    static const struct {
        const char *parameter, *preset, *kind, *without;
    } needed[] = {
        {"rewrite_service_name", "rewrite", "error", "no mail finds its way"},
        {"bounce_service_name", "bounce", "error", "nothing is reported to senders"},
        {"defer_service_name", "defer", "error", "mailq shows no reasons, and late mail stays"},
        {"trace_service_name", "trace", "warning", "no reports of success, -v and -bv"},
        {"", "error", "warning", "recipients that are refused stay"},
        {"", "retry", "note", "the queue manager logs itself what it does not try"},
    };
    struct buf room;
    struct service v;

    buf_init(&room, ARGUMENTS_MAX);
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        struct slice name = settings_get(&c->s, needed[i].parameter);

        if (!find_service(c, name.len > 0 ? name.ptr : needed[i].preset, &room, &v)) {
            tell(c, needed[i].kind, "master.cf", 0, "there is no service %s: %s",
                 name.len > 0 ? name.ptr : needed[i].preset, needed[i].without);
        }
    }
    buf_fini(&room);
}

static bool is_agent(const struct service *v)
{
    static const char *const agents[] = {"smtp", "lmtp",  "local",  "virtual",
                                         "pipe", "error", "discard"};

    for (size_t i = 0; i < sizeof agents / sizeof agents[0]; i++) {
        if (is(v, COMMAND, agents[i]) && is(v, TYPE, "unix")) {
            return true;
        }
    }
    return false;
}

/* Returns the value of a policy value in Postfix: that of the transport, or the default. */
static struct slice value_of(const struct check *c, struct slice transport, const char *suffix)
{
    struct buf name;
    struct slice value;

    buf_init(&name, 1024);
    (void)buf_addf(&name, "%.*s_%s", SLICE_ARGS(transport), suffix);
    value = settings_get(&c->s, buf_cstr(&name));
    if (value.len == 0) {
        buf_clear(&name);
        (void)buf_addf(&name, "default_%s", suffix);
        value = settings_get(&c->s, buf_cstr(&name));
    }
    buf_fini(&name);
    return value;
}

static void print_transports(struct check *c)
{
    struct slice rest = buf_slice(&c->master_cf);
    unsigned long long preset = postconf_process_limit(settings_get(&c->s, "default_process_limit"),
                                                       POSTCONF_PROCESS_LIMIT);
    unsigned line = 0;
    struct buf room;
    struct service v;

    buf_init(&room, ARGUMENTS_MAX);
    fputs("transport       processes  at once to a destination  recipients of one delivery\n",
          c->out);
    while (next_service(&rest, &line, &room, &v)) {
        struct slice at_once, rcpts;
        unsigned long long limit;

        if (!is_agent(&v)) {
            continue;
        }
        limit = postconf_process_limit(v.field[MAXPROC], preset);
        at_once = value_of(c, v.field[NAME], "destination_concurrency_limit");
        rcpts = value_of(c, v.field[NAME], "destination_recipient_limit");
        if (limit == 0) {
            fprintf(c->out, "%-15.*s no limit  ", SLICE_ARGS(v.field[NAME]));
        } else {
            fprintf(c->out, "%-15.*s %9llu ", SLICE_ARGS(v.field[NAME]), limit);
        }
        fprintf(c->out, " %24.*s  %26.*s\n", SLICE_ARGS(at_once), SLICE_ARGS(rcpts));
    }
    fputs(
        "The queue manager hands out no more deliveries than there can be processes, so that what\n"
        "waits is known to `sluice why'.\n",
        c->out);
    buf_fini(&room);
}

/* ---- main.cf ---- */

static void look_at_release(struct check *c)
{
    struct slice version = settings_get(&c->s, "mail_version"), rest = version;
    unsigned long long major, minor;
    struct slice first = slice_cut(&rest, '.'), second = rest;

    second.len = 0;
    while (second.len < rest.len && ascii_is_digit(rest.ptr[second.len])) {
        second.len++;
    }
    fprintf(c->out, "%s: Postfix %.*s\n", c->directory, SLICE_ARGS(version));
    if (!slice_number(first, 100, &major) || !slice_number(second, 1000, &minor) || major < 3 ||
        (major == 3 && minor < 5)) {
        tell(c, "error", "main.cf", 0, "Postfix 3.5 or later is expected");
    } else if (major > 3 || minor > 12) {
        tell(c, "warning", "main.cf", 0, "releases after 3.12 were not tried");
    }
}

static void look_at_parameters(struct check *c)
{
    static const char *const by_address[] = {"transport_maps", "relocated_maps",
                                             "sender_dependent_relayhost_maps",
                                             "sender_dependent_default_transport_maps"};
    struct slice format = settings_get(&c->s, "info_log_address_format");
    struct slice service = settings_get(&c->s, "queue_service_name");
    bool differs = false;

    if (format.len > 0 && !slice_equal(format, SLICE("external"))) {
        tell(c, "warning", "main.cf", line_of(c, "info_log_address_format"),
             "info_log_address_format: no effect on lines of qmgr, which have the external form");
    }
    if (service.len > 0 && !slice_equal(service, SLICE("qmgr"))) {
        tell(c, "error", "main.cf", line_of(c, "queue_service_name"),
             "queue_service_name: found `%.*s', expected qmgr", SLICE_ARGS(service));
    }
    for (size_t i = 0; i < sizeof by_address / sizeof by_address[0]; i++) {
        struct slice value = settings_get(&c->s, by_address[i]);

        if (value.len > 0) {
            differs = true;
            tell(c, "note", "main.cf", line_of(c, by_address[i]),
                 "%s: trivial-rewrite(8) is asked for each address; an answer is kept for 30 s",
                 by_address[i]);
        }
    }
    if (!differs) {
        tell(c, "note", "main.cf", 0,
             "an answer of trivial-rewrite(8) is kept for 30 s for a "
             "domain; no map distinguishes its mailboxes");
    }
}

static void look_at_program(struct check *c)
{
    struct slice directory = settings_get(&c->s, "daemon_directory");
    struct buf path;

    buf_init(&path, PLACE_MAX);
    (void)buf_addf(&path, "%.*s/sluice-qmgr", SLICE_ARGS(directory));
    if (path.failed || access(buf_cstr(&path), X_OK) != 0) {
        fprintf(c->out, "%.*s/sluice-qmgr: error: it is not there, or can't be executed\n",
                SLICE_ARGS(directory));
        c->errors++;
    }
    buf_fini(&path);
}

/* ---- ours ---- */

/* Lists our lines in main.cf. postconf(1) warns of those that no line of master.cf mentions. */
static void look_at_own_lines(struct check *c)
{
    struct slice rest = buf_slice(&c->main_cf);
    unsigned line = 0, count = 0;
    struct buf room, unused;
    struct service v = {.line = 0};

    buf_init(&room, ARGUMENTS_MAX);
    buf_init(&unused, ARGUMENTS_MAX);
    (void)find_service(c, "qmgr", &room, &v);
    while (rest.len > 0) {
        struct slice text = slice_cut(&rest, '\n'), found;
        struct slice name = slice_trim(slice_of(text.ptr, slice_find(text, '=')));

        line++;
        if (!slice_starts(text, SLICE(POSTCONF_OWN_PREFIX)) || name.len == text.len) {
            continue;
        }
        count++;
        tell(c, "note", "main.cf", line, "%.*s: a parameter of ours", SLICE_ARGS(name));
        found = v.arguments;
        while (found.len > 0 && !slice_starts(found, name)) {
            found = slice_skip(found, 1);
        }
        if (found.len == 0) {
            (void)buf_addf(&unused, "%s$%.*s", buf_len(&unused) > 0 ? "," : "", SLICE_ARGS(name));
        }
    }
    if (buf_len(&unused) > 0 && !unused.failed) {
        tell(c, "note", "master.cf", v.line,
             "postconf(1) warns of unused parameters unless they are mentioned, in the line of "
             "qmgr: -o stress=%s",
             buf_cstr(&unused));
    }
    if (buf_len(&c->own) > 0) {
        tell(c, "note", "sluice.cf", 0, "parameters of ours");
    } else if (count == 0) {
        tell(c, "note", "main.cf", 0,
             "no parameter of ours: mail goes in the order of Postfix's own queue manager");
    }
    buf_fini(&unused);
    buf_fini(&room);
}

/* Checks the configuration that the queue manager makes. */
static void look_at_configuration(struct check *c, struct slice limits)
{
    struct postconf_places places = {
        .directory = c->directory, .main_cf = buf_slice(&c->main_cf), .own = buf_slice(&c->own)};
    struct buf text, path, complaints, notes, told;
    struct bundle bundle;

    buf_init(&text, POSTCONF_MAX);
    buf_init(&path, PLACE_MAX);
    buf_init(&complaints, COMPLAINTS);
    buf_init(&notes, COMPLAINTS);
    buf_init(&told, COMPLAINTS);
    postconf_translate(&c->s, limits, places.main_cf, places.own, SLICE("stderr"), &text, &notes);
    (void)buf_addf(&path, "%.*s/sluice/qmgr.conf",
                   SLICE_ARGS(settings_get(&c->s, "data_directory")));
    places.path = buf_cstr(&path);
    places.text = buf_slice(&text);
    if (bundle_load_text(places.path, places.text, &bundle, &complaints)) {
        bundle_fini(&bundle);
    } else {
        c->errors++;
    }
    complaints.failed = notes.failed = false; /* later complaints may be cut */
    postconf_put_notes(&places, buf_slice(&notes), &told);
    postconf_put_places(&places, buf_slice(&complaints), &told);
    told.failed = false;
    fputs(buf_cstr(&told), c->out);
    fprintf(c->out, "%s: made at each start, for `sluice -c'\n", places.path);
    buf_fini(&told);
    buf_fini(&notes);
    buf_fini(&complaints);
    buf_fini(&path);
    buf_fini(&text);
}

static bool load(struct check *c, struct buf *limits, struct buf *error)
{
    struct postconf_source source = {.directory = c->directory};
    bool ok = postconf_read_file(&source, "master.cf", &c->master_cf, error) &&
              postconf_read_file(&source, "main.cf", &c->main_cf, error);

    if (ok && (buf_len(&c->main_cf) == 0 || buf_len(&c->master_cf) == 0)) {
        (void)buf_addf(error, "%s: found no main.cf and master.cf of Postfix", c->directory);
        return false;
    }
    ok = ok && postconf_read_file(&source, "sluice.cf", &c->own, error) &&
         postconf_read(&source, &c->parameters, error);
    settings_init(&c->s, ok ? buf_slice(&c->parameters) : SLICE(""));
    return ok && postconf_read_limits(&source, &c->s, limits, error);
}

int postfix_check(const char *directory, FILE *out)
{
    struct check c = {.directory = directory, .out = out};
    struct buf error, limits;
    int status = EX_CONFIG;

    buf_init(&c.parameters, POSTCONF_MAX);
    buf_init(&c.main_cf, POSTCONF_MAX);
    buf_init(&c.master_cf, POSTCONF_MAX);
    buf_init(&c.own, POSTCONF_MAX);
    buf_init(&limits, POSTCONF_MAX);
    buf_init(&error, COMPLAINTS);
    if (!load(&c, &limits, &error)) {
        error.failed = false;
        fprintf(out, "error: %s\n", buf_cstr(&error));
    } else {
        look_at_release(&c);
        look_at_manager(&c);
        look_at_services(&c);
        look_at_program(&c);
        look_at_parameters(&c);
        look_at_own_lines(&c);
        look_at_configuration(&c, buf_slice(&limits));
        print_transports(&c);
        if (c.errors == 0) {
            fputs(
                "No errors. To switch: postconf -F qmgr/unix/command=sluice-qmgr; postfix reload\n"
                "To go back:           postconf -F qmgr/unix/command=qmgr; postfix reload\n",
                out);
            status = EX_OK;
        }
    }
    settings_fini(&c.s);
    buf_fini(&error);
    buf_fini(&limits);
    buf_fini(&c.own);
    buf_fini(&c.master_cf);
    buf_fini(&c.main_cf);
    buf_fini(&c.parameters);
    return status;
}
