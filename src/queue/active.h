/*
 * The messages in memory: data that the queue process needs and the scheduler does not.
 *
 * The scheduler has only numbers of messages and recipients. This table has their envelopes, the
 * recipients that are read and not settled yet, the content that is worth keeping, and the
 * deliveries in flight. All of it can be read from the spool again, so a restart loses nothing.
 *
 * A message is in the table from its claim to the end of its pass. Its recipients are added in
 * batches, in the order of their numbers, and dropped after their settlement.
 *
 * Limits: at most ACTIVE_CONTENT_MAX bytes of content are kept in memory, and as many again in at
 * most ACTIVE_FDS_MAX descriptors of sealed memory. Other content is read again when it is needed.
 */
#ifndef QUEUE_ACTIVE_H
#define QUEUE_ACTIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "hash.h"
#include "params.h"
#include "scheduler.h"
#include "slice.h"
#include "spool.h"
#include "times.h"
#include "waiting.h"

#define ACTIVE_CONTENT_MAX (32u << 20)
/* Longest content that is kept, because it must fit into a frame. */
#define ACTIVE_KEEP_MAX (12u << 20)
#define ACTIVE_FDS_MAX  256u

struct destination;

/* A stored route (spool_routes.h), compared with the route that our tables give. */
enum stored_route {
    STORED_ROUTE_OURS,  /* both are equal */
    STORED_ROUTE_STALE, /* ours differs, or none is stored */
    STORED_ROUTE_NEWER, /* newer tables made the stored route, which applies */
};

struct active_rcpt {
    uint32_t n;
    uint32_t notify;
    bool route_stale;   /* no route is stored, or one of older tables */
    bool route_fixed;   /* its store, or newer tables than ours, define the route */
    bool route_by_rule; /* a rule for this message, such as a content filter, made the route */
    bool moves;         /* is in another partition than its message, and will be moved there
                           (spool_move) */
    bool tried;         /* according to the spool, a delivery was attempted */
    char *address;      /* owned; after its NUL follow the ORCPT and, for a fixed route,
                           transport and next hop; NULL once settled */
};

/* State of a message in its pass; determines what the end of the pass must do:
 *
 *   CLEAN ---- a result is stored ----> TOUCHED
 *     |                                    |
 *   leaves the scheduler           leaves the scheduler, or recipients return untried
 *     v                                    v
 *   LEFT ----- a result is stored, ----> UNTRIED
 *     |        or recipients return
 *     |
 *   CLEAN, LEFT -- all is delivered --> ENDED
 *   any but ENDED -- its claim ends --> DROPPED
 */
enum active_state {
    ACTIVE_CLEAN,   /* the spool has the message as it was when it was claimed */
    ACTIVE_TOUCHED, /* the end of the pass must read its rows */
    ACTIVE_LEFT,    /* taken out of the scheduler; else clean: its claim ends without a change */
    ACTIVE_UNTRIED, /* taken out of the scheduler and touched: the rest continues soon */
    ACTIVE_DROPPED, /* held, removed or requeued meanwhile: its results no longer count */
    ACTIVE_ENDED,   /* its end is in the batch: nothing is left of it */
};

struct active_msg {
    struct msg_id id;
    uint64_t serial; /* grows in the order of arrival in memory */
    char *id_text;   /* owned; name for the log: the store's own one if there is one; the other
                        strings of the message are in the same allocation */
    char *sender, *envid;
    struct active_class *its_class;
    char *sched_class; /* CLASS/GROUP */
    char *path;        /* path of the control file; empty in most engines, like spoolid */
    char *spoolid;
    struct wall arrived, created, listed;
    struct mono activated; /* for delays=a/b */
    struct wall activated_wall;
    uint64_t size;
    struct active_rcpt *rcpts; /* owned; sorted by n; settled ones are dropped from time to time */
    uint32_t rcpt_count, rcpt_size, rcpt_settled;
    uint32_t rcpt_handed; /* index of the first recipient that the scheduler has not got yet */
    uint32_t last_read;   /* highest n read from the spool */
    uint32_t read_max;    /* the number up to which SCHED_READ waits for recipients; 0: none */
    TAILQ_ENTRY(active_msg) by_read;
    unsigned flags;
    uint32_t undone; /* recipients pending at the start of the pass and not delivered or bounced
                        yet */
    bool all_read;
    bool is_part;   /* a part of another message, which may have other parts */
    bool read_soon; /* the recipients for SCHED_READ were requested */
    enum active_state state;
    bool moves;     /* recipients move to other partitions at the end of the pass */
    bool warned;    /* a delay notice was sent */
    bool requested; /* by flush or ETRN: defer_transports and queueonly do not apply */
    bool fresh;     /* was not in memory before: mail that waits for its destinations may
                       continue */
    bool is_new;    /* was never deferred; where new and deferred mail take turns, it is new mail */
    bool unreadable;        /* its recipients are on damaged pages */
    bool is_lost;           /* another node has it: its end of pass is not stored */
    int content_fd;         /* owned; sealed memory; -1: none */
    struct waiting waiting; /* reasons of the recipients deferred in this pass */
    char *content;          /* owned; NULL: not kept */
    size_t content_len;     /* bytes in `content`; the rest is in content_fd */
    UT_hash_handle hh;
};

/* An entry that an agent has, or that waits for an agent. */
struct delivery {
    uint64_t entry;
    struct active_msg *msg;
    uint32_t transport;
    struct destination *destination; /* may be NULL; not freed during the delivery */
    uint32_t *rcpts;                 /* owned */
    size_t rcpt_count;
    struct mono handed;
    enum conf_agent kind;         /* kind of agent: a clause may name another kind than its
                                     transport's */
    unsigned agent;               /* index into the queue's agents */
    bool is_awaited;              /* another node waits for its end */
    bool sent;                    /* sent to the agent; false: waits until the agent's process
                                     runs again */
    bool has_content;             /* the agent has got the content, or has requested it */
    bool awaits_content;          /* the agent waits for content that the spool has not loaded
                                     yet */
    bool is_replaced;             /* waits for the commit of a message that takes over its
                                     recipients */
    size_t inline_bytes;          /* bytes of content sent with the assignment; counted in
                                     active.inline_bytes */
    bool cache_load, cache_store; /* scheduler's hints about cached connections, for the agent */
    char *dest;                   /* owned */
    UT_hash_handle hh;
};

/* Number of messages of a class. */
struct active_class {
    UT_hash_handle hh;
    size_t count;
    char name[];
};

struct active {
    struct active_msg *msgs;
    struct delivery *deliveries;
    struct active_class *classes; /* classes with messages; the empty name stands for messages
                                     without a class */
    size_t content_bytes;         /* total in memory */
    size_t fd_bytes;              /* total in descriptors */
    size_t fds;
    size_t inline_bytes;
    uint64_t last_serial;
    struct active_msg *sweep_at; /* next message of the sweep; NULL: the sweep is over */
    uint64_t sweep_end;          /* serial of the last message of the sweep */
};

void active_init(struct active *a);
void active_fini(struct active *a);

struct active_msg *active_find(struct active *a, struct msg_id id);

/* Adds a message that was claimed, and returns it. `m` is copied; sched_class is the scheduler's
 * name of its class. CHECKs that the message is not in memory. */
struct active_msg *active_add(struct active *a, const struct spool_message *m,
                              struct slice sched_class, struct mono now, struct wall wall_now);

/* Returns the number of messages of a class in memory; an empty name: of messages without a
 * class. */
size_t active_class_count(const struct active *a, struct slice class_name);

/* Frees a message that has no delivery in flight. */
void active_remove(struct active *a, struct active_msg *m);

/* Begins a sweep over all messages that are in memory now, and returns its next message; NULL at
 * its end. Messages may be added and removed between two steps. There is one sweep at a time. */
void active_sweep_begin(struct active *a);
struct active_msg *active_sweep_next(struct active *a);

/* Changes the state as in the diagram above. An ended message stays ended. */
void active_touch(struct active_msg *m);
void active_leave(struct active_msg *m);
void active_drop(struct active_msg *m);
/* CHECKs that the message is clean, completely read, and that nothing of it was deferred. */
void active_end(struct active_msg *m);

static inline bool active_is_dropped(const struct active_msg *m)
{
    return m->state == ACTIVE_DROPPED;
}

/* Was the message taken out of the scheduler? */
static inline bool active_is_out(const struct active_msg *m)
{
    return m->state == ACTIVE_LEFT || m->state == ACTIVE_UNTRIED || m->state == ACTIVE_DROPPED;
}

/* Was no result of the message stored, so that it can be deleted as a whole? */
static inline bool active_is_clean(const struct active_msg *m)
{
    return m->state == ACTIVE_CLEAN || m->state == ACTIVE_LEFT;
}

/* Adds a recipient. CHECKs that its number is higher than all earlier ones. */
void active_add_rcpt(struct active_msg *m, const struct spool_rcpt *from,
                     enum stored_route its_route);

/* Returns NULL if the recipient was not read yet, or is settled. */
struct active_rcpt *active_find_rcpt(struct active_msg *m, uint32_t n);

static inline const char *active_rcpt_orcpt(const struct active_rcpt *r)
{
    return r->address + __builtin_strlen(r->address) + 1;
}

/* Return the transport and next hop of a fixed route. */
struct slice active_rcpt_transport(const struct active_rcpt *r);
struct slice active_rcpt_nexthop(const struct active_rcpt *r);

/* Marks the recipient as settled and frees its strings. */
void active_settle_rcpt(struct active_msg *m, struct active_rcpt *r);

/* Keeps a copy of the whole content if the limits allow. */
void active_keep_content(struct active *a, struct active_msg *m, struct slice content);

/* Keeps the content if the limits allow: a copy of `head`, and a duplicate of `fd`, a sealed memfd
 * with the rest. */
void active_keep_fd(struct active *a, struct active_msg *m, struct slice head, int fd);

/* Adds a delivery; the recipient numbers are copied. */
struct delivery *delivery_add(struct active *a, uint64_t entry, struct active_msg *m,
                              uint32_t transport, struct slice dest, const uint32_t *rcpts,
                              size_t rcpt_count, struct mono now);
struct delivery *delivery_find(const struct active *a, uint64_t entry);
void delivery_remove(struct active *a, struct delivery *d);

#endif
