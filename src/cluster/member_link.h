/*
 * Member link: the node's connection for membership. It executes the actions of membership.h in the
 * database, and wakes other nodes.
 *
 *     DOWN --connected--> which server is it? --> free --request--> answered --> free
 *      ^                                            |                  | refused
 *      |                                            +--- ROLLBACK <----+
 *      +---- lost, or no answer for MEMBER_LINK_ANSWER_US
 *
 * Each request is one transaction. Locks are taken in the same order everywhere: rows of fence by
 * number, then node, then lease by partition. A transaction that does not get a lock within
 * MEMBER_LINK_LOCK_MS ends and is repeated, so that no renewal is late because of another node.
 *
 * Nodes wake each other by NOTIFY on the channel sluice_NUMBER: `mail` (rows in arrival), `lease`
 * (wishes, or gained partitions), `ask` (rows in ask), `text` (changes of shared texts). NOTIFY is
 * a transaction of its own that waits for no disk, as it holds a lock of the whole server until its
 * end. It is sent at most every MEMBER_LINK_NOTIFY_US.
 *
 * Nothing waits. The owner watches the epoll descriptor and calls member_link_turn when it is
 * readable, and after each call that changes the membership.
 */
#ifndef CLUSTER_MEMBER_LINK_H
#define CLUSTER_MEMBER_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "committer.h"
#include "link.h"
#include "membership.h"

#define MEMBER_LINK_LOCK_MS   500
#define MEMBER_LINK_ANSWER_US (5 * US_PER_S)
#define MEMBER_LINK_AGAIN_US  (500 * US_PER_MS) /* time between two attempts to connect */
#define MEMBER_LINK_NOTIFY_US (2 * US_PER_MS)

/* Further facts that each renewal reads. */
struct member_renewal {
    uint64_t id_reserved;  /* highest id that this node may give */
    int64_t fresh_now;     /* number of the fresh table in use; not checked */
    int64_t active_route;  /* number of the routing tables in force */
    int64_t route;         /* number of this node's routing tables; 0 if they have none yet */
    int64_t format;        /* format of the tables */
    int64_t interventions; /* number of changes of shared texts; 0 in tables of an older format */
    int64_t accepted;      /* number of accepted losses of acknowledged mail */
};

/* Last commit of a node, which the database must have (committer_kept). */
struct member_marker {
    int no;           /* number that the node had */
    int64_t number;   /* number of the batch; 0 if unknown */
    int64_t accepted; /* number of losses that were accepted before */
    int64_t at_us;    /* wall clock time of the commit */
};

struct member_link;

struct member_link_owner {
    /* Another node has inserted arrivals for this node. Called in member_link_turn. */
    void (*woken)(void *arg);
    /* Returns statements that belong into the transaction which lets these partitions go, or NULL.
     * The link takes them. The callback may be NULL. */
    struct committer_batch *(*letting_go)(void *arg, const struct partition_set *partitions);
};

/* Creates the link and begins to connect. Borrows what link_new and membership_new borrow, and the
 * owner. */
struct member_link *member_link_new(int epoll_fd, const struct link_target *target,
                                    const struct membership_config *config,
                                    const struct member_link_owner *owner, void *arg);
void member_link_free(struct member_link *ml); /* NULL is allowed; the leases expire */

void member_link_turn(struct member_link *ml);

/* Returns the membership, which the link owns. The owner of the link must take its events. */
struct membership *member_link_membership(struct member_link *ml);

/* Makes the next renewal reserve ids up to this one. */
void member_link_reserve(struct member_link *ml, uint64_t id);
/* Returns the facts of the last renewal that was answered; zeros before the first. */
const struct member_renewal *member_link_renewal(const struct member_link *ml);
/* Sets the fingerprint of this node's routing tables; the next renewal gives them a number. They
 * become the tables in force if no node has had them before, or if `in_force` is set. */
void member_link_tables(struct member_link *ml, uint64_t fingerprint, bool in_force);
/* Sets a JSON object that other nodes see in this node's row; copied. Each renewal stores it. */
void member_link_status(struct member_link *ml, const char *json);

/* Sets the commit that the database must have, copied. Each new connection searches for it once. */
void member_link_expect(struct member_link *ml, const struct member_marker *marker);
/* Returns by how many microseconds this machine's wall clock was ahead of the database's at the
 * last renewal that was answered within a second; MEMBER_LINK_NO_CLOCK if there was none. */
int64_t member_link_clock(const struct member_link *ml);

/* Facts that a node has stored in its row, as of the last renewal. */
struct member_words {
    uint64_t behind;       /* number of messages that wait for memory */
    int64_t interventions; /* version of its shared texts, or MEMBER_LINK_UNSAID */
    int64_t clock_us;      /* value of member_link_clock */
};
#define MEMBER_LINK_UNSAID   (-1)
#define MEMBER_LINK_NO_CLOCK INT64_MIN
const struct member_words *member_link_words(const struct member_link *ml, int no);
/* Requests a renewal soon. Returns its number. member_link_renewals returns the number of the last
 * renewal that was answered. */
uint64_t member_link_renew(struct member_link *ml);
uint64_t member_link_renewals(const struct member_link *ml);

/* Wakes node `no` after a commit: for rows in arrival, for rows in ask, and for changes of shared
 * texts. */
void member_link_notify(struct member_link *ml, int no);
void member_link_notify_ask(struct member_link *ml, int no);
void member_link_notify_text(struct member_link *ml, int no);
/* Was this node woken for rows in ask, or for changes of shared texts, since the last call? */
bool member_link_has_asks(struct member_link *ml);
bool member_link_has_texts(struct member_link *ml);

/* Returns the reason why the link is not connected or why the database has refused a request, or an
 * empty text. */
const char *member_link_error(const struct member_link *ml);

#endif
