/*
 * The common part of the processes that deliver for the queue process (deliver, local, agents): the
 * channel to it, the lease, and graceful shutdown. The channel is lost when the queue process ends
 * or sends a frame that does not decode; a new one arrives as a peer.
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
    /* Handles a frame of the queue process. Returns false if it does not decode; then the channel
     * is closed. */
    bool (*frame)(void *arg, const struct frame *frame);

    /* Handles the loss of the queue process, which will repeat deliveries without a result;
     * worker->queue is NULL. */
    void (*lost)(void *arg);
};

/* Only `queue`, `lease` and `stop_at` may be read outside worker.c. */
struct worker {
    struct channel *queue; /* NULL: the queue process is gone */
    /* lease for deliveries of that queue process; ends with the channel, after `lost` */
    struct lease_page lease;
    struct mono stop_at; /* time when active deliveries are cut off; us 0: not stopping */
    struct role *role;
    const struct worker_ops *ops;
    void *arg;
    struct event *tick;
};

/* Initializes a worker; `role`, `ops` and `arg` are borrowed until worker_fini. */
void worker_init(struct worker *w, struct role *role, const struct worker_ops *ops, void *arg);

/* Frees a worker; the queue process counts as lost. */
void worker_fini(struct worker *w);

/* Implements role_ops.peer: takes the channel to the queue process, and closes one to any other
 * process. */
void worker_peer(struct worker *w, const struct wire_peer *peer, int fd);

/* Begins the shutdown, which ends after `patience_us` at the latest. */
void worker_stop(struct worker *w, int64_t patience_us);

/* Ends a turn. `often`: turns must follow frequently, not only after events. During shutdown turns
 * are always frequent. */
void worker_tick(struct worker *w, bool often);

/* Ends the process after a shutdown: sends the last results. */
void worker_exit(struct worker *w);

#endif
