/*
 * What the holder of a spool knows of messages beyond their rows: which are claimed, which are not
 * listed, and up to where each state's order of due times has been claimed.
 *
 * Claimed rows keep their due time and their place in the index, because moving them would cost two
 * writes per delivery. So claiming walks the index behind a cursor, and never looks at claimed rows
 * again:
 *
 *      due, id:   c c c c c c c | . . . . .          c claimed   . not claimed   | cursor
 *                    ^ became claimable behind the cursor: kept in the `early` heap
 *
 * Invariant: an unclaimed row of state INCOMING or DEFERRED is behind the cursor of its state, or
 * in the early heap of its state, or both. An entry of the heap may be out of date; who takes it
 * looks at the row. When a heap grows beyond EARLY_MAX, cursors go back to the start instead, which
 * costs one walk over the claimed rows, of which there are few: they are all in memory.
 *
 * Unlisted messages were claimed by the submit that stored them and are in no index but the one by
 * id, so that mail that passes straight through pays for no other. Their ids grow with time, so the
 * lowest one bounds where they can be.
 *
 * Between claims_begin and claims_commit or claims_undo all changes are logged, and can be undone.
 */
#ifndef SPOOL_CLAIMS_H
#define SPOOL_CLAIMS_H

#include <stdbool.h>
#include <stdint.h>

#include "hash.h"
#include "heap.h"
#include "passage.h"
#include "spool.h"

#define EARLY_MAX ((size_t)1 << 16)

/* What is known of one message; one that is neither claimed nor unlisted is not known. What has no
 * rows is unlisted, too. */
struct claim_facts {
    int64_t due;      /* these four are only set for unlisted messages */
    uint64_t size;    /* bytes of content */
    bool in_file;     /* content is beside the database */
    uint32_t segment; /* in this segment; 0: in a file of its own */
    bool claimed;
    bool unlisted;
    struct passage_place passage; /* where it is while it has no rows; file 0: it has */
};

struct claim {
    uint64_t id;
    struct claim_facts facts;
    struct heap_node by_id; /* in claims.unlisted */
    UT_hash_handle hh;
};

struct claim_undo {
    uint64_t id;
    struct claim_facts before; /* neither claimed nor unlisted: was not known */
};

/* A place in the order of (due, id) of one state. */
struct claim_place {
    int64_t due;
    uint64_t id;
};

struct claim_order {
    struct claim_place cursor;
    struct heap early; /* of struct early, see claims.c */
};

enum { CLAIM_INCOMING, CLAIM_DEFERRED, CLAIM_ORDERS };

struct claims {
    struct claim *all; /* by id */
    struct heap unlisted;
    struct claim_order orders[CLAIM_ORDERS];
    struct claim_undo *log; /* owned */
    size_t log_count, log_size;
    bool logging;
};

void claims_init(struct claims *c);
void claims_fini(struct claims *c);

/* What is known of `id`; all zero when nothing is. */
struct claim_facts claims_get(const struct claims *c, uint64_t id);
void claims_set(struct claims *c, uint64_t id, struct claim_facts facts);

/* Ids of claimed messages, at most `max`, from the next buckets of the table; *cursor is 0 at the
 * start, and again behind the last. */
size_t claims_walk(const struct claims *c, uint64_t *cursor, size_t max, struct msg_id *ret_ids);

/* Ids of those that are in passage: of one file, or with 0 of all; at most `max`, in no order. */
size_t claims_in_passage(const struct claims *c, uint32_t file, size_t max, struct msg_id *ret_ids);

/* No unlisted message has a lower id; `none` when there is none. */
uint64_t claims_unlisted_from(const struct claims *c, uint64_t none);

void claims_begin(struct claims *c);
void claims_commit(struct claims *c);
void claims_undo(struct claims *c);

/* The row `id` became claimable: due then, in that order, not claimed. */
void claims_add_due(struct claims *c, unsigned order, int64_t due, uint64_t id);

/* Forget how far the walks got: all unclaimed rows will be found again. */
void claims_restart(struct claims *c);

/* The first place of the early heap, if any; and take it out. */
bool claims_early(const struct claims *c, unsigned order, struct claim_place *ret_place);
void claims_drop_early(struct claims *c, unsigned order);

/* All rows up to `place` are claimed or early now. */
void claims_advance(struct claims *c, unsigned order, struct claim_place place);

/* Does `a` come before `b`? */
bool claim_place_before(struct claim_place a, struct claim_place b);

#endif
