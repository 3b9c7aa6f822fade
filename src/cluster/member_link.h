/*
 * A node's connection for membership: it does in the database what membership.h decides, and wakes
 * other nodes.
 *
 *   DOWN --connected--> which server is it? --> free --request--> answered --> free
 *    ^                                            |                  | refused
 *    |                                            +--- ROLLBACK <----+
 *    +---- lost, or no answer for MEMBER_LINK_ANSWER_US -----------------
 *
 * Each request is one transaction. Locks are taken in one order everywhere: rows of fence by
 * number, then node, then lease by partition; a lock that is not to be had in MEMBER_LINK_LOCK_MS
 * ends the transaction, which is tried again, so that a renewal is never late for another's sake.
 *
 * Nodes wake each other by NOTIFY on the channel sluice_NUMBER: `mail` (rows in arrival), `lease`
 * (wishes, or partitions that came), `ask` (rows in ask), `text` (changes of
 * intervention). It is a transaction of its own, which waits for no disk, as it takes a lock of the
 * whole server until it is done: at most one each MEMBER_LINK_NOTIFY_US.
 *
 * Nothing waits. The owner watches the epoll descriptor and calls member_link_turn when it is
 * readable, and after it has told the membership anything.
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
#define MEMBER_LINK_AGAIN_US  (500 * US_PER_MS) /* between two tries to connect */
#define MEMBER_LINK_NOTIFY_US (2 * US_PER_MS)

/* What else comes with each renewal. */
struct member_renewal {
    uint64_t id_reserved;  /* ours: no id above it may be given */
    int64_t fresh_now;     /* the fresh table in turn; not checked */
    int64_t active_route;  /* the number of the routing tables in force */
    int64_t route;         /* that of ours; 0: they have none yet */
    int64_t format;        /* of the tables */
    int64_t interventions; /* how often they have changed; 0 in tables of an older format */
};

struct member_link;

struct member_link_owner {
    /* In member_link_turn: another node has written to arrival for us. */
    void (*woken)(void *arg);
    /* These partitions are being let go: what belongs into the same transaction (which is the
     * link's then), or NULL. NULL: nothing ever does. */
    struct committer_batch *(*letting_go)(void *arg, const struct partition_set *partitions);
};

/* Borrows what link_new and membership_new borrow, and the owner. Connects at once. */
struct member_link *member_link_new(int epoll_fd, const struct link_target *target,
                                    const struct membership_config *config,
                                    const struct member_link_owner *owner, void *arg);
void member_link_free(struct member_link *ml); /* NULL is fine; its leases end with time */

void member_link_turn(struct member_link *ml);

/* Owned by the link; events are the owner's to pull. */
struct membership *member_link_membership(struct member_link *ml);

/* Ids up to there are wanted; the next renewal reserves them. */
void member_link_reserve(struct member_link *ml, uint64_t id);
/* Of the last renewal that was answered; zeros before. */
const struct member_renewal *member_link_renewal(const struct member_link *ml);
/* Our routing tables are those with this fingerprint. If no node has had them before they are in
 * force, with `in_force` in any case; the next renewal gives them a number. */
void member_link_tables(struct member_link *ml, uint64_t fingerprint, bool in_force);
/* A JSON object that others see with our row; copied. Sent with each renewal. */
void member_link_status(struct member_link *ml, const char *json);

/* What nodes have said there, as of the last renewal. */
struct member_words {
    uint64_t behind;       /* messages */
    int64_t interventions; /* MEMBER_LINK_UNSAID: nothing, as a program of before does */
};
#define MEMBER_LINK_UNSAID (-1)
const struct member_words *member_link_words(const struct member_link *ml, int no);
/* The next renewal has the number that is returned, and is made soon. How many have been answered,
 * by number. */
uint64_t member_link_renew(struct member_link *ml);
uint64_t member_link_renewals(const struct member_link *ml);

/* There are rows in arrival for node `no`, committed; or in ask; intervention has changed. */
void member_link_notify(struct member_link *ml, int no);
void member_link_notify_ask(struct member_link *ml, int no);
void member_link_notify_text(struct member_link *ml, int no);
/* Were we told of rows in ask, of changes of intervention, since this was asked last? */
bool member_link_has_asks(struct member_link *ml);
bool member_link_has_texts(struct member_link *ml);

/* Why it is not connected, or what the database has refused; empty when all is well. */
const char *member_link_error(const struct member_link *ml);

#endif
