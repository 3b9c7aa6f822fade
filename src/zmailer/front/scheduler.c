/*
 * scheduler: the daemon under ZMailer's name, with ZMailer's options, files and signals. See
 * docs/man/scheduler.8.
 *
 *     options + zmailer.conf -> settings -> configuration -> (old one ended) -> daemon -> parent
 *
 * Errors in any of these are printed on standard error before anything changes.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "agents_role.h"
#include "bundle.h"
#include "confine.h"
#include "door.h"
#include "log.h"
#include "log_sink.h"
#include "parent.h"
#include "program.h"
#include "queue_ask.h"
#include "scheduler_options.h"
#include "scheduler_pid.h"
#include "scheduler_settings.h"
#include "scheduler_signals.h"

#define MESSAGES_MAX (64u << 10)
#define FAILURE      1 /* ZMailer's exit status for each error at the start */

/* Roles in the order of their start. Pickup is the last, so that no file in maildrop can disturb
 * the start. */
static const struct role_ops *const roles[] = {
    &queue_role, &deliver_role, &local_role,   &agents_role, &control_role, &auth_role,
    &fetch_role, &hook_role,    &receive_role, &pickup_role, NULL};

/* ---- messages -------------------------------------------------------------------------------- */

static void say(struct buf *messages)
{
    struct slice rest = buf_slice(messages);

    while (rest.len > 0) {
        struct slice line = slice_cut(&rest, '\n');

        fprintf(stderr, "scheduler: %.*s\n", SLICE_ARGS(line));
    }
    buf_clear(messages);
}

static void say_version(FILE *to)
{
    fprintf(to, "scheduler: scheduler daemon (%s)\n", SLUICE_VERSION);
}

/* ---- the start ------------------------------------------------------------------------------ */

/* Changes to ZMailer's working directory, by which start scripts and the next scheduler recognize
 * the process. */
static bool enter_transport(const char *postoffice)
{
    char path[PATH_MAX];

    errno = ENAMETOOLONG;
    return snprintf(path, sizeof path, "%s/transport", postoffice) < PATH_MAX && chdir(path) == 0;
}

/* Can the log be opened? True if `path` is NULL. */
static bool takes_lines(const char *path, struct buf *messages)
{
    int fd = path == NULL ? -1 : log_sink_open_file(path);

    if (path != NULL && fd < 0) {
        (void)buf_addf(messages, "%s: %s\n", path, strerror(-fd)); /* sticky */
        return false;
    }
    if (fd >= 0) {
        (void)close(fd); /* nothing was written */
    }
    return true;
}

/* Checks all that can be checked before the old scheduler is ended, then ends it. */
static bool take_place(const struct scheduler_settings *s, struct buf *messages)
{
    if (!takes_lines(s->log, messages) || !takes_lines(s->statistics, messages)) {
        return false;
    }
    if (!enter_transport(s->postoffice)) {
        (void)buf_addf(messages, "%s/transport: %s\n", s->postoffice, strerror(errno)); /* sticky */
        return false;
    }
    return scheduler_pid_replace(s->postoffice, messages);
}

static bool load(const struct scheduler_settings *s, struct bundle *ret_bundle,
                 struct buf *messages)
{
    bool ok = bundle_load_text(s->path, buf_slice(&s->text), ret_bundle, messages);

    fputs(buf_cstr(messages), stderr);
    buf_clear(messages);
    if (!ok) {
        (void)buf_addf(messages, "null control file, probably errors in it: %s\n",
                       s->conf); /* sticky */
    }
    return ok;
}

/* ---- in the background ---------------------------------------------------------------------- */

/* Waits until the daemon is ready, so that the caller of the program gets the result. */
static int await_daemon(int fd, const char *log)
{
    char ready;
    ssize_t n;

    do {
        n = read(fd, &ready, 1);
    } while (n < 0 && errno == EINTR);
    if (n != 1) {
        fprintf(stderr, "scheduler: it did not start; %s has the reason\n", log);
        return FAILURE;
    }
    return 0;
}

static void log_start(void)
{
    time_t now = time(NULL);
    char date[32] = "";

    (void)ctime_r(&now, date); /* ends with a line feed */
    say_version(stdout);
    printf("\tpid %ld started at %s", (long)getpid(), date);
    (void)fflush(stdout); /* to the log; an error does not matter */
}

/* Makes the daemon. Returns true in the daemon, which must write to *ret_ready, and false in the
 * original process, with its exit status in *ret_status. */
static bool become_daemon(const char *log, int *ret_ready, int *ret_status)
{
    int ready[2], log_fd = log_open_file(log, 0);
    pid_t pid;

    *ret_status = FAILURE;
    errno = log_fd < 0 ? -log_fd : 0;
    if (log_fd < 0 || pipe2(ready, O_CLOEXEC) != 0) {
        fprintf(stderr, "scheduler: %s: %s\n", log, strerror(errno));
        return false;
    }
    pid = fork();
    if (pid != 0) {
        (void)close(ready[1]); /* belongs to the daemon */
        *ret_status = pid < 0 ? FAILURE : await_daemon(ready[0], log);
        return false;
    }
    (void)close(ready[0]); /* belongs to the original process */
    (void)setsid();        /* can't fail: a new child leads no group */
    pid = fork();
    if (pid != 0) {
        _exit(pid < 0 ? FAILURE : 0);
    }
    /* `zmailer kill' and `nuke' signal the process group with the number in the pid file. It must
     * contain all our processes and the agents. */
    (void)setpgid(0, 0);               /* can't fail: we are a child of the session's leader */
    (void)dup2(log_fd, STDOUT_FILENO); /* output that is no log line */
    (void)dup2(log_fd, STDERR_FILENO);
    (void)close(log_fd);
    log_fd = open("/dev/null", O_RDONLY | O_CLOEXEC | O_NOCTTY);
    (void)dup2(log_fd, STDIN_FILENO); /* standard input is open already, perhaps to a terminal */
    (void)close(log_fd);
    *ret_ready = ready[1];
    log_start();
    return true;
}

/* ---- main ------------------------------------------------------------------------------------ */

static void ended(int status)
{
    scheduler_signals_end();
    log_info("exit(%d): signal", status);
}

static int run(const struct scheduler_options *o, const struct scheduler_settings *s,
               struct bundle *bundle)
{
    struct parent_plan plan = {.roles = roles,
                               .path = s->path,
                               .text = buf_slice(&s->text),
                               .first = bundle,
                               .signals = scheduler_signals,
                               .is_quiet = true,
                               .ended = ended,
                               .ready_fd = -1};
    int status, error;

    if (o->mode == SCHEDULER_DAEMON && !become_daemon(s->log, &plan.ready_fd, &status)) {
        return status;
    }
    error = scheduler_pid_write(s->postoffice);
    if (error != 0) {
        fprintf(stderr, "scheduler: %s/.pid.scheduler: %s\n", s->postoffice, strerror(-error));
    }
    status = parent_main(&plan);
    scheduler_pid_remove(s->postoffice);
    if (o->mode == SCHEDULER_DAEMON) {
        printf("scheduler: exit(%d): signal\n", status); /* ZMailer's last line */
    }
    return status;
}

static int start(const struct scheduler_options *o, const char *program, struct buf *messages)
{
    struct scheduler_settings settings;
    struct bundle bundle = {0};
    int status;
    bool ok = scheduler_settings_make(o, program, &settings, messages);

    say(messages); /* also prints warnings */
    ok = ok && load(&settings, &bundle, messages) && take_place(&settings, messages);
    say(messages);
    status = ok ? run(o, &settings, &bundle) : FAILURE;
    bundle_fini(&bundle);
    scheduler_settings_fini(&settings);
    return status;
}

int main(int argc, char **argv)
{
    struct scheduler_options options;
    struct buf messages;
    int status;

    if (!program_have_standard_files()) {
        return EX_OSERR;
    }
    ask_register();
    zmailer_open_door();
    if (program_was_child(argc, argv, roles, &status)) {
        return status;
    }
    log_set_file_mode(0644); /* mode of ZMailer's log files */
    buf_init(&messages, MESSAGES_MAX);
    status = scheduler_options_parse(argc, argv, &options, &messages);
    if (status != 0) {
        say(&messages);
    } else if (options.version) {
        say_version(stdout);
    } else {
        if (options.verbose > 0) {
            say_version(stderr);
            fputs("scheduler: -v: stays in the foreground; there is no other log than the usual "
                  "one, `sluice why' tells more\n",
                  stderr);
        }
        if (options.verbose_late) {
            fputs("scheduler: -W has no effect\n", stderr);
        }
        if (geteuid() == 0) {
            (void)setgroups(0, NULL); /* allowed to root, which needs no group */
        }
        confine_limits();
        status = start(&options, argv[0], &messages);
    }
    buf_fini(&messages);
    return status;
}
