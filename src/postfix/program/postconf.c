#include "postconf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mem.h"
#include "postconf_places.h"

#define ARGUMENTS_MAX 256

/* ---- files ---- */

static bool fail(struct buf *error, const char *what, int number)
{
    (void)buf_addf(error, "%s: %s", what, strerror(number)); /* sticky */
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
    (void)close(fd); /* only read */
    return ok;
}

/* ---- lines of main.cf ---- */

/* The next logical line, "name = value" with the lines that continue it; *s goes on behind it.
 * False: there is none. `room` is used again at each call. */
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

/* The directory of the commands, if main.cf says it plainly. */
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
        (void)snprintf(path, PATH_MAX, "%s/postconf", usual[i]); /* fits */
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
        (void)execv(path, arguments); /* returns only when it fails */
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
    (void)close(output[1]); /* the command's */
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
                       WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status)); /* sticky */
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
            (void)buf_addf(out, "%s = %.*s\n", name, SLICE_ARGS(line.value)); /* sticky */
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

bool postconf_read_limits(const struct postconf_source *source, unsigned long preset,
                          struct buf *out, struct buf *ret_error)
{
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
        unsigned long long limit;
        size_t count = 0;

        while (count < 7 && next_field(&line, &field[count])) {
            count++;
        }
        if (count < 7 || !slice_equal(field[1], SLICE("unix"))) {
            continue; /* name type private unpriv chroot wakeup maxproc */
        }
        if (!slice_number(field[6], 100000, &limit)) {
            limit = preset;
        }
        (void)buf_addf(out, "%.*s_process_limit = %llu\n", SLICE_ARGS(field[0]),
                       limit); /* sticky */
    }
    buf_fini(&text);
    return true;
}

/* ---- our configuration ---- */

/* Postfix's parameters that mean here what they mean there. */
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

/* What may stand behind TRANSPORT_. */
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

/* `$` would begin a name. */
static void put_value(struct buf *out, struct slice value)
{
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] == '$') {
            (void)buf_add_byte(out, '$');
        }
        (void)buf_add_byte(out, value.ptr[i]);
    }
    (void)buf_add_byte(out, '\n');
}

static void put(struct buf *out, struct slice name, struct slice value)
{
    (void)buf_addf(out, "%.*s = ", SLICE_ARGS(name));
    put_value(out, value);
}

/* Of a transport: has the name such a suffix, and not the prefix of a default? */
static bool is_of_transport(struct slice name)
{
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        if (slice_ends_nocase(name, slice_string(suffixes[i])) && name.len > strlen(suffixes[i])) {
            return !slice_starts(name, SLICE("default_")) && !slice_starts(name, SLICE("qmgr_")) &&
                   !slice_starts(name, SLICE("smtpd_")) && !slice_starts(name, SLICE(OWN_PREFIX));
        }
    }
    return false;
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

/* Where Postfix has the thing under another name, or in another form. */
static void put_places(const struct settings *s, struct slice main_cf, struct buf *out)
{
    struct slice queue = settings_get(s, "queue_directory"),
                 data = settings_get(s, "data_directory");

    (void)buf_add_string(out, "spool = postfix:");
    put_value(out, queue);
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
        (void)buf_add_string(out, "syslog"); /* sticky */
    } else {
        (void)buf_addf(out, "postlog:%.*s/public/%.*s",
                       SLICE_ARGS(settings_get(s, "queue_directory")),
                       SLICE_ARGS(service.len > 0 ? service : SLICE("postlog"))); /* sticky */
    }
}

void postconf_translate(const struct settings *s, struct slice limits, struct slice main_cf,
                        struct slice own, struct slice log, struct buf *out)
{
    struct settings_line line;
    struct buf room;

    (void)buf_add_string(out,
                         "# Made by sluice-qmgr from Postfix's configuration at each start.\n");
    put_places(s, main_cf, out);
    if (!sets(main_cf, "log")) {
        put(out, SLICE("log"), log);
    }
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        if (settings_has(s, taken[i]) && !sets(main_cf, taken[i])) {
            put(out, slice_string(taken[i]), settings_get(s, taken[i]));
        }
    }
    for (size_t i = 0; settings_at(s, i, &line); i++) {
        if (is_of_transport(line.name)) {
            put(out, line.name, line.value);
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
