/*
 * Where mail waits that is not on the desk: what the engine knows of it, to read it when it is due
 * without reading over what it has read. No SQL, no I/O.
 *
 * For each partition and state there is a place in the order (due, id) of its waiting mail: what is
 * up to there was read, what is behind it is found by a query that begins there, and `next` says
 * when its first is due. Mail that comes to wait before that place is kept in the heap of early
 * mail, by its id, and read by that; when there is too much of it the place moves back. Mail that
 * passes (fresh tables) and is not on the desk is found by a walk through those tables.
 */
#ifndef CLUSTER_FINDER_H
#define CLUSTER_FINDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "heap.h"
#include "partition.h"

#define FINDER_EARLY_MAX 65536
#define FINDER_NONE      INT64_MAX

enum finder_order { FINDER_INCOMING, FINDER_DEFERRED, FINDER_ORDERS };

struct finder_place {
    struct heap_node node; /* by next */
    uint16_t p;
    unsigned order;
    int64_t next; /* us; INT64_MIN: not known yet */
    int64_t due;  /* what is up to (due, id) was read */
    uint64_t id;
    int64_t swept_due; /* where it was at the last sweep */
    uint64_t swept_id;
    bool asked; /* a query about it is under way */
    bool again; /* .. whose answer does not count */
};

struct finder_early {
    struct heap_node node; /* by due, then id */
    uint16_t p;
    int64_t due;
    uint64_t id;
    bool passes; /* it is in a fresh table, as far as is known */
};

struct finder {
    struct finder_place places[FINDER_ORDERS][PARTITIONS];
    bool is_mine[PARTITIONS];
    struct heap by_next;
    struct heap early;  /* owns its nodes */
    bool sweep_is_sure; /* at the last sweep no early mail was known */
    bool walk_is_sweep; /* the walk is a sweep's, and nothing has come to be ours since */
    bool walks;         /* fresh tables are walked through: from */
    unsigned walk_table;
    uint16_t walk_p;
    uint64_t walk_id;
};

void finder_init(struct finder *f);
void finder_fini(struct finder *f);

/* A partition becomes ours, or is not any more. All of it is looked for. */
void finder_own(struct finder *f, uint16_t p, bool is_mine);
/* Look for all mail again, also for what lies before the places. */
void finder_sweep(struct finder *f);
/* Is this one that a place was past before the last sweep, so that nothing but a sweep finds it? */
bool finder_was_past(const struct finder *f, const struct finder_place *place, int64_t due,
                     uint64_t id);

/* A message of this partition waits and is not on the desk any more. */
void finder_put(struct finder *f, enum finder_order order, uint16_t p, int64_t due, uint64_t id);
/* The same, to be read by its id whatever the places say. */
void finder_put_early(struct finder *f, uint16_t p, int64_t due, uint64_t id);
/* The same for one that is in a fresh table. */
void finder_put_fresh(struct finder *f, uint16_t p, int64_t due, uint64_t id);

/* When the next is due, as far as is known; INT64_MIN: it has to be looked for. */
int64_t finder_next(const struct finder *f);

/* The next that is due and is known by its id, and whether it was put by finder_put_fresh. The
 * return value says whether there is one. */
bool finder_take_early(struct finder *f, int64_t now, uint16_t *ret_p, uint64_t *ret_id,
                       bool *ret_passes);

/* The places to ask for, with next <= now, the earliest first: their number. They are asked until
 * finder_answer. */
size_t finder_ask(struct finder *f, int64_t now, size_t max, struct finder_place **ret_places);
/* Of a place that was asked: all up to (due, id) was read, and `next` is the one behind it. */
void finder_answer(struct finder *f, struct finder_place *place, int64_t due, uint64_t id,
                   int64_t next);

#endif
