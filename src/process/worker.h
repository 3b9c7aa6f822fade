/*
 * What the processes that deliver for the queue (deliver, local, agents) have in common: their
 * channel to it, which is lost when the queue process ends or sends a frame that does not decode,
 * and comes anew as a peer; the lease that it delivers under; and their graceful shutdown.
 */
#ifndef PROCESS_WORKER_H
#define PROCESS_WORKER_H

#include <stdbool.h>

#include "channel.h"
#include "frame.h"
#include "lease_page.h"
#include "role.h"
#include "times.h"

struct event;

struct worker_ops {
    /* What the queue wants. False: it does not decode, and the channel is closed. */
    bool (*frame)(void *arg, const struct frame *frame);

    /* The queue is gone, worker->queue NULL already: it will want anew what it has no result of. */
    void (*lost)(void *arg);
};

/* Only `queue`, `lease` and `stop_at` are for others to read. */
struct worker {
    struct channel *queue;   /* NULL: the queue process is gone for the moment */
    struct lease_page lease; /* of what that queue process hands out; ends with the channel, after
                                `lost` */
    struct mono stop_at;     /* what is under way then is cut off; us 0: not stopping */
    struct role *role;
    const struct worker_ops *ops;
    void *arg;
    struct event *tick;
};

/* `role`, `ops` and `arg` are borrowed until worker_fini. */
void worker_init(struct worker *w, struct role *role, const struct worker_ops *ops, void *arg);

/* The queue counts as lost. */
void worker_fini(struct worker *w);

/* As role_ops.peer: the queue is taken, and any other process is turned away. */
void worker_peer(struct worker *w, const struct wire_peer *peer, int fd);

/* The process is to end, `patience_us` from now at the latest. */
void worker_stop(struct worker *w, int64_t patience_us);

/* At the end of a turn: have turns often, or when something happens. While the process is stopping
 * they are often. */
void worker_tick(struct worker *w, bool often);

/* Stopping, and nothing is left to do: the last results go out, and the process ends. */
void worker_exit(struct worker *w);

#endif
