/*
 * Facts that the process that writes to a spool keeps about messages in addition to their rows:
 * which are claimed, which are not listed, and how far each state's order of due times has been
 * claimed.
 *
 * Claimed rows keep their due time and their place in the index, because moving them would cost two
 * writes per delivery. So claiming walks the index with a cursor, and never reads claimed rows
 * again:
 *
 *      due, id:   c c c c c c c | . . . . .          c claimed   . not claimed   | cursor
 *                    ^ became claimable on this side of the cursor: kept in the `early` heap
 *
 * Invariant: an unclaimed row of state INCOMING or DEFERRED is after the cursor of its state, or in
 * the early heap of its state, or both. An entry of the heap may be out of date, so its row is
 * checked when it is taken. When a heap grows beyond EARLY_MAX, the cursors go back to the start
 * instead. That costs one walk over the claimed rows, which are few, as they are all in memory.
 *
 * Unlisted messages were claimed by the submit that stored them, and are only in the index by id,
 * so that mail that is delivered at once pays for no other index. Their ids grow with time, so the
 * lowest one bounds the range of ids in which they lie.
 *
 * Changes between claims_begin and claims_commit or claims_undo are logged, and can be undone.
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

/* Facts about one message. A message that is neither claimed nor unlisted has none. A message
 * without rows is unlisted, too. */
struct claim_facts {
    int64_t due;      /* the first four are only set for unlisted messages */
    uint64_t size;    /* bytes of content */
    bool in_file;     /* content is outside the database */
    uint32_t segment; /* segment of the content; 0 = a file of its own */
    bool claimed;
    bool unlisted;
    struct passage_place passage; /* place of a message without rows; file 0 = it has rows */
};

struct claim {
    uint64_t id;
    struct claim_facts facts;
    struct heap_node by_id; /* in claims.unlisted */
    UT_hash_handle hh;
};

struct claim_undo {
    uint64_t id;
    struct claim_facts before; /* neither claimed nor unlisted = there were no facts */
};

/* A place in the order of (due, id) of one state. */
struct claim_place {
    int64_t due;
    uint64_t id;
};

struct claim_order {
    struct claim_place cursor;
    struct heap early; /* of struct early, in claims.c */
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

/* Returns the facts about `id`; all zero if there are none. */
struct claim_facts claims_get(const struct claims *c, uint64_t id);
void claims_set(struct claims *c, uint64_t id, struct claim_facts facts);

/* Lists ids of claimed messages, at most `max`, from the next buckets of the table. *cursor is 0 at
 * the start, and 0 again after the last page. Returns their number. */
size_t claims_walk(const struct claims *c, uint64_t *cursor, size_t max, struct msg_id *ret_ids);

/* Lists ids of messages in passage, at most `max`, in no order: those of one file, or with 0 all.
 * Returns their number. */
size_t claims_in_passage(const struct claims *c, uint32_t file, size_t max, struct msg_id *ret_ids);

/* Returns the lowest id of an unlisted message, or `none` if there is none. */
uint64_t claims_unlisted_from(const struct claims *c, uint64_t none);

void claims_begin(struct claims *c);
void claims_commit(struct claims *c);
void claims_undo(struct claims *c);

/* Records that the row `id` became claimable: due at that time, in that order, not claimed. */
void claims_add_due(struct claims *c, unsigned order, int64_t due, uint64_t id);

/* Forgets how far the walks have come: all unclaimed rows will be found again. */
void claims_restart(struct claims *c);

/* Returns the first place of the early heap; false if it is empty. */
bool claims_early(const struct claims *c, unsigned order, struct claim_place *ret_place);
void claims_drop_early(struct claims *c, unsigned order);

/* Moves the cursor: all rows up to `place` are claimed or early now. */
void claims_advance(struct claims *c, unsigned order, struct claim_place place);

/* Does `a` come before `b`? */
bool claim_place_before(struct claim_place a, struct claim_place b);

#endif
