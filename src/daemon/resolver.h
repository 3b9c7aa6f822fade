/*
 * DNS questions, asked without waiting: the adapter to libunbound.
 *
 * libunbound resolves inside this process's event loop (ub_resolve_event): no thread, no helper
 * process, so a confined process stays what it is. Cache, retransmission, name server selection and
 * TCP are its own. resolv.conf and hosts are read in resolver_new, before confinement; names in
 * hosts are answered from there.
 *
 * Answers come as DNS packets, from the loop, never from within resolver_ask. A question is
 * answered as RESOLVER_AGAIN at the latest after RESOLVER_TIMEOUT_US.
 */
#ifndef DAEMON_RESOLVER_H
#define DAEMON_RESOLVER_H

#include <stdbool.h>

#include "buf.h"
#include "slice.h"
#include "times.h"

struct event_base;
struct resolver;
struct resolver_query;

#define RESOLVER_TIMEOUT_US (60 * US_PER_S)

enum resolver_type {
    RESOLVER_A = 1,
    RESOLVER_MX = 15,
    RESOLVER_AAAA = 28,
};

enum resolver_outcome {
    RESOLVER_ANSWER,  /* the name exists; the packet tells whether there are such records */
    RESOLVER_NO_NAME, /* the name does not exist */
    RESOLVER_AGAIN,   /* nobody who knows could be asked */
};

typedef void resolver_done(void *arg, enum resolver_outcome outcome, struct slice packet);

/* `servers` are "address:port", "[address]:port" or plain addresses; none: the system's
 * resolv.conf. NULL with a text in *ret_error when that does not work. */
struct resolver *resolver_new(struct event_base *base, const char *const *servers, size_t count,
                              struct buf *ret_error);

/* Questions under way are forgotten. NULL is fine. */
void resolver_free(struct resolver *r);

/* Ask. `name` is as mxlist_name_valid wants it. `done` gets the outcome once; the packet lasts for
 * the call. */
struct resolver_query *resolver_ask(struct resolver *r, struct slice name, enum resolver_type type,
                                    resolver_done *done, void *arg);

/* `done` has not been called, and will not be. NULL is fine. */
void resolver_cancel(struct resolver_query *q);

#endif
