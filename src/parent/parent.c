#include "parent.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "auth_key.h"
#include "bundle.h"
#include "channel.h"
#include "check.h"
#include "child_environment.h"
#include "clock.h"
#include "confine.h"
#include "entropy.h"
#include "extension.h"
#include "frame.h"
#include "hash.h"
#include "listener.h"
#include "log.h"
#include "mem.h"
#include "log_sink.h"
#include "outgoing.h"
#include "preflight.h"
#include "process_use.h"
#include "dns_context.h"
#include "route.h"
#include "role.h"
#include "rotation.h"
#include "statedir.h"
#include "watchdog.h"
#include "wire.h"

/* One process each of queue, local, agents, control, pickup, auth, fetch and filter, and as many
 * others as the parameters permit. */
#define CHILDREN_MAX (10 + 64 + 64)

/* Bytes: names of some dozens of parameters. */
#define DELAYED_NAMES_MAX 4096

/* Time after its start in which the end of a process counts as soon. */
#define SOON_US       (60 * US_PER_S)
#define PAUSE_US      (1 * US_PER_S)
#define STOP_GRACE_US (2 * US_PER_S)
/* Time for a process to end after its channel was closed; then it is killed. */
#define CLOSED_GRACE_US (5 * US_PER_S)
#define LOG_AGAIN_US    (US_PER_S / 4)
/* Number of checks for the end of a killed child, and the pause between them. */
#define END_TRIES  500
#define END_TRY_NS 10000000
/* Time between checks for a new socket of syslog and for new name servers, which confined processes
 * can't see. */
#define LOOK_US         (5 * US_PER_S)
#define LISTEN_AGAIN_US (5 * US_PER_S)
#define SIGNALS_MAX     8
#define ERRORS_MAX      (64u << 10) /* texts about a configuration */
/* Limit of waiting answers of a child, in bytes; each has a socket to a filter. */
#define CONNECTS_WAITING_MAX 8192

enum phase { STARTING, RUNNING, STOP_RECEIVE, STOP_WORK, STOP_REST };

struct child {
    struct parent *parent;
    const struct role_ops *ops;
    enum wire_role role; /* ops->role */
    unsigned index;
    pid_t pid;               /* 0: not running */
    struct channel *channel; /* NULL: closed */
    struct event *timer;     /* not running: restart it; channel closed: kill it */
    struct mono born;
    uint64_t starts;
    unsigned soon; /* number of early ends in a row */
    bool start_sent;
    bool started;
    bool stop_sent;
};

struct parent {
    struct event_base *base;
    const struct parent_plan *plan;
    struct bundle bundle;
    uint64_t generation;
    struct listeners listeners;
    struct outgoing *outgoing;
    struct child children[CHILDREN_MAX]; /* in the order in which they begin */
    size_t child_count;
    int lock;

    enum phase phase;
    bool reload_waits; /* requested while STARTING; done when all run */
    struct child *reload_asked_by;
    uint64_t reload_token;
    enum wire_stop stop_how;
    struct mono deadline; /* end of the whole stop */
    struct event *signals[SIGNALS_MAX];
    struct event *stop_timer;
    struct event *log_timer;
    struct event *look_timer;
    struct event *listen_timer; /* for sockets that could not be opened */
    bool done;
    int exit_status;
};

/* Roles that ask resolve. */
#define RESOLVES (1u << ROLE_DELIVER | 1u << ROLE_FETCH | 1u << ROLE_HOOK)

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Have two such processes a channel between them? One of them is queue, except that auth, which
 * checks logins, has a channel to receive, whatif to control, and resolve to those that connect to
 * sites. */
static bool are_neighbours(enum wire_role a, enum wire_role b)
{
    if (a == ROLE_AUTH || b == ROLE_AUTH) {
        return a == ROLE_RECEIVE || b == ROLE_RECEIVE;
    }
    if (a == ROLE_WHATIF || b == ROLE_WHATIF) {
        return a == ROLE_CONTROL || b == ROLE_CONTROL;
    }
    if (a == ROLE_RESOLVE || b == ROLE_RESOLVE) {
        return (RESOLVES >> a & 1) != 0 || (RESOLVES >> b & 1) != 0;
    }
    return (a == ROLE_QUEUE) != (b == ROLE_QUEUE);
}

static struct timeval interval(int64_t us)
{
    return (struct timeval){.tv_sec = us / US_PER_S, .tv_usec = us % US_PER_S};
}

static void arm(struct event *timer, int64_t us)
{
    struct timeval tv = interval(us);

    CHECK(event_add(timer, &tv) == 0);
}

static uint32_t count_of(const struct parent *p, enum wire_role role)
{
    uint32_t count = 0;

    for (size_t i = 0; i < p->child_count; i++) {
        count += p->children[i].role == role;
    }
    return count;
}

static void announce(const struct parent *p);
static void await_listeners(struct parent *p);
static void begin_stop(struct parent *p, const char *why);
static void stop_progress(struct parent *p);
static void reload(struct parent *p, struct child *asked_by, uint64_t token);

/* ---- starting processes --------------------------------------------------------------------- */

/* Makes a pair of connected sockets that no other process inherits. Without descriptors no process
 * can be started; then it is better to end and be restarted as a whole. */
static void make_pair(int fds[2])
{
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
}

/* Runs the child's program in a new address space: this same binary, even if its file was replaced.
 * Only calls that are safe between fork and exec. */
_Noreturn static void execute(const struct child *c, int fd, char *index, char *channel,
                              char **environment)
{
    char *arguments[] = {(char[]){"sluiced"},
                         (char[]){"--role"},
                         (char *)(uintptr_t)wire_role_name(c->role),
                         (char[]){"--index"},
                         index,
                         (char[]){"--channel"},
                         channel,
                         NULL};

    if (fcntl(fd, F_SETFD, 0) == 0) {
        (void)execve("/proc/self/exe", arguments, environment); /* returns only on a failure */
    }
    _exit(EX_OSERR);
}

static void on_child(void *arg, struct channel *ch);

static void tell_conf(struct child *c)
{
    const struct parent *p = c->parent;
    uint32_t count;
    struct wire_file *files = bundle_files_for(&p->bundle, c->role, &count);
    const struct wire_conf m = {.generation = p->generation, .files = files, .file_count = count};

    wire_put_conf(c->channel, &m, bundle_tables_for(&p->bundle, c->role));
    mem_free(files);
}

/* Sends the permanent secret. Without it auth makes one that lasts as long as the process. */
static void give_auth_key(struct child *c)
{
    uint8_t key[WIRE_AUTH_KEY_SIZE];
    struct buf error;

    if (c->role != ROLE_AUTH) {
        return;
    }
    buf_init(&error, WIRE_TEXT_MAX);
    if (auth_key_get(c->parent->bundle.conf, key, &error)) {
        const struct wire_auth_key m = {.bytes = slice_of((const char *)key, sizeof key)};

        wire_put_auth_key(c->channel, &m);
    } else {
        log_warning("%s", buf_cstr(&error));
    }
    explicit_bzero(key, sizeof key);
    buf_fini(&error);
}

static bool spawn(struct child *c)
{
    struct parent *p = c->parent;
    char **environment = child_environment(c->role);
    char index[16], channel[16];
    int fds[2];

    make_pair(fds);
    (void)snprintf(index, sizeof index, "%u", c->index);   /* fits */
    (void)snprintf(channel, sizeof channel, "%d", fds[1]); /* fits */
    log_flush();
    c->pid = fork();
    if (c->pid == 0) {
        execute(c, fds[1], index, channel, environment);
    }
    mem_free(environment);
    (void)close(fds[1]); /* the child's end */
    if (c->pid < 0) {
        log_error("cannot start %s: fork: %s", wire_role_name(c->role), strerror(errno));
        c->pid = 0;
        (void)close(fds[0]); /* no process at the other end */
        return false;
    }
    c->start_sent = c->started = c->stop_sent = false;
    c->born = clock_mono();
    c->starts++;
    c->channel = channel_new(p->base, fds[0], on_child, c);
    tell_conf(c);
    give_auth_key(c);
    if (clock_offset() > 0) {
        wire_put_number(c->channel, WIRE_CLOCK, (uint64_t)clock_offset());
    }
    return true;
}

static void give_listeners(struct parent *p, struct child *c, bool only_fresh)
{
    struct listener *l;

    TAILQ_FOREACH(l, &p->listeners, next)
    {
        if (l->role == c->role && (l->fresh || !only_fresh)) {
            const struct wire_listener m = {.url = slice_string(l->url)};
            int fd = listener_share(l);

            if (fd >= 0) {
                wire_put_listener(c->channel, &m, fd);
            } else {
                log_error("listen: %s: %s", l->url, strerror(-fd));
            }
        }
    }
}

/* Sends new listeners; a process that has not begun gets all of them later. */
static void give_new_listeners(struct parent *p, struct child *c)
{
    if (c->start_sent) {
        give_listeners(p, c, true);
    }
}

static void give_log_sink(struct child *c, enum log_sink_id id, const char *what, int fd)
{
    if (fd < 0) {
        log_warning("%s: %s", what, strerror(-fd)); /* the previous one stays */
        return;
    }
    frame_put_u64(channel_begin(c->channel, WIRE_LOG_SINK), id);
    channel_end(c->channel, fd);
}

/* Sends queue the files that only queue writes and can't open: at its start, and after a
 * rotation. */
static void give_log_sinks(const struct parent *p, struct child *c)
{
    const struct conf *conf = p->bundle.conf;

    if (c->role != ROLE_QUEUE || c->channel == NULL) {
        return;
    }
    if (conf->statistics_log[0] != '\0') {
        give_log_sink(c, LOG_SINK_STATISTICS, conf->statistics_log,
                      log_sink_open_file(conf->statistics_log));
    }
    if (conf->events_file[0] != '\0') {
        give_log_sink(c, LOG_SINK_EVENTS, conf->events_file, log_sink_open_file(conf->events_file));
    }
    if (conf->scheduler_syslog) {
        give_log_sink(c, LOG_SINK_SYSLOG, "scheduler_syslog", log_open_syslog());
    }
}

/* Opens the sinks again, because files may have been renamed. */
static void reopen_sinks(struct parent *p)
{
    for (size_t i = 0; i < p->child_count; i++) {
        give_log_sinks(p, &p->children[i]);
    }
}

static void introduce(const struct parent *p, struct child *to, const struct child *other, int fd)
{
    const struct wire_peer m = {
        .role = other->role, .index = other->index, .count = count_of(p, other->role)};

    wire_put_peer(to->channel, &m, fd);
}

static void connect_children(const struct parent *p, struct child *a, struct child *b)
{
    int fds[2];

    if (a->channel == NULL || b->channel == NULL || !are_neighbours(a->role, b->role)) {
        return;
    }
    make_pair(fds);
    introduce(p, a, b, fds[0]);
    introduce(p, b, a, fds[1]);
}

/* Does the process talk to the network? Then control does not answer its connections. */
static bool is_exposed(const struct child *c)
{
    return c->pid != 0 && c->ops->is_exposed;
}

static void tell_control(const struct parent *p, const struct child *c, enum wire_type what)
{
    for (size_t i = 0; i < p->child_count; i++) {
        const struct child *control = &p->children[i];

        if (control->role == ROLE_CONTROL && control->channel != NULL && control->start_sent) {
            wire_put_number(control->channel, what, (uint64_t)c->pid);
        }
    }
}

static void give_start(struct parent *p, struct child *c)
{
    give_listeners(p, c, false);
    wire_put_empty(c->channel, WIRE_START);
    c->start_sent = true;
    for (size_t i = 0; i < p->child_count && c->role == ROLE_CONTROL; i++) {
        if (is_exposed(&p->children[i])) {
            wire_put_number(c->channel, WIRE_CHILD, (uint64_t)p->children[i].pid);
        }
    }
}

/* Sends WIRE_START: at the start of the daemon, to the processes of a role when all of the previous
 * role have begun. */
static void let_begin(struct parent *p)
{
    bool waiting = false;

    for (size_t i = 0; i < p->child_count; i++) {
        struct child *c = &p->children[i];

        if (waiting && p->phase == STARTING && c->role != p->children[i - 1].role) {
            return;
        }
        if (c->channel != NULL && !c->start_sent) {
            give_start(p, c);
        }
        waiting = waiting || !c->started;
    }
    if (p->phase == STARTING && !waiting) {
        p->phase = RUNNING;
        announce(p);
        if (p->reload_waits) {
            p->reload_waits = false;
            reload(p, p->reload_asked_by, p->reload_token);
        }
    }
}

static void start_again(struct child *c)
{
    struct parent *p = c->parent;

    if (!spawn(c)) {
        arm(c->timer, PAUSE_US);
        return;
    }
    if (is_exposed(c)) {
        tell_control(p, c, WIRE_CHILD);
    }
    give_log_sinks(p, c);
    for (size_t i = 0; i < p->child_count; i++) {
        connect_children(p, c, &p->children[i]);
    }
    let_begin(p);
}

static void kill_child(const struct child *c)
{
    if (c->pid != 0) {
        (void)kill(c->pid, SIGKILL); /* our child, not reaped yet */
    }
}

static void on_child_timer(evutil_socket_t fd, short what, void *arg)
{
    struct child *c = arg;

    (void)fd;
    (void)what;
    if (c->pid != 0) {
        log_warning("%s[%u]: process %d has closed its channel and does not end: killed",
                    wire_role_name(c->role), c->index, (int)c->pid);
        kill_child(c);
    } else if (c->parent->phase == RUNNING) {
        start_again(c);
    }
}

static unsigned count_wanted(const struct parent *p, const struct role_ops *ops)
{
    return ops->count != NULL ? ops->count(p->bundle.conf) : 1;
}

static void add_children(struct parent *p, const struct role_ops *ops)
{
    for (unsigned i = 0; i < count_wanted(p, ops); i++) {
        struct child *c = &p->children[p->child_count];

        CHECK(p->child_count < CHILDREN_MAX);
        *c = (struct child){.parent = p, .ops = ops, .role = ops->role, .index = i};
        c->timer = evtimer_new(p->base, on_child_timer, c);
        CHECK(c->timer != NULL);
        p->child_count++;
    }
}

/* Adds roles that had no process before a reload. The number of other processes changes at the next
 * start. */
static void add_new_roles(struct parent *p)
{
    size_t before = p->child_count;

    for (size_t i = 0; p->plan->roles[i] != NULL; i++) {
        if (count_of(p, p->plan->roles[i]->role) == 0) {
            add_children(p, p->plan->roles[i]);
        }
    }
    for (size_t i = before; i < p->child_count; i++) {
        start_again(&p->children[i]);
    }
}

static bool start_all(struct parent *p)
{
    for (size_t i = 0; p->plan->roles[i] != NULL; i++) {
        add_children(p, p->plan->roles[i]);
    }
    for (size_t i = 0; i < p->child_count; i++) {
        if (!spawn(&p->children[i])) {
            return false;
        }
        give_log_sinks(p, &p->children[i]);
        for (size_t k = 0; k < i; k++) {
            connect_children(p, &p->children[k], &p->children[i]);
        }
    }
    let_begin(p);
    return true;
}

/* ---- frames of children --------------------------------------------------------------------- */

/* Sets the clock. The process that requested it gets the frame last, after all others. */
static void set_clock(struct parent *p, uint64_t offset, struct child *asked)
{
    if (!p->bundle.conf->debug_clock || offset > INT64_MAX || (int64_t)offset < clock_offset()) {
        log_warning("the clock is not moved: debug_clock is off, or it would go backwards");
    } else {
        clock_set_offset((int64_t)offset);
        clock_update();
        for (size_t i = 0; i < p->child_count; i++) {
            if (p->children[i].channel != NULL && &p->children[i] != asked) {
                wire_put_number(p->children[i].channel, WIRE_CLOCK, offset);
            }
        }
        channel_flush_all();
    }
    wire_put_number(asked->channel, WIRE_CLOCK, (uint64_t)clock_offset());
}

static bool service_frame(const struct parent *p, struct child *control, struct slice body)
{
    const struct extension *extension;
    struct wire_service m;

    if (!wire_get_service(body, &m)) {
        return false;
    }
    extension = extension_of(m.name);
    return extension != NULL && extension->heard(p->bundle.conf, &m, control->channel);
}

/* Connects to a Unix socket, which does not wait. Returns 0 and *ret_fd, or negative errno. */
static int connect_unix(const char *path, int *ret_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd, error = 0;

    if (strlen(path) >= sizeof address.sun_path) {
        return -ENAMETOOLONG;
    }
    (void)strcpy(address.sun_path, path); /* fits */
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return -errno;
    }
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        error = -errno;
        (void)close(fd); /* unused */
        return error;
    }
    *ret_fd = fd;
    return 0;
}

/* Connects to Dovecot for the auth process. */
static bool connect_auth(const struct parent *p, const struct child *c)
{
    const char *path = p->bundle.conf->auth_dovecot;
    struct wire_auth_connected answer = {.why = SLICE("")};
    int fd = -1, error;

    if (c->role != ROLE_AUTH) {
        return false;
    }
    error = path[0] == '\0' ? -ENOENT : connect_unix(path, &fd);
    if (error != 0) {
        answer.why = slice_string(strerror(-error));
    }
    wire_put_auth_connected(c->channel, &answer, fd);
    return true;
}

/* Connects to a filter. Refuses a process with too many unread answers, because their sockets are
 * open in this process. */
static bool connect_frame(struct child *c, struct slice body)
{
    struct wire_connected answer = {.addresses = 0};
    struct wire_connect m;
    struct buf error;
    int fd = -1;

    if (!wire_get_connect(body, &m)) {
        return false;
    }
    buf_init(&error, WIRE_TEXT_MAX);
    answer.token = m.token;
    if (channel_waiting(c->channel) > CONNECTS_WAITING_MAX) {
        (void)buf_add_string(&error, "too many connections to filters at once"); /* fits */
    } else {
        fd = outgoing_connect(c->parent->outgoing, m.address, m.attempt, &answer.addresses, &error);
    }
    answer.error = buf_slice(&error);
    wire_put_connected(c->channel, &answer, fd);
    buf_fini(&error);
    return true;
}

/* Sends the use of resources of all processes, for monitoring. */
static void tell_processes(const struct parent *p, struct child *control, uint64_t token)
{
    struct buf text;

    buf_init(&text, CHILDREN_MAX * 128);
    for (size_t i = 0; i < p->child_count; i++) {
        const struct child *c = &p->children[i];
        struct process_use use = {.cpu_us = 0};

        if (c->pid != 0) {
            process_use_read(c->pid, &use);
        }
        (void)buf_addf(&text, "%s %u %d %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
                       wire_role_name(c->role), c->index, (int)c->pid, c->starts, use.cpu_us,
                       use.resident_bytes); /* fits */
    }
    wire_put_processes_told(
        control->channel, &(struct wire_processes_told){.token = token, .text = buf_slice(&text)});
    buf_fini(&text);
}

/* Handles a frame of a child. Returns false if this child must not send it. */
static bool child_frame(struct child *c, const struct frame *frame)
{
    struct parent *p = c->parent;
    uint64_t number;

    if (frame->fd >= 0) {
        (void)close(frame->fd); /* no correct child sends one */
        return false;
    }
    switch (frame->type) {
    case WIRE_STARTED:
        if (!wire_get_empty(frame->body) || !c->start_sent || c->started) {
            return false;
        }
        c->started = true;
        let_begin(p);
        return true;
    case WIRE_RELOAD:
        if (c->role != ROLE_CONTROL || !wire_get_number(frame->body, &number)) {
            return false;
        }
        reload(p, c, number);
        return true;
    case WIRE_PROCESSES:
        if (c->role != ROLE_CONTROL || !wire_get_number(frame->body, &number)) {
            return false;
        }
        tell_processes(p, c, number);
        return true;
    case WIRE_AUTH_CONNECT:
        return wire_get_empty(frame->body) && connect_auth(p, c);
    case WIRE_SERVICE:
        return c->role == ROLE_CONTROL && service_frame(p, c, frame->body);
    case WIRE_CONNECT:
        return (c->role == ROLE_RECEIVE || c->role == ROLE_PICKUP || c->role == ROLE_FILTER) &&
               connect_frame(c, frame->body);
    case WIRE_STOP_ALL:
        if ((c->role != ROLE_CONTROL && c->role != ROLE_QUEUE) || !wire_get_empty(frame->body)) {
            return false;
        }
        begin_stop(p, c->role == ROLE_QUEUE ? "on request of its queue process" : "on request");
        return true;
    case WIRE_SET_CLOCK:
        if (c->role != ROLE_CONTROL || !wire_get_number(frame->body, &number)) {
            return false;
        }
        set_clock(p, number, c);
        return true;
    default:
        return false;
    }
}

static void close_channel(struct child *c)
{
    channel_free(c->channel);
    c->channel = NULL;
}

static void on_child(void *arg, struct channel *ch)
{
    struct child *c = arg;
    struct frame frame;

    for (;;) {
        switch (channel_next(ch, &frame)) {
        case CHANNEL_EMPTY:
            return;
        case CHANNEL_FRAME:
            if (!child_frame(c, &frame)) {
                log_error(
                    "%s[%u]: process %d sends a frame that it must not send (type %u): killed",
                    wire_role_name(c->role), c->index, (int)c->pid, frame.type);
                close_channel(c);
                kill_child(c);
                return;
            }
            break;
        case CHANNEL_CLOSED:
            close_channel(c);
            arm(c->timer, CLOSED_GRACE_US);
            return;
        }
    }
}

/* ---- the end of a process ------------------------------------------------------------------- */

static void log_end(const struct child *c, int status)
{
    const char *name = wire_role_name(c->role);

    if (WIFSIGNALED(status)) {
        log_error("%s[%u]: process %d killed by signal %d (%s)", name, c->index, (int)c->pid,
                  WTERMSIG(status), strsignal(WTERMSIG(status)));
    } else if (WEXITSTATUS(status) == WATCHDOG_EXIT) {
        log_error("%s[%u]: process %d was busy with one turn for longer than qmgr_daemon_timeout",
                  name, c->index, (int)c->pid);
    } else if (WEXITSTATUS(status) != 0 || !c->stop_sent) {
        log_error("%s[%u]: process %d ended with exit status %d", name, c->index, (int)c->pid,
                  WEXITSTATUS(status));
    }
}

static void schedule_restart(struct child *c)
{
    int64_t longest = c->parent->bundle.conf->service_throttle_time_us;
    int64_t pause = 0;

    if (clock_mono().us - c->born.us >= SOON_US) {
        c->soon = 0;
    }
    if (c->soon > 0) {
        pause = c->soon > 20 ? longest : PAUSE_US << (c->soon - 1);
        pause = pause < longest ? pause : longest;
        log_warning("%s[%u]: it keeps ending; started again in %lld s", wire_role_name(c->role),
                    c->index, (long long)(pause / US_PER_S));
    }
    c->soon++;
    arm(c->timer, pause);
}

static void child_ended(struct child *c, int status)
{
    struct parent *p = c->parent;

    log_end(c, status);
    if (is_exposed(c)) {
        tell_control(p, c, WIRE_CHILD_ENDED);
    }
    c->pid = 0;
    if (c->channel != NULL) {
        on_child(c, c->channel); /* its last frames; may close the channel */
    }
    close_channel(c);
    CHECK(event_del(c->timer) == 0);
    switch (p->phase) {
    case STARTING:
        p->exit_status =
            WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : EX_SOFTWARE;
        begin_stop(p, "as a process could not start");
        begin_stop(p, "at once");
        return;
    case RUNNING:
        if (c->role == ROLE_QUEUE && WIFEXITED(status) &&
            (WEXITSTATUS(status) == EX_CONFIG || WEXITSTATUS(status) == EX_DATAERR)) {
            p->exit_status = WEXITSTATUS(status);
            begin_stop(p, p->exit_status == EX_CONFIG ? "as its queue is not to be used by it"
                                                      : "as its spool is damaged");
            begin_stop(p, "at once");
            return;
        }
        schedule_restart(c);
        return;
    case STOP_RECEIVE:
    case STOP_WORK:
    case STOP_REST:
        stop_progress(p);
    }
}

static void reap(struct parent *p)
{
    pid_t pid;
    int status;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (size_t i = 0; i < p->child_count; i++) {
            if (p->children[i].pid == pid) {
                child_ended(&p->children[i], status);
                break;
            }
        }
    }
}

/* ---- stopping ------------------------------------------------------------------------------- */

static void send_stop(struct parent *p, enum role_kind kind)
{
    for (size_t i = 0; i < p->child_count; i++) {
        struct child *c = &p->children[i];

        if (c->ops->kind == kind && c->channel != NULL && !c->stop_sent) {
            if (!c->start_sent) {
                give_start(p, c); /* it reads no frames before */
            }
            wire_put_number(c->channel, WIRE_STOP, p->stop_how);
            c->stop_sent = true;
        }
    }
}

static bool any_runs(const struct parent *p, enum role_kind kind)
{
    for (size_t i = 0; i < p->child_count; i++) {
        if (p->children[i].pid != 0 && p->children[i].ops->kind == kind) {
            return true;
        }
    }
    return false;
}

static bool any_child_runs(const struct parent *p)
{
    return any_runs(p, ROLE_TAKES_MAIL) || any_runs(p, ROLE_WORKS) || any_runs(p, ROLE_ANSWERS);
}

static void kill_all(struct parent *p)
{
    for (size_t i = 0; i < p->child_count; i++) {
        struct child *c = &p->children[i];

        if (c->pid != 0) {
            log_warning("%s[%u]: process %d did not stop in time: killed", wire_role_name(c->role),
                        c->index, (int)c->pid);
            kill_child(c);
        }
    }
}

static void enter_work(struct parent *p)
{
    p->phase = STOP_WORK;
    send_stop(p, ROLE_WORKS);
    arm(p->stop_timer, p->deadline.us > clock_mono().us ? p->deadline.us - clock_mono().us : 0);
}

static void enter_rest(struct parent *p)
{
    p->phase = STOP_REST;
    send_stop(p, ROLE_TAKES_MAIL);
    send_stop(p, ROLE_WORKS);
    send_stop(p, ROLE_ANSWERS);
    arm(p->stop_timer, STOP_GRACE_US);
}

/* Continues the stop as far as processes have ended. */
static void stop_progress(struct parent *p)
{
    if (p->phase == STOP_RECEIVE && !any_runs(p, ROLE_TAKES_MAIL)) {
        enter_work(p);
    }
    if (p->phase == STOP_WORK && !any_runs(p, ROLE_WORKS)) {
        enter_rest(p);
    }
    if (p->phase == STOP_REST && !any_child_runs(p)) {
        p->done = true;
    }
}

static void on_stop_timer(evutil_socket_t fd, short what, void *arg)
{
    struct parent *p = arg;
    enum phase phase = p->phase;

    (void)fd;
    (void)what;
    reap(p); /* a process that ended while this one stood still is not late */
    if (p->phase != phase) {
        return;
    }
    switch (p->phase) {
    case STARTING:
    case RUNNING:
        UNREACHABLE("the timer runs only during a stop");
    case STOP_RECEIVE:
        enter_work(p);
        break;
    case STOP_WORK:
        enter_rest(p);
        break;
    case STOP_REST:
        kill_all(p);
        arm(p->stop_timer, STOP_GRACE_US); /* a process may sleep in the kernel */
        break;
    }
    stop_progress(p);
}

/* Kills a child and waits for its end. A parent that has left root's rights can't kill a child that
 * has not yet, so it tries several times. A child that survives ends when its channel closes. */
static void kill_and_wait(struct child *c)
{
    static const struct timespec pause = {.tv_nsec = END_TRY_NS};

    for (int i = 0; c->pid != 0 && i < END_TRIES; i++) {
        pid_t pid;

        kill_child(c);
        pid = waitpid(c->pid, NULL, WNOHANG);
        if (pid == c->pid || (pid < 0 && errno != EINTR)) {
            break;
        }
        (void)nanosleep(&pause, NULL);
    }
    c->pid = 0;
}

void parent_end_now(struct parent *p, int status)
{
    for (size_t i = 0; i < p->child_count; i++) {
        kill_child(&p->children[i]);
    }
    for (size_t i = 0; i < p->child_count; i++) {
        kill_and_wait(&p->children[i]);
    }
    p->exit_status = status;
    p->done = true;
}

/* Sends a state to the service manager, if there is one (sd_notify(3)). */
static void notify_manager(const char *state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    size_t len = path == NULL ? 0 : strlen(path);
    int fd;

    if (len < 2 || len >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@')) {
        return;
    }
    memcpy(address.sun_path, path, len);
    if (path[0] == '@') {
        address.sun_path[0] = '\0'; /* an abstract name */
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&address,
                         (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0) {
        log_warning("NOTIFY_SOCKET: %s: %s", path, strerror(errno));
    }
    if (fd >= 0) {
        (void)close(fd); /* the datagram was sent or refused */
    }
}

/* Stops in good order at the first call, at once at the second. */
/* Closes the channel of a starting queue process: it may wait for other machines before it reads a
 * frame, but checks whether the parent exists. */
static void leave_starting_queue(struct parent *p)
{
    for (size_t i = 0; i < p->child_count; i++) {
        struct child *c = &p->children[i];

        if (c->role == ROLE_QUEUE && c->channel != NULL && !c->started) {
            close_channel(c);
        }
    }
}

static void begin_stop(struct parent *p, const char *why)
{
    const struct conf *conf = p->bundle.conf;
    int64_t timeout_us =
        p->stop_how == STOP_QUIT ? conf->daemon_timeout_us : conf->shutdown_timeout_us;

    if (p->phase >= STOP_RECEIVE) {
        if (p->phase != STOP_REST) {
            enter_rest(p);
            stop_progress(p);
        }
        return;
    }
    log_info("stopping %s", why);
    notify_manager("STOPPING=1");
    if (p->phase == STARTING) {
        leave_starting_queue(p);
    }
    p->phase = STOP_RECEIVE;
    p->deadline = mono_after(clock_mono(), timeout_us);
    send_stop(p, ROLE_TAKES_MAIL);
    arm(p->stop_timer, timeout_us / 2);
    stop_progress(p);
}

/* ---- configuration -------------------------------------------------------------------------- */

/* Returns the position of the severity in a line about the configuration ("FILE:1:2: error: TEXT",
 * "error: TEXT"), or line.len if there is none. */
static size_t find_severity(struct slice line, struct slice severity)
{
    size_t at = 0;

    while (at < line.len && !slice_starts(slice_skip(line, at), severity)) {
        at += slice_find(slice_skip(line, at), ' ') + 1;
    }
    return at < line.len ? at : line.len;
}

/* Logs lines with the severity first. A line without one gets `level`. */
static void log_lines(enum log_level level, struct slice text)
{
    static const struct {
        const char *text;
        enum log_level level;
    } severities[] = {{"error: ", LOG_LEVEL_ERROR}, {"warning: ", LOG_LEVEL_WARNING}};

    while (text.len > 0) {
        struct slice line = slice_cut(&text, '\n'), rest = slice_of(NULL, 0);
        enum log_level own = level;

        for (size_t i = 0; i < COUNT(severities); i++) {
            size_t at = find_severity(line, slice_string(severities[i].text));

            if (at < line.len) {
                rest = slice_skip(line, at + strlen(severities[i].text));
                line.len = at;
                own = severities[i].level;
                break;
            }
        }
        if (own == LOG_LEVEL_ERROR) {
            log_error("%.*s%.*s", SLICE_ARGS(line), SLICE_ARGS(rest));
        } else {
            log_warning("%.*s%.*s", SLICE_ARGS(line), SLICE_ARGS(rest));
        }
    }
}

/* Checks the parameters that running processes can't change. They need a restart, so a reload with
 * another value is refused as a whole, which is better than half a reload. */
static bool may_reload(const struct conf *old, const struct conf *new, struct buf *text)
{
    const struct {
        const char *name, *before, *after;
    } fixed[] = {
        {"state_directory", old->state_directory, new->state_directory},
        {"spool", old->spool, new->spool},
        {"maildrop", old->maildrop, new->maildrop},
    };
    bool ok = true;

    for (size_t i = 0; i < COUNT(fixed); i++) {
        if (strcmp(fixed[i].before, fixed[i].after) != 0) {
            (void)buf_addf(text, "error: %s: only a restart can change it\n",
                           fixed[i].name); /* sticky */
            ok = false;
        }
    }
    return ok;
}

static bool same_sinks(const struct conf *old, const struct conf *new)
{
    return strcmp(old->statistics_log, new->statistics_log) == 0 &&
           strcmp(old->events_file, new->events_file) == 0 &&
           old->scheduler_syslog == new->scheduler_syslog;
}

/* Warns of parameters that change at the next start; all others are reloaded. */
static void warn_of_delayed(const struct conf *old, const struct conf *new, struct buf *text)
{
    struct buf names;
    struct slice rest;

    buf_init(&names, DELAYED_NAMES_MAX);
    if (!route_has_unix_nexthops(old) && route_has_unix_nexthops(new)) {
        (void)buf_add_string(&names, "next hops unix:PATH, of which there were none\n"); /* fits */
    }
    conf_put_delayed(old, new, &names);
    rest = buf_slice(&names);
    while (rest.len > 0) {
        struct slice name = slice_cut(&rest, '\n');

        (void)buf_addf(text, "warning: %.*s: changes with the next start\n",
                       SLICE_ARGS(name)); /* sticky */
    }
    buf_fini(&names);
}

static void send_conf(struct parent *p)
{
    for (size_t i = 0; i < p->child_count; i++) {
        if (p->children[i].channel != NULL) {
            tell_conf(&p->children[i]);
            give_new_listeners(p, &p->children[i]);
        }
    }
}

static bool read_configuration(const struct parent *p, struct bundle *ret_bundle, struct buf *text)
{
    return p->plan->text.len > 0 ? bundle_load_text(p->plan->path, p->plan->text, ret_bundle, text)
                                 : bundle_load(p->plan->path, ret_bundle, text);
}

/* Replaces the configuration by that of the file. Appends errors and warnings to `text`. */
static bool try_reload(struct parent *p, struct buf *text)
{
    struct bundle new = {0}, old = p->bundle;
    struct outgoing *outgoing = NULL;

    if (!read_configuration(p, &new, text)) {
        return false;
    }
    if (!may_reload(old.conf, new.conf, text) || preflight(new.conf, &outgoing, text) != EX_OK ||
        !statedir_make_mailboxes(new.conf, text) ||
        !listeners_open(&p->listeners, new.conf, text)) {
        outgoing_free(outgoing);
        bundle_fini(&new);
        return false;
    }
    outgoing_free(p->outgoing);
    p->outgoing = outgoing;
    warn_of_delayed(old.conf, new.conf, text);
    p->bundle = new;
    await_listeners(p);
    p->generation++;
    send_conf(p);
    add_new_roles(p);
    listeners_prune(&p->listeners, new.conf);
    if (same_sinks(old.conf, new.conf)) {
        reopen_sinks(p);
    }
    bundle_fini(&old);
    return true;
}

/* Reloads the configuration. `asked_by` may be NULL. */
static void reload(struct parent *p, struct child *asked_by, uint64_t token)
{
    struct wire_reloaded answer = {.token = token};
    struct buf text;

    if (p->phase == STARTING && !p->reload_waits) {
        p->reload_waits = true;
        p->reload_asked_by = asked_by;
        p->reload_token = token;
        return;
    }
    buf_init(&text, ERRORS_MAX);
    if (p->phase == RUNNING) {
        answer.ok = try_reload(p, &text);
        log_lines(answer.ok ? LOG_LEVEL_WARNING : LOG_LEVEL_ERROR, buf_slice(&text));
        if (answer.ok) {
            log_info("reload -- version %s, configuration %s", SLUICE_VERSION,
                     p->plan->path == NULL ? "built in" : p->plan->path);
        } else {
            log_error("reload: the old configuration stays");
        }
    } else {
        (void)buf_add_string(&text, "error: the daemon is starting or stopping\n"); /* fits */
        log_warning("reload: not while the daemon is starting or stopping");
    }
    if (asked_by != NULL && asked_by->channel != NULL) {
        answer.text = buf_slice(&text);
        if (answer.text.len > WIRE_TEXT_MAX) {
            answer.text.len = WIRE_TEXT_MAX;
        }
        wire_put_reloaded(asked_by->channel, &answer);
    }
    buf_fini(&text);
}

/* ---- the operator --------------------------------------------------------------------------- */

void parent_reopen_log(struct parent *p)
{
    log_reopen();
    for (size_t i = 0; i < p->child_count; i++) {
        int fd = p->children[i].channel == NULL ? -1 : log_share();

        if (fd >= 0) {
            (void)channel_begin(p->children[i].channel, WIRE_LOG); /* no body */
            channel_end(p->children[i].channel, fd);
        }
        give_log_sinks(p, &p->children[i]);
    }
}

/* Tries again to open optional sockets; control already has the others. */
static void on_listen_timer(evutil_socket_t fd, short what, void *arg)
{
    struct parent *p = arg;
    struct buf text;

    (void)fd;
    (void)what;
    buf_init(&text, ERRORS_MAX);
    if (p->phase == RUNNING && listeners_open(&p->listeners, p->bundle.conf, &text)) {
        for (size_t i = 0; i < p->child_count; i++) {
            if (p->children[i].channel != NULL) {
                give_new_listeners(p, &p->children[i]);
            }
        }
    }
    buf_fini(&text); /* logged at the first failure */
    await_listeners(p);
}

static void await_listeners(struct parent *p)
{
    if (!listeners_complete(&p->listeners, p->bundle.conf)) {
        arm(p->listen_timer, LISTEN_AGAIN_US);
    }
}

static struct child *child_of(struct parent *p, enum wire_role role)
{
    for (size_t i = 0; i < p->child_count; i++) {
        if (p->children[i].role == role && p->children[i].channel != NULL) {
            return &p->children[i];
        }
    }
    return NULL;
}

const struct conf *parent_conf(const struct parent *p)
{
    return p->bundle.conf;
}

struct event_base *parent_base(const struct parent *p)
{
    return p->base;
}

bool parent_tell_service(struct parent *p, const struct wire_service *m, int fd)
{
    struct child *control = p->phase == RUNNING ? child_of(p, ROLE_CONTROL) : NULL;

    if (control == NULL) {
        if (fd >= 0) {
            (void)close(fd); /* unused */
        }
        return false;
    }
    wire_put_service(control->channel, m, fd);
    return true;
}

void parent_look_for_work(struct parent *p)
{
    struct child *queue = child_of(p, ROLE_QUEUE);

    if (queue != NULL && p->phase == RUNNING) {
        wire_put_empty(queue->channel, WIRE_LOOK);
    }
}

void parent_reload(struct parent *p)
{
    reload(p, NULL, 0);
}

static void stop_on_sigterm(struct parent *p)
{
    begin_stop(p, "on SIGTERM");
}

static void stop_on_sigint(struct parent *p)
{
    begin_stop(p, "on SIGINT");
}

void parent_stop_slowly(struct parent *p)
{
    if (p->phase < STOP_RECEIVE) {
        p->stop_how = STOP_QUIT;
    }
    begin_stop(p, "on SIGQUIT, when what runs has ended");
}

/* Signals of all programs. */
static const struct parent_signal own_signals[] = {
    {SIGTERM, stop_on_sigterm}, {SIGINT, stop_on_sigint}, {SIGCHLD, reap}, {0, NULL}};

static void on_signal(evutil_socket_t number, short what, void *arg)
{
    struct parent *p = arg;
    const struct parent_signal *const tables[] = {own_signals, p->plan->signals};

    (void)what;
    for (size_t i = 0; i < COUNT(tables); i++) {
        for (const struct parent_signal *s = tables[i]; s->number != 0; s++) {
            if (s->number == number) {
                s->act(p);
            }
        }
    }
}

/* Returns a domain whose mail is delivered here, for the example. */
static const char *local_domain(const struct conf *conf)
{
    for (size_t i = 0; i < conf->local_domains.count; i++) {
        if (strpbrk(conf->local_domains.items[i], "*?[") == NULL &&
            conf->local_domains.items[i][0] != '.') {
            return conf->local_domains.items[i];
        }
    }
    return conf->myhostname;
}

/* Prints an example with the sendmail that was built or installed with this program. */
static void print_first_mail(const struct parent *p)
{
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);

    self[len < 0 ? 0 : len] = '\0';
    self[strcspn(self, "/") == 0 ? (size_t)(strrchr(self, '/') - self) + 1 : 0] = '\0';
    printf("A first mail:\n  echo Hello | %ssendmail %s%s%syou@%s\n", self,
           p->plan->path == NULL ? "" : "-C ", p->plan->path == NULL ? "" : p->plan->path,
           p->plan->path == NULL ? "" : " ", local_domain(p->bundle.conf));
}

/* Reports that the daemon runs: to the log, the service manager, and a user at the terminal. */
static void announce(const struct parent *p)
{
    const struct conf *conf = p->bundle.conf;
    const struct listener *l;

    log_info("daemon started -- version %s, configuration %s", SLUICE_VERSION,
             p->plan->path == NULL ? "built in" : p->plan->path);
    notify_manager("READY=1");
    if (p->plan->ready_fd >= 0) {
        (void)!write(p->plan->ready_fd, "", 1); /* the reader may be gone */
        (void)close(p->plan->ready_fd);
    }
    if (p->plan->is_quiet) {
        return;
    }
    printf("sluiced %s runs as process %d; Ctrl-C stops it.\n", SLUICE_VERSION, (int)getpid());
    printf("  configuration  %.*s%s\n", SLICE_ARGS(p->bundle.files[0].path),
           p->plan->path == NULL ? " (built in, there is no such file)" : "");
    printf("  queue          %s\n", conf->spool);
    printf("  maildrop       %s\n", conf->maildrop[0] == '\0' ? "none" : conf->maildrop);
    TAILQ_FOREACH(l, &p->listeners, next)
    {
        printf("  %-14s %s\n", l->role == ROLE_RECEIVE ? "mail" : "control", l->url);
    }
    if (conf->maildrop[0] != '\0') {
        print_first_mail(p);
    }
    (void)fflush(stdout); /* the daemon works without a reader, too */
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void on_log_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg; /* each turn ends with log_flush */
}

static void rotate_events(struct parent *p)
{
    const struct conf *conf = p->bundle.conf;

    if (conf->events_file[0] != '\0' &&
        rotation_due(conf->events_file, (uint64_t)conf->events_file_size,
                     (unsigned)conf->events_file_count)) {
        reopen_sinks(p);
    }
}

/* Sends changed files of name servers, as on a laptop or with a VPN. The files are read, not
 * watched, because resolv.conf is often a link to a directory that can vanish. */
static void renew_names(struct parent *p)
{
    struct buf text;

    buf_init(&text, ERRORS_MAX);
    if (p->phase == RUNNING && bundle_read_names(&p->bundle, &text)) {
        log_lines(LOG_LEVEL_WARNING, buf_slice(&text));
        log_info(DNS_RESOLV_CONF_PATH " or " DNS_HOSTS_PATH " has changed");
        for (size_t i = 0; i < p->child_count; i++) {
            struct child *c = &p->children[i];

            if (c->channel != NULL && c->role == ROLE_RESOLVE) {
                tell_conf(c);
            }
        }
    }
    buf_fini(&text);
}

static void on_look_timer(evutil_socket_t fd, short what, void *arg)
{
    struct parent *p = arg;

    (void)fd;
    (void)what;
    if (log_moved()) {
        parent_reopen_log(p);
    }
    rotate_events(p);
    renew_names(p);
    arm(p->look_timer, LOOK_US);
}

static void add_signals(struct parent *p)
{
    const struct parent_signal *const tables[] = {own_signals, p->plan->signals};
    size_t count = 0;

    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    for (size_t i = 0; i < COUNT(tables); i++) {
        for (const struct parent_signal *s = tables[i]; s->number != 0; s++, count++) {
            CHECK(count < SIGNALS_MAX);
            p->signals[count] = evsignal_new(p->base, s->number, on_signal, p);
            CHECK(p->signals[count] != NULL);
            CHECK(event_add(p->signals[count], NULL) == 0);
        }
    }
    p->stop_timer = evtimer_new(p->base, on_stop_timer, p);
    p->log_timer = evtimer_new(p->base, on_log_timer, p);
    CHECK(p->stop_timer != NULL);
    CHECK(p->log_timer != NULL);
    p->look_timer = evtimer_new(p->base, on_look_timer, p);
    CHECK(p->look_timer != NULL);
    p->listen_timer = evtimer_new(p->base, on_listen_timer, p);
    CHECK(p->listen_timer != NULL);
}

static void end_turn(struct parent *p)
{
    channel_flush_all();
    log_flush();
    if (log_waiting()) {
        arm(p->log_timer, LOG_AGAIN_US);
    }
}

static void run(struct parent *p)
{
    end_turn(p); /* sends the first frames of the children */
    while (!p->done) {
        clock_forget();
        CHECK(event_base_loop(p->base, EVLOOP_ONCE) >= 0);
        end_turn(p);
    }
}

/* Can the file be opened? A later failure loses lines, with a log line; now an operator may be
 * present. */
static bool sink_opens(const char *parameter, const char *path, struct buf *text)
{
    int fd = path[0] == '\0' ? -1 : log_sink_open_file(path);

    if (path[0] != '\0' && fd < 0) {
        (void)buf_addf(text, "%s: %s: %s\n", parameter, path, strerror(-fd)); /* sticky */
        return false;
    }
    if (fd >= 0) {
        (void)close(fd); /* nothing was written */
    }
    return true;
}

/* Writes the text that replaces a file to that file, for `sluice -c`; this program does not read
 * it. The directory's owner gets the file, as `postfix check` requires. */
static void publish_configuration(const struct parent *p)
{
    const char *owner = p->bundle.conf->mail_owner;
    struct confine_user user = {.uid = geteuid(), .gid = getegid()};
    char temporary[PATH_MAX];
    struct buf unused;
    int fd, len;

    if (p->plan->text.len == 0) {
        return;
    }
    len = snprintf(temporary, sizeof temporary, "%s.new", p->plan->path);
    if (len < 0 || (size_t)len >= sizeof temporary) {
        return; /* not possible: the longer path of the state directory fitted */
    }
    buf_init(&unused, 4096);
    if (user.uid == 0 && owner[0] != '\0') {
        (void)confine_find_user(owner, &user, &unused); /* found before for the directory */
    }
    buf_fini(&unused);
    (void)unlink(temporary); /* left by a daemon that was killed; open reports errors */
    fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY, 0644);
    if (fd < 0 || fchmod(fd, 0644) != 0 || fchown(fd, user.uid, user.gid) != 0 ||
        write(fd, p->plan->text.ptr, p->plan->text.len) != (ssize_t)p->plan->text.len ||
        rename(temporary, p->plan->path) != 0) {
        log_warning("%s: %s", p->plan->path, strerror(errno));
    }
    if (fd >= 0) {
        (void)close(fd); /* only people read it */
    }
}

/* Opens the sockets. Child processes of a killed daemon keep them for a moment, until they notice
 * its end. */
static bool open_listeners(struct parent *p, long killed, struct buf *text)
{
    const struct timespec pause = {.tv_nsec = PREDECESSOR_LOOK_US * 1000};
    struct mono until = mono_after(clock_mono(), killed != 0 ? PREDECESSOR_WAIT_US : 0);
    bool told = false;

    for (;;) {
        if (listeners_open(&p->listeners, p->bundle.conf, text)) {
            return true;
        }
        clock_update();
        if (mono_reached(until, clock_mono())) {
            return false;
        }
        if (!told) {
            log_warning("sluiced (process %ld) was killed; waiting for its child processes to end: "
                        "%s",
                        killed, buf_cstr(text));
            log_flush();
            told = true;
        }
        buf_clear(text);
        (void)nanosleep(&pause, NULL); /* a short pause is fine */
    }
}

static const char *program_of(const struct parent_plan *plan)
{
    return plan->program != NULL ? plan->program : "master";
}

/* Takes all steps that can fail before the first process starts. */
static int prepare(struct parent *p, struct buf *text)
{
    long killed = 0;
    int status;

    if (p->plan->first != NULL) {
        p->bundle = *p->plan->first;
        *p->plan->first = (struct bundle){0};
    } else if (!read_configuration(p, &p->bundle, text)) {
        return EX_CONFIG;
    }
    log_lines(LOG_LEVEL_WARNING, buf_slice(text));
    buf_clear(text);
    /* Find faults now rather than at the start or restart of a process. */
    status = preflight(p->bundle.conf, &p->outgoing, text);
    if (status != EX_OK) {
        return status;
    }
    p->lock = statedir_open(p->bundle.conf, &killed, text);
    if (p->lock < 0) {
        return EX_CANTCREAT;
    }
    log_set_file_mode(role_log_mode(p->bundle.conf));
    if (!log_open(p->bundle.conf->log, p->bundle.conf->state_directory, p->bundle.conf->syslog_name,
                  program_of(p->plan), text)) {
        return EX_CANTCREAT;
    }
    if (!sink_opens("statistics_log", p->bundle.conf->statistics_log, text) ||
        !sink_opens("events_file", p->bundle.conf->events_file, text)) {
        return EX_CANTCREAT;
    }
    if (!open_listeners(p, killed, text)) {
        return EX_UNAVAILABLE;
    }
    log_lines(LOG_LEVEL_WARNING, buf_slice(text));
    buf_clear(text);
    await_listeners(p);
    publish_configuration(p);
    return EX_OK;
}

static void parent_fini(struct parent *p)
{
    listeners_prune(&p->listeners, NULL);
    for (size_t i = 0; i < p->child_count; i++) {
        channel_free(p->children[i].channel);
        event_free(p->children[i].timer);
    }
    for (size_t i = 0; i < COUNT(p->signals) && p->signals[i] != NULL; i++) {
        event_free(p->signals[i]);
    }
    event_free(p->stop_timer);
    event_free(p->log_timer);
    event_free(p->look_timer);
    event_free(p->listen_timer);
    event_base_free(p->base);
    if (p->lock >= 0) {
        statedir_close(p->bundle.conf, p->lock);
    }
    outgoing_free(p->outgoing);
    bundle_fini(&p->bundle);
}

int parent_main(const struct parent_plan *plan)
{
    struct parent *p = mem_new(sizeof *p);
    struct buf text;
    int status;

    confine_cores(); /* it reads keys and passwords */
    hash_seed(entropy_u64(), entropy_u64());
    p->plan = plan;
    p->lock = -1;
    TAILQ_INIT(&p->listeners);
    p->base = event_base_new();
    CHECK(p->base != NULL);
    (void)umask(077); /* new files only for their owner */
    buf_init(&text, ERRORS_MAX);
    (void)log_open("stderr", "", "postfix", program_of(plan), &text); /* cannot fail */
    add_signals(p);

    status = prepare(p, &text);
    if (status != EX_OK) {
        log_lines(LOG_LEVEL_ERROR, buf_slice(&text));
    } else if (!start_all(p)) {
        p->exit_status = EX_OSERR;
        begin_stop(p, "as a process could not be started");
        begin_stop(p, "at once");
    }
    buf_fini(&text);
    if (status == EX_OK) {
        arm(p->look_timer, LOOK_US);
        if (plan->begun != NULL) {
            plan->begun(p);
        }
        run(p);
        status = p->exit_status;
        log_info("stopped");
        if (plan->ended != NULL) {
            plan->ended(status);
        }
    }
    log_flush();
    parent_fini(p);
    mem_free(p);
    return status;
}
