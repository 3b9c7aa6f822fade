/*
 * The role deliver: an SMTP and LMTP client for thousands of deliveries at once. This file has the
 * process around attempt.c: the channel to the queue process, the limits of descriptors, start and
 * end.
 */

#include "role.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sysexits.h>

#include "attempt.h"
#include "check.h"
#include "clock.h"
#include "dialogue.h"
#include "entropy.h"
#include "log.h"
#include "mem.h"
#include "dns_link.h"
#include "resolver.h"
#include "stream.h"
#include "sts_client.h"
#include "tls_look.h"
#include "worker.h"

/* Descriptors for other purposes: event loop, log, channels, and those that one read of a channel
 * can bring. */
#define DESCRIPTORS_RESERVED 208
/* The process does not start with fewer descriptors than this. */
#define DESCRIPTORS_MIN 64

struct deliver {
    struct worker worker;
    struct streams *streams;
    struct dns_link *dns;
    struct resolver *resolver, *validator; /* `validator` asks for proven answers */
    struct attempts attempts;
    struct sts_client sts;
    struct tls_looks looks;
    struct dialogue dialogue;
    size_t content_limit; /* largest number of descriptors with content */
};

/* ---- the channel to queue ------------------------------------------------------------------- */

static bool on_deliver(struct deliver *d, const struct frame *frame)
{
    struct assignment *assignment = assignment_new(frame);

    if (assignment == NULL) {
        return false;
    }
    attempts_add(&d->attempts, assignment);
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

static bool on_break_off(struct deliver *d, const struct frame *frame)
{
    uint64_t entry;

    if (!wire_get_number(frame->body, &entry)) {
        return false;
    }
    attempts_break_off_one(&d->attempts, entry);
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
    case WIRE_BREAK_OFF:
        return on_break_off(d, frame);
    case WIRE_POLICY_ANSWER:
        return sts_client_answer(&d->sts, frame->body);
    case WIRE_TLS_LOOK:
        return tls_looks_begin(&d->looks, frame->body);
    case WIRE_WATCHES:
        return dialogue_watches(&d->dialogue, frame->body);
    default:
        return false;
    }
}

static void on_lost(void *arg)
{
    struct deliver *d = arg;

    attempts_queue_lost(&d->attempts);
    tls_looks_drop(&d->looks);
    dialogue_drop(&d->dialogue);
}

static const struct worker_ops queue_ops = {.frame = on_frame, .lost = on_lost};

static void deliver_peer(struct role *role, const struct wire_peer *peer, int fd)
{
    struct deliver *d = role->state;

    if (peer->role == ROLE_RESOLVE) {
        dns_link_peer(d->dns, fd);
    } else {
        worker_peer(&d->worker, peer, fd);
    }
}

/* ---- the process ---------------------------------------------------------------------------- */

/* Divides the available descriptors between connections and content. */
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

/* With a trust anchor the resolve process can prove answers. It keeps an anchor whose file is
 * gone. */
static void find_anchor(struct deliver *d, const struct role *role)
{
    if (role_file(role, slice_string(role->conf->dnssec_trust_anchor_file)).len > 0) {
        d->attempts.world.validator = d->validator;
    }
}

static int deliver_start(struct role *role)
{
    struct deliver *d = mem_new(sizeof *d);

    role->state = d;
    attempts_init(&d->attempts);
    if (!set_limits(d)) {
        mem_free(d);
        return EX_OSERR;
    }
    d->dns = dns_link_new(role->base);
    d->resolver = resolver_over(role->base, d->dns, false);
    d->validator = resolver_over(role->base, d->dns, true);
    d->streams = streams_new(role->base);
    d->attempts.destinations = smtp_destinations_new(role);
    hops_world_init(&d->attempts.world, role->conf, d->resolver, entropy_u64());
    find_anchor(d, role);
    d->attempts.sessions = sessions_new(d->streams, attempts_session_closed, &d->attempts);
    worker_init(&d->worker, role, &queue_ops, d);
    dialogue_init(&d->dialogue, &d->worker.queue);
    sessions_watch(d->attempts.sessions, &d->dialogue);
    sessions_set_lease(d->attempts.sessions, &d->worker.lease);
    d->attempts.assignments.queue = &d->worker.queue;
    sts_client_init(&d->sts, &d->worker.queue);
    d->attempts.world.sts = &d->sts.source;
    tls_looks_init(&d->looks, role->base, &d->attempts.world, d->attempts.sessions,
                   d->attempts.destinations, &d->worker.queue);
    return EX_OK;
}

static void deliver_reload(struct role *role, const struct conf *old)
{
    struct deliver *d = role->state;

    (void)old;
    find_anchor(d, role);
    attempts_forget(&d->attempts, slice_of("", 0), slice_of("", 0));
    smtp_destinations_renew(d->attempts.destinations);
    hops_world_renew(&d->attempts.world, role->conf);
}

static void deliver_stop(struct role *role)
{
    struct deliver *d = role->state;

    worker_stop(&d->worker, role->conf->shutdown_timeout_us);
    attempts_stop(&d->attempts);
    tls_looks_drop(&d->looks); /* they have connections; the end of this process answers them */
}

static void deliver_clock_moved(struct role *role)
{
    struct deliver *d = role->state;

    streams_clock_moved(d->streams);
}

/* Ends the process when nothing is left; cuts off remaining deliveries after shutdown_timeout. */
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
    bool leased = lease_page_exists(&d->worker.lease);

    if (leased && !lease_holds(&d->worker.lease)) {
        attempts_break_off(&d->attempts); /* even if the peer is silent */
    }
    attempts_run(&d->attempts);
    if (d->worker.queue != NULL) {
        channel_pause(d->worker.queue, d->attempts.descriptors >= d->content_limit);
    }
    worker_tick(&d->worker, !TAILQ_EMPTY(&d->attempts.waiting) || /* some wait for a descriptor */
                                (leased && (!attempts_idle(&d->attempts) ||
                                            !attempts_keep_none(&d->attempts))));
    if (role->stopping) {
        stop_if_done(d);
    }
}

static void deliver_end(struct role *role)
{
    struct deliver *d = role->state;

    d->attempts.assignments.queue = NULL; /* it gets no further results */
    dialogue_drop(&d->dialogue);
    attempts_cut(&d->attempts);
    tls_looks_drop(&d->looks);
    worker_fini(&d->worker);
    attempts_fini(&d->attempts);
    sts_client_fini(&d->sts);
    resolver_free(d->resolver);
    resolver_free(d->validator);
    dns_link_free(d->dns);
    streams_free(d->streams);
    mem_free(d);
}

static unsigned deliver_count(const struct conf *conf)
{
    return (unsigned)conf->deliver_processes;
}

const struct role_ops deliver_role = {
    .role = ROLE_DELIVER,
    .program = "smtp",
    .kind = ROLE_WORKS,
    .is_exposed = true,
    .count = deliver_count,
    .start = deliver_start,
    .peer = deliver_peer,
    .reload = deliver_reload,
    .stop = deliver_stop,
    .clock_moved = deliver_clock_moved,
    .turn = deliver_turn,
    .end = deliver_end,
};
