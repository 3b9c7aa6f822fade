/*
 * The role deliver: an SMTP and LMTP client for thousands of deliveries at once. This file is the
 * process around attempt.c: its channel to queue, its descriptors, its end.
 */

#include "role.h"

#include <event2/event.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sysexits.h>
#include <unistd.h>

#include "attempt.h"
#include "check.h"
#include "clock.h"
#include "log.h"
#include "mem.h"
#include "resolver.h"
#include "stream.h"

/* Descriptors for other things: questions to name servers, the loop, the log, channels, and those
 * that may come with one read of a channel. */
#define DESCRIPTORS_RESERVED 464
/* With fewer than these there is no point in starting. */
#define DESCRIPTORS_MIN 64
/* While entries wait for a descriptor, or the process for its end, look so often. */
#define TICK_MS 200

struct deliver {
    struct role *role;
    struct streams *streams;
    struct resolver *resolver;
    struct event *tick;
    struct attempts attempts;
    size_t content_limit; /* descriptors with content */
    struct mono stop_at;
};

/* ---- the channel to queue ------------------------------------------------------------------- */

static bool on_deliver(struct deliver *d, const struct frame *frame)
{
    struct entry *entry = entry_new(frame);

    if (entry == NULL) {
        return false;
    }
    attempts_add(&d->attempts, entry);
    return true;
}

static bool on_content(struct deliver *d, const struct frame *frame)
{
    struct wire_content content;

    if (!wire_get_content(frame->body, &content)) {
        return false;
    }
    attempts_content(&d->attempts, &content, frame->fd);
    return true;
}

static bool on_forget(struct deliver *d, const struct frame *frame)
{
    struct wire_forget forget;

    if (!wire_get_forget(frame->body, &forget)) {
        return false;
    }
    attempts_forget(&d->attempts, forget.transport, forget.nexthop);
    return true;
}

static bool on_frame(struct deliver *d, const struct frame *frame)
{
    switch (frame->type) {
    case WIRE_DELIVER:
        return on_deliver(d, frame);
    case WIRE_CONTENT:
        return on_content(d, frame);
    case WIRE_FORGET:
        return on_forget(d, frame);
    default:
        return false;
    }
}

static void lose_queue(struct deliver *d)
{
    channel_free(d->attempts.queue);
    attempts_orphan(&d->attempts);
    role_queue_lost(d->role);
}

static void on_queue(void *arg, struct channel *ch)
{
    struct deliver *d = arg;
    struct frame frame;

    for (;;) {
        switch (channel_next(ch, &frame)) {
        case CHANNEL_EMPTY:
            return;
        case CHANNEL_FRAME:
            if (on_frame(d, &frame)) {
                break;
            }
            log_error("queue: a frame of type %u does not decode: connection closed", frame.type);
            lose_queue(d);
            return;
        case CHANNEL_CLOSED:
            lose_queue(d);
            return;
        }
    }
}

static void deliver_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    struct deliver *d = role->state;

    if (peer->role != ROLE_QUEUE) {
        (void)close(fd); /* nobody else has anything to say here */
        return;
    }
    if (d->attempts.queue != NULL) {
        lose_queue(d);
    }
    d->attempts.queue = channel_new(role->base, fd, on_queue, d);
}

/* ---- the process ---------------------------------------------------------------------------- */

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg; /* the turn that follows does the work */
}

/* Share out the descriptors we may have between connections and content. */
static bool set_limits(struct deliver *d)
{
    struct rlimit limit;
    size_t usable;

    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    if (limit.rlim_cur < DESCRIPTORS_RESERVED + DESCRIPTORS_MIN) {
        log_error("only %llu file descriptors: at least %d are needed",
                  (unsigned long long)limit.rlim_cur, DESCRIPTORS_RESERVED + DESCRIPTORS_MIN);
        return false;
    }
    usable = limit.rlim_cur > 4000000 ? 4000000 : (size_t)limit.rlim_cur - DESCRIPTORS_RESERVED;
    d->attempts.socket_limit = usable - usable / 4;
    d->content_limit = usable / 4;
    return true;
}

static int deliver_start(struct role *role)
{
    struct deliver *d = mem_new(sizeof *d);
    struct buf error;
    uint64_t seed;

    role->state = d;
    d->role = role;
    attempts_init(&d->attempts);
    if (!set_limits(d)) {
        mem_free(d);
        return EX_OSERR;
    }
    buf_init(&error, LOG_LINE_MAX);
    d->resolver = resolver_new(role->base, role->conf->smtp_dns_server.items,
                               role->conf->smtp_dns_server.count, &error);
    if (d->resolver == NULL) {
        log_error("%s", buf_cstr(&error));
        buf_fini(&error);
        mem_free(d);
        return EX_CONFIG;
    }
    buf_fini(&error);
    CHECK(getrandom(&seed, sizeof seed, 0) == (ssize_t)sizeof seed);
    d->streams = streams_new(role->base);
    d->attempts.endpoints = endpoints_new(role);
    hops_world_init(&d->attempts.world, role->conf, d->resolver, seed);
    d->attempts.sessions = sessions_new(d->streams, attempts_session_closed, &d->attempts);
    d->tick = event_new(role->base, -1, EV_PERSIST, on_tick, d);
    CHECK(d->tick != NULL);
    return EX_OK;
}

/* Name servers and the hosts file can't be read again by a confined process; the rest can. */
static void deliver_reload(struct role *role, const struct conf *old)
{
    struct deliver *d = role->state;

    (void)old;
    attempts_forget(&d->attempts, slice_of("", 0), slice_of("", 0));
    endpoints_renew(d->attempts.endpoints);
    hops_world_renew(&d->attempts.world, role->conf);
}

static void deliver_stop(struct role *role)
{
    struct deliver *d = role->state;

    d->stop_at = mono_after(clock_mono(), role->conf->shutdown_timeout_us);
    attempts_stop(&d->attempts);
}

static void deliver_clock_moved(struct role *role)
{
    struct deliver *d = role->state;

    streams_clock_moved(d->streams);
}

/* Everything has its end: what is left after shutdown_timeout is cut off. */
static void stop_if_done(struct deliver *d)
{
    if (mono_reached(d->stop_at, clock_mono())) {
        attempts_cut(&d->attempts);
    } else if (!attempts_idle(&d->attempts) || sessions_count(d->attempts.sessions) > 0) {
        return;
    }
    if (d->attempts.queue != NULL) {
        (void)channel_drain(d->attempts.queue, 1000); /* or queue finds out by itself */
    }
    role_exit(d->role, EX_OK);
}

static void deliver_turn(struct role *role)
{
    struct deliver *d = role->state;
    static const struct timeval period = {.tv_usec = TICK_MS * 1000};
    bool ticking;

    attempts_run(&d->attempts);
    if (d->attempts.queue != NULL) {
        channel_pause(d->attempts.queue, d->attempts.descriptors >= d->content_limit);
    }
    ticking = role->stopping || !TAILQ_EMPTY(&d->attempts.waiting);
    if (ticking && !event_pending(d->tick, EV_TIMEOUT, NULL)) {
        CHECK(event_add(d->tick, &period) == 0);
    } else if (!ticking) {
        CHECK(event_del(d->tick) == 0);
    }
    if (role->stopping) {
        stop_if_done(d);
    }
}

static void deliver_end(struct role *role)
{
    struct deliver *d = role->state;

    channel_free(d->attempts.queue);
    d->attempts.queue = NULL;
    attempts_cut(&d->attempts);
    attempts_orphan(&d->attempts);
    attempts_fini(&d->attempts);
    resolver_free(d->resolver);
    streams_free(d->streams);
    event_free(d->tick);
    mem_free(d);
}

const struct role_ops deliver_role = {
    .role = ROLE_DELIVER,
    .program = "smtp",
    .start = deliver_start,
    .peer = deliver_peer,
    .reload = deliver_reload,
    .stop = deliver_stop,
    .clock_moved = deliver_clock_moved,
    .turn = deliver_turn,
    .end = deliver_end,
};
