/*
 * Membership: determines which partitions this node may work on, and until when.
 *
 * A node of a cluster is a daemon with a name. The database gives it a number, and a new
 * incarnation for each life; every transaction of the node fails once another incarnation is in
 * force. One lease covers all partitions of a node; each renewal extends the lease. For its holder
 * the lease ends `hold_us` after it sent the last renewal that was answered. For other nodes the
 * lease ends when they have seen no renewal for `dead_us`. Each node measures with its own clock.
 * Clocks must run at about the same speed (4 s and 5 s: within 20 %), and need not agree on the
 * time.
 *
 *       name is taken                    too many or other partitions, another format
 *    REFUSED <------------+------------------------------------------+
 *                         |                                          |
 *    OUT --looks: name is free, or silent for watch_us--> [comes up] IN --[gives away] all---> LEFT
 *     ^                                                              |
 *     +------------------- [learns that it was given up] ------------+
 *
 *    OUT      No incarnation: the node can write nothing and owns nothing.
 *    IN       Registered. Each renewal moves the deadline. After the deadline nothing may
 *             begin, but results can be stored for as long as the incarnation is in force.
 *    LEFT     Stopped in order; other nodes take the partitions at once.
 *    REFUSED  Refused for good, with a reason; the program ends.
 *
 * A partition of this node:
 *
 *    NONE --[claims], or given to us--> OURS --[gives away]: wished for--> DRAINING --drained-->
 *         LETTING GO --the database has it--> NONE
 *
 * The names in brackets are those of tests/model/lease.pml. Four rules make the protocol safe:
 *
 *   1. A node that takes over raises the other node's incarnation. It does so under a lock that
 *      waits for the other's transactions, and only if its beat has not moved for `dead_us`.
 *   2. An owner lets a partition go only after everything that it began there has ended.
 *   3. A list of leases is valid only if a successful renewal has read it in its transaction.
 *   4. A request to let a partition go contains the epoch of the lease. If it is executed late, in
 *      a session that seemed to be lost, it does not change a later lease of the partition.
 *
 * The module has no input or output and no clock. Facts with their time go in; actions come out one
 * at a time, and each is answered before the next (membership_answered or membership_lost). Times
 * are of CLOCK_BOOTTIME, which runs while the machine sleeps. Values from the database are not
 * trusted: all are checked here.
 */
#ifndef CLUSTER_MEMBERSHIP_H
#define CLUSTER_MEMBERSHIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "partition_set.h"
#include "slice.h"
#include "times.h"

#define MEMBERSHIP_NODES_MAX 64
#define MEMBERSHIP_NAME_MAX  255
#define MEMBERSHIP_WORDS_MAX 400
#define MEMBERSHIP_NOBODY    (-1)

/* State of a node in the database (node.state). */
enum node_state {
    NODE_WAITING =
        0, /* up, but without partitions until deliveries of an earlier incarnation have ended */
    NODE_UP = 1,
    NODE_DRAINING = 2, /* set by an operator: accepts mail, and its partitions go to other nodes */
    NODE_STOPPED = 3,
    NODE_STOPPED_DRAINING = 4, /* will be draining after its next start */
    NODE_REMOVED = 5, /* set by an operator: the row keeps the number's highest id and beat */
};

struct membership_times {
    int64_t renew_us;  /* time between two renewals */
    int64_t look_us;   /* time between two looks at the other nodes */
    int64_t hold_us;   /* length of the lease for its holder */
    int64_t dead_us;   /* length of the lease for other nodes */
    int64_t watch_us;  /* time for which a row of the own name must be silent before this node uses
                        * it; at least dead_us, as an earlier incarnation may run elsewhere */
    int64_t drain_us;  /* time after which deliveries in a draining partition are broken off */
    int64_t wish_us;   /* time after which an open wish no longer counts and another one follows */
    int64_t settle_us; /* time after a change of timeline in which nothing begins, so that a node
                        * which misses changes can report it */
    int64_t wake_us;   /* least time between two renewals, even if other nodes wake this one */
};

/* Times that the program uses. */
extern const struct membership_times membership_times;

/* Number of other nodes' partitions that are wished for at once; no delivery begins in them until
 * they are let go. Wishes that are older than wish_us do not count, so that one long delivery does
 * not delay other wishes. */
#define MEMBERSHIP_WISHES_MAX 8

struct membership_config {
    const struct membership_times *times; /* borrowed, as all pointers here, by the membership */
    const char *name;                     /* name of the node */
    int format_min, format_max;           /* formats of the tables that this program knows */
    bool needs_standby; /* whether commits must be on two machines (cluster_standby) */
    bool take_over;     /* whether the row need not be watched, as the name's owner has ended */
};

/* ---- facts ----------------------------------------------------------------------------------- */

struct membership_node {
    int64_t no, incarnation, beat, state;
    struct slice name;
    int64_t lost; /* number of accepted losses that ends this node's loss; 0 if it misses nothing */
};

struct membership_lease {
    int64_t p, epoch;
    int64_t node, wanted; /* MEMBERSHIP_NOBODY for none */
};

/* Result of one look, with unchecked values from the database. */
struct membership_view {
    const struct membership_node *nodes;
    size_t node_count;
    const struct membership_lease *leases;
    size_t lease_count;
    int64_t format, min_format, partitions;
    int64_t accepted;         /* number of accepted losses */
    bool lacks_marker;        /* whether the database lacks an acknowledged commit of this node */
    int64_t cluster_timeline; /* highest timeline that any node has seen; 0 if none */
    struct slice cluster_system_id; /* empty for any */
    /* Whether it is another engine than PostgreSQL, with commits by consensus. The members below
     * are not checked then. */
    bool by_consensus;
    bool in_recovery, fsync, full_page_writes;
    struct slice synchronous_commit, standby_names;
    int64_t timeline;
    struct slice system_id;
};

enum membership_outcome {
    MEMBERSHIP_DONE,
    MEMBERSHIP_NOT_MET, /* the database has refused: the other node lives, or the name is taken */
    MEMBERSHIP_STALE,   /* this node's incarnation is not in force */
    MEMBERSHIP_AGAIN,   /* locked, deadlock or serialization failure; to be repeated later */
};

struct membership_answer {
    enum membership_outcome outcome;
    const struct membership_view *view; /* for LOOK, and for RENEW that is done */
    int64_t beat;                       /* for RENEW that is done */
    int64_t no, incarnation;            /* for REGISTER that is done */
    struct partition_set partitions;    /* for CLAIM: partitions that this node got */
    int64_t epochs[PARTITIONS];         /* for CLAIM: their epochs */
};

/* ---- actions --------------------------------------------------------------------------------- */

enum membership_action_type {
    MEMBERSHIP_NONE,
    MEMBERSHIP_LOOK,      /* reads a view */
    MEMBERSHIP_REGISTER,  /* [comes up]: takes the row `no` if it is still at (incarnation, beat).
                           * With `no` MEMBERSHIP_NOBODY, makes a row with the lowest free number,
                           * if no row has the name */
    MEMBERSHIP_RENEW,     /* [renews]: renews the lease, and reads a view in the same transaction */
    MEMBERSHIP_TAKE_OVER, /* [takes over] node `no` if its row is still at (incarnation, beat); with
                           * `beat` MEMBERSHIP_NOBODY if it has no row or was removed */
    MEMBERSHIP_CLAIM,     /* [claims]: takes those of `partitions` that are free */
    MEMBERSHIP_WISH,      /* marks `partitions` that other nodes have and no node wishes for */
    MEMBERSHIP_RELEASE,   /* [gives away]: each p of `partitions`, at epochs[p], to to[p] or none */
    MEMBERSHIP_LEAVE,     /* [gives away] all: state STOPPED, all leases freed, incarnation ended */
};

struct membership_action {
    enum membership_action_type type;
    int no;                    /* for REGISTER and TAKE_OVER */
    int64_t incarnation, beat; /* for REGISTER and TAKE_OVER: values that were seen */
    int64_t raise_timeline;    /* for RENEW: new value of cluster.timeline; 0 to keep the value */
    bool ready;                /* for REGISTER and RENEW: whether the state is not WAITING */
    struct partition_set partitions;
    const int16_t *to;     /* for RELEASE: by partition; valid until the answer */
    const int64_t *epochs; /* for RELEASE: by partition; valid until the answer */
};

/* ---- events for the owner -------------------------------------------------------------------- */

enum membership_event_type {
    MEMBERSHIP_GIVEN_UP,   /* the node owns nothing, and its commits fail; deliveries must be broken
                            * off where possible, and membership_ready called when all have ended */
    MEMBERSHIP_REGISTERED, /* registered with membership_incarnation */
    MEMBERSHIP_GAINED,     /* this node owns `partitions` now */
    MEMBERSHIP_DRAIN,      /* nothing may begin in `partitions`; membership_drained must be called
                            * for each when all has ended and is stored */
    MEMBERSHIP_HURRY,      /* deliveries in `partitions` must be broken off where possible */
};

struct membership_event {
    enum membership_event_type type;
    struct partition_set partitions;
};

enum membership_health {
    MEMBERSHIP_FIT,
    MEMBERSHIP_UNFIT,     /* the database is unfit now, and nothing may begin */
    MEMBERSHIP_UNWELCOME, /* unfit for good: state REFUSED */
};

struct membership;

struct membership *membership_new(const struct membership_config *config);
void membership_free(struct membership *m); /* NULL is allowed */

/* Finds the next action, which counts as sent at `now`. Returns false if there is none before
 * membership_wake_at or before an answer. The owner must have a connection. */
bool membership_next(struct membership *m, struct mono now, struct membership_action *ret);
/* Handles the answer to the last action. */
void membership_answered(struct membership *m, struct mono now, const struct membership_answer *a);
/* Notes that the last action will get no answer, as the connection is lost. The action may still
 * happen. */
void membership_lost(struct membership *m, struct mono now);
/* Makes the next look come soon, as another node has changed something. */
void membership_wake(struct membership *m);
struct mono membership_wake_at(const struct membership *m);

bool membership_event(struct membership *m, struct mono now, struct membership_event *ret);

/* Notes that all deliveries of an earlier incarnation have ended, so that partitions can be taken.
 * This is the case at first. */
void membership_ready(struct membership *m);
/* Notes that a commit has found another incarnation in force. Nothing may begin until the next
 * renewal, which is made at once and has the facts. */
void membership_doubt(struct membership *m);
/* Notes that nothing is open in a draining partition, not even in an unanswered batch. */
void membership_drained(struct membership *m, int p);
/* Begins to release all partitions, each when it is drained. membership_left is true after the
 * last. */
void membership_leave(struct membership *m, struct mono now);
/* Releases all partitions at once; nothing may be open anywhere. */
void membership_leave_now(struct membership *m);
bool membership_left(const struct membership *m);

/* Has the node a lease, and all partitions that it could have at once? */
bool membership_is_settled(const struct membership *m);

/* Returns the time from which nothing may begin or pass its last look; a time in the past if
 * nothing may begin at all. */
struct mono membership_deadline(const struct membership *m);
/* May deliveries begin in the partition, before the deadline? Not while it drains. */
bool membership_is_mine(const struct membership *m, int p);
/* Does the partition drain? Its results can still be stored then. */
bool membership_is_draining(const struct membership *m, int p);
/* Returns the owner of a partition as of the last look, or MEMBERSHIP_NOBODY. membership_unowned_us
 * returns for how many microseconds it has had no owner, as far as this node has seen. */
int membership_owner(const struct membership *m, int p);
int64_t membership_unowned_us(const struct membership *m, int p, struct mono now);
/* Returns how often a renewal was answered after the previous lease had ended. In between other
 * nodes may have taken this node for dead. */
uint64_t membership_lapses(const struct membership *m);
/* Returns the name of a node, or "" if there is none. membership_is_up returns whether the node is
 * registered and not silent. */
const char *membership_name(const struct membership *m, int no);
bool membership_is_up(const struct membership *m, int no, struct mono now);
/* Finds the last known state of a node, and for how many microseconds its beat has stood still.
 * Returns false if there is no such node. */
bool membership_seen(const struct membership *m, int no, struct mono now,
                     enum node_state *ret_state, int64_t *ret_silent_us);
/* Returns the number of this node, or MEMBERSHIP_NOBODY if it is not registered; the incarnation is
 * 0 then. */
int membership_number(const struct membership *m);
int64_t membership_incarnation(const struct membership *m);
int membership_nodes_up(const struct membership *m, struct mono now);

enum membership_health membership_health(const struct membership *m);
/* Returns the reason why the database is not fit, or an empty text. */
const char *membership_words(const struct membership *m);
/* Does the database, as of the last look, lack a commit of this node that was acknowledged? */
bool membership_lacks(const struct membership *m);
/* Does the database lack such a commit of this node or of another one? */
bool membership_has_loss(const struct membership *m);
/* Do the tables have a format that this program does not know? A node that is registered stays so,
 * to store the results of its deliveries and to leave in order. */
bool membership_is_outdated(const struct membership *m);
/* Has the timeline changed less than settle_us ago? */
bool membership_is_settling(const struct membership *m);
/* Returns the highest timeline of a server that was fit, or 0. */
int64_t membership_timeline(const struct membership *m);

#endif
