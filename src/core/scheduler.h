/*
 * The scheduler: which delivery goes next, and how many at once.
 *
 * A state machine without I/O, clock or logging. Facts go in (sched_open, sched_recipients,
 * sched_finished, ...) with the time; decisions are pulled out with sched_next until it says
 * SCHED_NONE; sched_wake_at tells when to come back though no fact arrived. Same facts in the same
 * order at the same times: same decisions, on every machine.
 *
 *   message ---< recipient          What a message holds. A job is one message seen from one
 *      |                            transport; a peer is one job's entries for one destination; an
 *      +---< job ---< peer ---< entry    entry is the recipients handed over together.
 *              |        |
 *          transport --< destination     A destination has a window; a transport has a budget.
 *
 * Behaviour is that of Postfix's queue manager (its SCHEDULER_README describes the method): order
 * of selection, preemption, recipient pools, feedback, dead destinations, rate delays. Names of
 * parameters are Postfix's. Where the search differs, the choice does not: see sched.c.
 *
 * Invariant, checked by sched_audit: every recipient in memory is in exactly one place (waiting in
 * an entry, in an entry that is being delivered, or in an action not pulled yet), and every place
 * has a next event.
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

/* Names an entry that is being delivered; never reused, so a late or invented result is recognised.
 */
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

/* Limits over everything. */
struct sched_limits {
    uint32_t message_active_limit;      /* qmgr_message_active_limit */
    uint32_t message_recipient_limit;   /* qmgr_message_recipient_limit; >= message_active_limit */
    uint32_t message_recipient_minimum; /* qmgr_message_recipient_minimum; >= 1 */
    uint32_t destination_share;         /* per cent of the free places of the active queue that one
                                           destination may hold; 0 = no shares, as in Postfix */
    uint32_t failing_share;             /* per cent of a transport's process_limit, if that is
                                           SCHED_FAILING_FROM or more, for all destinations together
                                           that failed since a delivery ended well; 0 or 100 = all,
                                           as in Postfix */
    int64_t minimal_backoff_us;         /* how long a dead destination stays dead at first */
    int64_t maximal_backoff_us;         /* and at most, when it was tried again and again failed */
    int64_t destination_memory_us; /* how long it is remembered of a destination without mail what
                                      was learned of it; 0 = not at all, as in Postfix */
    int64_t transport_retry_us;    /* how long a dead transport stays dead */
};

/* Parameters of a transport; all `TRANSPORT_...` or `default_...` of the configuration. */
struct sched_transport_policy {
    struct window_limits window; /* of its destinations, unless sched_dest_policy says otherwise */
    uint32_t process_limit;      /* deliveries at once over all destinations; 0 = no limit */
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

/* New limits take effect for what comes; nothing in memory is thrown out. */
void sched_set_limits(struct sched *s, const struct sched_limits *limits);

/* Create transport `name` or give it a new policy (also while deliveries run). Returns its index,
 * which lasts as long as the scheduler. Destinations without a policy of their own follow. */
uint32_t sched_transport(struct sched *s, struct mono now, const char *name,
                         const struct sched_transport_policy *policy);

/* ---- facts ---------------------------------------------------------------------------------- */

/* Is there room for one more message (message_active_limit)? Places that answers to SCHED_ADMIT may
 * fill are taken. */
bool sched_has_room(const struct sched *s);

/* A message enters the active queue. `recipients` is how many it has still to deliver as far as is
 * known (an upper bound). `one_per_entry`: never two recipients in one entry. The core then asks
 * for its recipients with SCHED_READ. Only when sched_has_room, or in answer to SCHED_ADMIT, whose
 * `max` has its places kept. CHECKs that and that the id is not in memory. */
void sched_open(struct sched *s, struct mono now, struct sched_msg msg, uint32_t recipients,
                bool one_per_entry);

/* Classes. The same for mail of a class; its name is bytes that mean nothing here, the empty name
 * is mail without a class. Within a class the order is that of Postfix, as it is when there is one
 * class only, named or not. Where several wait they take turns, in proportion to their weights
 * (1..SCHED_WEIGHT_MAX): for the deliveries to a destination, and, when the transport can't take
 * more, for those of the transport. The order of turns and what it promises stand in turns.h; a
 * turn that can't be used is left to others. `weight` is the class's from now on. */
void sched_open_in_class(struct sched *s, struct mono now, struct sched_msg msg,
                         uint32_t recipients, bool one_per_entry, struct slice class_name,
                         uint32_t weight);

/* Groups. A class may be divided: of the name CLASS/GROUP all before the first SCHED_GROUP_MARK is
 * the class, and all of it is the name of a group to the calls below. The groups of a class take
 * its turns as equals, whatever their mail, and have equal parts of its share of the active queue.
 * In all else a group is like a class: its mail keeps its order and is parked for itself. Each
 * group may have one message in memory for each destination whatever the shares are, so that the
 * owner bounds their number. The weight is the class's, by either name. */

/* Give a class that has mail in memory, or mail without a class, another weight. */
void sched_class_weight(struct sched *s, struct slice class_name, uint32_t weight);

/* Shares. No destination may fill the active queue: when it has as many messages of one class in
 * memory as there are places left (message_active_limit less all messages, scaled by
 * destination_share) that class holds its full share there, whatever the others do then, and some
 * places stay free for all (a "dynamic threshold", after Choudhury and Hahne). A message that
 * waits for such a destination alone stays with its owner, "parked" under the names of destination
 * and class, and enters when the scheduler asks for it with SCHED_ADMIT. How long it may stay
 * parked (its lifetime, a delay warning) is its owner's business.
 *
 * Each class has a share of its own, so that bulk keeps no other mail for its destination out. When
 * the destination has its share as a whole, each of the n classes with mail in memory there may
 * have an n-th of it: so a class that is alone has all, and the more there are the slower what they
 * take together grows. A class without messages in memory may have one while there is a place, so
 * classes without number, as destinations without number, can take all places.
 *
 * True when a message of this class (empty: none) all of whose recipients (as far as the owner has
 * looked) are for this destination is to be parked instead of opened: the share is full, or older
 * mail of the class is parked already and goes first. */
bool sched_share_full(const struct sched *s, uint32_t transport, struct slice dest,
                      struct slice class_name);

/* Mail of this class for this destination is parked (not called for what SCHED_PARK has
 * brought). Keeps what is known of the destination in memory until sched_admitted says that no more
 * is parked. To be told after a restart, too. */
void sched_parked(struct sched *s, struct mono now, uint32_t transport, struct slice dest,
                  struct slice class_name);

/* The answer to SCHED_ADMIT, after the messages were opened: how many (at most its `max`), and is
 * `more` of the class parked? To be given exactly once for each, at once or later, whatever was
 * dropped, revived or reconfigured meanwhile; mail that was parked meanwhile is remembered, too.
 * After 0 with more the next question for this destination and class comes after a second. */
void sched_admitted(struct sched *s, struct mono now, uint32_t transport, struct slice dest,
                    struct slice class_name, uint32_t count, bool more);

/* One recipient to schedule. `dest` is the destination's name within its transport (the next hop in
 * lower case; with a recipient limit of 1 the owner puts the mailbox in front: user@nexthop). */
struct sched_rcpt {
    uint32_t n;         /* the owner's number of the recipient within the message */
    uint32_t transport; /* index */
    struct slice dest;  /* copied; 1..SCHED_DEST_NAME_MAX bytes */
};

/* The answer to SCHED_READ: the next recipients in the owner's order (the core groups them by
 * transport name and destination name, stable). `disposed` counts recipients the reader passed over
 * because they need no delivery. `complete`: there are no more after these. Must answer each
 * SCHED_READ exactly once, with at most as many as it asked for, and with none only when some were
 * disposed of or it is complete. Answering before the next sched_next gives exactly Postfix's
 * order; a message that was dropped meanwhile needs its answer, too, which is then ignored. */
void sched_recipients(struct sched *s, struct mono now, struct sched_msg msg,
                      const struct sched_rcpt *rcpts, size_t count, uint32_t disposed,
                      bool complete);

/* How an entry ended, as far as the destination is concerned. What became of each recipient is the
 * owner's business. */
enum sched_outcome {
    SCHED_OK,        /* it was reached and spoke with us, whatever it said of recipients */
    SCHED_DEST_FAIL, /* connection, handshake, lost connection, timeout: negative feedback */
    SCHED_CRASH,     /* the agent died: neither feedback; the recipients are to be tried again */
};

/* An entry has ended. `reason` ("4.4.1 connect to ...: Connection refused") is kept when it makes
 * the destination dead. False when no such entry is being delivered (a hostile or late agent). */
bool sched_finished(struct sched *s, struct mono now, struct sched_entry entry,
                    enum sched_outcome outcome, struct slice reason);

/* Put an entry that was handed out back in its place, as if not selected (its agent could not take
 * it), except that the slots its job has collected for it stay. It may be selected again at once.
 * False as above. */
bool sched_unselect(struct sched *s, struct mono now, struct sched_entry entry);

/* The owner takes a message out (hold, removal, requeue): what waits of it is not delivered
 * any more and forgotten, what is being delivered ends as usual, then SCHED_DONE. False when it is
 * not in memory. */
bool sched_drop(struct sched *s, struct mono now, struct sched_msg msg);

/* No agent of this transport can be had: what waits is deferred with `reason`, as is what comes,
 * until transport_retry_us has passed, a delivery of it ends well, sched_transport_works, or
 * sched_revive. */
void sched_transport_failed(struct sched *s, struct mono now, uint32_t transport,
                            struct slice reason);
void sched_transport_works(struct sched *s, struct mono now, uint32_t transport);

/* Forget that a destination (dest empty: every destination of the transport, and the transport) is
 * dead or postponed. */
void sched_revive(struct sched *s, struct mono now, uint32_t transport, struct slice dest);
void sched_revive_all(struct sched *s, struct mono now);

/* Postpone a destination: it is dead until exactly `until`, however wide its window, and then ready
 * again without being probed, unless failures had made it dead before. What waits for it or comes
 * meanwhile is deferred with SCHED_DEFER and `reason`. Deliveries under way go on, and what they
 * learn counts for the window but ends nothing: only `until`, another sched_postpone and
 * sched_revive do. There are no SCHED_DEST_... actions for it. */
void sched_postpone(struct sched *s, struct mono now, uint32_t transport, struct slice dest,
                    struct mono until, struct slice reason);

/* Suspensions: what another scheduler has learnt of a destination and would do harm if it were
 * forgotten when its mail comes to this one: that it is dead until a time, or that its rate delay
 * runs until then. */
struct sched_suspension {
    uint32_t transport;
    struct slice dest;
    bool is_dead; /* else its rate delay runs */
    struct mono until;
    uint32_t deaths;     /* of a dead one: since a delivery ended well */
    struct slice reason; /* of a dead one: why */
};

/* Take it over, as if this scheduler had learnt it; sched_dest_info says `handed_over`. What it
 * knows itself goes first: a destination that is dead here stays so until its own time, and of two
 * times of a rate delay the later one holds. There are no SCHED_DEST_... actions for it before its
 * time is over. No effect when `until` is past. */
void sched_suspend(struct sched *s, struct mono now, const struct sched_suspension *x);

/* Those that are suspended now, but for postponed ones, in no order; as sched_dest_each. It costs
 * as much as there are times for which the scheduler waits. */
bool sched_suspension_each(const struct sched *s, uint64_t *cursor,
                           struct sched_suspension *ret_suspension);

/* Rings. Destinations of a transport may share agents, as those of one clause of ZMailer's do. An
 * agent has as many entries at once as the destination's `depth` says (ZMailer's overfeed + 1), so
 * a destination with b entries under way uses ceil(b / depth) agents, and those are what its window
 * and the limits of its ring count. An entry may start when it fits into an agent in use, or when
 * window, ring, transport and everything together have one left by the limits of *its* ring: the
 * number is shared, the limit is not, so a ring with a higher one has agents for itself.
 *
 * A destination that needs an agent of a ring waits in line. A destination at the front keeps what
 * becomes free for a turn (SCHED_RING_TURN entries or `depth`, whichever is more, if it has so
 * many), so that agents need not change destinations with each message, and then goes to the end.
 * Where the limits that rings share are reached, the rings of a transport take turns, and the
 * transports. Within a destination the order is as without rings; between destinations of a ring it
 * is that of the line, whatever the age or class of their mail. */
#define SCHED_RING_TURN 20

struct sched_ring_policy {
    uint32_t ring_limit;      /* agents of the ring; 0 = no limit, as for the others */
    uint32_t transport_limit; /* agents of its transport, with those of other rings and of none */
    uint32_t total_limit;     /* agents of all transports */
};

/* Make a ring, or change it (also while deliveries run). `ring` is the owner's number, >= 1. It
 * lasts as long as the scheduler. */
void sched_ring(struct sched *s, struct mono now, uint32_t transport, uint32_t ring,
                const struct sched_ring_policy *policy);

struct sched_dest_policy {
    struct window_limits window; /* in agents */
    int64_t rate_delay_us;       /* > 0 forces a window and a depth of 1 */
    uint32_t ring;               /* one that sched_ring has made, or 0 = none */
    uint32_t depth;              /* entries per agent, >= 1 */
};

/* A policy of its own for one destination. It lasts as long as the destination has mail, so the
 * owner calls this with each of its recipients and after a reload; before the first delivery the
 * window starts afresh with it. No effect on a destination that is not in memory. */
void sched_dest_policy(struct sched *s, struct mono now, uint32_t transport, struct slice dest,
                       const struct sched_dest_policy *policy);

/* ---- decisions ------------------------------------------------------------------------------ */

enum sched_action_type {
    SCHED_NONE,    /* nothing to do before sched_wake_at or the next fact */
    SCHED_DELIVER, /* hand this entry to an agent; end it with sched_finished */
    SCHED_READ,    /* read up to `max` recipients of this message; answer with sched_recipients */
    SCHED_DEFER,   /* these recipients of one message are deferred without an attempt: their
                      destination or (dest empty) their transport is dead */
    SCHED_DONE,    /* nothing of this message is in memory any more: settle it. The core has
                      forgotten it. */
    SCHED_PARK,    /* all that is left of this message waits for one destination (dest), which
                      holds more than its share: park it, its recipients untried. The core has
                      forgotten it, as with SCHED_DONE. */
    SCHED_ADMIT,   /* open up to `max` messages of class_name parked for dest, the oldest first;
                      answer with sched_admitted */
    /* For the log. */
    SCHED_DEST_DEAD,    /* this destination was just declared dead: until when, reason, and the
                           window that it had come to */
    SCHED_DEST_PROBED,  /* its time is over: it gets one delivery at a time until one ends well;
                           reason of its death */
    SCHED_DEST_REVIVED, /* a delivery has ended well, or sched_revive: the window it starts with */
};

struct sched_action {
    enum sched_action_type type;
    struct sched_msg msg;
    struct sched_entry entry;
    uint32_t transport;
    struct slice dest;       /* lasts until the next call */
    struct slice class_name; /* SCHED_PARK, SCHED_ADMIT; likewise */
    const uint32_t *rcpts;   /* recipient numbers; last until the next call */
    size_t rcpt_count;
    uint32_t max;                 /* SCHED_READ, SCHED_ADMIT */
    struct slice reason;          /* lasts until the next call */
    struct mono until;            /* SCHED_DEST_DEAD */
    bool cache_load, cache_store; /* connection cache hints (Postfix spec 6.9) */
    uint32_t window;              /* of the destination now */
    bool can_wait;                /* SCHED_DEFER: one of many, and the last thing to be decided */
};

/* The next decision. Call until SCHED_NONE after every fact or batch of facts; or, where many are
 * deferred as their destination has died, until one that `can_wait`: there is nothing else to
 * decide, and sched_wake_at says "at once" while some are left. */
enum sched_action_type sched_next(struct sched *s, struct mono now,
                                  struct sched_action *ret_action);

/* When time alone will change something (a dead destination's timer, a rate delay, a refill delay);
 * MONO_NEVER when nothing will. What would take long (a message of many recipients was dropped, a
 * transport of many destinations revived or given another policy) is done in pieces: then, and
 * while a SCHED_DEFER is left, this is the time of the last call, and what has happened meanwhile
 * may be told first. */
struct mono sched_wake_at(const struct sched *s);

/* ---- queries -------------------------------------------------------------------------------- */

bool sched_has_message(const struct sched *s, struct sched_msg msg);
bool sched_is_delivering(const struct sched *s, struct sched_entry entry);

struct sched_totals {
    uint32_t messages, recipients, entries_waiting, entries_busy, destinations, dead_destinations;
    uint32_t parked_destinations, idle_destinations; /* idle ones are not among `destinations` */
    uint64_t decisions;
    size_t bytes; /* memory held, addresses not counted */
};
struct sched_totals sched_totals(const struct sched *s);

enum sched_dest_state {
    SCHED_DEST_READY,
    SCHED_DEST_DEAD_UNTIL,
    SCHED_DEST_SUSPENDED, /* by its rate delay */
    SCHED_DEST_PROBING,   /* was dead; one delivery at a time until one ends well */
    SCHED_DEST_IDLE,      /* without mail in memory or parked; what is left of what was learned */
};
struct sched_dest_info {
    uint32_t transport;
    struct slice dest; /* lasts until the next fact */
    enum sched_dest_state state;
    struct mono until;           /* of a dead or suspended one */
    bool postponed;              /* dead because sched_postpone said so */
    bool handed_over;            /* dead or suspended because sched_suspend said so */
    struct slice reason;         /* of a dead or probed one */
    bool failing;                /* a delivery failed since one ended well */
    uint32_t deaths;             /* since then */
    uint32_t window, window_max; /* agents */
    uint32_t busy, waiting;      /* entries */
    uint32_t agents, depth;      /* agents in use, entries per agent */
    uint32_t ring;               /* 0: none */
    double success, failure, failed_cohorts;
    struct mono since; /* dead, suspended or with a full window; us 0: it has room */
    uint32_t messages; /* in memory */
    uint64_t share;    /* how many it may have there as things are; UINT64_MAX: no shares */
    bool parked;       /* more is parked, of any class */
    const struct window_limits *limits; /* lasts until the next fact */
    int64_t rate_delay_us;
    double per_second; /* deliveries that ended in the last minute or two; see pace.h */
    int64_t mean_us;   /* how long they took; 0 = none ended yet */
};
bool sched_dest_get(const struct sched *s, uint32_t transport, struct slice dest,
                    struct sched_dest_info *ret_info);
/* All of them, in a stable order: start with *cursor = 0; false at the end. Facts between calls may
 * make it skip or repeat. */
bool sched_dest_each(const struct sched *s, uint64_t *cursor, struct sched_dest_info *ret_info);

/* Mail of one class (empty: none) for a destination. */
struct sched_class_info {
    uint32_t messages; /* in memory */
    bool parked;       /* more is parked */
};
struct sched_class_info sched_class_get(const struct sched *s, uint32_t transport,
                                        struct slice dest, struct slice class_name);

struct sched_transport_info {
    bool dead;
    struct mono since, until; /* of a dead one */
    struct slice reason;      /* lasts until the next fact */
    uint32_t busy, waiting;   /* entries */
    uint32_t agents;          /* in use */
    uint32_t process_limit;   /* 0 = none */
    int64_t rate_delay_us;
};
void sched_transport_get(const struct sched *s, uint32_t transport,
                         struct sched_transport_info *ret_info);

/* What the last sched_finished did to the window of its destination. */
struct sched_window_step {
    uint32_t before, after;
};
struct sched_window_step sched_window_step(const struct sched *s);

/* Why a recipient in memory is not being delivered right now: the gates with their values, in the
 * order in which they bind, so the first that is closed does: to open another one first would
 * start nothing. First those that open at a set time, the latest of the closed ones in front; then
 * those that open when a delivery ends, the narrowest first, as an end that opens it opens the
 * wider ones, too. */
enum sched_gate_type {
    SCHED_GATE_BUSY,            /* it is being delivered now */
    SCHED_GATE_UNREAD,          /* not in memory yet: the message has `value` of the `limit`
                                   recipients it may have there */
    SCHED_GATE_TRANSPORT_DEAD,  /* until */
    SCHED_GATE_DEST_DEAD,       /* until */
    SCHED_GATE_DEST_RATE,       /* until */
    SCHED_GATE_TRANSPORT_RATE,  /* until */
    SCHED_GATE_WINDOW,          /* value of limit agents */
    SCHED_GATE_RING,            /* of the destination's ring: value of limit agents */
    SCHED_GATE_FAILING,         /* of a failing destination: all that fail have value of limit
                                   deliveries at once */
    SCHED_GATE_TRANSPORT_LIMIT, /* value of limit deliveries at once, or, where only the ring has
                                   one or that is reached, of limit agents */
    SCHED_GATE_AGENTS,          /* of all transports: value of limit agents, by the ring's limit */
    SCHED_GATE_CLASS,           /* other classes wait for the destination, too: this one has the
                                   weight value of limit in all */
    SCHED_GATE_GROUP,           /* other groups of its class wait there, too: each of `limit` groups
                                   gets `value` (1) */
    SCHED_GATE_BEHIND,          /* behind `value` entries of jobs before it for this destination */
};
struct sched_gate {
    enum sched_gate_type type;
    bool closed;
    uint64_t value, limit;
    struct mono since; /* of a closed one; us 0: not known */
    struct mono until; /* us 0: no time is set */
};
#define SCHED_GATES_MAX 13

/* What some recipients of one message, for one destination, wait for. */
struct sched_wait {
    uint32_t transport;
    struct slice dest;        /* lasts until the next fact; empty: the recipients are unread */
    struct sched_entry entry; /* the first that is being delivered; n 0: all of them wait */
    uint32_t entries;         /* of the message for this destination, under way or waiting */
    struct sched_gate gates[SCHED_GATES_MAX];
    size_t gate_count;
};

/* The gates of a transport and of one of its destinations, as mail that comes now would meet them:
 * behind everything that waits. A destination that is not in memory has none of its own. */
void sched_why_dest(const struct sched *s, uint32_t transport, struct slice dest,
                    struct sched_wait *ret_wait);

/* Groups recipients of a message by what they wait for. `rcpts` are numbers in ascending order;
 * ret_group[i] is the place of rcpts[i] in ret_waits, which has room for `count`. Returns the
 * number of groups, 0 when the message is not in memory. Costs as much as the message has
 * recipients in memory. */
size_t sched_why(const struct sched *s, struct sched_msg msg, const uint32_t *rcpts, size_t count,
                 uint32_t *ret_group, struct sched_wait *ret_waits);

/* Abort unless every invariant holds, those that sched_search_faults looks for and those of the
 * structures; linear in everything. For tests, fuzzing and simulation. */
void sched_audit(const struct sched *s);

/* Faults: what must never be, looked for a bit at a time in a scheduler that goes on working. Stuck
 * mail, which no event will ever move, is the worst that a queue manager can do unnoticed, so this
 * trusts as little as it can: every list, count and timer is checked from two sides. */
enum sched_fault_type {
    SCHED_FAULT_STUCK,      /* mail waits and nothing will start it */
    SCHED_FAULT_TIMER,      /* a timer is not armed, or long past */
    SCHED_FAULT_COUNT,      /* a count is `value` and should be `expected` */
    SCHED_FAULT_UNANSWERED, /* SCHED_READ, SCHED_ADMIT or a delivery without answer for `value`
                               seconds */
};

struct sched_fault {
    enum sched_fault_type type;
    struct sched_msg msg; /* n 0: of no message in particular */
    uint32_t transport;
    struct slice dest; /* empty: of the message or the transport; lasts until the next fact */
    const char *words; /* static: what is wrong, without values */
    uint64_t value, expected;
};

/* How long an answer may take before that is a fault; 0 = for ever. */
struct sched_timeouts {
    int64_t answer_us;   /* SCHED_READ, SCHED_ADMIT, pulling decisions when a timer has ended */
    int64_t delivery_us; /* sched_finished */
};

/* Where the search has come to. Zeroed at the start; then its own. */
struct sched_search {
    uint32_t part;
    uint64_t at;
    uint64_t rounds; /* that have been over everything */
};

/* Look on, at about `budget` things (entries, peers, destinations; what one message or destination
 * has is looked at together, but queues longer than the budget are not counted), at most to the end
 * of the round, and tell of at most `max` faults. Changes nothing and never aborts.
 * Returns the number of faults in ret_faults. A sound scheduler never has any, in the midst of its
 * decisions neither. */
size_t sched_search_faults(const struct sched *s, struct mono now,
                           const struct sched_timeouts *timeouts, struct sched_search *search,
                           uint32_t budget, struct sched_fault *ret_faults, size_t max);

#endif
