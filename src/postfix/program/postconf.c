#include "postconf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "mem.h"
#include "postconf_places.h"
#include "postconf_values.h"

#define ARGUMENTS_MAX 256

/* ---- files ---- */

static bool fail(struct buf *error, const char *what, int number)
{
    (void)buf_addf(error, "%s: %s", what, strerror(number)); /* errors are sticky */
    return false;
}

static bool read_all(int fd, struct buf *out, const char *what, struct buf *error)
{
    ssize_t got;

    do {
        char *room = buf_room(out, 65536);

        if (room == NULL) {
            return fail(error, what, EFBIG);
        }
        got = read(fd, room, 65536);
        if (got > 0) {
            buf_grew(out, (size_t)got);
        }
    } while (got > 0 || (got < 0 && errno == EINTR));
    return got == 0 || fail(error, what, errno);
}

bool postconf_read_file(const struct postconf_source *source, const char *name, struct buf *out,
                        struct buf *ret_error)
{
    char path[PATH_MAX];
    bool ok;
    int fd;

    if (snprintf(path, sizeof path, "%s/%s", source->directory, name) >= (int)sizeof path) {
        return fail(ret_error, name, ENAMETOOLONG);
    }
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        return errno == ENOENT || fail(ret_error, path, errno);
    }
    ok = read_all(fd, out, path, ret_error);
    (void)close(fd); /* opened for reading */
    return ok;
}

/* ---- lines of main.cf ---- */

/* Returns the next logical line, "name = value" with its continuation lines, and removes it from
 * *s; false if there is none. `room` is reused by each call. */
static bool next_line(struct slice *s, struct buf *room, struct settings_line *ret_line)
{
    struct slice line, text;
    size_t at;

    for (;;) {
        if (s->len == 0) {
            return false;
        }
        line = slice_cut(s, '\n');
        text = slice_trim(line);
        at = slice_find(text, '=');
        if (text.len == 0 || text.ptr[0] == '#' || at == text.len || text.ptr != line.ptr) {
            continue;
        }
        break;
    }
    buf_clear(room);
    (void)buf_add(room, text);
    while (s->len > 0 && (s->ptr[0] == ' ' || s->ptr[0] == '\t' || s->ptr[0] == '#')) {
        bool is_comment = s->ptr[0] == '#';

        line = slice_cut(s, '\n');
        if (!is_comment) {
            (void)buf_add_byte(room, ' ');
            (void)buf_add(room, slice_trim(line));
        }
    }
    text = buf_slice(room);
    at = slice_find(text, '=');
    ret_line->name = slice_trim(slice_of(text.ptr, at));
    ret_line->value = slice_trim(slice_skip(text, at + 1));
    return !room->failed;
}

/* ---- the command ---- */

/* Finds postconf(1), in command_directory of main.cf if that contains no `$`, else in the usual
 * directories. */
static void find_command(const struct postconf_source *source, char path[PATH_MAX])
{
    static const char *const usual[] = {"/usr/sbin", "/usr/local/sbin", "/opt/postfix/sbin"};
    struct settings_line line;
    struct buf text, room, error;
    struct slice rest;

    buf_init(&text, POSTCONF_MAX);
    buf_init(&room, POSTCONF_MAX);
    buf_init(&error, 4096);
    path[0] = '\0';
    if (postconf_read_file(source, "main.cf", &text, &error)) {
        rest = buf_slice(&text);
        while (next_line(&rest, &room, &line)) {
            if (slice_equal(line.name, SLICE("command_directory")) &&
                slice_find(line.value, '$') == line.value.len) {
                (void)snprintf(path, PATH_MAX, "%.*s/postconf", SLICE_ARGS(line.value));
            }
        }
    }
    for (size_t i = 0; path[0] == '\0' && i < sizeof usual / sizeof usual[0]; i++) {
        (void)snprintf(path, PATH_MAX, "%s/postconf", usual[i]); /* it fits */
        if (access(path, X_OK) != 0) {
            path[0] = '\0';
        }
    }
    buf_fini(&error);
    buf_fini(&room);
    buf_fini(&text);
}

_Noreturn static void execute(const char *path, char **arguments, int output)
{
    if (dup2(output, STDOUT_FILENO) >= 0) {
        (void)execv(path, arguments); /* returns only on failure */
        (void)execvp("postconf", arguments);
    }
    _exit(127);
}

static bool run(const struct postconf_source *source, const char *option, struct buf *out,
                struct buf *error)
{
    static char program[] = "postconf", directory[] = "-c", override[] = "-o";
    char *arguments[ARGUMENTS_MAX];
    char path[PATH_MAX];
    size_t count = 0;
    int output[2], status;
    pid_t pid;
    bool ok;

    if (source->override_count > (ARGUMENTS_MAX - 8) / 2) {
        return fail(error, "-o", E2BIG);
    }
    find_command(source, path);
    arguments[count++] = program;
    arguments[count++] = directory;
    arguments[count++] = (char *)(uintptr_t)source->directory;
    for (size_t i = 0; i < source->override_count; i++) {
        arguments[count++] = override;
        arguments[count++] = (char *)(uintptr_t)source->overrides[i];
    }
    arguments[count++] = (char *)(uintptr_t)option;
    arguments[count] = NULL;
    if (pipe2(output, O_CLOEXEC) != 0) {
        return fail(error, "pipe", errno);
    }
    pid = fork();
    if (pid == 0) {
        execute(path, arguments, output[1]);
    }
    (void)close(output[1]); /* only the command writes */
    if (pid < 0) {
        (void)close(output[0]); /* nothing was read */
        return fail(error, "fork", errno);
    }
    ok = read_all(output[0], out, "postconf", error);
    (void)close(output[0]); /* read to its end */
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (ok && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) {
        (void)buf_addf(error, "%s %s: %s %d", path[0] != '\0' ? path : "postconf", option,
                       WIFEXITED(status) ? "exit status" : "signal",
                       WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status)); /* errors are
                                                                                     * sticky */
        ok = false;
    }
    return ok;
}

bool postconf_read(const struct postconf_source *source, struct buf *out, struct buf *ret_error)
{
    struct buf text, room;
    struct settings_line line;
    struct settings known;
    struct slice rest;
    bool ok;

    if (!run(source, "-x", out, ret_error)) {
        return false;
    }
    buf_init(&text, POSTCONF_MAX);
    buf_init(&room, POSTCONF_MAX);
    ok = postconf_read_file(source, "main.cf", &text, ret_error);
    settings_init(&known, buf_slice(out));
    rest = buf_slice(&text);
    while (ok && next_line(&rest, &room, &line)) {
        char *name = mem_copy(line.name.ptr, line.name.len);

        if (!settings_has(&known, name)) {
            (void)buf_addf(out, "%s = %.*s\n", name, SLICE_ARGS(line.value)); /* errors are
                                                                               * sticky */
        }
        mem_free(name);
    }
    settings_fini(&known);
    buf_fini(&room);
    buf_fini(&text);
    return ok && !out->failed;
}

/* ---- master.cf ---- */

static bool next_field(struct slice *s, struct slice *ret_field)
{
    *s = slice_trim(*s);
    *ret_field = slice_of(s->ptr, 0);
    while (ret_field->len < s->len && s->ptr[ret_field->len] != ' ' &&
           s->ptr[ret_field->len] != '\t') {
        ret_field->len++;
    }
    *s = slice_skip(*s, ret_field->len);
    return ret_field->len > 0;
}

bool postconf_read_limits(const struct postconf_source *source, const struct settings *s,
                          struct buf *out, struct buf *ret_error)
{
    unsigned long long preset =
        postconf_process_limit(settings_get(s, "default_process_limit"), POSTCONF_PROCESS_LIMIT);
    struct buf text;
    struct slice rest;

    buf_init(&text, POSTCONF_MAX);
    if (!run(source, "-M", &text, ret_error)) {
        buf_fini(&text);
        return false;
    }
    rest = buf_slice(&text);
    while (rest.len > 0) {
        struct slice line = slice_cut(&rest, '\n'), field[7];
        size_t count = 0;

        while (count < 7 && next_field(&line, &field[count])) {
            count++;
        }
        if (count < 7 || !slice_equal(field[1], SLICE("unix"))) {
            continue; /* the fields are: name type private unpriv chroot wakeup maxproc */
        }
        (void)buf_addf(out, "%.*s_process_limit = %llu\n", SLICE_ARGS(field[0]),
                       postconf_process_limit(field[6], preset)); /* errors are sticky */
    }
    buf_fini(&text);
    return true;
}

/* ---- our configuration ---- */

/* Parameters with the same meaning in Postfix and here. */
static const char *const taken[] = {
    "myhostname",
    "mydomain",
    "syslog_name",
    "mail_owner",
    "recipient_delimiter",
    "queue_run_delay",
    "hash_queue_names",
    "hash_queue_depth",
    "minimal_backoff_time",
    "maximal_backoff_time",
    "maximal_queue_lifetime",
    "bounce_queue_lifetime",
    "transport_retry_time",
    "daemon_timeout",
    "qmgr_daemon_timeout",
    "qmgr_ipc_timeout",
    "qmgr_message_active_limit",
    "qmgr_message_recipient_limit",
    "qmgr_message_recipient_minimum",
    "qmgr_clog_warn_time",
    "helpful_warnings",
    "destination_concurrency_feedback_debug",
    "delay_logging_resolution_limit",
    "default_process_limit",
    "initial_destination_concurrency",
    "default_destination_concurrency_limit",
    "default_destination_recipient_limit",
    "default_destination_concurrency_positive_feedback",
    "default_destination_concurrency_negative_feedback",
    "default_destination_concurrency_failed_cohort_limit",
    "default_destination_rate_delay",
    "default_transport_rate_delay",
    "default_delivery_slot_cost",
    "default_delivery_slot_loan",
    "default_delivery_slot_discount",
    "default_minimum_delivery_slots",
    "default_recipient_limit",
    "default_extra_recipient_limit",
    "default_recipient_refill_limit",
    "default_recipient_refill_delay",
};

/* Suffixes of TRANSPORT. */
static const char *const suffixes[] = {
    "_initial_destination_concurrency",
    "_destination_concurrency_limit",
    "_destination_recipient_limit",
    "_destination_concurrency_positive_feedback",
    "_destination_concurrency_negative_feedback",
    "_destination_concurrency_failed_cohort_limit",
    "_destination_rate_delay",
    "_transport_rate_delay",
    "_delivery_slot_cost",
    "_delivery_slot_loan",
    "_delivery_slot_discount",
    "_minimum_delivery_slots",
    "_recipient_limit",
    "_extra_recipient_limit",
    "_recipient_refill_limit",
    "_recipient_refill_delay",
};

#define OWN_PREFIX POSTCONF_OWN_PREFIX

/* Appends a line with this text as value; a single `$` would begin a name. */
static void put(struct buf *out, struct slice name, struct slice value)
{
    (void)buf_addf(out, "%.*s = ", SLICE_ARGS(name)); /* all errors are sticky */
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] == '$') {
            (void)buf_add_byte(out, '$');
        }
        (void)buf_add_byte(out, value.ptr[i]);
    }
    (void)buf_add_byte(out, '\n');
}

/* Appends a value of `p` in our form. A value that Postfix refuses is refused here, too, by name.
 * But values of a transport are only read by Postfix at its first delivery, so there the default is
 * used and other mail continues. */
static void put_value(struct buf *out, const struct param *p, const struct settings_line *line,
                      bool of_transport, struct buf *notes)
{
    struct buf text;
    bool changed;

    buf_init(&text, POSTCONF_MAX);
    if (!postconf_put_value(p, line->value, &text, &changed)) {
        if (of_transport) {
            (void)buf_addf(notes, "%.*s: found `%.*s', which Postfix refuses; the default counts\n",
                           SLICE_ARGS(line->name), SLICE_ARGS(line->value)); /* all errors are
                                                                              * sticky */
        } else {
            put(out, line->name, line->value);
        }
    } else {
        (void)buf_addf(out, "%.*s = %s\n", SLICE_ARGS(line->name), buf_cstr(&text));
        if (changed) {
            (void)buf_addf(notes, "%.*s: found `%.*s', which Postfix takes; here %s counts\n",
                           SLICE_ARGS(line->name), SLICE_ARGS(line->value), buf_cstr(&text));
        }
    }
    buf_fini(&text);
}

/* Returns the policy value that this name sets for a transport; NULL if it is no such name. */
static const struct param *of_transport(struct slice name)
{
    struct slice unused;

    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        if (slice_ends_nocase(name, slice_string(suffixes[i])) && name.len > strlen(suffixes[i])) {
            return slice_starts(name, SLICE("default_")) || slice_starts(name, SLICE("qmgr_")) ||
                           slice_starts(name, SLICE("smtpd_")) ||
                           slice_starts(name, SLICE(OWN_PREFIX))
                       ? NULL
                       : param_find_override(name, &unused);
        }
    }
    return NULL;
}

static bool sets(struct slice main_cf, const char *name)
{
    struct settings_line line;
    struct buf room, wanted;
    bool found = false;

    buf_init(&room, POSTCONF_MAX);
    buf_init(&wanted, 256);
    (void)buf_addf(&wanted, OWN_PREFIX "%s", name);
    while (!found && next_line(&main_cf, &room, &line)) {
        found = slice_equal(line.name, buf_slice(&wanted));
    }
    buf_fini(&wanted);
    buf_fini(&room);
    return found;
}

/* Appends parameters that have another name or form in Postfix. */
static void put_places(const struct settings *s, struct slice main_cf, struct buf *out)
{
    struct slice queue = settings_get(s, "queue_directory"),
                 data = settings_get(s, "data_directory");
    struct buf spool;

    buf_init(&spool, POSTCONF_MAX);
    (void)buf_addf(&spool, "postfix:%.*s", SLICE_ARGS(queue)); /* all errors are sticky */
    put(out, SLICE("spool"), buf_slice(&spool));
    buf_fini(&spool);
    if (!sets(main_cf, "state_directory")) {
        (void)buf_addf(out, "state_directory = %.*s/sluice\n", SLICE_ARGS(data));
    }
    if (!sets(main_cf, "control_socket")) {
        (void)buf_addf(out, "control_socket = %.*s/public/sluice\n", SLICE_ARGS(queue));
        put(out, SLICE("control_socket_group"), settings_get(s, "setgid_group"));
    }
    put(out, SLICE("receive_user"), settings_get(s, "mail_owner"));
    put(out, SLICE("deliver_user"), settings_get(s, "mail_owner"));
}

void postconf_put_log(const struct settings *s, struct buf *out)
{
    struct slice service = settings_get(s, "postlog_service_name");

    if (settings_get(s, "maillog_file").len == 0) {
        (void)buf_add_string(out, "syslog"); /* errors are sticky */
    } else {
        (void)buf_addf(out, "postlog:%.*s/public/%.*s",
                       SLICE_ARGS(settings_get(s, "queue_directory")),
                       SLICE_ARGS(service.len > 0 ? service : SLICE("postlog"))); /* errors are
                                                                                   * sticky */
    }
}

void postconf_translate(const struct settings *s, struct slice limits, struct slice main_cf,
                        struct slice own, struct slice log, struct buf *out, struct buf *notes)
{
    struct settings_line line;
    const struct param *p;
    struct buf room;

    (void)buf_add_string(out,
                         "# Made by sluice-qmgr from Postfix's configuration at each start.\n");
    put_places(s, main_cf, out);
    if (!sets(main_cf, "log")) {
        put(out, SLICE("log"), log);
    }
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        if (settings_has(s, taken[i]) && !sets(main_cf, taken[i])) {
            line.name = slice_string(taken[i]);
            line.value = settings_get(s, taken[i]);
            p = param_find(line.name);
            CHECK(p != NULL);
            put_value(out, p, &line, false, notes);
        }
    }
    for (size_t i = 0; settings_at(s, i, &line); i++) {
        p = of_transport(line.name);
        if (p != NULL) {
            put_value(out, p, &line, true, notes);
        }
    }
    (void)buf_add(out, limits);
    buf_init(&room, POSTCONF_MAX);
    while (next_line(&main_cf, &room, &line)) {
        if (slice_starts(line.name, SLICE(OWN_PREFIX))) {
            (void)buf_addf(out, "%.*s = %.*s\n",
                           SLICE_ARGS(slice_skip(line.name, strlen(OWN_PREFIX))),
                           SLICE_ARGS(line.value));
        }
    }
    buf_fini(&room);
    (void)buf_add(out, own);
}
