#include "worker.h"

#include <event2/event.h>
#include <sysexits.h>
#include <unistd.h>

#include "check.h"
#include "clock.h"
#include "log.h"

#define TICK_MS  200
#define DRAIN_MS 1000

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg; /* the turn that follows does the work */
}

void worker_init(struct worker *w, struct role *role, const struct worker_ops *ops, void *arg)
{
    *w = (struct worker){.role = role, .ops = ops, .arg = arg};
    w->tick = event_new(role->base, -1, EV_PERSIST, on_tick, NULL);
    CHECK(w->tick != NULL);
}

static void lose_queue(struct worker *w)
{
    channel_free(w->queue);
    w->queue = NULL;
    role_queue_lost(w->role);
    w->ops->lost(w->arg);
    lease_page_fini(&w->lease);
}

void worker_fini(struct worker *w)
{
    if (w->queue != NULL) {
        lose_queue(w);
    }
    event_free(w->tick);
}

/* Takes the page of the lease; a queue process sends only one. */
static bool take_lease(struct worker *w, const struct frame *frame)
{
    if (frame->fd < 0) {
        return false;
    }
    if (lease_page_exists(&w->lease) || !wire_get_empty(frame->body)) {
        (void)close(frame->fd); /* not used */
        return false;
    }
    return lease_page_take(frame->fd, &w->lease);
}

static bool take_frame(struct worker *w, const struct frame *frame)
{
    return frame->type == WIRE_LEASE ? take_lease(w, frame) : w->ops->frame(w->arg, frame);
}

static void on_queue(void *arg, struct channel *ch)
{
    struct worker *w = arg;
    struct frame frame;

    for (;;) {
        switch (channel_next(ch, &frame)) {
        case CHANNEL_EMPTY:
            return;
        case CHANNEL_FRAME:
            if (take_frame(w, &frame)) {
                break;
            }
            log_error("queue: a frame of type %u does not decode: connection closed", frame.type);
            lose_queue(w);
            return;
        case CHANNEL_CLOSED:
            lose_queue(w);
            return;
        }
    }
}

void worker_peer(struct worker *w, const struct wire_peer *peer, int fd)
{
    if (peer->role != ROLE_QUEUE) {
        (void)close(fd); /* only queue sends us frames */
        return;
    }
    if (w->queue != NULL) {
        lose_queue(w);
    }
    w->queue = channel_new(w->role->base, fd, on_queue, w);
}

void worker_stop(struct worker *w, int64_t patience_us)
{
    w->stop_at = mono_after(clock_mono(), patience_us);
}

void worker_tick(struct worker *w, bool often)
{
    static const struct timeval period = {.tv_usec = TICK_MS * 1000};

    if (!often && !w->role->stopping) {
        CHECK(event_del(w->tick) == 0);
    } else if (!event_pending(w->tick, EV_TIMEOUT, NULL)) {
        CHECK(event_add(w->tick, &period) == 0);
    }
}

void worker_exit(struct worker *w)
{
    if (w->queue != NULL) {
        (void)channel_drain(w->queue, DRAIN_MS); /* otherwise queue detects the end */
    }
    role_exit(w->role, EX_OK);
}
