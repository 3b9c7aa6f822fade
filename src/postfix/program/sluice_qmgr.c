/*
 * sluice-qmgr: a queue manager for Postfix, which Postfix's master(8) starts instead of qmgr(8).
 * This process is the one that master knows, and the parent of the queue process and the control
 * process (with events also of the processes for web hooks and for What if). It ends, with all of
 * them, when master closes the status channel.
 *
 *     options + main.cf + master.cf + sluice.cf --> configuration --> parent (parent.h)
 *
 * The queue process inherits the descriptors that master passes to its daemons (master_link.h). All
 * state is on disk, so the process may end in any way, and never waits for deliveries: agents
 * continue alone and mark finished recipients in the files.
 */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "bundle.h"
#include "check.h"
#include "confine.h"
#include "postfix_door.h"
#include "log.h"
#include "manager_options.h"
#include "master_link.h"
#include "parent.h"
#include "postconf.h"
#include "postconf_places.h"
#include "program.h"
#include "queue_ask.h"

static const struct role_ops *const roles[] = {&queue_role, &resolve_role, &control_role,
                                               &hook_role,  &whatif_role,  NULL};

#define COMPLAINTS_MAX 65536 /* bytes of text about a configuration */

static char *mail_owner;     /* owned */
static bool log_is_open;     /* the log that Postfix's configuration names is open */
static struct event *status; /* owned; event of the status channel */

/* Closes master's descriptors in processes other than the queue process. They would keep channels
 * open that master has closed. */
static void close_inherited(void)
{
    for (int fd = MASTER_FLOW_READ; fd <= MASTER_LISTEN; fd++) {
        (void)close(fd); /* a role's process of ours, started with --role */
    }
}

static bool is_another_role(int argc, char **argv)
{
    return argc > 2 && strcmp(argv[1], "--role") == 0 && strcmp(argv[2], "queue") != 0;
}

/* ---- under master ---- */

/* Ends the daemon: master has ended, or starts another process for a reload. */
static void on_status(evutil_socket_t fd, short what, void *arg)
{
    char byte;
    ssize_t got = read((int)fd, &byte, 1);

    (void)what;
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        parent_end_now(arg, EX_OK);
    }
}

static bool become_owner(void)
{
    const struct passwd *user = getpwnam(mail_owner);

    return geteuid() != 0 || user == NULL ||
           (setgid(user->pw_gid) == 0 && initgroups(mail_owner, user->pw_gid) == 0 &&
            setuid(user->pw_uid) == 0);
}

/* Becomes mail_owner after all processes run under their own users. */
static void begun(struct parent *p)
{
    status = event_new(parent_base(p), MASTER_STATUS, EV_READ | EV_PERSIST, on_status, p);
    CHECK(status != NULL);
    CHECK(event_add(status, NULL) == 0);
    if (!become_owner()) {
        log_warning("%s: this process keeps its user: %s", mail_owner, strerror(errno));
    }
}

static void ended(int exit_status)
{
    (void)exit_status;
    event_free(status);
}

/* ---- the start ---- */

/* Returns the first part of the tag of log lines, before the configuration is loaded. */
static const char *log_tag(void)
{
    const char *tag = getenv("MAIL_LOGTAG");

    return tag != NULL ? tag : "postfix";
}

/* Opens the log before the configuration is loaded: the socket named by master, or syslog. */
static void open_early_log(const struct manager_options *o)
{
    const char *service = getenv("POSTLOG_SERVICE");
    struct buf where, unused;

    buf_init(&where, 4096);
    buf_init(&unused, 4096);
    (void)buf_addf(&where, "postlog:%s", service == NULL ? "" : service); /* errors are sticky */
    if (where.failed || service == NULL ||
        !log_open(buf_cstr(&where), "", log_tag(), o->program, &unused)) {
        (void)log_open("syslog", "", log_tag(), o->program, &unused); /* on failure standard
                                                                       * error */
    }
    buf_fini(&unused);
    buf_fini(&where);
}

/* Ends as Postfix's daemons do that can't work: with a line in the log, and after a pause. A busy
 * log has until then to accept the line. */
static int give_up(const struct manager_options *o, struct buf *error)
{
    static const struct timespec tenth = {.tv_nsec = 100000000};

    if (!log_is_open) {
        open_early_log(o);
    }
    log_fatal("%s", buf_cstr(error));
    for (int i = 0; i < 10 || (log_waiting() && i < 100); i++) {
        log_flush();
        (void)nanosleep(&tenth, NULL); /* a shorter pause is no problem */
    }
    return 1;
}

/* Opens Postfix's log. If that fails, uses standard error, which master leaves open, as mail must
 * be delivered without a syslog daemon, too. */
static void find_log(const struct manager_options *o, const struct settings *s, struct buf *log)
{
    struct buf error;

    buf_init(&error, 4096);
    postconf_put_log(s, log);
    log_is_open = log_open(buf_cstr(log), "", log_tag(), o->program, &error);
    if (!log_is_open) {
        (void)log_open("stderr", "", log_tag(), o->program, &error); /* can't fail */
        log_warning("%s: logging to standard error", buf_cstr(&error));
        buf_clear(log);
        (void)buf_add_string(log, "stderr");
    }
    buf_fini(&error);
}

/* Postfix's configuration, and the texts that are made from it. */
struct loaded {
    struct buf text, parameters, path, main_cf, own;
    struct buf notes; /* notes of postconf_translate */
};

static void loaded_init(struct loaded *l)
{
    buf_init(&l->text, POSTCONF_MAX);
    buf_init(&l->parameters, POSTCONF_MAX);
    buf_init(&l->path, 4096);
    buf_init(&l->main_cf, POSTCONF_MAX);
    buf_init(&l->own, POSTCONF_MAX);
    buf_init(&l->notes, COMPLAINTS_MAX);
}

static void loaded_fini(struct loaded *l)
{
    buf_fini(&l->notes);
    buf_fini(&l->own);
    buf_fini(&l->main_cf);
    buf_fini(&l->path);
    buf_fini(&l->parameters);
    buf_fini(&l->text);
}

static bool load(const struct manager_options *o, struct loaded *l, struct buf *error)
{
    struct postconf_source source = {
        .directory = o->directory, .overrides = o->overrides, .override_count = o->override_count};
    struct buf limits, log;
    struct settings s;
    bool ok;

    buf_init(&log, 4096);
    buf_init(&limits, POSTCONF_MAX);
    ok = postconf_read(&source, &l->parameters, error) &&
         postconf_read_file(&source, "main.cf", &l->main_cf, error) &&
         postconf_read_file(&source, "sluice.cf", &l->own, error);
    settings_init(&s, buf_slice(&l->parameters));
    ok = ok && postconf_read_limits(&source, &s, &limits, error);
    if (ok) {
        find_log(o, &s, &log);
        postconf_translate(&s, buf_slice(&limits), buf_slice(&l->main_cf), buf_slice(&l->own),
                           buf_slice(&log), &l->text, &l->notes);
        (void)buf_addf(&l->path, "%.*s/sluice/qmgr.conf",
                       SLICE_ARGS(settings_get(&s, "data_directory"))); /* errors are sticky */
        mail_owner = strdup(settings_get(&s, "mail_owner").ptr);
        CHECK(mail_owner != NULL);
    }
    settings_fini(&s);
    buf_fini(&limits);
    buf_fini(&log);
    return ok;
}

/* Appends the complaints, each with its place in the files that the operator edits. */
static void put_complaints(const struct manager_options *o, const struct loaded *l,
                           struct slice complaints, struct buf *out)
{
    struct postconf_places places = {.path = buf_cstr((struct buf *)(uintptr_t)&l->path),
                                     .directory = o->directory,
                                     .text = buf_slice(&l->text),
                                     .main_cf = buf_slice(&l->main_cf),
                                     .own = buf_slice(&l->own)};

    postconf_put_notes(&places, buf_slice(&l->notes), out);
    postconf_put_places(&places, complaints, out);
    out->failed = false; /* later complaints may be cut */
}

static int refuse(const struct manager_options *o, const struct loaded *l, struct slice complaints)
{
    struct buf error;
    int exit_status;

    buf_init(&error, COMPLAINTS_MAX);
    put_complaints(o, l, complaints, &error);
    exit_status = give_up(o, &error);
    buf_fini(&error);
    return exit_status;
}

/* Logs warnings about a configuration that can be used, one per line. */
static void log_odd(const struct manager_options *o, const struct loaded *l,
                    struct slice complaints)
{
    static const char word[] = " warning:"; /* the log adds its own */
    struct slice rest;
    struct buf lines;

    buf_init(&lines, COMPLAINTS_MAX);
    put_complaints(o, l, complaints, &lines);
    rest = buf_slice(&lines);
    while (rest.len > 0) {
        struct slice line = slice_cut(&rest, '\n');
        const char *found = memmem(line.ptr, line.len, word, sizeof word - 1);
        size_t at = found != NULL ? (size_t)(found - line.ptr) : line.len;

        log_warning("%.*s%.*s", (int)at, line.ptr,
                    SLICE_ARGS(slice_skip(line, found != NULL ? at + sizeof word - 1 : at)));
    }
    buf_fini(&lines);
}

static int start(const struct manager_options *o)
{
    struct loaded l;
    struct buf error;
    struct bundle bundle = {0};
    struct parent_plan plan = {.roles = roles,
                               .signals = (const struct parent_signal[]){{0, NULL}},
                               .is_quiet = true,
                               .program = o->program,
                               .begun = begun,
                               .ended = ended,
                               .ready_fd = -1};
    int exit_status;

    loaded_init(&l);
    buf_init(&error, COMPLAINTS_MAX);
    if (!load(o, &l, &error)) {
        exit_status = give_up(o, &error);
    } else {
        postfix_keep_parameters(buf_slice(&l.parameters));
        plan.path = buf_cstr(&l.path);
        plan.text = buf_slice(&l.text);
        plan.first = &bundle;
        if (bundle_load_text(plan.path, plan.text, &bundle, &error)) {
            log_odd(o, &l, buf_slice(&error));
            confine_limits();
            exit_status = parent_main(&plan);
            bundle_fini(&bundle);
        } else {
            exit_status = refuse(o, &l, buf_slice(&error));
        }
    }
    buf_fini(&error);
    loaded_fini(&l);
    free(mail_owner);
    return exit_status;
}

int main(int argc, char **argv)
{
    struct manager_options options;
    struct buf error;
    int exit_status;

    if (!program_have_standard_files()) {
        return EX_OSERR;
    }
    if (is_another_role(argc, argv)) {
        close_inherited();
    }
    ask_register();
    postfix_open_door();
    if (program_was_child(argc, argv, roles, &exit_status)) {
        return exit_status;
    }
    buf_init(&error, 4096);
    if (!manager_options_parse(argc, argv, &options, &error)) {
        fprintf(stderr, "sluice-qmgr: %s\n", buf_cstr(&error));
        return give_up(&options, &error);
    }
    if (setenv(MASTER_ENVIRONMENT, "1", 1) != 0) {
        return EX_OSERR;
    }
    exit_status = start(&options);
    buf_fini(&error);
    return exit_status;
}
