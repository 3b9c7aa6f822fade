/*
 * The desk: what the engine `postgresql:` has of its mail in memory. No SQL and no I/O.
 *
 * XXX All messages are on the desk, those that only wait, too: memory grows with the queue. What
 * waits is to leave it at the end of its pass, and to be read when it is due (spool_want).
 *
 * Undo. What a batch changes is logged with its old value, whole: a message's own fields, or one
 * recipient. All texts of such a value are in one block, so the old value keeps its block until the
 * batch ends. There is a log for each commit that is under way, and for the open batch. What a
 * commit under way has changed can't be claimed before its end.
 *
 *     desk_begin --> open batch --desk_begin_commit--> under way (a FIFO) --> desk_keep_oldest
 *                        +--> desk_rollback                 +--> desk_undo_all
 *
 * Functions that spool_engine.h has, too, are as there: errors are its, their words go to `base`.
 */
#ifndef CLUSTER_DESK_H
#define CLUSTER_DESK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "hash.h"
#include "heap.h"
#include "spool_engine.h"
#include "text_pool.h"

#define DESK_UNDER_WAY_MAX 2
/* Content up to this is in the row; larger content in chunks. */
#define DESK_CONTENT_MAX 32768

/* A recipient; `gone` when done with. */
struct desk_rcpt {
    struct spool_rcpt r;
    char *block; /* owned: the bytes of its slices */
    bool gone;
};

/* What can change of a message, but for its recipients. */
struct desk_fields {
    struct spool_message m;
    char *block; /* owned: the bytes of its slices */
    bool claimed;
    bool gone;
};

/* Where its rows are: in one of the fresh tables, or in those of mail that waits. */
#define DESK_FRESH_TABLES 3
enum desk_row { ROW_NONE, ROW_WAITING, ROW_FRESH /* + number of the table */ };

struct desk_message {
    uint64_t id;
    struct desk_fields f;
    struct desk_rcpt *rcpts; /* owned; recipient n at n - 1 */
    char *content;           /* owned */
    struct heap_node due;    /* in cluster_spool.due[] when it can be claimed */
    TAILQ_ENTRY(desk_message) by_id;
    uint16_t p;        /* its partition */
    unsigned row;      /* enum desk_row, with the commits under way */
    unsigned undos;    /* in all logs */
    unsigned settling; /* in those of commits under way */
    UT_hash_handle hh;
};

/* The value before a change; n = 0 is the message itself. */
struct desk_undo {
    struct desk_message *message;
    uint32_t n;
    union {
        struct desk_fields fields;
        struct desk_rcpt rcpt;
    } before;
};

/* Where a message was before a commit. */
struct desk_move {
    struct desk_message *message;
    unsigned before;
};

/* What the open batch has changed, or one that is under way. */
struct desk_batch {
    struct desk_undo *log; /* owned */
    size_t count, size;
    struct spool_totals totals_before;
    struct desk_move *moves; /* owned: of a commit under way */
    size_t move_count;
};

enum { DUE_INCOMING, DUE_DEFERRED, DUE_ORDERS };

/* Fields are the module's own; others read them. */
struct desk {
    struct spool *base;       /* borrowed: keeps the words of errors */
    struct desk_message *all; /* by id */
    TAILQ_HEAD(, desk_message) in_order;
    struct heap due[DUE_ORDERS];
    struct desk_batch open;
    bool is_open;
    struct desk_batch under_way[DESK_UNDER_WAY_MAX]; /* the oldest first */
    unsigned under_way_count;
    struct spool_totals totals;
    uint64_t last_id;
    unsigned fresh_now;    /* the fresh table that new mail goes to */
    struct text_pool pool; /* of keys and destinations that were handed out */
};

void desk_init(struct desk *d, struct spool *base, uint64_t id_floor);
void desk_fini(struct desk *d);

struct desk_message *desk_find(const struct desk *d, struct msg_id id); /* NULL: not there */

/* ---- batches --------------------------------------------------------------------------------- */

void desk_begin(struct desk *d);
void desk_rollback(struct desk *d);
/* The open batch goes under way; it is the desk's. */
struct desk_batch *desk_begin_commit(struct desk *d);
void desk_keep_oldest(struct desk *d); /* it is durable */
void desk_undo_all(struct desk *d);    /* of those under way, the youngest first */

/* ---- changes, claims, reading: as spool_engine.h --------------------------------------------- */

struct msg_id desk_next_id(struct desk *d);
int desk_submit(struct desk *d, struct msg_id id, const struct spool_new *n);
int desk_settle(struct desk *d, struct msg_id id, uint32_t n, const struct spool_verdict *v);
int desk_set_route(struct desk *d, struct msg_id id, uint32_t n, struct slice transport,
                   struct slice nexthop, uint64_t route_generation);
int desk_reported(struct desk *d, struct msg_id id);
int desk_finish(struct desk *d, struct msg_id id, struct wall due, bool *ret_gone);
int desk_finish_all_done(struct desk *d, struct msg_id id);
int desk_change(struct desk *d, const struct spool_change *c);
int desk_remove(struct desk *d, struct msg_id id);
int desk_quarantine(struct desk *d, struct msg_id id, struct slice reason);
void desk_unclaim(struct desk *d, struct msg_id id);
int desk_claim(struct desk *d, enum spool_state from, struct wall now, size_t max,
               struct msg_id *ret_ids, size_t *ret_count);
int desk_claim_parked(struct desk *d, struct slice key, struct wall now, size_t max,
                      struct msg_id *ret_ids, size_t *ret_count, bool *ret_more);
int desk_parked_keys(struct desk *d, struct slice after, size_t max, struct slice *ret_keys,
                     size_t *ret_count);
int desk_next_due(struct desk *d, struct wall *ret_due);
bool desk_is_claimed(const struct desk *d, struct msg_id id);
size_t desk_claimed(const struct desk *d, uint64_t *cursor, size_t max, struct msg_id *ret_ids);
int desk_read(struct desk *d, struct msg_id id, struct spool_message *ret_message);
int desk_read_rcpts(struct desk *d, struct msg_id id, uint32_t after, bool only_pending, size_t max,
                    struct spool_rcpt *ret_rcpts, size_t *ret_count);
int desk_read_content(struct desk *d, struct msg_id id, struct buf *ret_bytes, int *ret_fd,
                      uint64_t *ret_size);
int desk_totals(struct desk *d, struct spool_totals *ret_totals);

/* ---- what comes from the database ------------------------------------------------------------ */

/* Put a message on the desk (taken; its recipients and content are filled in). The slices of
 * `fields` are copied. */
void desk_adopt(struct desk *d, struct desk_message *msg, struct desk_fields fields);
/* Put the slices of a recipient into a block of its own. */
void desk_pack_rcpt(struct desk_rcpt *r);
/* After some were adopted out of the order of ids. */
void desk_put_in_order(struct desk *d);

#endif
