#include "role.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sysexits.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "confine.h"
#include "frame.h"
#include "entropy.h"
#include "hash.h"
#include "hook_list.h"
#include "log.h"
#include "mem.h"
#include "route.h"
#include "watchdog.h"

/* No time limit: the parent sends the first frames after other processes have begun, however long
 * that takes. If the parent dies, its channel closes. */
#define START_MS (-1)
/* Time to write the last frames at the end. */
#define DRAIN_MS 2000
/* Time between two tries to write to a stuck log. */
#define LOG_AGAIN_MS 250
/* After a sleep of this length, the process may have been stopped: read all sockets before the turn
 * compares times. */
#define LONG_SLEEP_US US_PER_S
#define DNS_PORT      53
/* Largest number of ports in a role's limits. */
#define PORTS_MAX 64
/* Time for a new channel: a restarted queue process may have to upgrade the tables of a long
 * queue. */
#define QUEUE_WAIT_S 60

struct role_private {
    char *bundle; /* bytes of the last WIRE_CONF; role->files points into it */
    struct wire_file *files;
    struct event *log_again;
    struct event *queue_wait; /* timer for a new channel to the queue process */
    bool started;             /* confined and in the loop */
    bool exiting;
    int exit_status;
};

/* A configuration with its files. */
struct loaded {
    char *bundle;
    struct wire_file *files;
    uint32_t file_count;
    uint64_t generation;
    struct conf *conf;
    int tables_fd;
};

/* ---- configuration -------------------------------------------------------------------------- */

static const struct wire_file *find_file(const struct wire_file *files, uint32_t count,
                                         struct slice path)
{
    for (uint32_t i = 0; i < count; i++) {
        if (slice_equal(files[i].path, path)) {
            return &files[i];
        }
    }
    return NULL;
}

struct slice role_file(const struct role *role, struct slice path)
{
    const struct wire_file *file = find_file(role->files, role->file_count, path);

    return file == NULL ? slice_of(NULL, 0) : file->bytes;
}

static int read_bundle(void *arg, const char *path, size_t max, struct buf *out)
{
    const struct loaded *l = arg;
    const struct wire_file *file = find_file(l->files, l->file_count, slice_string(path));

    if (file == NULL) {
        return -ENOENT;
    }
    return file->bytes.len <= max && buf_add(out, file->bytes) ? 0 : -EFBIG;
}

static void loaded_fini(struct loaded *l)
{
    conf_free(l->conf);
    mem_free(l->files);
    mem_free(l->bundle);
    if (l->tables_fd >= 0) {
        (void)close(l->tables_fd); /* memory */
    }
    *l = (struct loaded){.tables_fd = -1};
}

static void log_problems(const struct conf_problems *problems)
{
    for (size_t i = 0; i < problems->count; i++) {
        const struct conf_problem *p = &problems->at[i];

        if (p->severity == CONF_ERROR) {
            log_error("%s:%u:%u: %s", p->file, p->line, p->column, p->text);
        }
    }
}

/* Loads a configuration. The parent has read the same bytes without an error, so a failure is a bug
 * or an attack. */
static bool load_conf(const struct frame *from, struct loaded *ret)
{
    const struct slice body = from->body;
    struct loaded l = {.bundle = mem_copy(body.ptr, body.len), .tables_fd = from->fd};
    struct conf_world world = {.read = read_bundle, .arg = &l};
    struct wire_conf frame;
    struct conf_problems problems;
    char *path, *slash;

    if (!wire_get_conf(slice_of(l.bundle, body.len), &frame, &l.files)) {
        log_error("configuration: the frame does not decode");
        loaded_fini(&l);
        return false;
    }
    l.file_count = frame.file_count;
    l.generation = frame.generation;
    if (l.file_count == 0) {
        log_error("configuration: there is none in the frame");
        loaded_fini(&l);
        return false;
    }
    path = mem_copy(l.files[0].path.ptr, l.files[0].path.len);
    slash = strrchr(path, '/');
    char *directory = slash == NULL ? mem_string(".")
                                    : mem_copy(path, slash == path ? 1 : (size_t)(slash - path));
    l.conf = conf_load_text(l.files[0].bytes, path, directory, &world, &problems);
    mem_free(directory);
    mem_free(path);
    if (l.conf == NULL) {
        log_problems(&problems);
        conf_problems_fini(&problems);
        loaded_fini(&l);
        return false;
    }
    conf_problems_fini(&problems);
    *ret = l;
    return true;
}

static void use_loaded(struct role *role, const struct loaded *l)
{
    role->conf = l->conf;
    role->files = role->inner->files = l->files;
    role->inner->bundle = l->bundle;
    role->file_count = l->file_count;
    role->conf_generation = l->generation;
    role->tables_fd = l->tables_fd;
}

/* Starts the watchdog of a queue process: a restart is better than a hanging process. */
static void watch(struct role *role)
{
    if (role->ops->role == ROLE_QUEUE) {
        watchdog_start(role->base, role->conf->qmgr_daemon_timeout_us);
    }
}

static void reload(struct role *role, const struct frame *frame)
{
    struct loaded new, old = {.tables_fd = role->tables_fd,
                              .bundle = role->inner->bundle,
                              .files = role->inner->files,
                              .conf = (struct conf *)(uintptr_t)role->conf};

    if (!load_conf(frame, &new)) {
        log_error("configuration: the old one stays");
        return;
    }
    use_loaded(role, &new);
    role->ops->reload(role, old.conf);
    loaded_fini(&old);
    if (role->inner->started) {
        watch(role);
    }
}

struct conf *role_conf_with(const struct role *role, struct slice lines, const char *name,
                            struct conf_problems *problems)
{
    struct loaded l = {.files = role->inner->files, .file_count = role->file_count};
    struct conf_world world = {.read = read_bundle, .arg = &l};
    struct slice path = l.files[0].path;
    size_t slash = slice_find_last(path, '/');
    char *directory =
        slash == path.len ? mem_string(".") : mem_copy(path.ptr, slash == 0 ? 1 : slash);
    struct conf *conf;
    struct buf text;

    buf_init(&text, CONF_FILE_MAX);
    (void)buf_add(&text, l.files[0].bytes); /* a text that does not fit fails below */
    (void)buf_add_byte(&text, '\n');
    (void)buf_add(&text, lines);
    conf = conf_load_text(text.failed ? SLICE("=") : buf_slice(&text), name, directory, &world,
                          problems);
    buf_fini(&text);
    mem_free(directory);
    return conf;
}

/* ---- frames of the parent ------------------------------------------------------------------- */

static void peer_frame(struct role *role, const struct frame *frame)
{
    struct wire_peer peer;

    if (!wire_get_peer(frame->body, &peer) || frame->fd < 0) {
        log_error("a channel to another process does not decode");
        role_exit(role, EX_PROTOCOL);
        return;
    }
    role->ops->peer(role, &peer, frame->fd);
    if (peer.role == ROLE_QUEUE) {
        CHECK(event_del(role->inner->queue_wait) == 0);
    }
}

static void listener_frame(struct role *role, const struct frame *frame)
{
    struct wire_listener listener;

    if (!wire_get_listener(frame->body, &listener) || frame->fd < 0 ||
        role->ops->listener == NULL) {
        log_error("a listening socket does not decode, or has come to the wrong process");
        role_exit(role, EX_PROTOCOL);
        return;
    }
    role->ops->listener(role, listener.url, frame->fd);
}

static void clock_frame(struct role *role, struct slice body)
{
    uint64_t offset;

    if (!wire_get_number(body, &offset) || offset > INT64_MAX) {
        log_error("a new time does not decode");
        role_exit(role, EX_PROTOCOL);
        return;
    }
    clock_set_offset((int64_t)offset);
    clock_update();
    if (role->inner->started && role->ops->clock_moved != NULL) {
        role->ops->clock_moved(role);
    }
}

static void stop_frame(struct role *role, struct slice body)
{
    uint64_t how;

    if (!wire_get_number(body, &how) || how >= STOP_COUNT) {
        log_error("the word to stop does not decode");
        role_exit(role, EX_PROTOCOL);
        return;
    }
    if (!role->stopping) {
        role->stopping = true;
        role->stop_how = (enum wire_stop)how;
        role->ops->stop(role);
    }
}

static void parent_frame(struct role *role, const struct frame *frame)
{
    switch (frame->type) {
    case WIRE_CONF:
        reload(role, frame);
        return;
    case WIRE_LISTENER:
        listener_frame(role, frame);
        return;
    case WIRE_PEER:
        peer_frame(role, frame);
        return;
    case WIRE_CLOCK:
        clock_frame(role, frame->body);
        return;
    case WIRE_LOG:
        if (frame->fd >= 0) {
            log_adopt(frame->fd);
        }
        return;
    case WIRE_STOP:
        stop_frame(role, frame->body);
        return;
    default:
        if (role->ops->parent_frame == NULL || !role->ops->parent_frame(role, frame)) {
            log_error("a frame of the unknown type %u has come from the parent", frame->type);
            role_exit(role, EX_PROTOCOL);
        }
    }
}

static void on_parent(void *arg, struct channel *ch)
{
    struct role *role = arg;
    struct frame frame;

    while (!role->inner->exiting) {
        switch (channel_next(ch, &frame)) {
        case CHANNEL_EMPTY:
            return;
        case CHANNEL_FRAME:
            parent_frame(role, &frame);
            break;
        case CHANNEL_CLOSED:
            /* Without a parent no process can restart, configure or stop this one. */
            role_exit(role, EX_UNAVAILABLE);
            return;
        }
    }
}

/* ---- start ---------------------------------------------------------------------------------- */

static void ignore_signals(void)
{
    static const int ignored[] = {SIGPIPE, SIGINT,  SIGTERM, SIGHUP,
                                  SIGQUIT, SIGALRM, SIGUSR1, SIGUSR2};

    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++) {
        CHECK(signal(ignored[i], SIG_IGN) != SIG_ERR);
    }
}

/* Waits for the configuration, loads it, and opens its log. */
static int take_conf(struct role *role)
{
    struct frame frame;
    struct loaded l;
    struct buf error;

    if (channel_wait(role->parent, START_MS, &frame) != CHANNEL_FRAME || frame.type != WIRE_CONF ||
        !load_conf(&frame, &l)) {
        log_error("no configuration has come from the parent");
        return EX_PROTOCOL;
    }
    use_loaded(role, &l);
    buf_init(&error, WIRE_TEXT_MAX);
    log_set_file_mode(role_log_mode(role->conf));
    if (!log_open(role->conf->log, role->conf->state_directory, role->conf->syslog_name,
                  role->ops->program, &error)) {
        /* The parent could open it. To work with a log on standard error is better than to end. */
        log_warning("%s", buf_cstr(&error));
    }
    buf_fini(&error);
    return EX_OK;
}

unsigned role_log_mode(const struct conf *conf)
{
    return conf_spool_is_shared(conf) ? 0644 : 0640;
}

/* Takes listeners and channels, up to WIRE_START. */
static int take_first_frames(struct role *role)
{
    struct frame frame;

    for (;;) {
        if (channel_wait(role->parent, START_MS, &frame) != CHANNEL_FRAME) {
            log_error("the parent's first frames have not come");
            return EX_PROTOCOL;
        }
        if (frame.type == WIRE_START) {
            return EX_OK;
        }
        parent_frame(role, &frame);
        if (role->inner->exiting) {
            return role->inner->exit_status;
        }
    }
}

/* Finds the directory of a spool of files, which the parent has made. */
static bool spool_directory(const struct conf *conf, char path[PATH_MAX])
{
    bool is_directory;
    const char *found = conf_spool_path(conf, &is_directory);
    char *slash;

    if (found == NULL || strlen(found) >= PATH_MAX) {
        return false;
    }
    (void)strcpy(path, found); /* fits */
    slash = strrchr(path, '/');
    if (!is_directory && slash != NULL && slash > path) {
        *slash = '\0';
    }
    return true;
}

static const char *role_user(const struct role *role)
{
    switch (role->ops->role) {
    case ROLE_RECEIVE:
    case ROLE_FILTER:
    case ROLE_CONTROL:
    case ROLE_WHATIF:
        return conf_receive_user(role->conf);
    case ROLE_DELIVER:
    case ROLE_FETCH:
    case ROLE_HOOK:
    case ROLE_RESOLVE:
        return conf_deliver_user(role->conf);
    case ROLE_AUTH: /* not the user of processes that strangers reach */
        return conf_auth_user(role->conf);
    case ROLE_QUEUE: /* a shared spool has files of many users */
        return conf_spool_is_shared(role->conf) ? "" : conf_mail_owner(role->conf);
    case ROLE_PARENT:
    case ROLE_LOCAL:
    case ROLE_AGENTS:
    case ROLE_PICKUP: /* files in maildrop belong to many users */
    case ROLE_COUNT:
        return "";
    }
    return "";
}

/* Returns the port of "address:port", "[address]:port" or a plain address. */
static uint16_t dns_port(struct slice server)
{
    size_t colon = slice_find_last(server, ':');
    bool has_port = colon < server.len &&
                    (slice_starts(server, SLICE("[")) ? colon > 0 && server.ptr[colon - 1] == ']'
                                                      : slice_find(server, ':') == colon);
    unsigned long long port = DNS_PORT;

    return has_port && slice_number(slice_skip(server, colon + 1), UINT16_MAX, &port)
               ? (uint16_t)port
               : DNS_PORT;
}

/* Returns the ports of name servers, which send long answers by TCP. */
static size_t dns_ports(const struct conf *conf, uint16_t ports[PORTS_MAX])
{
    size_t count = 0;

    ports[count++] = DNS_PORT;
    for (size_t i = 0; i < conf->smtp_dns_server.count && count < PORTS_MAX; i++) {
        ports[count++] = dns_port(slice_string(conf->smtp_dns_server.items[i]));
    }
    return count;
}

/* Returns the ports of web hooks. */
static size_t hook_ports(const struct role *role, uint16_t ports[PORTS_MAX])
{
    struct hook_list *hooks;
    struct buf error;
    size_t count = 0;

    buf_init(&error, LOG_LINE_MAX);
    hooks = hook_list_new(role_file(role, slice_string(role->conf->web_hooks)), &error);
    buf_fini(&error); /* the parent has logged it */
    for (size_t i = 0; hooks != NULL && i < hooks->count; i++) {
        ports[count++] = hooks->hooks[i].port;
    }
    hook_list_free(hooks);
    return count;
}

static bool confine_role(struct role *role, struct buf *error)
{
    uint16_t ports[PORTS_MAX];
    char spool[PATH_MAX];
    const char *writable[2] = {role->conf->state_directory, spool};
    struct confine plan = {
        .role = role->ops->role,
        .user = role_user(role),
        .root = role->conf->chroot_directory,
        .writable = writable,
        .ports = ports,
        .maildrop = -1,
    };
    bool ok;

    plan.unix_sockets = role->ops->role == ROLE_DELIVER && route_has_unix_nexthops(role->conf);
    if (role->ops->role == ROLE_FETCH) {
        ports[0] = (uint16_t)role->conf->mta_sts_port;
        plan.port_count = 1;
    }
    if (role->ops->role == ROLE_RESOLVE) {
        plan.port_count = dns_ports(role->conf, ports);
    }
    if (role->ops->role == ROLE_HOOK) {
        plan.port_count = hook_ports(role, ports);
    }
    if (role->ops->role == ROLE_QUEUE) {
        plan.root = "";
        plan.writable_count = spool_directory(role->conf, spool) ? 2 : 1;
        plan.foreign_files = conf_spool_is_shared(role->conf);
        plan.local_services = conf_spool_uses_services(role->conf);
        plan.remote_spool = conf_spool_is_remote(role->conf);
    }
    if (role->ops->role == ROLE_PICKUP) {
        plan.maildrop = open(role->conf->maildrop, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (plan.maildrop < 0) {
            (void)buf_addf(error, "%s: %s", role->conf->maildrop, strerror(errno)); /* sticky */
            return false;
        }
    }
    ok = confine_process(&plan, error);
    if (plan.maildrop >= 0) {
        (void)close(plan.maildrop); /* no file was opened */
    }
    return ok;
}

static int start(struct role *role)
{
    struct buf error;
    int status;
    bool ok;

    status = take_conf(role);
    if (status != EX_OK) {
        return status;
    }
    confine_limits();
    buf_init(&error, WIRE_TEXT_MAX);
    if (role->ops->role == ROLE_QUEUE && !confine_to_user(role_user(role), &error)) {
        log_error("%s", buf_cstr(&error));
        buf_fini(&error);
        return EX_NOPERM;
    }
    status = role->ops->start(role);
    if (status == EX_OK) {
        status = take_first_frames(role);
    }
    if (status != EX_OK) {
        buf_fini(&error);
        return status;
    }
    clock_update();
    ok = confine_role(role, &error);
    if (!ok) {
        log_error("%s", buf_cstr(&error));
    }
    buf_fini(&error);
    return ok ? EX_OK : EX_NOPERM;
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void on_log_again(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg; /* the turn ends with log_flush */
}

static void end_turn(struct role *role)
{
    static const struct timeval again = {.tv_usec = LOG_AGAIN_MS * 1000};

    if (role->ops->turn != NULL) {
        role->ops->turn(role);
    }
    channel_flush_all();
    log_flush();
    if (log_waiting()) {
        CHECK(event_add(role->inner->log_again, &again) == 0);
    }
}

static void run(struct role *role)
{
    role->inner->started = true;
    watch(role);
    if (role->ops->begin != NULL) {
        role->ops->begin(role);
    }
    wire_put_empty(role->parent, WIRE_STARTED);
    on_parent(role, role->parent); /* frames read together with WIRE_START cause no event */
    end_turn(role);
    while (!role->inner->exiting) {
        struct mono slept = clock_mono();

        clock_forget();
        CHECK(event_base_loop(role->base, EVLOOP_ONCE) >= 0);
        if (clock_mono().us - slept.us >= LONG_SLEEP_US && !role->inner->exiting) {
            CHECK(event_base_loop(role->base, EVLOOP_ONCE | EVLOOP_NONBLOCK) >= 0);
        }
        end_turn(role);
    }
}

static void on_queue_wait(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    log_error("no new channel to the queue process has come: starting over");
    role_exit(arg, EX_UNAVAILABLE);
}

void role_queue_lost(struct role *role)
{
    static const struct timeval wait = {.tv_sec = QUEUE_WAIT_S};

    CHECK(event_add(role->inner->queue_wait, &wait) == 0);
}

void role_exit(struct role *role, int status)
{
    if (!role->inner->exiting) {
        role->inner->exiting = true;
        role->inner->exit_status = status;
    }
}

/* Free memory that malloc keeps, by default a few hundred KiB. With some sessions that send
 * messages of 100 KiB, a process returned memory to the system and got it again all the time, with
 * 16 page faults per message. */
#define KEPT_MEMORY ((int)4 << 20)

int role_main(const struct role_ops *ops, unsigned index, int parent_fd)
{
    struct role_private inner = {0};
    char name[16]; /* limit of the kernel */
    struct role role = {.ops = ops, .index = index, .tables_fd = -1, .inner = &inner};
    struct loaded old;
    struct buf error;
    int status;

    ignore_signals();
    (void)mallopt(M_TRIM_THRESHOLD, KEPT_MEMORY); /* not all versions of malloc support it */
    (void)mallopt(M_MMAP_THRESHOLD, KEPT_MEMORY);
    /* For top(1), which would show "exe" (from /proc/self/exe). */
    (void)snprintf(name, sizeof name, "sluice-%s", wire_role_name(ops->role)); /* may be cut */
    (void)prctl(PR_SET_NAME, name);
    hash_seed(entropy_u64(), entropy_u64());
    buf_init(&error, WIRE_TEXT_MAX);
    /* Opening standard error can't fail; it is the log until the configuration is loaded. */
    (void)log_open("stderr", "", "postfix", ops->program, &error);
    buf_fini(&error);
    role.base = event_base_new();
    CHECK(role.base != NULL);
    inner.log_again = evtimer_new(role.base, on_log_again, NULL);
    inner.queue_wait = evtimer_new(role.base, on_queue_wait, &role);
    CHECK(inner.log_again != NULL);
    CHECK(inner.queue_wait != NULL);
    role.parent = channel_new(role.base, parent_fd, on_parent, &role);

    status = start(&role);
    if (status == EX_OK) {
        run(&role);
        watchdog_stop();
        status = inner.exit_status;
        if (ops->end != NULL) {
            ops->end(&role);
        }
        (void)channel_drain(role.parent, DRAIN_MS); /* the parent may be gone */
    }
    log_flush();

    channel_free(role.parent);
    event_free(inner.log_again);
    event_free(inner.queue_wait);
    old = (struct loaded){.tables_fd = role.tables_fd,
                          .bundle = inner.bundle,
                          .files = inner.files,
                          .conf = (struct conf *)(uintptr_t)role.conf};
    loaded_fini(&old);
    event_base_free(role.base);
    return status;
}
