/*
 * The role deliver: an SMTP and LMTP client for thousands of deliveries at once. This file is the
 * process around attempt.c: its channel to queue, its descriptors, its end.
 */

#include "role.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sysexits.h>

#include "attempt.h"
#include "check.h"
#include "clock.h"
#include "entropy.h"
#include "log.h"
#include "mem.h"
#include "resolver.h"
#include "stream.h"
#include "worker.h"

/* Descriptors for other things: questions to name servers, the loop, the log, channels, and those
 * that may come with one read of a channel. */
#define DESCRIPTORS_RESERVED 464
/* With fewer than these there is no point in starting. */
#define DESCRIPTORS_MIN 64

struct deliver {
    struct worker worker;
    struct streams *streams;
    struct resolver *resolver;
    struct attempts attempts;
    size_t content_limit; /* descriptors with content */
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

static bool on_frame(void *arg, const struct frame *frame)
{
    struct deliver *d = arg;

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

static void on_lost(void *arg)
{
    struct deliver *d = arg;

    attempts_orphan(&d->attempts);
}

static const struct worker_ops queue_ops = {.frame = on_frame, .lost = on_lost};

static void deliver_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    struct deliver *d = role->state;

    worker_peer(&d->worker, peer, fd);
    d->attempts.queue = d->worker.queue;
}

/* ---- the process ---------------------------------------------------------------------------- */

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

    role->state = d;
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
    d->streams = streams_new(role->base);
    d->attempts.endpoints = endpoints_new(role);
    hops_world_init(&d->attempts.world, role->conf, d->resolver, entropy_u64());
    d->attempts.sessions = sessions_new(d->streams, attempts_session_closed, &d->attempts);
    worker_init(&d->worker, role, &queue_ops, d);
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

    worker_stop(&d->worker, role->conf->shutdown_timeout_us);
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
    if (mono_reached(d->worker.stop_at, clock_mono())) {
        attempts_cut(&d->attempts);
    } else if (!attempts_idle(&d->attempts) || sessions_count(d->attempts.sessions) > 0) {
        return;
    }
    worker_exit(&d->worker);
}

static void deliver_turn(struct role *role)
{
    struct deliver *d = role->state;

    attempts_run(&d->attempts);
    if (d->attempts.queue != NULL) {
        channel_pause(d->attempts.queue, d->attempts.descriptors >= d->content_limit);
    }
    worker_tick(&d->worker, !TAILQ_EMPTY(&d->attempts.waiting)); /* for a descriptor */
    if (role->stopping) {
        stop_if_done(d);
    }
}

static void deliver_end(struct role *role)
{
    struct deliver *d = role->state;

    d->attempts.queue = NULL; /* which is told nothing more */
    attempts_cut(&d->attempts);
    worker_fini(&d->worker);
    attempts_fini(&d->attempts);
    resolver_free(d->resolver);
    streams_free(d->streams);
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
