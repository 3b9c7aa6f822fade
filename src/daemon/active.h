/*
 * The active queue's other half: what the scheduler does not need to know of a message in memory.
 *
 * The scheduler knows messages and recipients by number. Here are the names to those numbers: the
 * envelope, the recipients that have been read and not yet settled, the content while it is worth
 * keeping, and the deliveries that are under way. Everything here can be made again from the spool,
 * so nothing of it survives a restart.
 *
 * A message is here from its claim to its end of pass. Its recipients come in batches, in order of
 * their numbers, and go one by one as they are settled.
 *
 * Limit: content kept is at most ACTIVE_CONTENT_MAX in all, and as much again in ACTIVE_FDS_MAX
 * descriptors of memory; beyond it, it is read again when needed.
 */
#ifndef DAEMON_ACTIVE_H
#define DAEMON_ACTIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "hash.h"
#include "scheduler.h"
#include "slice.h"
#include "spool.h"
#include "times.h"

#define ACTIVE_CONTENT_MAX (32u << 20)
/* The longest content that is kept, as it must fit into a frame. */
#define ACTIVE_KEEP_MAX (12u << 20)
#define ACTIVE_FDS_MAX  256u

struct site;

struct active_rcpt {
    uint32_t n;
    uint32_t notify;
    bool route_stale; /* the spool has no route for it, or one of another table */
    bool route_fixed; /* its store says where it goes */
    bool tried;       /* a delivery was tried, as far as the spool remembers */
    char *address;    /* owned; behind its NUL follow the ORCPT and, where the route is fixed,
                         transport and next hop; NULL once settled */
};

struct active_msg {
    struct msg_id id;
    char *id_text; /* owned: its name in the log; where the store has one of its own, that */
    char *sender;  /* owned */
    char *envid;   /* owned */
    struct active_class *its_class;
    char *lane; /* owned: the scheduler's name of its class, with its group */
    char *path; /* owned: of its control file; empty in most engines, as is the next */
    char *spoolid;
    unsigned flags;
    struct wall arrived, created, listed;
    struct mono activated; /* for delays=a/b */
    struct wall activated_wall;
    uint64_t size;
    struct active_rcpt *rcpts; /* owned, sorted by n; settled ones are dropped now and then */
    size_t rcpt_count, rcpt_size, rcpt_settled;
    size_t rcpt_handed; /* of a message that came with its recipients: those not yet given to the
                           scheduler start here */
    uint32_t last_read; /* highest n read from the spool */
    uint32_t undone;    /* pending recipients of this pass that have no final good end yet */
    bool all_read;
    bool touched; /* the spool knows of a result that a look at its rows must decide about */
    bool dropped; /* held, removed or requeued meanwhile: results of it no longer count */
    bool untried; /* recipients left the scheduler without an attempt: they go on at once */
    bool ended;   /* its end is in the batch already */
    bool warned;  /* of its delay */
    bool wanted;  /* somebody asked for it: defer_transports and queueonly do not hold */
    bool fresh;   /* it has not been in memory before: it wakes what waits for its destinations */
    /* What is deferred in this pass waits for one dead destination alone: its key, owned. */
    char *suspended_for;
    bool unreadable;    /* its recipients are on pages that can't be read */
    bool deferred_else; /* no: something was deferred for another reason */
    /* When what is deferred in this pass goes again, by its threads; us 0: by none. Where messages
     * can't be divided that is the message's time. */
    struct wall again_at;
    char *again_key;      /* owned: the retry key, when there is one thread alone */
    bool again_several;   /* there are several */
    bool again_else;      /* something deferred has no thread */
    bool lifetime_of_all; /* something deferred has no expiry of its own */
    char *content;        /* owned, or NULL: not kept */
    size_t content_len;   /* all of it, or what comes before the descriptor's bytes */
    int content_fd;       /* owned: sealed memory, or -1 */
    UT_hash_handle hh;
};

/* An entry in the hands of an agent. */
struct flight {
    uint64_t entry;
    struct active_msg *msg;
    uint32_t transport;
    const struct site *site; /* the queue's, which keeps it while there is a flight; may be NULL */
    uint32_t *rcpts;         /* owned */
    size_t rcpt_count;
    struct mono handed;
    unsigned agent;               /* index into the queue's agents */
    bool sent;                    /* to the agent; false: waits for one to come back */
    bool has_content;             /* the agent was given the content */
    size_t inline_bytes;          /* content sent along, for the budget */
    bool cache_load, cache_store; /* the scheduler's hints for the agent */
    char *dest;                   /* owned */
    UT_hash_handle hh;
};

/* Messages of a class. */
struct active_class {
    UT_hash_handle hh;
    size_t count;
    char name[];
};

struct active {
    struct active_msg *msgs;
    struct flight *flights;
    struct active_class *classes; /* those that have some; without a class is a class, too */
    size_t content_bytes;         /* kept in memory of our own */
    size_t fd_bytes;              /* kept in descriptors, of which there are so many: */
    size_t fds;
    size_t inline_bytes;
};

void active_init(struct active *a);
void active_fini(struct active *a);

struct active_msg *active_find(struct active *a, struct msg_id id);

/* A message enters, with this name of its class in the scheduler. `m` is copied. CHECKs that it is
 * not here. */
struct active_msg *active_add(struct active *a, const struct spool_message *m, struct slice lane,
                              struct mono now, struct wall wall_now);

/* How many are here of this class (empty: without one). */
size_t active_class_count(const struct active *a, struct slice class_name);

/* It leaves; no flight of it may be left. */
void active_remove(struct active *a, struct active_msg *m);

/* Append a recipient; its number must be above all before it. */
void active_add_rcpt(struct active_msg *m, const struct spool_rcpt *from, bool route_stale);

/* NULL when it is not here (never read, or settled). */
struct active_rcpt *active_find_rcpt(struct active_msg *m, uint32_t n);

static inline const char *active_rcpt_orcpt(const struct active_rcpt *r)
{
    return r->address + __builtin_strlen(r->address) + 1;
}

/* Where a fixed route leads. */
struct slice active_rcpt_transport(const struct active_rcpt *r);
struct slice active_rcpt_nexthop(const struct active_rcpt *r);

/* The recipient is settled: forget its strings. */
void active_settle_rcpt(struct active_msg *m, struct active_rcpt *r);

/* Keep the content if the budget allows. */
void active_keep_content(struct active *a, struct active_msg *m, struct slice content);

/* Keep the content, `head` and what is in `fd` (a sealed memfd, which is duplicated), if the
 * budgets allow. */
void active_keep_fd(struct active *a, struct active_msg *m, struct slice head, int fd);

/* A delivery starts: takes a copy of the recipient numbers. */
struct flight *flight_add(struct active *a, uint64_t entry, struct active_msg *m,
                          uint32_t transport, struct slice dest, const uint32_t *rcpts,
                          size_t rcpt_count, struct mono now);
struct flight *flight_find(struct active *a, uint64_t entry);
void flight_remove(struct active *a, struct flight *f);

#endif
