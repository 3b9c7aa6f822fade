#include "receive.h"

#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sysexits.h>
#include <unistd.h>

#include "arrival.h"
#include "callout.h"
#include "check.h"
#include "inject_session.h"
#include "log.h"
#include "mem.h"
#include "nexthop.h"
#include "proxy_client.h"
#include "receive_session.h"
#include "receive_settings.h"
#include "receive_shared.h"
#include "rule_set.h"
#include "stream.h"

/* Maximum connections accepted in one turn. */
#define ACCEPTS_PER_TURN 32
/* Seconds until the next accept after a lack of descriptors or memory. */
#define ACCEPT_AGAIN_S 1

struct receive_listener {
    struct receive *r;
    struct receive_origin *origin;
    int fd;
    struct event *event;
    LIST_ENTRY(receive_listener) next;
};

struct receive {
    struct role *role;
    struct receive_settings *settings; /* settings of new sessions */
    struct receive_sessions sessions;
    struct inject_sessions injections;
    struct proxy_clients proxied;
    LIST_HEAD(, receive_listener) listeners;
    struct event *accept_again;
    struct event *stop_timer;
};

/* ---- the queue process ---------------------------------------------------------------------- */

static void queue_lost(struct receive *r)
{
    channel_free(r->sessions.queue);
    receive_sessions_set_queue(&r->sessions, NULL);
    inject_sessions_no_queue(&r->injections);
    role_queue_lost(r->role);
}

static void on_queue(void *arg, struct channel *ch)
{
    struct receive *r = arg;
    struct frame frame;
    enum channel_event event;

    while ((event = channel_next(ch, &frame)) == CHANNEL_FRAME) {
        if (frame.fd >= 0) {
            (void)close(frame.fd); /* no frame has one */
        }
        if (!inject_sessions_frame(&r->injections, &frame) &&
            !receive_sessions_frame(&r->sessions, &frame)) {
            log_error("protocol violation of the queue process: connection closed");
            event = CHANNEL_CLOSED;
            break;
        }
    }
    if (event == CHANNEL_CLOSED) {
        queue_lost(r);
    }
}

/* ---- the auth process ----------------------------------------------------------------------- */

static void on_auth(void *arg, struct channel *ch)
{
    struct receive *r = arg;
    struct frame frame;
    enum channel_event event;

    while ((event = channel_next(ch, &frame)) == CHANNEL_FRAME) {
        if (frame.fd >= 0) {
            (void)close(frame.fd); /* no frame has one */
        }
        if (!inject_sessions_frame(&r->injections, &frame) &&
            !receive_sessions_auth_frame(&r->sessions, &frame)) {
            log_error("the auth process sent what it must not: connection closed");
            event = CHANNEL_CLOSED;
            break;
        }
    }
    if (event == CHANNEL_CLOSED) { /* the next process brings a new channel */
        channel_free(r->sessions.auth);
        receive_sessions_set_auth(&r->sessions, NULL);
        inject_sessions_no_auth(&r->injections);
    }
}

/* ---- accepting ------------------------------------------------------------------------------ */

static void set_accepting(struct receive *r, bool on)
{
    struct receive_listener *l;

    LIST_FOREACH(l, &r->listeners, next)
    {
        CHECK((on ? event_add(l->event, NULL) : event_del(l->event)) == 0);
    }
}

static void on_accept_again(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    set_accepting(arg, true);
}

/* Pauses accepting, because the loop would spin. The kernel queues connections meanwhile. */
static void pause_accepting(struct receive *r, int error)
{
    static const struct timeval pause = {.tv_sec = ACCEPT_AGAIN_S};

    log_warning("accept: %s; the next try is in %d s", strerror(error), ACCEPT_AGAIN_S);
    set_accepting(r, false);
    CHECK(event_add(r->accept_again, &pause) == 0);
}

static void begin_session(void *arg, struct receive_origin *origin, int fd,
                          const struct sockaddr *addr, bool known)
{
    struct receive *r = arg;

    if (origin->http) {
        inject_session_begin(&r->injections, r->settings, origin, fd, addr);
    } else {
        receive_session_begin(&r->sessions, r->settings, origin, fd, addr, known);
    }
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
    struct receive_listener *l = arg;
    struct receive *r = l->r;
    bool proxied = listen_options_of(&r->role->conf->listen, l->origin->url).proxy;

    (void)what;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_storage addr = {0};
        socklen_t len = sizeof addr;
        int client = accept4(fd, (struct sockaddr *)&addr, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (client >= 0 && proxied) {
            proxy_client_begin(&r->proxied, r->settings, l->origin, client, &addr);
        } else if (client >= 0) {
            begin_session(r, l->origin, client, (struct sockaddr *)&addr, true);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            pause_accepting(r, errno);
            return;
        } /* other errors concern one client only */
    }
}

/* ---- the role ------------------------------------------------------------------------------- */

static void use_settings(struct receive *r)
{
    receive_settings_unref(r->settings);
    r->settings = receive_settings_new(r->role);
    r->sessions.budget.max = r->settings->memory_max;
    if (r->sessions.budget.max < r->sessions.budget.used) {
        r->sessions.budget.max =
            r->sessions.budget.used; /* messages in memory stay; corrected at the next reload */
    }
    callouts_configure(
        r->sessions.callouts,
        &(struct callout_limits){.timeout_us = r->role->conf->callout_timeout_us,
                                 .positive_us = r->role->conf->callout_positive_time_us,
                                 .negative_us = r->role->conf->callout_negative_time_us,
                                 .hostname = r->role->conf->myhostname});
    streams_limit_finishing(r->sessions.streams, r->settings->finishing_max);
}

static void on_stop_timer(evutil_socket_t fd, short what, void *arg)
{
    struct receive *r = arg;

    (void)fd;
    (void)what;
    inject_sessions_cut(&r->injections);
    receive_sessions_cut(&r->sessions);
    role_exit(r->role, 0);
}

static int receive_start(struct role *role)
{
    struct receive *r = mem_new(sizeof *r);

    role->state = r;
    r->role = role;
    LIST_INIT(&r->listeners);
    receive_sessions_init(&r->sessions, role);
    inject_sessions_init(&r->injections, &r->sessions);
    proxy_clients_init(&r->proxied, &r->sessions, begin_session, r);
    r->accept_again = evtimer_new(role->base, on_accept_again, r);
    r->stop_timer = evtimer_new(role->base, on_stop_timer, r);
    CHECK(r->accept_again != NULL);
    CHECK(r->stop_timer != NULL);
    use_settings(r);
    return arrival_use_rules(r->role, &r->sessions.rules) ? EX_OK : EX_SOFTWARE;
}

static void receive_listener(struct role *role, struct slice url, int fd)
{
    struct receive *r = role->state;
    struct receive_listener *l = mem_new(sizeof *l);

    CHECK(evutil_make_socket_nonblocking(fd) == 0);
    l->r = r;
    l->origin = receive_origin_new(url);
    l->fd = fd;
    l->event = event_new(role->base, fd, EV_READ | EV_PERSIST, on_accept, l);
    CHECK(l->event != NULL);
    CHECK(event_add(l->event, NULL) == 0);
    LIST_INSERT_HEAD(&r->listeners, l, next);
}

static void listener_free(struct receive_listener *l)
{
    LIST_REMOVE(l, next);
    event_free(l->event);
    (void)close(l->fd); /* a socket: no data to lose */
    receive_origin_unref(l->origin);
    mem_free(l);
}

static void receive_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    struct receive *r = role->state;
    struct channel *auth;

    if (peer->role == ROLE_AUTH) {
        channel_free(r->sessions.auth);
        auth = channel_new(role->base, fd, on_auth, r);
        channel_keep_secret(auth);
        receive_sessions_set_auth(&r->sessions, auth);
        inject_sessions_no_auth(&r->injections); /* no answer of the old process will come */
        return;
    }
    if (peer->role != ROLE_QUEUE) {
        (void)close(fd); /* no business with this process */
        return;
    }
    channel_free(r->sessions.queue);
    receive_sessions_set_queue(&r->sessions, NULL);
    inject_sessions_no_queue(&r->injections);
    receive_sessions_set_queue(&r->sessions, channel_new(role->base, fd, on_queue, r));
}

static bool is_listed(const struct conf_list *urls, const char *url)
{
    for (size_t i = 0; i < urls->count; i++) {
        if (strcmp(urls->items[i], url) == 0) {
            return true;
        }
    }
    return false;
}

/* Closes listeners that are not in `wanted`, or all if NULL. Their sessions continue. */
static void close_listeners(struct receive *r, const struct conf_list *wanted)
{
    struct receive_listener *l = LIST_FIRST(&r->listeners), *next;

    for (; l != NULL; l = next) {
        next = LIST_NEXT(l, next);
        if (wanted == NULL || !is_listed(wanted, l->origin->url)) {
            listener_free(l);
        }
    }
}

static void receive_reload(struct role *role, const struct conf *old)
{
    struct receive *r = role->state;

    (void)old;
    use_settings(r);
    if (!arrival_use_rules(r->role, &r->sessions.rules)) {
        role_exit(role, EX_SOFTWARE);
        return;
    }
    close_listeners(r, &role->conf->listen);
}

static void receive_stop(struct role *role)
{
    struct receive *r = role->state;
    int64_t wait_us = RECEIVE_STOP_US < role->conf->shutdown_timeout_us
                          ? RECEIVE_STOP_US
                          : role->conf->shutdown_timeout_us;
    struct timeval wait = {.tv_sec = wait_us / US_PER_S, .tv_usec = wait_us % US_PER_S};

    close_listeners(r, NULL);
    CHECK(event_del(r->accept_again) == 0);
    proxy_clients_cut(&r->proxied);
    if (r->sessions.count == 0) {
        role_exit(role, 0);
        return;
    }
    CHECK(event_add(r->stop_timer, &wait) == 0);
    inject_sessions_shutdown(&r->injections);
    receive_sessions_shutdown(&r->sessions);
}

static bool receive_parent_frame(struct role *role, const struct frame *frame)
{
    struct receive *r = role->state;

    return filter_hub_frame(&r->sessions.hub, frame);
}

static void receive_clock_moved(struct role *role)
{
    struct receive *r = role->state;

    receive_sessions_clock_moved(&r->sessions);
    proxy_clients_clock_moved(&r->proxied);
}

static void receive_end(struct role *role)
{
    struct receive *r = role->state;

    close_listeners(r, NULL);
    proxy_clients_cut(&r->proxied);
    inject_sessions_fini(&r->injections);
    receive_sessions_fini(&r->sessions);
    channel_free(r->sessions.queue);
    channel_free(r->sessions.auth);
    receive_settings_unref(r->settings);
    rule_set_unref(r->sessions.rules);
    event_free(r->accept_again);
    event_free(r->stop_timer);
    mem_free(r);
}

static unsigned receive_count(const struct conf *conf)
{
    return (unsigned)conf->receive_processes;
}

const struct role_ops receive_role = {
    .role = ROLE_RECEIVE,
    .program = "smtpd",
    .kind = ROLE_TAKES_MAIL,
    .is_exposed = true,
    .count = receive_count,
    .start = receive_start,
    .listener = receive_listener,
    .peer = receive_peer,
    .parent_frame = receive_parent_frame,
    .reload = receive_reload,
    .stop = receive_stop,
    .clock_moved = receive_clock_moved,
    .end = receive_end,
};
