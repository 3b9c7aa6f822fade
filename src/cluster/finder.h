/*
 * Finder: places of waiting mail that is not on the desk, so that due mail is read without reading
 * other mail twice. No SQL and no I/O.
 *
 * Each partition and state has a place in the order (due, id) of its waiting mail. Mail up to the
 * place was read; a query that begins there finds the mail after it. `next` is the due time of the
 * first one. Mail that begins to wait before the place goes into the heap of early mail with its
 * id, and is read by its id. If the heap is full, the place moves back. Mail in passage (fresh
 * tables) that is not on the desk is found by a walk through those tables.
 *
 * Mail that was never tried is due at once. Its due time only determines the order, as it comes
 * from the clock of the node that accepted the mail, which may be ahead of this node's.
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
    struct heap_node node; /* ordered by next */
    uint16_t p;
    unsigned order;
    int64_t next; /* microseconds; INT64_MIN if unknown; never in the future for FINDER_INCOMING */
    int64_t due;  /* mail up to (due, id) was read */
    uint64_t id;
    int64_t swept_due; /* place at the last sweep */
    uint64_t swept_id;
    bool asked; /* whether a query for it is in flight */
    bool again; /* whether the answer to that query must be ignored */
};

struct finder_early {
    struct heap_node node; /* ordered by due, then id */
    uint16_t p;
    int64_t due;
    uint64_t id;
    bool passes; /* whether it is in a fresh table, as far as is known */
};

struct finder {
    struct finder_place places[FINDER_ORDERS][PARTITIONS];
    bool is_mine[PARTITIONS];
    struct heap by_next;
    struct heap early;  /* owns its nodes */
    bool sweep_is_sure; /* whether no early mail existed at the last sweep */
    bool walk_is_sweep; /* whether the walk belongs to a sweep, and no partition was gained since */
    bool walks;         /* whether a walk is in progress; its position follows */
    unsigned walk_table;
    uint16_t walk_p;
    uint64_t walk_id;
};

void finder_init(struct finder *f);
void finder_fini(struct finder *f);

/* Sets whether a partition belongs to this node. If so, all of its mail is searched for. */
void finder_own(struct finder *f, uint16_t p, bool is_mine);
/* Searches for all mail again, also before the places. */
void finder_sweep(struct finder *f);
/* Was the place past this mail before the last sweep, so that only the sweep could find the
 * mail? */
bool finder_was_past(const struct finder *f, const struct finder_place *place, int64_t due,
                     uint64_t id);

/* Adds a message of this partition that waits and is no longer on the desk. */
void finder_put(struct finder *f, enum finder_order order, uint16_t p, int64_t due, uint64_t id);
/* Adds a message that must be read by its id, wherever the place is. */
void finder_put_early(struct finder *f, uint16_t p, int64_t due, uint64_t id);
/* Adds a message that is in a fresh table. */
void finder_put_fresh(struct finder *f, uint16_t p, uint64_t id);

/* Returns the next known due time, or INT64_MIN if mail must be searched for. */
int64_t finder_next(const struct finder *f);

/* Takes the first early message that is due. *ret_passes: whether finder_put_fresh has added it.
 * Returns false if there is none. */
bool finder_take_early(struct finder *f, int64_t now, uint16_t *ret_p, uint64_t *ret_id,
                       bool *ret_passes);

/* Returns the number of places to query, those with next <= now, the earliest first. They stay in
 * flight until finder_answer. */
size_t finder_ask(struct finder *f, int64_t now, size_t max, struct finder_place **ret_places);
/* Ends the query of a place: mail up to (due, id) was read, and `next` is the due time of the mail
 * after it. */
void finder_answer(struct finder *f, struct finder_place *place, int64_t due, uint64_t id,
                   int64_t next);

#endif
