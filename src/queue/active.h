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
/* The longest content that is kept, as it must fit into a frame. */
#define ACTIVE_KEEP_MAX (12u << 20)
#define ACTIVE_FDS_MAX  256u

struct destination;

/* What a stored route is to us (spool_routes.h). */
enum stored_route {
    STORED_ROUTE_OURS,  /* our tables say the same */
    STORED_ROUTE_STALE, /* or there is none */
    STORED_ROUTE_NEWER, /* it is kept to */
};

struct active_rcpt {
    uint32_t n;
    uint32_t notify;
    bool route_stale;   /* the spool has no route for it, or one of another table */
    bool route_fixed;   /* its store says where it goes, or newer tables than ours */
    bool route_by_rule; /* likewise: by a rule for this message, as a content filter */
    bool moves;         /* another partition's than its message: it goes there (spool_move) */
    bool tried;         /* a delivery was tried, as far as the spool remembers */
    char *address;      /* owned; behind its NUL follow the ORCPT and, where the route is fixed,
                         transport and next hop; NULL once settled */
};

/* What has happened to a message in this pass, and so what its end must see to:
 *
 *   CLEAN ---- a result is stored ----> TOUCHED
 *     |                                    |
 *   taken out                      taken out, or recipients come back untried
 *     v                                    v
 *   LEFT ----- a result is stored, ----> UNTRIED
 *     |        or such recipients
 *     |
 *   CLEAN, LEFT -- all is delivered --> ENDED
 *   any but ENDED -- its claim ends --> DROPPED
 */
enum active_state {
    ACTIVE_CLEAN,   /* the spool has all of it as it was when it came into memory */
    ACTIVE_TOUCHED, /* its rows say what becomes of it at the end of the pass */
    ACTIVE_LEFT,    /* taken out of the scheduler, otherwise clean: it is given back as it was */
    ACTIVE_UNTRIED, /* likewise, but touched: what is left of it goes on soon */
    ACTIVE_DROPPED, /* held, removed or requeued meanwhile: results of it no longer count */
    ACTIVE_ENDED,   /* its end is in the batch: nothing is left of it */
};

struct active_msg {
    struct msg_id id;
    uint64_t serial; /* grows in order of coming */
    char *id_text;   /* owned: its name in the log; where the store has one of its own, that */
    char *sender;    /* owned */
    char *envid;     /* owned */
    struct active_class *its_class;
    char *sched_class; /* owned: the scheduler's name of its class, with its group */
    char *path;        /* owned: of its control file; empty in most engines, as is the next */
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
    uint32_t read_max;  /* what SCHED_READ waits for; 0: nothing */
    bool read_soon;     /* .. and that is on its way */
    TAILQ_ENTRY(active_msg) by_read;
    uint32_t undone; /* pending recipients of this pass that have no final good end yet */
    bool all_read;
    bool is_part; /* of a message that is not gone when this is */
    enum active_state state;
    bool moves;     /* some of it, when the pass ends */
    bool warned;    /* of its delay */
    bool requested; /* flush or ETRN: defer_transports and queueonly do not hold */
    bool fresh;     /* it has not been in memory before: it wakes what waits for its destinations */
    bool unreadable;        /* its recipients are on pages that can't be read */
    bool is_lost;           /* another node has it: no end of its pass is stored */
    struct waiting waiting; /* what is deferred in this pass */
    char *content;          /* owned, or NULL: not kept */
    size_t content_len;     /* all of it, or what comes before the descriptor's bytes */
    int content_fd;         /* owned: sealed memory, or -1 */
    UT_hash_handle hh;
};

/* An entry in the hands of an agent. */
struct delivery {
    uint64_t entry;
    struct active_msg *msg;
    uint32_t transport;
    struct destination *destination; /* kept while there is a delivery; may be NULL */
    uint32_t *rcpts;                 /* owned */
    size_t rcpt_count;
    struct mono handed;
    enum conf_agent kind;         /* of agent: a clause may name another than its transport's */
    unsigned agent;               /* index into the queue's agents */
    bool is_awaited;              /* another node waits for its end */
    bool sent;                    /* to the agent; false: waits for one to come back */
    bool has_content;             /* the agent was given the content, or has asked for it */
    bool awaits_content;          /* .. and the spool has it not at hand yet */
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
    struct delivery *deliveries;
    struct active_class *classes; /* those that have some; without a class is a class, too */
    size_t content_bytes;         /* kept in memory of our own */
    size_t fd_bytes;              /* kept in descriptors, of which there are so many: */
    size_t fds;
    size_t inline_bytes;
    uint64_t last_serial;
    struct active_msg *sweep_at; /* of a walk over all that are here; NULL: at its end */
    uint64_t sweep_end;          /* the serial of the last */
};

void active_init(struct active *a);
void active_fini(struct active *a);

struct active_msg *active_find(struct active *a, struct msg_id id);

/* A message enters, with this name of its class in the scheduler. `m` is copied. CHECKs that it is
 * not here. */
struct active_msg *active_add(struct active *a, const struct spool_message *m,
                              struct slice sched_class, struct mono now, struct wall wall_now);

/* How many are here of this class (empty: without one). */
size_t active_class_count(const struct active *a, struct slice class_name);

/* It leaves; no delivery of it may be left. */
void active_remove(struct active *a, struct active_msg *m);

/* Walk over all messages that are here now, with whatever happens between two steps: NULL behind
 * the last. There is one walk at a time. */
void active_sweep_begin(struct active *a);
struct active_msg *active_sweep_next(struct active *a);

/* The transitions. A message that has ended stays so. */
void active_touch(struct active_msg *m);
void active_leave(struct active_msg *m);
void active_drop(struct active_msg *m);
/* CHECKs that no result of it needs a look at its rows. */
void active_end(struct active_msg *m);

static inline bool active_is_dropped(const struct active_msg *m)
{
    return m->state == ACTIVE_DROPPED;
}

/* It was taken out of the scheduler, whatever happened besides. */
static inline bool active_is_out(const struct active_msg *m)
{
    return m->state == ACTIVE_LEFT || m->state == ACTIVE_UNTRIED || m->state == ACTIVE_DROPPED;
}

/* Nothing that was stored of it stands against deleting it whole. */
static inline bool active_is_clean(const struct active_msg *m)
{
    return m->state == ACTIVE_CLEAN || m->state == ACTIVE_LEFT;
}

/* Append a recipient; its number must be above all before it. */
void active_add_rcpt(struct active_msg *m, const struct spool_rcpt *from,
                     enum stored_route its_route);

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
struct delivery *delivery_add(struct active *a, uint64_t entry, struct active_msg *m,
                              uint32_t transport, struct slice dest, const uint32_t *rcpts,
                              size_t rcpt_count, struct mono now);
struct delivery *delivery_find(const struct active *a, uint64_t entry);
void delivery_remove(struct active *a, struct delivery *d);

#endif
