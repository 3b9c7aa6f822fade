/*
 * Turns: choose which of several members goes next, so that each gets its share by weight.
 *
 * Earliest eligible virtual deadline first (Stoica and Abdel-Wahab 1995; for unit turns the same as
 * WF2Q+, Bennett and Zhang 1996). Virtual time advances by 1/W with each turn, where W is the sum
 * of the weights of all members that take part. A member of weight w is due from its start on, and
 * its deadline is 1/w later. The due member with the earliest deadline goes; its deadline becomes
 * its next start. A member that begins to wait starts at the present time: no credit for the past.
 * A member that stops waiting after it went ahead of its share rests: it takes part until its start
 * has come, so that leaving and joining again wins nothing.
 *
 * Promise, with W the maximum of the sum of weights: a member of weight w that begins to wait (and
 * did not rest) and goes on waiting gets at least n*w/W - 1 of the next n turns. It gets more than
 * n*w/W - 2 of any n consecutive turns. Proof: docs/guarantees.md.
 *
 * Not in the papers: if no waiting member is due, virtual time jumps to the first start among them,
 * so that a turn is never left unused. Start-time fair queueing would need one heap only, but lets
 * all others go once between two turns of a heavy member.
 *
 * Times are integers of 2^-TURNS_BITS that may wrap around: only differences count, and no start is
 * further from the present than two turns. Ties are broken by start, then by which member began to
 * wait first.
 */
#ifndef CORE_TURNS_H
#define CORE_TURNS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "heap.h"

#define TURNS_BITS       40
#define TURNS_WEIGHT_MAX 1000000u

/* A member, to be embedded. Fields are private to turns.c, except `waits`, which may be read. */
struct turn {
    struct heap_node node;
    SLIST_ENTRY(turn) rested;
    uint64_t start;  /* virtual time */
    uint64_t serial; /* order of beginning to wait */
    uint32_t weight;
    bool waits;
    bool is_due; /* true: in heap `due`; false: in heap `later`, or in neither */
};

struct turns {
    struct heap due;   /* waiting and started, by deadline */
    struct heap later; /* waiting or resting, by start */
    SLIST_HEAD(, turn) rested;
    uint64_t now;     /* virtual time */
    uint64_t weight;  /* sum over all members that take part */
    uint64_t waiting; /* number of members that wait */
    uint64_t serial;
};

void turns_init(struct turns *ts);
/* Releases the arrays; the members belong to the owner. */
void turns_fini(struct turns *ts);

/* Initializes a member; 1 <= weight <= TURNS_WEIGHT_MAX. */
void turn_init(struct turn *t, uint32_t weight);

/* Lets a member begin to wait (CHECKs that it does not wait), or stop waiting (CHECKs that it
 * waits). */
void turns_join(struct turns *ts, struct turn *t);
void turns_leave(struct turns *ts, struct turn *t);

/* Does the member take part, waiting or resting? If so, the owner must keep it. */
bool turn_takes_part(const struct turn *t);

/* Returns the member that goes next; NULL if none waits. */
struct turn *turns_first(struct turns *ts);

/* Accounts for a turn of a member, which must wait and need not be the first. */
void turns_took(struct turns *ts, struct turn *t);

/* Returns a member that has finished resting and no longer takes part, each once; NULL if there is
 * no other. To be called after turns_first and turns_took. */
struct turn *turns_next_rested(struct turns *ts);

/* Changes the weight of a member for its later turns. */
void turns_reweigh(struct turns *ts, struct turn *t, uint32_t weight);

/* Aborts unless the invariants hold. Linear. */
void turns_audit(const struct turns *ts);

#endif
