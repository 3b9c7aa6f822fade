/*
 * Membership: which partitions this node may work on, and until when.
 *
 * A node of a cluster is a daemon with a name. The database gives it a number, and with each life a
 * new incarnation; every transaction of the node fails once another incarnation is in force. Its
 * claim on all its partitions is one lease: each renewal carries it on. The lease ends for its
 * holder `hold_us` after the last renewal that was answered was sent, and for the others when they
 * have seen no renewal for `dead_us`, each by its own clock; so clocks have to run at about the
 * same speed (4 s and 5 s: within 20 %), and need not agree on the time.
 *
 *                     name is taken                    too many or other partitions, another format
 *   REFUSED <------------+------------------------------------------+
 *                        |                                          |
 *   OUT --looks: name is free, or silent for watch_us--> [comes up] IN --[gives away] all---> LEFT
 *    ^                                                              |
 *    +------------------- [learns that it was given up] ------------+
 *
 * OUT      no incarnation: nothing can be written, nothing is ours.
 * IN       registered. The deadline moves on with each renewal; when it has passed, nothing may
 *          begin, but what was done can be stored for as long as the incarnation is in force.
 * LEFT     stopped in order; others take the partitions at once.
 * REFUSED  for good, with words; the program ends.
 *
 * A partition that is ours:
 *
 *   NONE --[claims], or given to us--> OURS --[gives away]: wished for--> DRAINING --drained-->
 *   LETTING GO --the database has it--> NONE
 *
 * The names in brackets are those of tests/model/lease.pml. What makes it safe:
 *  1. Who takes over raises the other's incarnation, under a lock that waits for what the other has
 *     under way, and only if the other's last renewal is still the one that was seen `dead_us` ago.
 *  2. A partition is let go by its owner only after it has ended all that it began there.
 *  3. A list of leases counts only when it came in the transaction of a renewal that succeeded.
 *  4. What is sent to let go of a partition names the epoch of its lease; so when it is done late,
 *     in a session that was thought to be lost, it does nothing to a later life of the lease.
 *
 * No input or output here, no clock: facts with their time come in, actions are pulled out, one at
 * a time; each is answered before the next (membership_answered or membership_lost). Times are of
 * CLOCK_BOOTTIME, which goes on while the machine sleeps. What the database says is checked here;
 * nothing of it is believed to be in range.
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

/* node.state in the database. */
enum node_state {
    NODE_WAITING =
        0, /* up, but takes no partitions yet: what an earlier life began has not ended */
    NODE_UP = 1,
    NODE_DRAINING = 2, /* an operator's word: it accepts mail, and its partitions go to others */
    NODE_STOPPED = 3,
    NODE_STOPPED_DRAINING = 4, /* will be draining when it comes back */
    NODE_REMOVED = 5, /* an operator's word: the row only keeps the number's highest id and beat */
};

struct membership_times {
    int64_t renew_us; /* from one renewal to the next */
    int64_t look_us;  /* from one look at the others to the next */
    int64_t hold_us;  /* the lease, for its holder */
    int64_t dead_us;  /* the lease, for the others */
    int64_t watch_us; /* how long a row of our name has to be silent before it is taken for ours;
                         at least dead_us, or an earlier life elsewhere could still be at work */
    int64_t drain_us; /* a partition that drains for longer is to be hurried */
    int64_t wish_us;  /* a wish that is open for longer is followed by another */
    int64_t wake_us;  /* least time between two renewals, however often others wake us */
};

/* What the program uses. */
extern const struct membership_times membership_times;

/* Partitions of others that we ask for at once: nothing begins in these until they are let go. One
 * whose deliveries take longer than wish_us to end does not keep others waiting, and does not
 * count. */
#define MEMBERSHIP_WISHES_MAX 8

struct membership_config {
    const struct membership_times *times; /* borrowed, as all here, as long as the membership */
    const char *name;                     /* of the node */
    int format_min, format_max;           /* of the tables that this program knows */
    bool needs_standby; /* what is acknowledged must be on two machines; else the operator answers
                           for the one that there is (cluster_standby) */
    bool take_over;     /* who had the name has ended: it need not be watched first */
};

/* ---- facts ----------------------------------------------------------------------------------- */

struct membership_node {
    int64_t no, incarnation, beat, state;
    struct slice name;
};

struct membership_lease {
    int64_t p, epoch;
    int64_t node, wanted; /* MEMBERSHIP_NOBODY: none */
};

/* What one look has found. Everything is as the database gave it. */
struct membership_view {
    const struct membership_node *nodes;
    size_t node_count;
    const struct membership_lease *leases;
    size_t lease_count;
    int64_t format, min_format, partitions;
    int64_t cluster_timeline;       /* the highest that any node has seen; 0: none */
    struct slice cluster_system_id; /* empty: any */
    /* Not PostgreSQL: its commits are by consensus, and what follows is not looked at. */
    bool by_consensus;
    bool in_recovery, fsync, full_page_writes;
    struct slice synchronous_commit, standby_names;
    int64_t timeline;
    struct slice system_id;
};

enum membership_outcome {
    MEMBERSHIP_DONE,
    MEMBERSHIP_NOT_MET, /* the database has refused: the other lives, the name has gone */
    MEMBERSHIP_STALE,   /* our incarnation is not in force */
    MEMBERSHIP_AGAIN,   /* locked, deadlock, serialization: later */
};

struct membership_answer {
    enum membership_outcome outcome;
    const struct membership_view *view; /* LOOK, and RENEW that is done */
    int64_t beat;                       /* RENEW that is done */
    int64_t no, incarnation;            /* REGISTER that is done */
    struct partition_set partitions;    /* CLAIM: those that we got */
    int64_t epochs[PARTITIONS];         /* CLAIM: of these */
};

/* ---- actions --------------------------------------------------------------------------------- */

enum membership_action_type {
    MEMBERSHIP_NONE,
    MEMBERSHIP_LOOK,      /* read a view */
    MEMBERSHIP_REGISTER,  /* [comes up]: the row `no` if it is still at (incarnation, beat); no row
                             of that name, `no` MEMBERSHIP_NOBODY: make one, lowest free number */
    MEMBERSHIP_RENEW,     /* [renews]: ours, and read a view in the same transaction */
    MEMBERSHIP_TAKE_OVER, /* [takes over] node `no`, if its row is still at (incarnation, beat);
                             `beat` MEMBERSHIP_NOBODY: if it has no row, or was removed */
    MEMBERSHIP_CLAIM,     /* [claims]: those of `partitions` that are free */
    MEMBERSHIP_WISH,      /* those of `partitions` that others have and no node wishes for */
    MEMBERSHIP_RELEASE,   /* [gives away]: each p of `partitions`, at epochs[p], to to[p] or none */
    MEMBERSHIP_LEAVE, /* [gives away] all: state STOPPED, all leases, and the incarnation ends */
};

struct membership_action {
    enum membership_action_type type;
    int no;                    /* REGISTER, TAKE_OVER */
    int64_t incarnation, beat; /* REGISTER, TAKE_OVER: as they were seen */
    int64_t raise_timeline;    /* RENEW: cluster.timeline is to be this; 0: as it is */
    bool ready;                /* REGISTER, RENEW: not WAITING (any more) */
    struct partition_set partitions;
    const int16_t *to;     /* RELEASE: by partition; until the answer */
    const int64_t *epochs; /* RELEASE: by partition; until the answer */
};

/* ---- what its owner is to know --------------------------------------------------------------- */

enum membership_event_type {
    MEMBERSHIP_GIVEN_UP,   /* nothing is ours any more; commits fail. What was begun and can be
                              broken off is; when all of it has ended: membership_ready */
    MEMBERSHIP_REGISTERED, /* under membership_incarnation */
    MEMBERSHIP_GAINED,     /* `partitions` are ours */
    MEMBERSHIP_DRAIN,      /* nothing is to begin in `partitions`; membership_drained when all has
                              ended and is stored */
    MEMBERSHIP_HURRY,      /* `partitions` drain for long: what can be broken off is to be */
};

struct membership_event {
    enum membership_event_type type;
    struct partition_set partitions;
};

enum membership_health {
    MEMBERSHIP_FIT,
    MEMBERSHIP_UNFIT,     /* not now: what the database is or says; nothing may begin */
    MEMBERSHIP_UNWELCOME, /* never: state REFUSED */
};

struct membership;

struct membership *membership_new(const struct membership_config *config);
void membership_free(struct membership *m); /* NULL is fine */

/* What to do next, now: it counts as sent at `now`. False: nothing before membership_wake_at, or
 * before an answer. The owner has a connection. */
bool membership_next(struct membership *m, struct mono now, struct membership_action *ret);
/* The last action's answer. */
void membership_answered(struct membership *m, struct mono now, const struct membership_answer *a);
/* The last action has no answer, and never will: the connection is lost. It may still happen. */
void membership_lost(struct membership *m, struct mono now);
/* Another node has done something that concerns us: look soon. */
void membership_wake(struct membership *m);
struct mono membership_wake_at(const struct membership *m);

bool membership_event(struct membership *m, struct mono now, struct membership_event *ret);

/* All that an earlier life had begun has ended: partitions may come. So it is at the beginning. */
void membership_ready(struct membership *m);
/* A commit of ours has found another incarnation in force: nothing may begin until the next
 * renewal, which is made at once and will say so. */
void membership_doubt(struct membership *m);
/* Nothing is open in a partition that drains, not in an unanswered batch either. */
void membership_drained(struct membership *m, int p);
/* Give all away, one by one as they are drained; `membership_left` when the last is. */
void membership_leave(struct membership *m, struct mono now);
/* The same at once: nothing of ours is open anywhere, or will be ended. */
void membership_leave_now(struct membership *m);
bool membership_left(const struct membership *m);

/* Has it a lease, and all partitions that it could have at once? */
bool membership_is_settled(const struct membership *m);

/* Nothing may begin, or pass its last look, from then on; in the past when nothing may at all. */
struct mono membership_deadline(const struct membership *m);
/* May work begin there, before the deadline? Not while it drains. */
bool membership_is_mine(const struct membership *m, int p);
/* Does it drain? Then what is open there can be stored. */
bool membership_is_draining(const struct membership *m, int p);
/* Whose it was when that was looked at last; MEMBERSHIP_NOBODY. For how long (us) it has had
 * no owner, as far as this node has seen. */
int membership_owner(const struct membership *m, int p);
int64_t membership_unowned_us(const struct membership *m, int p, struct mono now);
/* How often a renewal has come when the lease before it was over: for that while others may have
 * thought that this node is not there. */
uint64_t membership_lapses(const struct membership *m);
/* The name of a node, "" when there is none; is it one of the nodes, and not silent? */
const char *membership_name(const struct membership *m, int no);
bool membership_is_up(const struct membership *m, int no, struct mono now);
/* How it was seen last, and for how long its beat has stood still (us). False: there is no such
 * node. */
bool membership_seen(const struct membership *m, int no, struct mono now,
                     enum node_state *ret_state, int64_t *ret_silent_us);
/* MEMBERSHIP_NOBODY, 0: not registered. */
int membership_number(const struct membership *m);
int64_t membership_incarnation(const struct membership *m);
int membership_nodes_up(const struct membership *m, struct mono now);

enum membership_health membership_health(const struct membership *m);
/* Why it is not fit; empty when it is. */
const char *membership_words(const struct membership *m);
/* The highest timeline of a server that was as it should be; 0: none was yet. */
int64_t membership_timeline(const struct membership *m);

#endif
