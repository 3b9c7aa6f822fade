/*
 * The scheduler: decides which delivery goes next, and how many run at once.
 *
 * A state machine without I/O, clock or logging. The owner passes in facts with their time
 * (sched_open, sched_recipients, sched_finished, ...) and then calls sched_next for decisions until
 * it returns SCHED_NONE. sched_wake_at returns the time of the next call if no fact arrives before.
 * The same facts in the same order at the same times give the same decisions, on every machine.
 *
 *   message ---< recipient          A message has recipients. A job is one message seen from one
 *      |                            transport; a peer is one job's entries for one destination; an
 *      +---< job ---< peer ---< entry    entry is the recipients handed over together.
 *              |        |
 *          transport --< destination     A destination has a window; a transport has a budget.
 *
 * Behaviour is that of Postfix's queue manager (its SCHEDULER_README describes the method): order
 * of selection, preemption, recipient pools, feedback, dead destinations, rate delays. Names of
 * parameters are Postfix's. The search differs from Postfix's in places, but finds the same choice:
 * see sched.c.
 *
 * Invariant, checked by sched_audit: every recipient in memory is in exactly one place, and every
 * place has a next event. The places are a waiting entry, an entry that is being delivered, and an
 * action that sched_next has not returned yet.
 */
#ifndef CORE_SCHEDULER_H
#define CORE_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slice.h"
#include "times.h"
#include "window.h"

struct sched;

/* The owner's name of a message and of a recipient within it. */
struct sched_msg {
    uint64_t n;
};

/* Id of an entry that is being delivered. Ids are never reused, so a late or invented result is
 * recognised. */
struct sched_entry {
    uint64_t n;
};

#define SCHED_REASON_MAX     512 /* bytes kept of the reason why a destination is dead */
#define SCHED_DEST_NAME_MAX  1024
#define SCHED_READ_MAX       5000 /* recipients per read, as in Postfix */
#define SCHED_TRANSPORTS_MAX 1000
#define SCHED_FAILING_FROM   10
#define SCHED_CLASS_NAME_MAX 136 /* with its group */
#define SCHED_GROUP_MARK     '/'
#define SCHED_WEIGHT_MAX     1000

/* Limits of the whole scheduler. */
struct sched_limits {
    uint32_t message_active_limit;      /* qmgr_message_active_limit */
    uint32_t message_recipient_limit;   /* qmgr_message_recipient_limit; >= message_active_limit */
    uint32_t message_recipient_minimum; /* qmgr_message_recipient_minimum; >= 1 */
    uint32_t destination_share;         /* per cent of the free places of the active queue that one
                                         * destination may hold; 0 = no shares, as in Postfix */
    uint32_t failing_share;             /* per cent of a transport's process_limit for all failing
                                         * destinations together, if the limit is SCHED_FAILING_FROM
                                         * or more; 0 or 100 = all, as in Postfix */
    uint32_t unproven_share;            /* per cent of the rest for all unproven destinations
                                         * together, plus one for each of them that was reached in
                                         * the last second or two */
    int64_t minimal_backoff_us;         /* how long a dead destination stays dead at first */
    int64_t maximal_backoff_us;         /* how long at most, after repeated failed probes */
    int64_t destination_memory_us; /* time over which the feedback of a destination without mail
                                    * fades; 0 = forgotten at once, as in Postfix */
    int64_t transport_retry_us;    /* how long a dead transport stays dead */
};

/* Parameters of a transport; all are `TRANSPORT_...` or `default_...` in the configuration. */
struct sched_transport_policy {
    struct window_limits window;   /* of its destinations, except those with sched_dest_policy */
    uint32_t process_limit;        /* deliveries at once over all destinations; 0 = no limit */
    uint32_t dest_recipient_limit; /* recipients per entry; 0 = no limit */
    uint32_t recipient_limit;
    uint32_t extra_recipient_limit;
    uint32_t refill_limit;
    int64_t refill_delay_us;
    int slot_cost, slot_loan, slot_discount, minimum_slots;
    int64_t dest_rate_delay_us; /* > 0 forces a window of 1 */
    int64_t transport_rate_delay_us;
};

struct sched *sched_new(const struct sched_limits *limits);
void sched_free(struct sched *s);

/* Sets new limits for later decisions; nothing is removed from memory. */
void sched_set_limits(struct sched *s, const struct sched_limits *limits);

/* Creates transport `name` or gives it a new policy (also while deliveries run). Returns its index,
 * which lasts as long as the scheduler. Destinations without a policy of their own get the new
 * one. */
uint32_t sched_transport(struct sched *s, struct mono now, const char *name,
                         const struct sched_transport_policy *policy);

/* ---- facts ---------------------------------------------------------------------------------- */

/* Is there room for one more message (message_active_limit)? Places reserved by an unanswered
 * SCHED_ADMIT are not free. */
bool sched_has_room(const struct sched *s);

/* Adds a message to the active queue. `recipients` is the number of recipients that still need
 * delivery, or an upper bound. `one_per_entry`: never two recipients in one entry. The scheduler
 * then requests the recipients with SCHED_READ. Allowed only while sched_has_room, or in answer to
 * SCHED_ADMIT, which has reserved places for its `max`. CHECKs this, and that the id is not in
 * memory. */
void sched_open(struct sched *s, struct mono now, struct sched_msg msg, uint32_t recipients,
                bool one_per_entry);

/* Adds a message of a class, otherwise as sched_open. The name of a class is bytes without meaning
 * here; the empty name is mail without a class. Within a class the order is Postfix's, as it is if
 * there is only one class, named or not. Where several classes wait they take turns in proportion
 * to their weights (1..SCHED_WEIGHT_MAX): for the deliveries to a destination, and for those of the
 * transport if it can't start more. turns.h describes the order of turns and its promise; a turn
 * that can't be used goes to another class. `weight` is the weight of the class from now on. */
void sched_open_in_class(struct sched *s, struct mono now, struct sched_msg msg,
                         uint32_t recipients, bool one_per_entry, struct slice class_name,
                         uint32_t weight);

/* Groups. A class may be divided: in a name CLASS/GROUP the part before the first SCHED_GROUP_MARK
 * is the class, and the calls below take the whole name for the group. The groups of a class share
 * its turns equally, whatever their mail, and have equal parts of its share of the active queue.
 * Otherwise a group is like a class: its mail keeps its order and is parked separately. Each group
 * may have one message in memory for each destination whatever the shares are, so the owner must
 * bound the number of groups. The weight belongs to the class, under either name. */

/* Changes the weight of a class that has mail in memory, or of mail without a class. */
void sched_class_weight(struct sched *s, struct slice class_name, uint32_t weight);

/* Should a message of this class (empty: none) be parked instead of opened? All of its recipients,
 * as far as the owner has read them, are for this destination. True if the class has its full
 * share, or older mail of the class is parked already and goes first.
 *
 * Shares. No destination may fill the active queue. A class has its full share at a destination
 * when it has as many messages in memory there as there are places left (message_active_limit less
 * all messages, scaled by destination_share), regardless of other mail. Thus some places always
 * stay free for all (a "dynamic threshold", after Choudhury and Hahne). A message that waits only
 * for such a destination stays with its owner, "parked" under the names of destination and class,
 * and enters when the scheduler requests it with SCHED_ADMIT. The owner alone handles the lifetime
 * and the delay notice of parked mail.
 *
 * Each class has its own share, so that bulk mail keeps no other mail for its destination out. When
 * the destination as a whole has its share, each of the n classes with mail in memory there may
 * have an n-th of it. A class that is alone may thus use all, and more classes together grow more
 * slowly. A class without messages in memory may have one while there is a place, so an unlimited
 * number of classes, or of destinations, can take all places. */
bool sched_share_full(const struct sched *s, uint32_t transport, struct slice dest,
                      struct slice class_name);

/* Records that mail of this class for this destination is parked; also to be called after a
 * restart, but not for mail that SCHED_PARK parked. Keeps the destination in memory until
 * sched_admitted reports that no more is parked. */
void sched_parked(struct sched *s, struct mono now, uint32_t transport, struct slice dest,
                  struct slice class_name);

/* Answers SCHED_ADMIT, after the messages were opened: their number (at most its `max`), and
 * whether `more` of the class is parked. To be called exactly once for each SCHED_ADMIT, at once or
 * later, even if the mail was dropped, or the destination revived or reconfigured in between. Mail
 * that was parked in between is not forgotten. After an answer of 0 with `more` the next
 * SCHED_ADMIT for this destination and class comes after a second. */
void sched_admitted(struct sched *s, struct mono now, uint32_t transport, struct slice dest,
                    struct slice class_name, uint32_t count, bool more);

/* Sets the ration: the number of places that SCHED_ADMIT may still request, until the next call. An
 * owner sets it if other mail than parked mail waits for places, too. The initial value is
 * SCHED_NO_RATION. */
#define SCHED_NO_RATION UINT32_MAX
void sched_ration(struct sched *s, uint32_t places);

/* One recipient to schedule. `dest` is the destination's name within its transport (the next hop in
 * lower case; with a recipient limit of 1 the owner puts the mailbox in front: user@nexthop). */
struct sched_rcpt {
    uint32_t n;         /* the owner's number of the recipient within the message */
    uint32_t transport; /* index */
    struct slice dest;  /* copied; 1..SCHED_DEST_NAME_MAX bytes */
};

/* Answers SCHED_READ with the next recipients in the owner's order (the scheduler groups them by
 * transport name and destination name, stable). `disposed` counts recipients that the reader
 * skipped because they need no delivery. `complete`: there are no more recipients after these. Each
 * SCHED_READ needs exactly one answer, with at most as many recipients as requested, and with none
 * only if some were disposed of or the list is complete. An answer before the next sched_next gives
 * exactly Postfix's order. A message that was dropped in between needs its answer, too, which is
 * then ignored. */
void sched_recipients(struct sched *s, struct mono now, struct sched_msg msg,
                      const struct sched_rcpt *rcpts, size_t count, uint32_t disposed,
                      bool complete);

/* Outcome of a delivery for the destination. The owner handles the outcome of each recipient. */
enum sched_outcome {
    SCHED_OK,        /* the destination was reached and replied, whatever its replies to
                      * recipients */
    SCHED_DEST_FAIL, /* connection, handshake, lost connection, timeout: negative feedback */
    SCHED_CRASH,     /* the agent died: no feedback; the recipients must be tried again */
};

/* Ends an entry. `reason` ("4.4.1 connect to ...: Connection refused") is kept if the failure makes
 * the destination dead. Returns false if no such entry is being delivered (a hostile or late
 * agent). */
bool sched_finished(struct sched *s, struct mono now, struct sched_entry entry,
                    enum sched_outcome outcome, struct slice reason);

/* Puts an entry that was handed out back into its place, as if it had not been selected, because
 * its agent could not accept it. The slots that its job collected for it stay. It may be selected
 * again at once. Returns false if no such entry is being delivered. */
bool sched_unselect(struct sched *s, struct mono now, struct sched_entry entry);

/* Removes a message for its owner (hold, removal, requeue). Its waiting recipients are forgotten,
 * deliveries in flight end as usual, then SCHED_DONE follows. Returns false if the message is not
 * in memory. */
bool sched_drop(struct sched *s, struct mono now, struct sched_msg msg);

/* Makes a transport dead because no agent is available. Waiting and new recipients are deferred
 * with `reason` until transport_retry_us has passed, one of its deliveries succeeds, or
 * sched_transport_works or sched_revive is called. */
void sched_transport_failed(struct sched *s, struct mono now, uint32_t transport,
                            struct slice reason);
void sched_transport_works(struct sched *s, struct mono now, uint32_t transport);

/* Makes a dead, postponed or probing destination ready again; with `dest` empty also the transport,
 * and all of its destinations. */
void sched_revive(struct sched *s, struct mono now, uint32_t transport, struct slice dest);
void sched_revive_all(struct sched *s, struct mono now);

/* Postpones a destination: it is dead until exactly `until`, whatever its window. Then it is ready
 * again without being probed, unless failures had made it dead before. Recipients that wait for it
 * or arrive in between are deferred with SCHED_DEFER and `reason`. Deliveries in flight go on, and
 * their results change the window but do not end the postponement: only `until`, another
 * sched_postpone and sched_revive do. There are no SCHED_DEST_... actions for a postponement. */
void sched_postpone(struct sched *s, struct mono now, uint32_t transport, struct slice dest,
                    struct mono until, struct slice reason);

/* State of a destination that another scheduler found, and that should not be lost when the
 * destination's mail moves to this one: dead until a time, or suspended by its rate delay. */
struct sched_suspension {
    uint32_t transport;
    struct slice dest;
    bool is_dead; /* false if suspended by its rate delay */
    struct mono until;
    uint32_t deaths;     /* of a dead one: deaths since a delivery succeeded */
    struct slice reason; /* of a dead one */
};

/* Takes over a suspension as if this scheduler had found it; sched_dest_info shows `handed_over`.
 * The own state has precedence: a destination that is dead here keeps its own time, and of two
 * times of a rate delay the later one applies. There are no SCHED_DEST_... actions for the
 * destination before its time is over. No effect if `until` is past. */
void sched_suspend(struct sched *s, struct mono now, const struct sched_suspension *x);

/* Iterates over the present suspensions except postponements, in no order, as sched_dest_each does.
 * The cost is proportional to the number of armed timers. */
bool sched_suspension_each(const struct sched *s, uint64_t *cursor,
                           struct sched_suspension *ret_suspension);

/* Rings. Destinations of a transport may share agents, as those of one clause of ZMailer's do. An
 * agent has up to `depth` entries of its destination at once (ZMailer's overfeed + 1). So a
 * destination with b entries in flight uses ceil(b / depth) agents, and its window and the limits
 * of its ring count these agents. An entry may start if it fits into an agent in use, or if window,
 * ring, transport and the whole scheduler have an agent left by the limits of *its* ring. The
 * numbers are shared, the limits are not, so a ring with a higher limit has agents for itself.
 *
 * A destination that needs an agent of a ring waits in line. A destination at the front keeps the
 * agents that become free for one turn and then goes to the end, so that agents need not change
 * destinations with each message. A turn is SCHED_RING_TURN entries or `depth`, whichever is more,
 * if the destination has so many. Where the limits shared by rings are reached, the rings of a
 * transport take turns, and so do the transports. Within a destination the order is as without
 * rings; between destinations of a ring it is that of the line, whatever the age or class of their
 * mail. */
#define SCHED_RING_TURN 20

struct sched_ring_policy {
    uint32_t ring_limit;      /* agents of the ring; 0 = no limit, as for the other limits */
    uint32_t transport_limit; /* agents of its transport, including other rings' and those outside
                               * of rings */
    uint32_t total_limit;     /* agents of all transports */
};

/* Makes a ring, or changes it (also while deliveries run). `ring` is the owner's number, >= 1. A
 * ring lasts as long as the scheduler. */
void sched_ring(struct sched *s, struct mono now, uint32_t transport, uint32_t ring,
                const struct sched_ring_policy *policy);

struct sched_dest_policy {
    struct window_limits window; /* in agents */
    int64_t rate_delay_us;       /* > 0 forces a window and a depth of 1 */
    uint32_t ring;               /* number of a ring made by sched_ring, or 0 = none */
    uint32_t depth;              /* entries per agent, >= 1 */
};

/* Gives one destination its own policy. The policy lasts as long as the destination has mail, so
 * the owner calls this with each of its recipients and after a reload; before the first delivery
 * the window is initialized by it. No effect on a destination that is not in memory. */
void sched_dest_policy(struct sched *s, struct mono now, uint32_t transport, struct slice dest,
                       const struct sched_dest_policy *policy);

/* ---- decisions ------------------------------------------------------------------------------ */

enum sched_action_type {
    SCHED_NONE,    /* nothing to do before sched_wake_at or the next fact */
    SCHED_DELIVER, /* hand this entry to an agent; end it with sched_finished */
    SCHED_READ,    /* read up to `max` recipients of this message; answer with sched_recipients */
    SCHED_DEFER,   /* these recipients of one message are deferred without an attempt: their
                    * destination or (dest empty) their transport is dead */
    SCHED_DONE,    /* nothing of this message is left in memory: settle it. The scheduler has
                    * forgotten it. */
    SCHED_PARK,    /* all that is left of this message waits for one destination (dest), which has
                    * more than its share: park it, its recipients untried. The scheduler has
                    * forgotten it, as with SCHED_DONE. */
    SCHED_ADMIT,   /* open up to `max` messages of class_name parked for dest, new and deferred ones
                    * alternately, the oldest of each first; answer with sched_admitted */
    /* For the log. */
    SCHED_DEST_DEAD,    /* this destination was just declared dead; with the time, the reason and
                         * its last window */
    SCHED_DEST_PROBED,  /* its time is over: it gets one delivery at a time until one succeeds;
                         * with the reason of its death */
    SCHED_DEST_REVIVED, /* a delivery succeeded, or sched_revive was called; with its initial
                         * window */
};

struct sched_action {
    enum sched_action_type type;
    struct sched_msg msg;
    struct sched_entry entry;
    uint32_t transport;
    struct slice dest;       /* lasts until the next call */
    struct slice class_name; /* SCHED_PARK, SCHED_ADMIT; lasts until the next call */
    const uint32_t *rcpts;   /* recipient numbers; last until the next call */
    size_t rcpt_count;
    uint32_t max;                 /* SCHED_READ, SCHED_ADMIT */
    bool deferred_first;          /* SCHED_ADMIT: whether a deferred message comes first */
    struct slice reason;          /* lasts until the next call */
    struct mono until;            /* SCHED_DEST_DEAD */
    bool cache_load, cache_store; /* connection cache hints, as Postfix's */
    uint32_t window;              /* of the destination now */
    bool can_wait;                /* SCHED_DEFER: one of many, and nothing else is left to decide */
};

/* Returns the next decision. The owner calls it until SCHED_NONE after every fact or batch of
 * facts. Where many recipients are deferred because their destination died, the owner may stop at
 * an action with `can_wait`: nothing else is left to decide, and sched_wake_at returns the present
 * time while some are left. */
enum sched_action_type sched_next(struct sched *s, struct mono now,
                                  struct sched_action *ret_action);

/* Returns the time when time alone will change something (a dead destination's timer, a rate delay,
 * a refill delay); MONO_NEVER if nothing will. Long work (dropping a message of many recipients,
 * reviving a transport of many destinations or changing its policy) is done in pieces. While a
 * piece or a SCHED_DEFER is left, this returns the time of the last call, and the owner may pass in
 * newer facts before. */
struct mono sched_wake_at(const struct sched *s);

/* ---- queries -------------------------------------------------------------------------------- */

bool sched_has_message(const struct sched *s, struct sched_msg msg);
bool sched_is_delivering(const struct sched *s, struct sched_entry entry);

struct sched_totals {
    uint32_t messages, recipients, entries_waiting, entries_busy, destinations, dead_destinations;
    uint32_t parked_destinations, idle_destinations; /* idle_destinations are not included in
                                                      * `destinations` */
    uint64_t decisions;
    size_t bytes; /* memory held, addresses not counted */
};
struct sched_totals sched_totals(const struct sched *s);

enum sched_dest_state {
    SCHED_DEST_READY,
    SCHED_DEST_DEAD_UNTIL,
    SCHED_DEST_SUSPENDED, /* by its rate delay */
    SCHED_DEST_PROBING,   /* was dead; one delivery at a time until one succeeds */
    SCHED_DEST_IDLE,      /* without mail in memory or parked; its feedback fades */
};
struct sched_dest_info {
    uint32_t transport;
    struct slice dest; /* lasts until the next fact */
    enum sched_dest_state state;
    struct mono until;           /* of a dead or suspended one */
    bool postponed;              /* dead by sched_postpone */
    bool handed_over;            /* dead or suspended by sched_suspend */
    struct slice reason;         /* of a dead or probed one */
    bool failing;                /* a delivery failed, and none succeeded since */
    bool proven;                 /* a delivery succeeded, and none failed since */
    uint32_t deaths;             /* since a delivery succeeded */
    uint32_t window, window_max; /* in agents */
    uint32_t busy, waiting;      /* in entries */
    uint32_t agents, depth;      /* agents in use, entries per agent */
    uint32_t ring;               /* 0: none */
    double success, failure, failed_cohorts;
    struct mono since; /* start of death, suspension or full window; us 0: it has room */
    uint32_t messages; /* in memory */
    uint64_t share;    /* present share in messages; UINT64_MAX: no shares */
    bool parked;       /* whether mail of any class is parked */
    const struct window_limits *limits; /* lasts until the next fact */
    int64_t rate_delay_us;
    double per_second; /* deliveries that ended in the last minute or two; see pace.h */
    int64_t mean_us;   /* mean duration of a delivery; 0 = none ended yet */
};
bool sched_dest_get(const struct sched *s, uint32_t transport, struct slice dest,
                    struct sched_dest_info *ret_info);
/* Iterates over all destinations, in a stable order, from *cursor = 0. Returns false at the end.
 * Facts between calls may make the iteration skip or repeat some. */
bool sched_dest_each(const struct sched *s, uint64_t *cursor, struct sched_dest_info *ret_info);

/* Mail of one class (empty: none) for a destination. */
struct sched_class_info {
    uint32_t messages; /* in memory */
    bool parked;       /* whether more mail is parked */
};
struct sched_class_info sched_class_get(const struct sched *s, uint32_t transport,
                                        struct slice dest, struct slice class_name);

struct sched_transport_info {
    bool dead;
    struct mono since, until; /* of a dead one */
    struct slice reason;      /* lasts until the next fact */
    uint32_t busy, waiting;   /* in entries */
    uint32_t agents;          /* in use */
    uint32_t process_limit;   /* 0 = none */
    int64_t rate_delay_us;
};
void sched_transport_get(const struct sched *s, uint32_t transport,
                         struct sched_transport_info *ret_info);

/* Change of a destination's window by the last sched_finished. */
struct sched_window_step {
    uint32_t before, after;
};
struct sched_window_step sched_window_step(const struct sched *s);

/* A reason why a recipient in memory is not being delivered right now. Gates are listed with their
 * values in the order in which they bind: the first closed gate is the actual reason, and opening a
 * later one first would start nothing. Gates that open at a set time come first, the latest closed
 * one in front. Gates that open when a delivery ends follow, the narrowest first, because an end
 * that opens a gate opens the wider ones, too. */
enum sched_gate_type {
    SCHED_GATE_BUSY,            /* it is being delivered now */
    SCHED_GATE_UNREAD,          /* not in memory yet: the message has `value` of the `limit`
                                 * recipients it may have there */
    SCHED_GATE_TRANSPORT_DEAD,  /* closed until `until` */
    SCHED_GATE_DEST_DEAD,       /* closed until `until` */
    SCHED_GATE_DEST_RATE,       /* closed until `until` */
    SCHED_GATE_TRANSPORT_RATE,  /* closed until `until` */
    SCHED_GATE_WINDOW,          /* `value` of `limit` agents */
    SCHED_GATE_RING,            /* of the destination's ring: `value` of `limit` agents */
    SCHED_GATE_FAILING,         /* of a failing or unproven destination: all of its kind have
                                 * `value` of `limit` deliveries at once */
    SCHED_GATE_TRANSPORT_LIMIT, /* `value` of `limit` deliveries at once; or of `limit` agents, if
                                 * only the ring's limit is set or reached */
    SCHED_GATE_AGENTS,          /* of all transports: `value` of `limit` agents, by the ring's
                                 * limit */
    SCHED_GATE_CLASS,           /* other classes wait for the destination, too: this one has the
                                 * weight `value` of `limit` in all */
    SCHED_GATE_GROUP,           /* other groups of its class wait there, too: each of `limit` groups
                                 * gets `value` (1) */
    SCHED_GATE_BEHIND,          /* queued behind `value` entries of earlier jobs for this
                                 * destination */
};
struct sched_gate {
    enum sched_gate_type type;
    bool closed;
    uint64_t value, limit;
    struct mono since; /* of a closed one; us 0: not known */
    struct mono until; /* us 0: no time is set */
};
#define SCHED_GATES_MAX 13

/* State of some recipients of one message for one destination, with the gates that they wait
 * for. */
struct sched_wait {
    uint32_t transport;
    struct slice dest;        /* lasts until the next fact; empty: the recipients are unread */
    struct sched_entry entry; /* the first that is being delivered; n 0: all of them wait */
    uint32_t entries;         /* of the message for this destination, in flight or waiting */
    struct sched_gate gates[SCHED_GATES_MAX];
    size_t gate_count;
};

/* Returns the gates of a transport and of one of its destinations for mail that arrives now, at the
 * end of the queue. A destination that is not in memory adds no gates. */
void sched_why_dest(const struct sched *s, uint32_t transport, struct slice dest,
                    struct sched_wait *ret_wait);

/* Groups recipients of a message by the reason why they wait. `rcpts` are numbers in ascending
 * order; ret_group[i] is the index of the group of rcpts[i] in ret_waits, which has room for
 * `count`. Returns the number of groups, 0 if the message is not in memory. The cost is
 * proportional to the message's recipients in memory. */
size_t sched_why(const struct sched *s, struct sched_msg msg, const uint32_t *rcpts, size_t count,
                 uint32_t *ret_group, struct sched_wait *ret_waits);

/* Aborts unless every invariant holds: those of sched_search_faults and those of the structures.
 * Linear in everything. For tests, fuzzing and simulation. */
void sched_audit(const struct sched *s);

/* Faults: violated invariants, found by an incremental search in a running scheduler. Stuck mail,
 * which no event will ever move, is the worst fault that a queue manager can have unnoticed. So the
 * search trusts as little as possible: every list, count and timer is checked from two sides. */
enum sched_fault_type {
    SCHED_FAULT_STUCK,      /* mail waits and nothing will start it */
    SCHED_FAULT_TIMER,      /* a timer is not armed, or long past */
    SCHED_FAULT_COUNT,      /* a count is `value` and should be `expected` */
    SCHED_FAULT_UNANSWERED, /* SCHED_READ, SCHED_ADMIT or a delivery without answer for `value`
                             * seconds */
};

struct sched_fault {
    enum sched_fault_type type;
    struct sched_msg msg; /* n 0: of no particular message */
    uint32_t transport;
    struct slice dest; /* empty: of the message or the transport; lasts until the next fact */
    const char *words; /* static: description of the fault, without values */
    uint64_t value, expected;
};

/* Times after which a missing answer is a fault; 0 = never. */
struct sched_timeouts {
    int64_t answer_us;   /* SCHED_READ, SCHED_ADMIT, decisions after a timer has ended */
    int64_t delivery_us; /* sched_finished */
};

/* Position of the search. Zeroed by the owner at the start, then changed by the search only. */
struct sched_search {
    uint32_t part;
    uint64_t at;
    uint64_t rounds; /* completed rounds over everything */
};

/* Continues the search over about `budget` things (entries, peers, destinations), at most to the
 * end of the round, and stops after `max` faults. All parts of one message or destination are
 * checked together, but queues longer than the budget are not counted. Changes nothing and never
 * aborts. Returns the number of faults in ret_faults. A sound scheduler never has any, not even
 * between two of its decisions. */
size_t sched_search_faults(const struct sched *s, struct mono now,
                           const struct sched_timeouts *timeouts, struct sched_search *search,
                           uint32_t budget, struct sched_fault *ret_faults, size_t max);

#endif
