/*
 * The scheduler's structures, shared by its files. What they mean and how the search works is
 * told at the top of sched.c.
 *
 *   sched.c       messages, facts and decisions: the interface
 *   sched_job.c   jobs: blockers, preemption, recipient slots
 *   sched_list.c  the list of jobs: its order, ages, the best candidate for preemption
 *   sched_class.c classes of mail: class queues, and whose turn it is
 *   sched_turns.c turns of classes, and of groups within a class
 *   sched_dest.c  destinations, peers and entries: windows, timers, what is ready
 *   sched_ring.c  rings: agents that destinations share, and whose turn it is
 *   sched_chore.c sweeps over destinations and drops of messages, in pieces
 *   sched_share.c shares of the active queue: parking and asking back
 *   sched_query.c queries: totals, destinations
 *   sched_audit.c the audit of the structures
 *   sched_why.c   what recipients wait for
 *   sched_fault.c the list of invariants, and the search for what breaks them
 */
#ifndef CORE_SCHED_PRIVATE_H
#define CORE_SCHED_PRIVATE_H

#include <sys/queue.h>

#include "hash.h"
#include "heap.h"
#include "ids.h"
#include "order.h"
#include "pace.h"
#include "rng.h"
#include "scheduler.h"
#include "slab.h"
#include "tree.h"
#include "turns.h"

/* Text that several deferrals share. */
struct reason {
    uint32_t refs;
    uint32_t len;
    char text[];
};

enum timer_type { TIMER_DEST, TIMER_TRANSPORT_DEAD, TIMER_TRANSPORT_RATE, TIMER_ASK_AGAIN };

struct timer {
    struct heap_node node;
    enum timer_type type;
    int64_t at_us;
    uint64_t serial; /* ties: the first armed comes first */
};

/* Recipients handed over together. While it waits it is in its peer's list, while it is delivered
 * in its destination's. */
struct entry {
    TAILQ_ENTRY(entry) link;
    struct peer *peer;
    union {
        uint32_t one;   /* size 1 */
        uint32_t *many; /* owned */
    } rcpts;
    uint32_t count, size;
    uint32_t slot; /* in sched.busy; SLOT_NONE while waiting */
};
TAILQ_HEAD(entry_list, entry);

TAILQ_HEAD(dest_list, dest);

#define SLOT_NONE UINT32_MAX

struct peer {
    struct order_node ring; /* in job.peers */
    struct tree_node node;  /* in dest_queue.waiting, while it has waiting entries; sums those */
    struct job *job;
    struct dest_queue *queue;
    struct entry_list waiting;
    uint64_t since; /* sched.serial when it last began to wait */
    uint32_t waiting_count;
    uint32_t entries; /* waiting and busy; at 0 the peer goes */
};

enum dest_state { DEST_READY, DEST_DEAD, DEST_SUSPENDED };

struct dest_policy {
    struct window_limits limits;
    int64_t rate_delay_us;
    struct ring *ring; /* NULL: none */
    uint32_t depth;
};

/* Destinations that share agents. */
struct ring {
    UT_hash_handle hh; /* in transport.rings */
    struct transport *transport;
    uint32_t number;
    uint32_t agents;
    struct sched_ring_policy policy;
    struct dest_list line;  /* they need an agent; the first is next */
    struct dest *shown;     /* it is the turn of: up for selection, not in line */
    TAILQ_ENTRY(ring) link; /* in transport.in_line, while a destination is in line or shown */
    bool listed;
};

/* Mail of a class for the destination is parked, or was when last asked. */
struct parking {
    struct heap_node wanting;  /* in transport.wanting: more is to be asked for; only the first of
                                  its destination */
    TAILQ_ENTRY(parking) link; /* in sched.ask_later */
    struct dest *dest;
    struct mail_class *mail_class; /* counted; NULL: none */
    struct set_member *member;     /* owned; NULL: mail of one class only; see sched_share.c */
    uint64_t turn;                 /* ties: the one that wants it longest comes first */
    int64_t asked_us;              /* when it was asked for */
    uint32_t asked;                /* SCHED_ADMIT not answered yet: at most so many come; 0: none */
    uint32_t messages;             /* of the class, in memory */
    bool since_asked;              /* more was parked after the question: its answer may not know */
    bool asked_in_time;            /* something was in memory still */
    bool ask_later;                /* the answer was "none now": asked again after a second */
};

/* A class that has mail in memory, or a group of one. */
struct mail_class {
    UT_hash_handle hh;        /* in sched.classes */
    struct mail_class *whole; /* counted: the class that it is a group of; NULL: it is no group */
    uint32_t weight;          /* of the class; a group has none of its own */
    uint32_t refs;            /* messages, class queues, parkings, groups and turns */
    uint16_t name_len;
    char name[];
};

/* Whose turn it is among classes and their groups; see sched_turns.c. Fields are private to it. */
struct class_turns {
    struct sched *sched;
    struct turns classes;
    struct class_turn *by_class; /* uthash: classes with members here, or that rest */
    SLIST_HEAD(, turn) rested;   /* of members, until queue_turn_next_rested */
    TAILQ_HEAD(, class_turn) emptied;
    uint64_t waiting;     /* members */
    uint32_t class_count; /* classes with members here */
};

/* A member: a class queue among those of its transport, or of a destination. */
struct queue_turn {
    struct turn turn;
    struct class_turn *of; /* NULL: it is no member */
};

/* A destination's class queue: what a class queue has for this destination. */
struct dest_queue {
    struct dest *dest;
    struct class_queue *class_queue; /* counted; NULL: of none, and there is nothing */
    struct dest_turn *turn;          /* owned; NULL: it takes no turns with others */
    struct tree_node *waiting;       /* peers with waiting entries, by place of their job */
    struct peer *first;              /* of them, or NULL */
    const struct order_node *place;  /* of its job */
    struct heap_node ready;          /* in class_queue.ready: open, with something waiting */
    uint32_t peers;
    bool closed; /* when last looked at: jobs may be blocked on it */
};

struct dest {
    UT_hash_handle hh; /* in transport.dests */
    struct transport *transport;
    struct dest_policy *policy; /* owned; NULL: the transport's */
    struct parking *parking;    /* owned; the first to be asked for; NULL: nothing is parked */
    struct reason *reason;      /* while dead or probed */
    struct dest_queue queue;
    struct dest_turns *turns; /* owned; NULL: mail of one class queue only */
    struct entry_list busy;
    struct timer timer; /* end of death or of suspension */
    TAILQ_ENTRY(dest)
    link; /* in sched.draining: dead with entries left to defer; in .idle; in transport.held_back;
             or in ring.line */
    struct window window;
    struct pace pace;
    int64_t since_us; /* when it last closed, its state changed, it got in line or became idle */
    int64_t well_us;  /* when a delivery last ended well */
    int64_t last_done_s;
    uint32_t well; /* the window then; 0: never */
    uint32_t slot; /* in sched.dests */
    uint32_t told; /* sched.told when it last caught up with its transport */
    uint32_t waiting_count, busy_count;
    uint32_t messages;  /* peers */
    uint32_t turn_left; /* entries it may start before its agents are for others of its ring */
    uint8_t state;
    bool closed; /* had no room when last looked at */
    bool draining, used, cache_load, cache_store;
    bool failing;      /* a delivery failed since one ended well */
    bool held_back;    /* up for selection, but for the share of failing destinations */
    bool in_line;      /* of its ring */
    bool keeps;        /* an agent came free in its turn: it is to stand in front */
    bool idle;         /* nothing is in memory or parked: it is remembered */
    bool postponed;    /* dead, and its owner has said until when */
    bool handed_over;  /* dead or suspended, as another scheduler has found it */
    bool probing;      /* it was dead: one delivery at a time until one ends well */
    uint8_t deaths;    /* since a delivery ended well */
    uint8_t doublings; /* of what is asked for at once, while something is parked */
    uint16_t name_len;
    char name[];
};

/* Candidates for preemption: all jobs that still need something and that no other preempts, or
 * those of them that are in class_queue.fresh. */
enum candidates { OF_ALL, OF_FRESH };

/* One message seen from one transport. In groups of 64 bytes, cache lines: what neighbours in list
 * and tree look at, what the tree is made of, what a selection needs, the rest. */
struct job {
    struct order_node place;    /* in class_queue.jobs */
    struct tree_node node;      /* in class_queue.list, in the same order; see sched_list.c */
    int64_t expires_s;          /* what the node knows: until when, */
    struct job *best[2];        /* by enum candidates, */
    int64_t oldest_s;           /* and so on */
    int64_t queued_s;           /* of the message */
    uint64_t scored_total;      /* job_total as the list knows it */
    uint32_t scored_needed;     /* entries; 0: not a candidate */
    struct heap_node attention; /* in class_queue.attention or .skipped */
    struct heap_node fresh;     /* in class_queue.fresh */
    struct heap_node unread;    /* in transport.unread, while its message is not fully read */
    struct class_queue *queue;
    struct message *message;
    SLIST_ENTRY(job) of_message;
    struct order peers; /* cyclic: starts behind `last` */
    struct peer *last;  /* selected last; NULL: the cycle starts at the front */
    int64_t slots_available;
    uint32_t selected, read; /* entries; the difference is waiting */
    uint32_t rcpt_count;
    int32_t level : 31; /* -1: not in the lists */
    bool skipped : 1;   /* in class_queue.skipped if in one of the two */
    int64_t rcpt_limit;
    struct job *parent; /* the job it preempts or that has adopted it */
    LIST_HEAD(, job) children;
    LIST_ENTRY(job) siblings;
    uint64_t serial;   /* of linking: age order among equals */
    uint64_t freed_at; /* sched.serial when it was last unmarked as a blocker */
    int64_t slots_used;
};

/* The list of jobs of one class, and what the method keeps with it. */
struct class_queue {
    UT_hash_handle hh; /* in transport.class_queues, when it has a class */
    struct transport *transport;
    struct mail_class *mail_class; /* counted; NULL: mail without a class */
    struct queue_turn turn;        /* in transport.turns_of_queues, while there are others */
    TAILQ_ENTRY(class_queue) link; /* in transport.with_jobs, while it has some in its list */
    uint32_t refs;                 /* jobs and dest queues */
    struct heap ready;             /* dest queues, by place of the first job and its rotation */
    struct order jobs;             /* the scheduler's list */
    struct tree_node *list;        /* the same, summarised */
    uint32_t stale;                /* nodes of it whose summaries are to be computed */
    struct job *current;           /* where selection starts */
    struct job *frontier;  /* before it jobs are known blockers unless fresh; NULL: the end */
    struct heap fresh;     /* jobs before the frontier that are not known blockers, by place */
    struct heap attention; /* jobs that a walk stops at though they have no room, by place */
    struct heap skipped;   /* of those the known blockers, which it passes over */
    uint64_t released_at;  /* sched.serial when blockers were last released */
    struct job *candidate, *candidate_of;
    int64_t candidate_s;

    struct job *asked;
    bool asked_last; /* it was the last chance */
    bool selecting;  /* a selection waits for recipients */
};

struct transport {
    TAILQ_ENTRY(transport) turn; /* in sched.turns */
    struct sched *sched;
    char *name;
    uint32_t index;
    struct sched_transport_policy policy;
    struct window_limits limits;       /* policy.window, with 1 and 1 under a rate delay */
    struct dest *dests;                /* uthash */
    struct heap wanting;               /* parkings of which more is wanted in memory */
    struct dest_list held_back;        /* until failing ones have fewer deliveries; longest first */
    struct ring *rings;                /* uthash */
    TAILQ_HEAD(, ring) in_line;        /* the one with its turn longest ago first */
    uint32_t busy, waiting;            /* entries */
    uint32_t extra;                    /* busy ones beyond the first of each agent */
    uint32_t busy_failing;             /* for failing destinations */
    uint32_t policy_told, revive_told; /* sched.told when it got its policy, was revived */

    struct class_queue plain;           /* of mail without a class */
    struct class_queue *class_queues;   /* uthash: of classes with mail here, or until just now */
    struct class_turns turns_of_queues; /* while there are some: those with something ready wait */
    TAILQ_HEAD(, class_queue) with_jobs;
    uint64_t starts;                  /* deliveries begun */
    TAILQ_HEAD(, dest_turns) unshown; /* the first shows the next class queue; see sched.c */

    struct heap unread;      /* jobs whose messages are not fully read, by age */
    struct job *next_unread; /* the one that gets spare recipient slots */
    int64_t rcpt_unused;     /* slots; below 0 when taken from the extra pool */
    uint64_t link_serial;

    struct reason *reason; /* while dead */
    struct timer dead, rate;
    struct mono died, full; /* when it died; when its process limit was last reached */
    bool rate_locked;
};

enum message_list { LIST_NONE, LIST_TO_READ, LIST_DONE, LIST_TO_PARK, LIST_DROPPING };

struct message {
    struct sched_msg id;
    SLIST_HEAD(, job) jobs;     /* in order of creation */
    TAILQ_ENTRY(message) link;  /* in sched.to_read, .done, .to_park or .dropping */
    int64_t queued_s, refill_s; /* refill_s: of the last answer, while reading of the question */
    int64_t rcpt_limit;
    struct mail_class *mail_class; /* counted; NULL: none */
    uint32_t entries;              /* waiting and busy */
    uint32_t peers;                /* that hold them */
    uint32_t deferrals;            /* not pulled yet */
    uint32_t rcpt_count, rcpt_unread;
    uint8_t list;
    bool one_per_entry, opened, all_read, reading, dropped;
};
TAILQ_HEAD(message_list_head, message);

/* Recipients to be deferred without an attempt, which never became entries. */
struct deferral {
    TAILQ_ENTRY(deferral) link;
    struct message *message;
    struct transport *transport;
    struct reason *reason; /* counted */
    char *dest;            /* owned; empty when the transport is dead */
    size_t dest_len;
    uint32_t *rcpts; /* owned */
    uint32_t count;
    size_t size;
};

/* Something for the log. */
struct event {
    STAILQ_ENTRY(event) link;
    enum sched_action_type type;
    struct transport *transport;
    char *dest; /* owned */
    size_t dest_len;
    struct reason *reason; /* counted, or NULL */
    struct mono until;
    uint32_t window;
};

struct busy_slot {
    uint64_t id; /* generation of the slot << 24 | slot */
    struct entry *entry;
    struct mono started;
    uint32_t next_free;
};

struct sched {
    struct sched_limits limits;
    struct mono now; /* of the last fact or decision */
    struct sched_window_step step;
    struct transport **transports;
    uint32_t transport_count;
    TAILQ_HEAD(, transport) turns; /* the first is asked first */
    struct ids messages;
    struct mail_class *classes; /* uthash */
    uint32_t plain_weight;      /* of mail without a class */
    struct message_list_head to_read, done, to_park, dropping;
    uint32_t told;     /* how often destinations of a whole transport were told something */
    uint32_t sweep_at; /* those in lower slots may not know it yet */
    uint32_t at_once;  /* destinations or entries that a piece of a chore covers */
    bool lines_left;   /* some rings have to be looked at again, whatever else happens */
    TAILQ_HEAD(deferral_list, deferral) deferrals;
    STAILQ_HEAD(, event) events;
    struct dest_list draining, idle; /* idle: longest first */
    TAILQ_HEAD(, parking) ask_later;
    struct heap timers;
    struct timer ask_again;     /* for those in ask_later */
    struct class_queue *resume; /* its selection waits for recipients */
    struct busy_slot *busy;
    uint32_t busy_size, busy_free;
    struct dest **dests; /* by slot; NULL where free */
    size_t dest_size;
    uint32_t dest_count, dead_count, parked_count, idle_count;
    uint32_t asked;      /* messages that answers to SCHED_ADMIT may still bring */
    uint32_t rcpt_count; /* in entries */
    uint32_t deferred_rcpts, busy_count, waiting_count;
    struct ring **rings; /* of all transports */
    uint32_t ring_count;
    uint32_t rings_listed;   /* in in_line of their transports */
    uint32_t extra;          /* busy entries beyond the first of each agent */
    int64_t agents_moved_us; /* when what lines wait for last changed */
    uint64_t decisions, serial;
    unsigned early_drains; /* messages, since there was nothing left to decide */
    struct slab message_slab, job_slab, peer_slab, entry_slab;
    size_t bytes;   /* besides slabs */
    struct rng rng; /* balances trees; no decision depends on it */

    /* What the last action pointed to, until the next call. */
    struct deferral *out_deferral;
    struct event *out_event;
    char *out_name;
    struct reason *out_reason;
    uint32_t *out_rcpts;
    size_t out_size;
};

/* What sched.at_once begins as: about a tenth of a millisecond. */
#define SCHED_AT_ONCE 500

#define JOB_OF(n)  CONTAINER_OF(n, struct job, place)
#define PEER_OF(n) CONTAINER_OF(n, struct peer, node)

static inline bool job_before(const struct job *a, const struct job *b)
{
    return order_before(&a->place, &b->place);
}

static inline struct job *job_next(const struct job *j)
{
    return j->place.next != NULL ? JOB_OF(j->place.next) : NULL;
}

/* Entries of the job as far as is known: those read and all recipients unread. */
static inline uint64_t job_total(const struct job *j)
{
    return (uint64_t)j->read + j->message->rcpt_unread;
}

static inline struct dest *peer_dest(const struct peer *p)
{
    return p->queue->dest;
}

static inline uint32_t dest_depth(const struct dest *d)
{
    return d->policy != NULL ? d->policy->depth : 1;
}

/* NULL: it has none. */
static inline struct ring *dest_ring(const struct dest *d)
{
    return d->policy != NULL ? d->policy->ring : NULL;
}

/* May something of it be selected, as far as its ring is concerned? It has one. */
bool ring_opens(const struct dest *d);

/* Does its ring, if it has one, let something of it be selected? */
static inline bool dest_admitted(const struct dest *d)
{
    return dest_ring(d) == NULL || ring_opens(d);
}

/* Entries that its window lets it have at once. */
static inline uint64_t dest_capacity(const struct dest *d)
{
    return d->probing ? 1 : (uint64_t)d->window.size * dest_depth(d);
}

static inline uint32_t transport_agents(const struct transport *t)
{
    return t->busy - t->extra;
}

static inline uint32_t sched_agents(const struct sched *s)
{
    return s->busy_count - s->extra;
}

/* ---- sched.c */

struct message *message_find(const struct sched *s, struct sched_msg id);

void *sched_alloc(struct sched *s, size_t size);
void sched_release(struct sched *s, void *ptr, size_t size);

struct reason *reason_new(struct slice text);
struct reason *reason_ref(struct reason *reason);
void reason_unref(struct reason *reason);
struct slice reason_slice(const struct reason *reason);

void sched_event(struct sched *s, enum sched_action_type type, const struct dest *d);

/* Something of the message has changed that may end it or call for more recipients. */
void message_check(struct sched *s, struct message *m);

/* An entry of it has ended: what is left may be for the disk. */
void message_park_check(struct sched *s, struct message *m);

void message_list(struct sched *s, struct message *m, enum message_list to);
void message_free(struct sched *s, struct message *m);

/* ---- sched_chore.c */

/* Destinations of a transport are to be told something: the number of it, for policy_told or
 * revive_told. */
uint32_t chore_sweep(struct sched *s);
bool chore_sweeping(const struct sched *s);

/* The destination follows what its transport was told. Call dest_check after that, unless it has
 * or gets entries. */
void dest_catch_up(struct dest *d);

/* The message's waiting entries are to go. */
void chore_drop(struct sched *s, struct message *m);

/* Forget waiting entries of a message, at most so many. True when none is left. */
bool message_forget_waiting(struct message *m, struct mono now, uint32_t limit);

/* A piece of what is left. */
void chores_run(struct sched *s, struct mono now);
bool chores_left(const struct sched *s);

/* ---- sched_share.c */

/* How many messages one destination may hold as things are. At least 1 while there is a place. */
uint64_t share_threshold(const struct sched *s);

/* Order of transport.wanting. */
bool parking_less(const struct heap_node *a, const struct heap_node *b);

/* Is parked mail to be asked for? */
bool parking_wants(const struct parking *parking);

/* All of a destination, from NULL to NULL. In constant time each. */
const struct parking *parking_next(const struct dest *d, const struct parking *parking);

/* The destination's window or state has changed. */
void share_refresh(struct dest *d);

/* A message has come into the destination's class queue or left it. */
void share_count(const struct dest_queue *dq);

/* The destination is to be freed. */
void share_forget(struct dest *d);

/* All that is left of the message waits for one destination that holds more than its share. */
bool share_evicts(const struct sched *s, const struct message *m);
bool share_next_park(struct sched *s, struct mono now, struct sched_action *a);
bool share_next_admit(struct sched *s, struct sched_action *a);
void share_ask_again(struct sched *s);
void share_audit(const struct dest *d);

/* ---- sched_list.c */

/* Put a job into the list, behind `prev` or at the front, or take it out. */
void list_add_after(struct class_queue *q, struct job *prev, struct job *j);
void list_remove(struct job *j);

/* The job's entries, message or children may have changed. */
void list_numbers_changed(struct job *j);

/* Its stack parent has, or it went into or out of class_queue.fresh. */
void list_changed(struct job *j);

/* The last job in the list that has no stack parent and is at least as old. */
struct job *list_last_as_old(struct class_queue *q, int64_t queued_s);

/* Of the jobs behind `current` that are no known blockers and need at most so many entries, the one
 * with the highest score, the first among equals; or NULL. */
struct job *list_best_candidate(struct class_queue *q, const struct job *current,
                                uint64_t needed_max);
void list_audit(const struct class_queue *q);

/* ---- sched_job.c */

void class_queue_init(struct class_queue *q, struct transport *t);
void class_queue_fini(struct class_queue *q);

/* An entry is given back to the job: it is in the list and no known blocker. */
void job_given_back(struct job *j);

/* The message's job in this transport, made and linked as needed, no known blocker. */
struct job *job_need(struct message *m, struct transport *t);

/* Numbers of the job have changed: entries, what is unread, its place. */
void job_changed(struct job *j);

/* The same for all jobs of a message. */
void message_changed(struct message *m);

void job_retire(struct job *j);
/* Its message has let go of it already. */
void job_free(struct job *j);

void transport_slots_init(struct transport *t);
/* `unread`: jobs of messages that are not fully read; `slots`: those that all jobs hold. */
void transport_slots_audit(const struct transport *t, uint64_t unread, int64_t slots);

/* The transport's pool has grown, or shrunk when negative. */
void transport_slots_added(struct transport *t, int64_t slots);

/* An entry of the job is gone (settled or dropped): return recipient slots. */
void job_slots_returned(struct job *j);

/* The message is fully read: its jobs return what they don't need. */
void message_slots_returned(struct message *m);

bool job_is_known_blocker(const struct job *j);
void class_queue_forget_candidate(struct class_queue *q);

/* It has opened, which may end the blocking of its class queue's jobs. */
void dest_queue_unblocks(struct dest_queue *dq);

/* The first peer that can be served, or NULL. */
struct peer *class_queue_first_ready(struct class_queue *q);

enum walk { WALK_NOTHING, WALK_PEER, WALK_READ };

/* Which peer of the transport is next. WALK_READ: recipients of *ret_message are wanted first; call
 * again when they are there. */
enum walk class_queue_walk(struct class_queue *q, int64_t now_s, struct peer **ret_peer,
                           struct message **ret_message);

/* Accounts for a selection from the job. */
void job_selected(struct job *j);

void class_queue_audit(const struct class_queue *q);

/* ---- sched_turns.c */

void class_turns_init(struct class_turns *ts, struct sched *s);
/* Members may still be there; they are the owner's. */
void class_turns_fini(struct class_turns *ts);

/* A member comes; it goes, and does not wait. Between the two it may wait, or rest. */
void queue_turn_add(struct class_turns *ts, struct queue_turn *m, struct mail_class *mail_class);
void queue_turn_remove(struct class_turns *ts, struct queue_turn *m);

/* The calls of turns.h, with the same meanings, for members. */
void queue_turn_join(struct class_turns *ts, struct queue_turn *m);
void queue_turn_leave(struct class_turns *ts, struct queue_turn *m);
struct queue_turn *class_turns_first(struct class_turns *ts);
void queue_turn_took(struct class_turns *ts, struct queue_turn *m);
struct queue_turn *queue_turn_next_rested(struct class_turns *ts);

/* Of `weights` turns the class gets `weight`, and of those a member one of `members_waiting`. */
struct turn_share {
    uint64_t weight, weights; /* weights: of all classes that take part */
    uint64_t classes_waiting, members_waiting;
    uint32_t class_count, member_count; /* that are here: classes, members of its class */
};
struct turn_share queue_turn_share(const struct class_turns *ts, const struct queue_turn *m);

void class_turns_audit(const struct class_turns *ts);

/* ---- sched_class.c */

struct mail_class *class_find(const struct sched *s, struct slice name);
/* One more reference to it; NULL for the empty name. */
struct mail_class *class_need(struct sched *s, struct slice name);
void class_unref(struct sched *s, struct mail_class *c);

struct class_queue *class_queue_need(struct transport *t, struct mail_class *c);
/* It may be gone after. */
void class_queue_unref(struct class_queue *q);
/* All of a transport, which is to be freed. */
void class_queues_free(struct transport *t);

/* Something has come into its heap `ready`, or gone. */
void class_queue_ready_changed(struct class_queue *q);

/* The class queue whose turn it is of those with something to select; NULL when there is none.
 * class_queue_took counts the turn. */
struct class_queue *transport_next_queue(struct transport *t);
void class_queue_took(struct class_queue *q);

/* Empty for NULL. */
struct slice class_name_of(const struct mail_class *c);

/* The class of which it is a group, or itself; NULL for NULL. */
struct mail_class *class_whole(struct mail_class *c);

/* The destination's queue of a class, or NULL. */
const struct dest_queue *dest_queue_find(const struct dest *d, struct slice class_name);
/* Into how many parts the class and group of the queue divide what the destination has: the number
 * of classes with mail in memory, or that had some until just now, times that of the class's
 * groups; at least 1. */
uint64_t dest_queue_parts(const struct dest_queue *dq);
/* The class queue's part for the destination, made as needed. It lasts as long as it has peers. */
struct dest_queue *dest_queue_need(struct dest *d, struct class_queue *q);
/* It may be gone after. */
void dest_queue_check(struct dest_queue *dq);
/* Its first peer began to wait; its last one no longer does. dest_refresh is to follow. */
void dest_queue_waits(struct dest_queue *dq, bool waits);
/* Which part it has of its destination's turns. False: all of them. */
bool dest_queue_share(const struct dest_queue *dq, struct turn_share *ret_share);
/* A delivery of it begins; likewise. */
void dest_queue_took(struct dest_queue *dq);

/* What dest_refresh does where several class queues take turns. */
void dest_turns_refresh(struct dest *d, struct dest_queue *touched);
/* Nothing is in memory of the destination: forget which class queue had what. */
void dest_turns_forget(struct dest *d);
/* A delivery has begun. If the transport can't take more, one more class queue may use room that
 * those whose turn it is leave unused. */
void transport_show_more(struct transport *t);

/* The queue of the destination whose turn it is, or that has something waiting; one that may be
 * selected; and all of them, from NULL to NULL. */
struct dest_queue *dest_first_queue(struct dest *d);
const struct dest_queue *dest_shown_queue(const struct dest *d);
const struct dest_queue *dest_next_queue(const struct dest *d, const struct dest_queue *dq);

void dest_turns_audit(const struct dest *d);
void class_queues_audit(const struct transport *t);

/* ---- sched_ring.c */

uint32_t dest_agents(const struct dest *d);
/* Does the next entry of it need no other agent? */
bool dest_fits(const struct dest *d);
/* May this ring use one more agent? `promised`: so many more are as good as in use. */
bool ring_has_agent(const struct ring *r, uint32_t promised);

struct ring *ring_need(struct transport *t, uint32_t number);
struct ring *ring_find(const struct transport *t, uint32_t number);
/* All of a transport, which is to be freed. */
void rings_free(struct transport *t);

/* Give the destination another ring and depth. dest_refresh is to follow. */
void dest_set_ring(struct dest *d, struct ring *r, uint32_t depth);

/* The next three are for those with a policy of their own. One more entry of it is being delivered
 * (busy_count says so already), or one less. dest_refresh is to follow. */
void ring_entry_started(struct dest *d);
void ring_entry_ended(struct dest *d);

/* Put it in line or take it out. `wants`: it would start something. */
void ring_place(struct dest *d, bool wants);
/* Out of line, out of turn. */
void ring_leave(struct dest *d);
/* Show what may be served now, of each ring one destination. True when one is new. */
bool transport_show_rings(struct transport *t);
void rings_audit(const struct transport *t);

/* ---- sched_fault.c */

/* Abort unless all of the list holds, but for what takes too long. */
void invariants_audit(const struct sched *s);

/* ---- sched_dest.c */

/* Of dest_queue.waiting: peers by place of their job, weighing their waiting entries. */
extern const struct tree_type waiting_type;

/* Order of struct class_queue.ready: by place of the first peer's job, then by that job's rotation.
 * */
bool dest_queue_less(const struct heap_node *a, const struct heap_node *b);

struct dest *dest_find(const struct transport *t, struct slice name);
struct dest *dest_need(struct transport *t, struct slice name);
const struct window_limits *dest_limits(const struct dest *d);
int64_t dest_rate_delay(const struct dest *d);
bool dest_has_room(const struct dest *d);
/* It has room, is not held back, and its ring lets it: something of it may be selected. */
bool dest_is_open(const struct dest *d);

/* Put the destination where it belongs after a change: ready or not, by its first peer. `touched`:
 * its queue whose peers have changed, NULL when none have. */
void dest_refresh(struct dest *d, struct dest_queue *touched);

void dest_queue_init(struct dest_queue *dq, struct dest *d);
/* Put it into its class queue's heap or take it out. Open: the destination would take something of
 * it. */
void dest_queue_refresh(struct dest_queue *dq, bool open);
void dest_die(struct dest *d, struct mono now, struct slice reason);
/* What its timer was set for is over: it is tried again. */
void dest_time_over(struct dest *d);
/* It is well, or treated so. */
void dest_revive(struct dest *d);
/* Dead until then, as its owner says. */
void dest_postpone(struct dest *d, struct mono until, struct slice reason);
/* It has answered: what that means when it was dead for failure, postponed or not. */
void dest_recover(struct dest *d);
void dest_limits_changed(struct dest *d);
void dest_suspend(struct dest *d, struct mono until);
/* As another scheduler has found it; `until` is to come. */
void dest_take_over(struct dest *d, const struct sched_suspension *x);

/* A delivery failed, or ended well. */
void dest_set_failing(struct dest *d, bool failing);
/* How many deliveries failing destinations may have at once; UINT32_MAX: no limit. */
uint32_t transport_failing_limit(const struct transport *t);
/* Its turn has come, and failing destinations have all deliveries that they may: it is closed until
 * transport_release_held_back. False when it may be served. */
bool dest_hold_back(struct dest *d);
void transport_release_held_back(struct transport *t);
/* Nothing of it may be left in memory: remember it or free it. */
void dest_check(struct dest *d);
/* Free some of those remembered for too long. */
void dest_forget_old(struct sched *s);
/* How much is left of what was learned at `since_us`: 1 all, 0 nothing. */
double dest_memory_left(const struct sched *s, int64_t since_us);
void dest_free(struct dest *d);
void dest_queue_tree_audit(const struct dest_queue *dq);

struct peer *peer_need(struct job *j, struct dest *d);

/* One more recipient, in the peer's last waiting entry or a new one. */
void peer_add_rcpt(struct peer *p, uint32_t n);

/* The job has got another place in the list: take its peers out before, put them back after. */
void job_peers_out(struct job *j);
void job_peers_back(struct job *j);

void entry_start(struct entry *e, int64_t now_s);
void entry_unstart(struct entry *e);
struct entry *entry_find(const struct sched *s, struct sched_entry id);
const uint32_t *entry_rcpts(const struct entry *e);

/* It is settled, or dropped while waiting. Frees the entry and what hangs on it alone. */
void entry_done(struct entry *e, struct mono now);

void timer_init(struct timer *timer, enum timer_type type);
void timer_set(struct sched *s, struct timer *timer, struct mono at);
void timer_cancel(struct sched *s, struct timer *timer);

#endif
