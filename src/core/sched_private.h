/*
 * Structures of the scheduler, shared by its files. The top of sched.c explains their meaning and
 * the search.
 *
 *   sched.c       messages, facts and decisions: the interface
 *   sched_job.c   jobs: blockers, preemption, recipient slots
 *   sched_list.c  the list of jobs: its order, ages, the best candidate for preemption
 *   sched_class.c classes of mail: class queues, and their turns
 *   sched_turns.c turns of classes, and of groups within a class
 *   sched_dest.c  destinations, peers and entries: windows, timers, readiness
 *   sched_ring.c  rings: agents that destinations share, and the turns of these destinations
 *   sched_chore.c sweeps over destinations and drops of messages, in pieces
 *   sched_share.c shares of the active queue: parking and admission
 *   sched_query.c queries: totals, destinations
 *   sched_audit.c the audit of the structures
 *   sched_why.c   reasons why recipients wait
 *   sched_fault.c the list of invariants, and the search for violations
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

/* Text shared by several deferrals. */
struct reason {
    uint32_t refs;
    uint32_t len;
    char text[];
};

enum timer_type {
    TIMER_DEST,
    TIMER_TRANSPORT_DEAD,
    TIMER_TRANSPORT_RATE,
    TIMER_NEWCOMER,
    TIMER_ASK_AGAIN
};

struct timer {
    struct heap_node node;
    enum timer_type type;
    int64_t at_us;
    uint64_t serial; /* breaks ties: the timer that was armed first comes first */
};

/* Recipients handed over together. A waiting entry is in its peer's list, an entry that is being
 * delivered is in its destination's. */
struct entry {
    TAILQ_ENTRY(entry) link;
    struct peer *peer;
    union {
        uint32_t one;   /* if size is 1 */
        uint32_t *many; /* owned, if size is greater */
    } rcpts;
    uint32_t count, size;
    uint32_t slot; /* slot in sched.busy; SLOT_NONE while waiting */
};
TAILQ_HEAD(entry_list, entry);

TAILQ_HEAD(dest_list, dest);

#define SLOT_NONE UINT32_MAX

struct peer {
    struct order_node ring; /* node in job.peers */
    struct tree_node node;  /* node in dest_queue.waiting, while the peer has waiting entries; sums
                             * their number */
    struct job *job;
    struct dest_queue *queue;
    struct entry_list waiting;
    uint64_t since; /* sched.serial when the peer last began to wait */
    uint32_t waiting_count;
    uint32_t entries; /* waiting and busy; the peer is freed at 0 */
};

enum dest_state { DEST_READY, DEST_DEAD, DEST_SUSPENDED };

/* Results of the deliveries to a destination so far. Destinations that are not proven share a part
 * of a transport's deliveries; see transport_standing_limit. */
enum standing {
    STANDING_PROVEN,   /* a delivery succeeded, and none failed since */
    STANDING_UNPROVEN, /* no delivery has succeeded or failed */
    STANDING_FAILING,  /* a delivery failed, and none succeeded since */
    STANDINGS,
};

struct dest_policy {
    struct window_limits limits;
    int64_t rate_delay_us;
    struct ring *ring; /* NULL: none */
    uint32_t depth;
};

/* Destinations that share agents. */
struct ring {
    UT_hash_handle hh; /* node in transport.rings */
    struct transport *transport;
    uint32_t number;
    uint32_t agents;
    struct sched_ring_policy policy;
    struct dest_list line;  /* destinations that need an agent, the next one first */
    struct dest *shown;     /* destination that may be selected now, no longer in line */
    TAILQ_ENTRY(ring) link; /* link in transport.in_line, while a destination is in line or shown */
    bool listed;
};

/* Parked mail of one class for one destination. It exists until sched_admitted finds no more
 * mail. */
struct parking {
    struct heap_node wanting;  /* node in transport.wanting, if more should be requested; used by
                                * the destination's first parking only */
    TAILQ_ENTRY(parking) link; /* link in sched.ask_later */
    struct dest *dest;
    struct mail_class *mail_class; /* counted; NULL: mail without a class */
    struct set_member *member;     /* owned; NULL: only one class has parked mail here; see
                                    * sched_share.c */
    uint64_t turn;                 /* breaks ties: the parking that wants mail longest comes
                                    * first */
    int64_t asked_us;              /* time of the last SCHED_ADMIT */
    uint32_t asked;                /* `max` of the unanswered SCHED_ADMIT; 0: none */
    uint32_t messages;             /* messages of the class in memory */
    bool since_asked;              /* whether mail was parked since the last SCHED_ADMIT, whose
                                    * answer may miss it */
    bool asked_in_time;            /* whether the destination still had messages in memory at the
                                    * last SCHED_ADMIT */
    bool deferred_first;           /* whether deferred mail is admitted first next time, if both
                                    * kinds wait */
    bool ask_later;                /* whether the last answer was "none now", so that the next
                                    * SCHED_ADMIT waits for a second */
};

/* A class that has mail in memory, or a group of such a class. */
struct mail_class {
    UT_hash_handle hh;        /* node in sched.classes */
    struct mail_class *whole; /* counted; the class of this group; NULL if this is a class */
    uint32_t weight;          /* of the class; unused in a group */
    uint32_t refs;            /* references by messages, class queues, parkings, groups and turns */
    uint16_t name_len;
    char name[];
};

/* Turns of classes and their groups; see sched_turns.c. Fields are private to that file. */
struct class_turns {
    struct sched *sched;
    struct turns classes;
    struct class_turn *by_class; /* uthash: classes with members, or that rest */
    SLIST_HEAD(, turn) rested;   /* turns of members that finished resting */
    TAILQ_HEAD(, class_turn) emptied;
    uint64_t waiting;     /* number of waiting members */
    uint32_t class_count; /* number of classes with members */
};

/* A member of class_turns: a class queue of a transport, or the queue that a destination has for
 * it. */
struct queue_turn {
    struct turn turn;
    struct class_turn *of; /* NULL if this is no member */
};

/* A destination's queue: the entries of one class queue for this destination. */
struct dest_queue {
    struct dest *dest;
    struct class_queue *class_queue; /* counted; NULL if the queue is unused */
    struct dest_turn *turn;          /* owned; NULL if the destination has no other queue */
    struct tree_node *waiting;       /* peers with waiting entries, by place of their job */
    struct peer *first;              /* first peer in `waiting`, or NULL */
    const struct order_node *place;  /* place of the first peer's job */
    struct heap_node ready;          /* node in class_queue.ready, while open and not empty */
    uint32_t peers;
    bool closed; /* result of the last check for room; jobs may be blocked on a closed queue */
};

struct dest {
    UT_hash_handle hh; /* node in transport.dests */
    struct transport *transport;
    struct dest_policy *policy; /* owned; NULL: the transport's policy */
    struct parking *parking;    /* owned; the next parking to request mail from; NULL: nothing is
                                 * parked */
    struct reason *reason;      /* while dead or probing */
    struct dest_queue queue;
    struct dest_turns *turns; /* owned; NULL: mail of one class queue only */
    struct entry_list busy;
    struct timer timer; /* end of death or of suspension */
    TAILQ_ENTRY(dest)
    link; /* link in sched.draining (dead, with entries left to defer), sched.idle,
           * transport.held_back or ring.line */
    struct window window;
    struct pace pace;
    int64_t since_us; /* time when the destination last closed, changed state, joined the line, was
                       * held back or became idle */
    int64_t came_us;  /* time when it last began to have mail */
    int64_t well_us;  /* time of the last delivery that succeeded */
    int64_t last_done_s;
    uint32_t well; /* window at well_us; 0: no delivery has succeeded */
    uint32_t slot; /* index in sched.dests */
    uint32_t told; /* value of `sched.told` at the last dest_catch_up */
    uint32_t waiting_count, busy_count;
    uint32_t messages;  /* number of peers */
    uint32_t turn_left; /* entries it may start before its agents go to others of its ring */
    uint8_t state;
    bool closed; /* no room at the last check */
    bool draining, used, cache_load, cache_store;
    uint8_t standing;  /* enum standing */
    bool newcomer;     /* unproven, and has a delivery beyond the share; counted by its transport */
    bool held_back;    /* closed because destinations of its standing use up their share */
    bool in_line;      /* waits in the line of its ring */
    bool keeps;        /* an agent became free during its turn, so it joins the line in front */
    bool idle;         /* no mail in memory or parked; remembered for a time */
    bool postponed;    /* dead until a time set by sched_postpone */
    bool handed_over;  /* dead or suspended by sched_suspend */
    bool probing;      /* was dead: one delivery at a time until one succeeds */
    uint8_t deaths;    /* deaths since a delivery succeeded */
    uint8_t doublings; /* doublings of the number of messages to request, while mail is parked */
    uint16_t name_len;
    char name[];
};

/* Candidates for preemption: all jobs with entries to select that no other job preempts, or only
 * those in class_queue.fresh. */
enum candidates { OF_ALL, OF_FRESH };

/* One message seen from one transport. Members are grouped in cache lines of 64 bytes by their use:
 * neighbours in list and tree, tree summaries, selection, the rest. */
struct job {
    struct order_node place;    /* node in class_queue.jobs */
    struct tree_node node;      /* node in class_queue.list, in the same order; see sched_list.c */
    int64_t expires_s;          /* time until which the summary of the subtree is valid */
    struct job *best[2];        /* best candidates in the subtree, by enum candidates */
    int64_t oldest_s;           /* oldest time in the subtree; see sched_list.c */
    int64_t queued_s;           /* arrival time of the message */
    uint64_t scored_total;      /* job_total at the last list_numbers_changed */
    uint32_t scored_needed;     /* entries still needed; 0: not a candidate */
    struct heap_node attention; /* node in class_queue.attention or .skipped */
    struct heap_node fresh;     /* node in class_queue.fresh */
    struct heap_node unread;    /* node in transport.unread, until the message is fully read */
    struct class_queue *queue;
    struct message *message;
    SLIST_ENTRY(job) of_message;
    struct order peers; /* cyclic; the cycle starts after `last` */
    struct peer *last;  /* peer selected last; NULL: the cycle starts at the front */
    int64_t slots_available;
    uint32_t selected, read; /* counts of entries; the difference is waiting */
    uint32_t rcpt_count;
    int32_t level : 31; /* depth of preemption; -1: not in the lists */
    bool skipped : 1;   /* which heap has `attention`: true for .skipped */
    int64_t rcpt_limit;
    struct job *parent; /* job that this one preempts or that has adopted it */
    LIST_HEAD(, job) children;
    LIST_ENTRY(job) siblings;
    uint64_t serial;   /* order of linking, for jobs of the same age */
    uint64_t freed_at; /* sched.serial when the job was last unmarked as a blocker */
    int64_t slots_used;
};

/* List of jobs of one class, with the state of the selection. */
struct class_queue {
    UT_hash_handle hh; /* node in transport.class_queues, if this has a class */
    struct transport *transport;
    struct mail_class *mail_class; /* counted; NULL: mail without a class */
    struct queue_turn turn;        /* member of transport.turns_of_queues, while there are other
                                    * class queues */
    TAILQ_ENTRY(class_queue) link; /* link in transport.with_jobs, while the list has jobs */
    uint32_t refs;                 /* references by jobs and destinations' queues */
    struct heap ready;             /* destinations' queues, by place of their first job and its
                                    * rotation */
    struct order jobs;             /* list of jobs, in the order of selection */
    struct tree_node *list;        /* tree over the same jobs, with summaries */
    uint32_t stale;                /* number of nodes whose summaries must be computed */
    struct job *current;           /* job where selection starts */
    struct job *frontier;  /* jobs before this one are known blockers unless fresh; NULL: all
                            * jobs */
    struct heap fresh;     /* jobs before the frontier that are not known blockers, by place */
    struct heap attention; /* jobs at which a walk stops although they can't be served, by place */
    struct heap skipped;   /* known blockers among these, which a walk passes over */
    uint64_t released_at;  /* sched.serial when blockers were last released */
    struct job *candidate, *candidate_of;
    int64_t candidate_s;

    struct job *asked;
    bool asked_last; /* whether the job in `asked` gets no further SCHED_READ in this selection */
    bool selecting;  /* whether a selection waits for recipients */
};

struct transport {
    TAILQ_ENTRY(transport) turn; /* link in sched.turns */
    struct sched *sched;
    char *name;
    uint32_t index;
    struct sched_transport_policy policy;
    struct window_limits limits;           /* policy.window, with sizes of 1 under a rate delay */
    struct dest *dests;                    /* uthash */
    struct heap wanting;                   /* parkings that want more messages in memory */
    struct dest_list held_back[STANDINGS]; /* destinations held back, longest first */
    bool newest_next;   /* whether the newest unproven destination held back is released next, not
                         * the oldest */
    struct ring *rings; /* uthash */
    TAILQ_HEAD(, ring) in_line;        /* rings in line, the longest without a turn first */
    uint32_t busy, waiting;            /* counts of entries */
    uint32_t extra;                    /* busy entries beyond the first of each agent */
    uint32_t busy_by[STANDINGS];       /* busy entries, by standing of their destination */
    int64_t proved_s;                  /* second that proved[0] counts; proved[1] counts the
                                        * previous one */
    uint32_t proved[2];                /* unproven destinations that became proven */
    uint32_t newcomers;                /* destinations that are newcomers: each has a delivery
                                        * beyond the share of unproven ones */
    int64_t newcomer_us;               /* time when the last one became a newcomer */
    struct timer newcomer;             /* time from which another may become one */
    uint32_t policy_told, revive_told; /* values of `sched.told` at the last change of policy and at
                                        * the last revival */

    struct class_queue plain;           /* queue for mail without a class */
    struct class_queue *class_queues;   /* uthash: classes that have mail here, or had it until just
                                         * now */
    struct class_turns turns_of_queues; /* turns of class queues, while there are several; those
                                         * with a ready destination wait */
    TAILQ_HEAD(, class_queue) with_jobs;
    uint64_t starts;                  /* number of deliveries started */
    TAILQ_HEAD(, dest_turns) unshown; /* have hidden queues; see sched.c */

    struct heap unread;      /* jobs whose messages are not fully read, by age */
    struct job *next_unread; /* job that gets spare recipient slots */
    int64_t rcpt_unused;     /* unused slots; below 0 if some are borrowed from the extra pool */
    uint64_t link_serial;

    struct reason *reason; /* while dead */
    struct timer dead, rate;
    struct mono died, full; /* times when it died, and when it last reached its process limit */
    bool rate_locked;
};

enum message_list { LIST_NONE, LIST_TO_READ, LIST_DONE, LIST_TO_PARK, LIST_DROPPING };

struct message {
    struct sched_msg id;
    SLIST_HEAD(, job) jobs;     /* in order of creation */
    TAILQ_ENTRY(message) link;  /* link in sched.to_read, .done, .to_park or .dropping */
    int64_t queued_s, refill_s; /* refill_s: time of the last SCHED_READ, or of its answer */
    int64_t rcpt_limit;
    struct mail_class *mail_class; /* counted; NULL: none */
    uint32_t entries;              /* waiting and busy entries */
    uint32_t peers;                /* peers with these entries */
    uint32_t deferrals;            /* deferrals not returned by sched_next yet */
    uint32_t rcpt_count, rcpt_unread;
    uint8_t list;
    bool one_per_entry, opened, all_read, reading, dropped;
};
TAILQ_HEAD(message_list_head, message);

/* Recipients that are deferred without an attempt and never became entries. */
struct deferral {
    TAILQ_ENTRY(deferral) link;
    struct message *message;
    struct transport *transport;
    struct reason *reason; /* counted */
    char *dest;            /* owned; empty if the transport is dead */
    size_t dest_len;
    uint32_t *rcpts; /* owned */
    uint32_t count;
    size_t size;
};

/* A change of a destination, for the log. */
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
    uint64_t id; /* uses of the slot << 24 | index of the slot */
    struct entry *entry;
    struct mono started;
    uint32_t next_free;
};

struct sched {
    struct sched_limits limits;
    struct mono now; /* time of the last fact or decision */
    struct sched_window_step step;
    struct transport **transports;
    uint32_t transport_count;
    TAILQ_HEAD(, transport) turns; /* transports, the next to be served first */
    struct ids messages;
    struct mail_class *classes; /* uthash */
    uint32_t plain_weight;      /* weight of mail without a class */
    struct message_list_head to_read, done, to_park, dropping;
    uint32_t told;     /* number of the last change to a whole transport's destinations */
    uint32_t sweep_at; /* number of slots that the sweep has not reached yet, the lowest ones */
    uint32_t at_once;  /* destinations or entries per piece of a chore */
    bool lines_left;   /* whether next_queue stopped early, so that sched_next must be called
                        * again */
    TAILQ_HEAD(deferral_list, deferral) deferrals;
    STAILQ_HEAD(, event) events;
    struct dest_list draining, idle; /* draining: dead with waiting entries; idle: longest first */
    TAILQ_HEAD(, parking) ask_later;
    struct heap timers;
    struct timer ask_again;     /* end of the wait of all in ask_later */
    struct class_queue *resume; /* class queue whose selection waits for recipients */
    struct busy_slot *busy;
    uint32_t busy_size, busy_free;
    struct dest **dests; /* by slot, without gaps */
    size_t dest_size;
    uint32_t dest_count, dead_count, parked_count, idle_count;
    uint32_t asked;      /* messages that unanswered SCHED_ADMITs may still bring */
    uint32_t ration;     /* places that SCHED_ADMIT may still request; SCHED_NO_RATION: no limit */
    uint32_t rcpt_count; /* recipients in entries */
    uint32_t deferred_rcpts, busy_count, waiting_count;
    struct ring **rings; /* rings of all transports */
    uint32_t ring_count;
    uint32_t rings_listed;   /* rings in in_line of their transports */
    uint32_t extra;          /* busy entries beyond the first of each agent */
    int64_t agents_moved_us; /* time when agents last became free or limits last changed */
    uint64_t decisions, serial;
    unsigned early_drains; /* messages drained early since there was last nothing to decide */
    struct slab message_slab, job_slab, peer_slab, entry_slab;
    size_t bytes;   /* memory outside the slabs */
    struct rng rng; /* balances trees; no decision depends on it */

    /* Memory that the last action points to, until the next call. */
    struct deferral *out_deferral;
    struct event *out_event;
    char *out_name;
    struct reason *out_reason;
    uint32_t *out_rcpts;
    size_t out_size;
};

/* Initial value of sched.at_once: about a tenth of a millisecond of work. */
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

/* Returns the number of entries of the job as far as known: entries made so far and all unread
 * recipients. */
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

/* Returns NULL if the destination has no ring. */
static inline struct ring *dest_ring(const struct dest *d)
{
    return d->policy != NULL ? d->policy->ring : NULL;
}

/* Does the destination's ring let an entry be selected? The destination must have a ring. */
bool ring_opens(const struct dest *d);

/* Does the destination's ring, if any, let an entry be selected? */
static inline bool dest_admitted(const struct dest *d)
{
    return dest_ring(d) == NULL || ring_opens(d);
}

/* Returns the number of entries that the window allows at once. */
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

/* Puts the message into the list for its next step, after a change that may end it or require more
 * recipients. */
void message_check(struct sched *s, struct message *m);

/* Lists the message for parking if share_evicts; to be called after one of its entries ended. */
void message_park_check(struct sched *s, struct message *m);

void message_list(struct sched *s, struct message *m, enum message_list to);
void message_free(struct sched *s, struct message *m);

/* ---- sched_chore.c */

/* Starts a sweep over all destinations. Returns its number, for policy_told or revive_told. */
uint32_t chore_sweep(struct sched *s);
bool chore_sweeping(const struct sched *s);

/* Applies to the destination the changes of its transport that it missed. The caller then calls
 * dest_check, unless the destination has or gets entries. */
void dest_catch_up(struct dest *d);

/* Marks a message as dropped; its waiting entries are freed in pieces. */
void chore_drop(struct sched *s, struct message *m);

/* Frees at most `limit` waiting entries of a message. Returns true if none is left. */
bool message_forget_waiting(struct message *m, struct mono now, uint32_t limit);

/* Does one piece of each chore. */
void chores_run(struct sched *s, struct mono now);
bool chores_left(const struct sched *s);

/* ---- sched_share.c */

/* Returns the number of messages that one destination may have in memory at present; at least 1
 * while there is a place, UINT64_MAX without shares. */
uint64_t share_threshold(const struct sched *s);

/* Orders transport.wanting. */
bool parking_less(const struct heap_node *a, const struct heap_node *b);

/* Should parked mail be requested? */
bool parking_wants(const struct parking *parking);

/* Iterates over the parkings of a destination, from NULL to NULL. Constant time per call. */
const struct parking *parking_next(const struct dest *d, const struct parking *parking);

/* Updates the destination's parking after its window or state changed. */
void share_refresh(struct dest *d);

/* Counts the messages of a destination's queue again after one entered or left. */
void share_count(const struct dest_queue *dq);

/* Frees the parkings of a destination that is about to be freed. */
void share_forget(struct dest *d);

/* Does the whole rest of the message wait for one destination that has more than its share in
 * memory? */
bool share_evicts(const struct sched *s, const struct message *m);
bool share_next_park(struct sched *s, struct mono now, struct sched_action *a);
bool share_next_admit(struct sched *s, struct sched_action *a);
void share_ask_again(struct sched *s);
void share_audit(const struct dest *d);

/* ---- sched_list.c */

/* Inserts a job into the list, after `prev` or at the front, or removes it. */
void list_add_after(struct class_queue *q, struct job *prev, struct job *j);
void list_remove(struct job *j);

/* Updates the tree after the job's entries, message or children may have changed. */
void list_numbers_changed(struct job *j);

/* Updates the tree after the job got another stack parent, or entered or left class_queue.fresh. */
void list_changed(struct job *j);

/* Returns the last job in the list that has no stack parent and was queued at `queued_s` or before,
 * or NULL. */
struct job *list_last_as_old(struct class_queue *q, int64_t queued_s);

/* Returns the candidate with the highest score, the first among equals, or NULL. Candidates are the
 * jobs after `current` that are no known blockers and need at most `needed_max` entries. */
struct job *list_best_candidate(struct class_queue *q, const struct job *current,
                                uint64_t needed_max);
void list_audit(const struct class_queue *q);

/* ---- sched_job.c */

void class_queue_init(struct class_queue *q, struct transport *t);
void class_queue_fini(struct class_queue *q);

/* Links and unmarks the job, to which an entry is about to be given back. */
void job_given_back(struct job *j);

/* Returns the message's job in this transport. The job is created and linked if needed, and is no
 * known blocker after. */
struct job *job_need(struct message *m, struct transport *t);

/* Updates lists and heaps after numbers of the job changed: entries, unread recipients, its
 * place. */
void job_changed(struct job *j);

/* Calls job_changed for all jobs of a message. */
void message_changed(struct message *m);

void job_retire(struct job *j);
/* Frees a job that its message no longer refers to. */
void job_free(struct job *j);

void transport_slots_init(struct transport *t);
/* Checks the transport's slots. `unread`: number of jobs of messages that are not fully read;
 * `slots`: sum over all jobs. */
void transport_slots_audit(const struct transport *t, uint64_t unread, int64_t slots);

/* Adds slots to the transport's pool; a negative number shrinks the pool. */
void transport_slots_added(struct transport *t, int64_t slots);

/* Returns recipient slots after an entry of the job ended or was dropped. */
void job_slots_returned(struct job *j);

/* Returns the slots that the jobs of a fully read message don't need. */
void message_slots_returned(struct message *m);

bool job_is_known_blocker(const struct job *j);
void class_queue_forget_candidate(struct class_queue *q);

/* Releases the blockers of the class queue if one of them waits for this destination, which has
 * opened. */
void dest_queue_unblocks(struct dest_queue *dq);

/* Returns the first peer that can be served, or NULL. */
struct peer *class_queue_first_ready(struct class_queue *q);

enum walk { WALK_NOTHING, WALK_PEER, WALK_READ };

/* Finds the next peer to serve. WALK_READ: recipients of *ret_message should be read first; the
 * caller calls again when they were. */
enum walk class_queue_walk(struct class_queue *q, int64_t now_s, struct peer **ret_peer,
                           struct message **ret_message);

/* Accounts for a selection from the job. */
void job_selected(struct job *j);

void class_queue_audit(const struct class_queue *q);

/* ---- sched_turns.c */

void class_turns_init(struct class_turns *ts, struct sched *s);
/* Frees everything except the members, which belong to the owner. */
void class_turns_fini(struct class_turns *ts);

/* Adds a member, which does not wait yet, or removes one, which must not wait. In between it may
 * wait or rest. */
void queue_turn_add(struct class_turns *ts, struct queue_turn *m, struct mail_class *mail_class);
void queue_turn_remove(struct class_turns *ts, struct queue_turn *m);

/* Calls the functions of turns.h for members, with the same meaning. */
void queue_turn_join(struct class_turns *ts, struct queue_turn *m);
void queue_turn_leave(struct class_turns *ts, struct queue_turn *m);
struct queue_turn *class_turns_first(struct class_turns *ts);
void queue_turn_took(struct class_turns *ts, struct queue_turn *m);
struct queue_turn *queue_turn_next_rested(struct class_turns *ts);

/* Share of a member: of `weights` turns its class gets `weight`, and the member one of
 * `members_waiting` of these. */
struct turn_share {
    uint64_t weight, weights; /* weights: sum over all classes that take part */
    uint64_t classes_waiting, members_waiting;
    uint32_t class_count, member_count; /* number of classes, and of members of this member's
                                         * class */
};
struct turn_share queue_turn_share(const struct class_turns *ts, const struct queue_turn *m);

void class_turns_audit(const struct class_turns *ts);

/* ---- sched_class.c */

struct mail_class *class_find(const struct sched *s, struct slice name);
/* Returns a new reference to the class; NULL for the empty name. */
struct mail_class *class_need(struct sched *s, struct slice name);
void class_unref(struct sched *s, struct mail_class *c);

struct class_queue *class_queue_need(struct transport *t, struct mail_class *c);
/* Drops a reference; may free the class queue. */
void class_queue_unref(struct class_queue *q);
/* Frees all class queues of a transport that is about to be freed. */
void class_queues_free(struct transport *t);

/* Updates the class queue's turn after its heap `ready` gained or lost an element. */
void class_queue_ready_changed(struct class_queue *q);

/* Returns the class queue whose turn it is, among those with something to select; NULL if there is
 * none. class_queue_took accounts for the turn. */
struct class_queue *transport_next_queue(struct transport *t);
void class_queue_took(struct class_queue *q);

/* Returns the name; empty for NULL. */
struct slice class_name_of(const struct mail_class *c);

/* Returns the class of a group, or the class itself; NULL for NULL. */
struct mail_class *class_whole(struct mail_class *c);

/* Returns the destination's queue of a class, or NULL. */
const struct dest_queue *dest_queue_find(const struct dest *d, struct slice class_name);
/* Returns the number of parts into which classes and groups divide the destination's share. That is
 * the number of classes that have mail in memory, or had it until just now, times the number of
 * groups of this queue's class; at least 1. */
uint64_t dest_queue_parts(const struct dest_queue *dq);
/* Returns the destination's queue of a class queue, which is created if needed. It lasts as long as
 * it has peers. */
struct dest_queue *dest_queue_need(struct dest *d, struct class_queue *q);
/* Frees the queue if it is no longer used. */
void dest_queue_check(struct dest_queue *dq);
/* Lets the queue begin to wait with its first peer, or stop waiting with its last. The caller then
 * calls dest_refresh. */
void dest_queue_waits(struct dest_queue *dq, bool waits);
/* Returns false if the queue has all turns of its destination. Otherwise stores its share. */
bool dest_queue_share(const struct dest_queue *dq, struct turn_share *ret_share);
/* Accounts for a delivery from the queue that is about to start. The caller then calls
 * dest_refresh. */
void dest_queue_took(struct dest_queue *dq);

/* Updates the shown queues of a destination with several class queues, on behalf of
 * dest_refresh. */
void dest_turns_refresh(struct dest *d, struct dest_queue *touched);
/* Frees the queues and turns of a destination that has nothing in memory. */
void dest_turns_forget(struct dest *d);
/* Counts a delivery that started. If the transport can't start more, shows hidden class queues, so
 * that they use the room that the class queue whose turn it is leaves unused. */
void transport_show_more(struct transport *t);

/* Return one of the destination's queues: dest_first_queue the one whose turn it is,
 * dest_shown_queue one that may be selected from. dest_next_queue iterates over all, from NULL to
 * NULL. */
struct dest_queue *dest_first_queue(struct dest *d);
const struct dest_queue *dest_shown_queue(const struct dest *d);
const struct dest_queue *dest_next_queue(const struct dest *d, const struct dest_queue *dq);

void dest_turns_audit(const struct dest *d);
void class_queues_audit(const struct transport *t);

/* ---- sched_ring.c */

uint32_t dest_agents(const struct dest *d);
/* Does the next entry fit into an agent in use? */
bool dest_fits(const struct dest *d);
/* May this ring use one more agent, if `promised` agents more than counted are considered in
 * use? */
bool ring_has_agent(const struct ring *r, uint32_t promised);

struct ring *ring_need(struct transport *t, uint32_t number);
struct ring *ring_find(const struct transport *t, uint32_t number);
/* Frees all rings of a transport that is about to be freed. */
void rings_free(struct transport *t);

/* Changes the ring and depth of the destination. The caller then calls dest_refresh. */
void dest_set_ring(struct dest *d, struct ring *r, uint32_t depth);

/* Accounts for an entry of a destination with its own policy that started or ended; busy_count is
 * already changed. The caller then calls dest_refresh. */
void ring_entry_started(struct dest *d);
void ring_entry_ended(struct dest *d);

/* Puts the destination in line or takes it out. `wants`: an entry waits that could start with an
 * agent. The destination has its own policy. */
void ring_place(struct dest *d, bool wants);
/* Takes the destination out of the line; it is no longer shown. */
void ring_leave(struct dest *d);
/* Shows one destination of each ring that has an agent for it. Returns true if one is newly
 * shown. */
bool transport_show_rings(struct transport *t);
void rings_audit(const struct transport *t);

/* ---- sched_fault.c */

/* Aborts unless all invariants of the list hold, except those about time. */
void invariants_audit(const struct sched *s);

/* ---- sched_dest.c */

/* Type of dest_queue.waiting: peers by place of their job, summing their waiting entries. */
extern const struct tree_type waiting_type;

/* Orders class_queue.ready: by place of the first peer's job, then by that job's rotation. */
bool dest_queue_less(const struct heap_node *a, const struct heap_node *b);

struct dest *dest_find(const struct transport *t, struct slice name);
struct dest *dest_need(struct transport *t, struct slice name);
const struct window_limits *dest_limits(const struct dest *d);
int64_t dest_rate_delay(const struct dest *d);
bool dest_has_room(const struct dest *d);
/* Does the destination have room, is it not held back, and does its ring let it start something? */
bool dest_is_open(const struct dest *d);

/* Updates all lists and heaps that the destination is in after a change. `touched`: the queue whose
 * peers changed, NULL if none. */
void dest_refresh(struct dest *d, struct dest_queue *touched);

void dest_queue_init(struct dest_queue *dq, struct dest *d);
/* Puts the queue into its class queue's heap or takes it out. `open`: an entry could be
 * selected. */
void dest_queue_refresh(struct dest_queue *dq, bool open);
void dest_die(struct dest *d, struct mono now, struct slice reason);
/* Ends the state that the timer was set for: death, postponement or suspension. */
void dest_time_over(struct dest *d);
/* Ends the death or the probing of a destination, which then counts as reached. */
void dest_revive(struct dest *d);
/* Makes the destination dead until a time that its owner sets. */
void dest_postpone(struct dest *d, struct mono until, struct slice reason);
/* Resets window and deaths of a destination that was dead and was reached, postponed or not. */
void dest_recover(struct dest *d);
void dest_limits_changed(struct dest *d);
void dest_suspend(struct dest *d, struct mono until);
/* Makes the destination dead or suspended as another scheduler found it; `until` is in the
 * future. */
void dest_take_over(struct dest *d, const struct sched_suspension *x);

/* Changes the standing after a delivery failed or succeeded. The caller then calls
 * dest_refresh. */
void dest_set_standing(struct dest *d, enum standing standing);
/* Returns the number of deliveries that destinations of this standing may have at once; UINT32_MAX:
 * no limit. */
uint32_t transport_standing_limit(const struct transport *t, enum standing standing);
/* Holds back a destination whose turn has come if those of its standing have all deliveries that
 * they may have. The destination is then closed until transport_release_held_back. Returns false if
 * it may be served. */
bool dest_hold_back(struct dest *d);
void transport_release_held_back(struct transport *t);
/* Releases the newest unproven destination as a newcomer, if it came after the last one and enough
 * time has passed; otherwise sets the timer. Called when nothing else can be selected. */
bool transport_release_newcomer(struct transport *t);
/* Remembers or frees the destination if nothing of it is left in memory. */
void dest_check(struct dest *d);
/* Frees some destinations that were remembered for too long. */
void dest_forget_old(struct sched *s);
/* Returns the remaining part of the feedback since `since_us`: 1 all, 0 nothing. */
double dest_memory_left(const struct sched *s, int64_t since_us);
void dest_free(struct dest *d);
void dest_queue_tree_audit(const struct dest_queue *dq);

struct peer *peer_need(struct job *j, struct dest *d);

/* Adds a recipient, to the peer's last waiting entry or to a new one. */
void peer_add_rcpt(struct peer *p, uint32_t n);

/* Takes the job's peers out of the trees, before the job moves in the list, or puts them back. */
void job_peers_out(struct job *j);
void job_peers_back(struct job *j);

void entry_start(struct entry *e, int64_t now_s);
void entry_unstart(struct entry *e);
struct entry *entry_find(const struct sched *s, struct sched_entry id);
const uint32_t *entry_rcpts(const struct entry *e);

/* Frees an entry that ended, or was dropped while waiting, and all objects that only this entry
 * used. */
void entry_done(struct entry *e, struct mono now);

void timer_init(struct timer *timer, enum timer_type type);
void timer_set(struct sched *s, struct timer *timer, struct mono at);
void timer_cancel(struct sched *s, struct timer *timer);

#endif
