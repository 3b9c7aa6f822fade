/*
 * Turns: which of several goes next, so that each gets its share by weight.
 *
 * Earliest eligible virtual deadline first (Stoica and Abdel-Wahab 1995; for unit turns the same as
 * WF2Q+, Bennett and Zhang 1996). Virtual time advances by 1/W with each turn, W being the weight
 * of all that take part. A turn of weight w is due from its start on and has its deadline 1/w
 * later; of those that are due the one with the earliest deadline goes, and its next start is its
 * deadline. One that begins to wait starts at the present time: no credit for the past. One that
 * waits no more but has gone ahead of its share rests: it takes part until its start has come, so
 * that coming and going wins nothing.
 *
 * Promise, with W the most that the weights of all that take part add up to: one of weight w that
 * begins to wait (and did not rest) and goes on waiting gets at least n*w/W - 1 of the next n
 * turns, and of any n consecutive turns more than n*w/W - 2. Proof: docs/guarantees.md.
 *
 * Not in the papers: when none that waits is due, virtual time jumps to the first start among them,
 * so that a turn is never left unused. Start-time fair queueing would do with one heap, but lets
 * all others go once each between two turns of a heavy one.
 *
 * Times are integers of 2^-TURNS_BITS that may wrap around: only differences count, and no start is
 * further from the present than two turns. Ties go by start, then by which came first.
 */
#ifndef CORE_TURNS_H
#define CORE_TURNS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "heap.h"

#define TURNS_BITS       40
#define TURNS_WEIGHT_MAX 1000000u

/* One that takes turns; embed it. Fields are private to turns.c but for `waits`, to read. */
struct turn {
    struct heap_node node;
    SLIST_ENTRY(turn) rested;
    uint64_t start;  /* virtual time */
    uint64_t serial; /* of beginning to wait */
    uint32_t weight;
    bool waits;
    bool is_due; /* in turns.due, else in turns.later, if in either */
};

struct turns {
    struct heap due;   /* waiting, started: by deadline */
    struct heap later; /* waiting or resting: by start */
    SLIST_HEAD(, turn) rested;
    uint64_t now;     /* virtual */
    uint64_t weight;  /* of all that take part */
    uint64_t waiting; /* how many wait */
    uint64_t serial;
};

void turns_init(struct turns *ts);
/* Release the arrays; the turns are the owner's. */
void turns_fini(struct turns *ts);

/* 1 <= weight <= TURNS_WEIGHT_MAX. */
void turn_init(struct turn *t, uint32_t weight);

/* It begins to wait; it stops waiting. CHECK that it did not, that it did. */
void turns_join(struct turns *ts, struct turn *t);
void turns_leave(struct turns *ts, struct turn *t);

/* Does it take part, waiting or resting? Then the owner must keep it. */
bool turn_takes_part(const struct turn *t);

/* Whose turn it is; NULL when none waits. */
struct turn *turns_first(struct turns *ts);

/* It has had a turn. It waits, and need not be the first. */
void turns_took(struct turns *ts, struct turn *t);

/* One that has finished resting and takes part no more, each once; NULL: no other. Ask after
 * turns_first and turns_took. */
struct turn *turns_next_rested(struct turns *ts);

/* Another weight, for what comes. */
void turns_reweigh(struct turns *ts, struct turn *t, uint32_t weight);

/* Abort unless the invariants hold. Linear. */
void turns_audit(const struct turns *ts);

#endif
